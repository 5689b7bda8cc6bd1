"""Putting device code back into one library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import files
from cairn.errors import WheelError
from cairn.formats import patch
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import strip
from cairn.formats.offload.bundle import Bundle, Entry, Packing
from cairn.formats.offload.compression import ZLIB, ZSTD
from cairn.formats.offload.container import Code, Container, Packed, Part, Source
from cairn.formats.offload.strip import INERT_PREFIX
from cairn.formats.patch import Patch
from cairn.formats.view import BytesView
from cairn.targets import in_order

_DIGEST_SIZE = 8
_OTHER = "the device wheels and the host wheel must come from one split"


@dataclass(frozen=True, kw_only=True)
class Joined:
    """What became of a library.

    Attributes:
        library: its file name.
        processors: those it has code for now.
        missing: those it had code for before the split, and no longer has.
        same_bytes: whether it is the original, byte for byte.
    """

    library: str
    processors: tuple[str, ...]
    missing: tuple[str, ...]
    same_bytes: bool


def join(library: Path, sources: Sequence[Source]) -> Joined:
    """Put the code of containers back into the file `library`, which is changed in place.

    Args:
        library: the library as the host wheel has it.
        sources: its containers, each for a different processor.

    Raises:
        WheelError: they do not belong together, or a container is not what it says.
    """
    first = sources[0].container
    _check_family([source.container for source in sources], library)
    view = BytesView(library.read_bytes())
    places = {b.at: b for b in strip.bundles_of(view)}
    patches = [
        change
        for at, parts in sorted(_by_place(sources).items())
        for change in _restored(view, places.get(at), parts)
    ]
    patch.apply(library, patches)
    present = in_order(source.container.processor for source in sources)
    missing = in_order(set(first.processors) - set(present))
    same = files.sha256_of(library) == first.library_sha256
    exact = all(
        part.packed is None or part.packed.level is not None for s in sources for part in s.container.parts
    )
    if not missing and exact and not same:
        raise WheelError(f"{library.name} as joined differs from the library that was split", tip=_OTHER)
    return Joined(library=library.name, processors=present, missing=missing, same_bytes=same)


def _check_family(containers: Sequence[Container], library: Path) -> None:
    first = containers[0]
    names = [container.processor for container in containers]
    if len(set(names)) < len(names):
        raise WheelError(f"two device wheels have the code of {library.name} for one processor")
    for container in containers:
        if (container.library, container.library_sha256, container.processors) != (
            library.name,
            first.library_sha256,
            first.processors,
        ):
            raise WheelError(
                f"the code for {container.processor} is of a different {library.name}", tip=_OTHER
            )
    if files.sha256_of(library) != first.host_sha256:
        raise WheelError(f"{library.name} is not the library that the device code was split from", tip=_OTHER)


def _by_place(sources: Iterable[Source]) -> dict[int, list[tuple[Source, Part]]]:
    found: dict[int, list[tuple[Source, Part]]] = {}
    for source in sources:
        for part in source.container.parts:
            found.setdefault(part.at, []).append((source, part))
    return found


def _restored(
    view: BytesView, bundle: Bundle | None, parts: Sequence[tuple[Source, Part]]
) -> Iterator[Patch]:
    source, first = parts[0]
    if bundle is None or any((p.size, p.count) != (first.size, first.count) for _, p in parts):
        raise WheelError(
            f"{source.path.name} has code for a bundle that its library does not have", tip=_OTHER
        )
    codes = [(s, code) for s, part in parts for code in part.codes]
    if first.packed is not None:
        yield _repacked(view, bundle, first, source, codes)
        return
    if first.size != bundle.size:
        raise WheelError(
            f"{source.path.name} and its library disagree about the size of a bundle", tip=_OTHER
        )
    for owner, code in codes:
        yield from _put_back(bundle, owner, code)


def _put_back(bundle: Bundle, source: Source, code: Code) -> Iterator[Patch]:
    """The code of one entry of a plain bundle, and its name."""
    entry = bundle.entries[code.entry] if code.entry < len(bundle.entries) else None
    if (
        entry is None
        or entry.id != INERT_PREFIX.decode() + code.id[len(INERT_PREFIX) :]
        or (entry.offset, entry.size) != (code.offset, code.blob.size)
    ):
        raise WheelError(
            f"{source.path.name} has code for an entry that its library does not have", tip=_OTHER
        )
    yield Patch(at=bundle.at + entry.id_at, data=code.id.encode()[: len(INERT_PREFIX)])
    yield Patch(at=bundle.at + entry.offset, data=source.read(code.blob))


def _repacked(
    view: BytesView, bundle: Bundle, part: Part, source: Source, codes: Sequence[tuple[Source, Code]]
) -> Patch:
    """A compressed bundle again; entries whose code is missing become entries for no device."""
    how = part.packed
    if how is None or bundle.entries or not _fits(view, bundle, part):
        raise WheelError(
            f"{source.path.name} has a compressed bundle for a place where a different one is", tip=_OTHER
        )
    plain = _unpacked(how, source, codes)
    missing = _missing(bytes(plain), codes)
    for entry in missing:
        plain[entry.id_at : entry.id_at + len(INERT_PREFIX)] = INERT_PREFIX
    form = Packing(
        version=how.version, method=how.method, header_size=how.header_size, plain_size=how.plain_size
    )
    if not missing and how.level is not None:
        data: bytes | None = offload_bundle.pack(
            bytes(plain), form, level=how.level, digest=_digest(how, source)
        )
    else:
        # Other content, so a different size; what matters is that it fits where the original was.
        data = offload_bundle.pack_into(bytes(plain), form, room=part.size)
    if data is None or len(data) > part.size:
        raise WheelError(
            f"the code of {source.container.library} cannot be compressed into the room that it had",
            tip="join fewer targets, or keep the wheel that was not split",
        )
    return Patch(at=bundle.at, data=data, zeros=part.size - len(data))


def _fits(view: BytesView, bundle: Bundle, part: Part) -> bool:
    """Whether where a compressed bundle was there is what `strip` leaves: an empty one, then zeros."""
    if part.at + part.size > view.size or part.size < bundle.size:
        return False
    rest = view.read(part.at + bundle.size, part.size - bundle.size)
    return not rest.strip(b"\0")


def _digest(how: Packed, source: Source) -> bytes:
    try:
        digest = bytes.fromhex(how.digest)
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_SIZE:
        raise WheelError(f"the index of {source.path.name} has the hash {how.digest[:40]!r}")
    return digest


def _unpacked(how: Packed, source: Source, codes: Sequence[tuple[Source, Code]]) -> bytearray:
    if how.method not in (ZLIB, ZSTD) or how.version not in offload_bundle.VERSIONS:
        raise WheelError(
            f"the index of {source.path.name} names a kind of compression that bundles do not have"
        )
    plain = bytearray(how.plain_size)
    pieces = [(source, piece.offset, piece.blob) for piece in how.pieces]
    pieces += [(owner, code.offset, code.blob) for owner, code in codes]
    for owner, offset, blob in pieces:
        if offset + blob.size > how.plain_size:
            raise WheelError(f"the index of {owner.path.name} leads out of its bundle")
        plain[offset : offset + blob.size] = owner.read(blob)
    return plain


def _missing(plain: bytes, codes: Sequence[tuple[Source, Code]]) -> tuple[Entry, ...]:
    """The device entries of a bundle whose code is missing; all codes must be those of their entries."""
    entries = dict(enumerate(_table(plain)))
    for owner, code in codes:
        entry = entries.pop(code.entry, None)
        if entry is None or (entry.id, entry.offset, entry.size) != (code.id, code.offset, code.blob.size):
            raise WheelError(f"the index of {owner.path.name} names an entry that its bundle does not have")
    return tuple(entry for entry in entries.values() if not entry.id.startswith(offload_bundle.HOST))


def _table(plain: bytes) -> tuple[Entry, ...]:
    view = BytesView(plain)
    bundle = next(offload_bundle.read_range(view, 0, view.size), None)
    return bundle.entries if bundle else ()
