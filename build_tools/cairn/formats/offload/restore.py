"""Putting device code back into one library."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from cairn import files
from cairn.errors import WheelError
from cairn.formats.compression import LEVELS
from cairn.formats.kpack import Archive, key_of, without_build
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import detach
from cairn.formats.offload.bundle import Packing
from cairn.formats.offload.record import BundlePacking, Code, Library, Part
from cairn.formats.view import FileView
from cairn.targets import in_order

_DIGEST_SIZE = 8
_LARGEST = 1 << 36  # bytes of a library
_STEP = 1 << 20
_OTHER = "the device wheels and the host wheel must come from one split"


class JoinedLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A library that was restored from its device code.

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


def join(host: Path, record: Library, archives: Mapping[str, Archive], target: Path) -> JoinedLibrary:
    """Write the library that `host` was, with the code that the archives have, to `target`.

    Args:
        host: the library without its code.
        record: what was taken from it.
        archives: target to its archive.
        target: the file to write.

    Raises:
        WheelError: they do not belong together, or one is not what it says.
    """
    if files.sha256_of(host) != record.host_sha256:
        raise WheelError(f"{host.name} is not the library that the device code was split from", tip=_OTHER)
    _check(record, host.name)
    detach.attach(host, record.undo, target)
    with target.open("r+b") as out:
        for part in record.parts:
            _write_part(out, part, record.kernel_name, archives, target.parent)
    _check_written(target, record, archives.keys())
    codes = [code for part in record.parts for code in part.codes]
    missing = {_processor(code.target) for code in codes if code.target not in archives}
    same = files.sha256_of(target) == record.sha256
    exact = all(part.packed is None or part.packed.level is not None for part in record.parts)
    if not missing and exact and not same:
        raise WheelError(f"{host.name} as joined differs from the library that was split", tip=_OTHER)
    present = {_processor(code.target) for code in codes} - missing
    return JoinedLibrary(
        library=host.name, processors=in_order(present), missing=in_order(missing), same_bytes=same
    )


def _processor(target: str) -> str:
    return target.partition(":")[0]


def _check(record: Library, name: str) -> None:
    """Check that the numbers in a record are within bounds and ask for no excessive memory."""
    size = record.undo.size
    for part in record.parts:
        inside = 0 <= part.at <= size - part.size and part.size >= 0
        most = offload_bundle.most_plain(part.size) if part.packed else part.size
        ends = [(code.offset, code.size) for code in part.codes]
        ends += [(at, len(data) // 2) for at, data in part.pieces]
        ends += [(code.id_at, len(offload_bundle.INERT_PREFIX)) for code in part.codes]
        inside &= bool(part.wrappers)
        within = all(0 <= at <= part.plain_size - length and length >= 0 for at, length in ends)
        if size > _LARGEST or not (inside and within and 0 <= part.plain_size <= most):
            raise WheelError(f"what the host wheel says of {name} contradicts itself")


def _check_written(path: Path, record: Library, present: Collection[str]) -> None:
    """Read it as everyone will, since only with all of the code it must be the original byte for byte."""
    with path.open("rb") as file:
        library = detach.read(FileView(file))
        if library is None:
            raise WheelError(f"{path.name} as joined has no device code", tip=_OTHER)
        ordered = sorted(record.parts, key=lambda part: part.at)
        same = [(b.at, library.wrappers_of(number)) for number, b in enumerate(library.bundles)]
        right = same == [(part.at, part.wrappers) for part in ordered]
        for bundle, part in zip(library.bundles, ordered, strict=False):
            inert = offload_bundle.INERT_PREFIX.decode()
            entries = {(entry.id, entry.offset, entry.size, entry.id_at) for entry in bundle.entries}
            for code in part.codes:
                name = code.id if code.target in present else inert + code.id[len(inert) :]
                right &= (name, code.offset, code.size, code.id_at) in entries
            right &= len(bundle.device_entries) == sum(code.target in present for code in part.codes)
        if not right:
            raise WheelError(f"{record.path} as joined differs from the library that was split", tip=_OTHER)


def _write_part(
    out: IO[bytes], part: Part, kernel_name: str, archives: Mapping[str, Archive], folder: Path
) -> None:
    if part.packed is None:
        _write_plain(out, part.at, part, kernel_name, archives)
        return
    with tempfile.TemporaryFile(dir=folder) as plain, tempfile.TemporaryFile(dir=folder) as packed:
        plain.truncate(part.plain_size)
        complete = _write_plain(plain, 0, part, kernel_name, archives)
        if not _pack(plain, part, part.packed, packed, complete=complete):
            raise WheelError(
                f"the code of {kernel_name} cannot be compressed into its room",
                tip="join fewer targets, or keep the wheel that was not split",
            )
        packed.seek(0)
        out.seek(part.at)
        shutil.copyfileobj(packed, out, _STEP)


def _write_plain(
    out: IO[bytes], begin: int, part: Part, kernel_name: str, archives: Mapping[str, Archive]
) -> bool:
    """Write a bundle, unpacked, and return whether all of its code is there.

    An entry without code gets an id that names no device.
    """
    for at, data in part.pieces:
        out.seek(begin + at)
        out.write(_bytes(data))
    complete = True
    for code in part.codes:
        archive = archives.get(code.target)
        if archive is None:
            complete = False
            out.seek(begin + code.id_at)
            out.write(offload_bundle.INERT_PREFIX)
            continue
        out.seek(begin + code.offset)
        for piece in _code(archive, code, key_of(kernel_name, part.wrappers[0])):
            out.write(piece)
    return complete


def _code(archive: Archive, code: Code, key: str) -> Iterator[bytes]:
    entry = archive.table.toc.get(key, {}).get(code.target)
    place = f"{code.target} of {without_build(key)}"
    if entry is None or entry.original_size != code.size:
        present = without_build(key) in map(without_build, archive.table.toc)
        difference = "has different code" if present else "lacks the code"
        raise WheelError(f"{archive.name} {difference} for {place}", tip=_OTHER)
    digest = hashlib.sha256()
    for piece in archive.pieces(entry):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != code.sha256:
        raise WheelError(f"{archive.name} has different code for {place}", tip=_OTHER)


def _pack(plain: IO[bytes], part: Part, how: BundlePacking, out: IO[bytes], *, complete: bool) -> bool:
    """Compress a bundle with its original settings, and return whether it fits in its original place."""
    is_supported = how.method in LEVELS and how.version in offload_bundle.VERSIONS
    if not is_supported or how.level not in (None, *LEVELS[how.method]):
        raise WheelError("the host wheel names a kind of compression that bundles do not have", tip=_OTHER)
    form = Packing(version=how.version, method=how.method, plain_size=part.plain_size)
    if complete and how.level is not None:
        digest = _bytes(how.digest)
        if len(digest) != _DIGEST_SIZE:
            raise WheelError(f"the host wheel has the hash {how.digest[:40]!r}", tip=_OTHER)
        plain.seek(0)
        data = offload_bundle.pack(plain.read(), form, level=how.level, digest=digest)
        return out.write(data) <= part.size
    # Other content, so a different size; what matters is that it fits where the original was.
    return offload_bundle.pack_into(plain, form, out, room=part.size)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise WheelError(f"the host wheel has {text[:40]!r} where hex digits belong", tip=_OTHER) from error
