"""Taking the device code out of one library.

The library keeps its size and the place of everything in it. In a plain bundle the table's entries for a
device become entries for none (`hipv4-…` turns into `host--…`) and their code turns into zeros, which cost
next to nothing in a wheel. Where a compressed bundle stood there is an empty plain one.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from cairn.errors import WheelError
from cairn.formats import elf, patch, pe
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object, compression
from cairn.formats.offload import container as offload_container
from cairn.formats.offload.bundle import Bundle, Entry
from cairn.formats.offload.container import Code, Container, Packed, Part, Piece, Sink
from cairn.formats.patch import Patch
from cairn.formats.view import BytesView
from cairn.targets import in_order

# Written over the beginning of an entry's id. HIP's runtime skips the entries of the host, so it never takes
# zeros for code. Of the id only these five bytes change: its processor stays readable.
INERT_PREFIX = offload_bundle.HOST.encode()

_EMPTY = offload_bundle.PLAIN_MAGIC + bytes(8)  # a bundle of no entries
_STEP = 1 << 20


def cut(library: Path, folder: Path) -> dict[str, Path]:
    """Take the device code out of the file `library`, which is changed in place.

    Args:
        library: an ELF file, or a DLL.
        folder: an empty folder for the containers.

    Returns:
        Processor to its container.

    Raises:
        WheelError: the file or a bundle is malformed, or code objects overlap.
    """
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = BytesView(data)
        found = list(bundles_of(view))
        names = in_order(processor_of(entry) for bundle in found for entry in bundle.device_entries)
        sinks = {name: Sink(folder / f"{name}.data") for name in names}
        patches = [change for bundle in found for change in _cut_bundle(view, bundle, sinks)]
        patches.sort(key=lambda change: change.at)
        original, host = hashlib.sha256(data).hexdigest(), _patched_digest(data, patches)
    made = {}
    for name, sink in sinks.items():
        made[name] = folder / f"{name}{offload_container.SUFFIX}"
        container = Container(
            library=library.name,
            library_size=library.stat().st_size,
            library_sha256=original,
            host_sha256=host,
            processor=name,
            processors=tuple(names),
            parts=tuple(sink.parts),
        )
        sink.finish(container, made[name])
        sink.path.unlink()
    patch.apply(library, patches)
    return made


def bundles_of(view: BytesView) -> Iterator[Bundle]:
    """The offload bundles of a library of Linux or Windows.

    Raises:
        WheelError: it is neither, or malformed.
    """
    windows = view.read(0, min(len(pe.MAGIC), view.size)) == pe.MAGIC
    ranges = code_object.pe_ranges(pe.read_view(view)) if windows else code_object.ranges(elf.read_view(view))
    for start, end in ranges:
        yield from offload_bundle.read_range(view, start, end)


def processor_of(entry: Entry) -> str:
    """The processor that an entry's code is for, whatever its features."""
    return code_object.target_of_entry(entry.id).processor


def _cut_bundle(view: BytesView, bundle: Bundle, sinks: Mapping[str, Sink]) -> Iterator[Patch]:
    taken = _apart(bundle)
    if not taken:
        return
    plain = offload_bundle.unpack(view, bundle)
    packed = _packed(view, bundle, plain)
    for name, sink in sinks.items():
        codes = [(number, entry) for number, entry in taken if processor_of(entry) == name]
        if codes:
            sink.parts.append(
                Part(
                    at=bundle.at,
                    size=bundle.size,
                    count=len(taken),
                    codes=tuple(_code(sink, plain, number, entry) for number, entry in codes),
                    packed=packed
                    and msgspec.structs.replace(packed, pieces=tuple(_pieces(bundle, plain, sink))),
                )
            )
    if bundle.packing is not None:
        if bundle.size < len(_EMPTY):
            raise WheelError(
                f"a compressed offload bundle of {bundle.size} bytes leaves no room for an empty one"
            )
        yield Patch(at=bundle.at, data=_EMPTY, zeros=bundle.size - len(_EMPTY))
        return
    for _, entry in taken:
        yield Patch(at=bundle.at + entry.id_at, data=INERT_PREFIX)
        yield Patch(at=bundle.at + entry.offset, zeros=entry.size)


def _apart(bundle: Bundle) -> list[tuple[int, Entry]]:
    """The numbers and entries of device code, once it is sure that no two things share a byte."""
    end = bundle.table_size
    odd = next((entry.id for entry in bundle.entries if "\\" in entry.id), None)
    if odd is not None:
        raise WheelError(f"the offload bundle entry {odd!r} has a name that is not text")
    for entry in sorted(bundle.entries, key=lambda entry: (entry.offset, entry.size)):
        if entry.size and entry.offset < end:
            raise WheelError(f"the code of {entry.id} in an offload bundle overlaps what is before it")
        end = max(end, entry.offset + entry.size)
    return [
        (n, entry) for n, entry in enumerate(bundle.entries) if not entry.id.startswith(offload_bundle.HOST)
    ]


def _code(sink: Sink, plain: bytes, number: int, entry: Entry) -> Code:
    blob = sink.add(plain[entry.offset : entry.offset + entry.size])
    return Code(id=entry.id, entry=number, offset=entry.offset, blob=blob)


def _packed(view: BytesView, bundle: Bundle, plain: bytes) -> Packed | None:
    """How it was compressed; its pieces are for each container to say."""
    how = bundle.packing
    if how is None:
        return None
    data = view.read(bundle.at, bundle.size)
    return Packed(
        version=how.version,
        method=how.method,
        header_size=how.header_size,
        plain_size=how.plain_size,
        digest=data[how.header_size - 8 : how.header_size].hex(),  # the last field in each version
        level=compression.level_of(plain, data[how.header_size :], how.method),
        pieces=(),
    )


def _pieces(bundle: Bundle, plain: bytes, sink: Sink) -> Iterator[Piece]:
    """What is between the code objects: the table, and whatever else is not zero."""
    at = 0
    ends = [(e.offset, e.offset + e.size) for e in bundle.device_entries if e.size]
    for start, end in [*sorted(ends), (len(plain), len(plain))]:
        between = plain[at:start].rstrip(b"\0")
        if between:
            yield Piece(offset=at, blob=sink.add(between))
        at = end


def _patched_digest(data: mmap.mmap, patches: Sequence[Patch]) -> str:
    """The sha256 that the file will have, so that it is known before anything is written."""
    digest = hashlib.sha256()
    at = 0
    for change in patches:
        for start in range(at, change.at, _STEP):
            digest.update(data[start : min(start + _STEP, change.at)])
        for piece in change.pieces():
            digest.update(piece)
        at = change.end
    for start in range(at, len(data), _STEP):
        digest.update(data[start : start + _STEP])
    return digest.hexdigest()
