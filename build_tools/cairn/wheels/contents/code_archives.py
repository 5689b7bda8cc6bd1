"""Reading the kpack archives of a wheel: the device code that a device wheel adds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from cairn.formats import kpack
from cairn.formats.offload import code_object
from cairn.formats.view import MemberView
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.targets import in_order, known_targets

# Files that have code for the targets in their names.
_OF_CODE = (kpack.SUFFIX, ".co", ".hsaco")


class CodeArchive(msgspec.Struct, frozen=True, kw_only=True):
    """A kpack archive.

    Attributes:
        path: in the wheel.
        size: its bytes.
        scheme: how its code is compressed: `none` or `zstd-per-kernel`.
        targets: those that it has code for.
        code_objects: how many it has; several wrappers may share one.
        code_size: bytes of these, unpacked.
        libraries: name of each library in the archive to the number of its wrappers that find code there.
        builds: the builds that its code belongs to, where its names say so; an unchanged archive has one.
    """

    path: str
    size: int
    scheme: str
    targets: tuple[str, ...]
    code_objects: int
    code_size: int
    libraries: Mapping[str, int]
    builds: tuple[str, ...]


def read_archives(wheel: Archive) -> tuple[CodeArchive, ...]:
    """The kpack archives of a wheel, by path; of each only the table is read.

    Raises:
        WheelError: one is malformed.
    """
    members = (member for member in wheel.members if member.name.endswith(kpack.SUFFIX) and not member.is_dir)
    return tuple(_read(wheel, member) for member in sorted(members, key=lambda member: member.name))


def named_targets(paths: Iterable[str]) -> tuple[str, ...]:
    """The targets that the names of files tell, sorted: of kpack archives, code objects and databases."""
    known = known_targets()
    named = set[str]()
    for path in paths:
        if path.endswith(_OF_CODE):
            named.update(name for name in code_object.PROCESSOR.findall(path) if name in known)
        elif processor := code_object.named_processor(path, known):
            named.add(processor)
    return in_order(named)


def digests(wheel: Archive, path: str) -> dict[tuple[str, str], str]:
    """The sha256 of each code object of a kpack archive, by its key in the table and its target.

    Raises:
        WheelError: the archive is malformed, or cannot be unpacked.
    """
    opened = kpack.Archive.open(MemberView(wheel, wheel.member(path)), path)
    digests_by_ordinal: dict[int, str] = {}
    # In the order in which they lie there: the member is unpacked once, from front to back.
    for entry in sorted(opened.entries.values(), key=lambda entry: opened.places[entry.ordinal].offset):
        if entry.ordinal not in digests_by_ordinal:
            digest = hashlib.sha256()
            for piece in opened.pieces(entry):
                digest.update(piece)
            digests_by_ordinal[entry.ordinal] = digest.hexdigest()
    return {place: digests_by_ordinal[entry.ordinal] for place, entry in opened.entries.items()}


def _read(wheel: Archive, member: Member) -> CodeArchive:
    opened = kpack.Archive.open(MemberView(wheel, member), member.name)
    libraries: dict[str, int] = {}
    for key in opened.table.toc:
        name = kpack.without_build(key).rpartition("#")[0]
        libraries[name] = libraries.get(name, 0) + 1
    sizes = {entry.ordinal: entry.original_size for entry in opened.entries.values()}
    return CodeArchive(
        path=member.name,
        size=member.size,
        scheme=opened.table.compression_scheme,
        targets=opened.table.gfx_arches,
        code_objects=len(opened.places),
        code_size=sum(sizes.values()),
        libraries=dict(sorted(libraries.items())),
        builds=kpack.builds_in(opened.table.toc),
    )
