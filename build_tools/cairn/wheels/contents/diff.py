"""What changed between two wheels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries as contents_binaries
from cairn.wheels.contents import windows_dlls
from cairn.wheels.contents.binaries import Library
from cairn.wheels.contents.windows_dlls import PeLibrary
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo

_Seen: TypeAlias = Mapping[str, tuple[str, ...]]
_KINDS = ("needed", "run_paths", "targets", "version_needs")
_FIELDS = ("name", "version", "build", "tags", "requires_python", "extras", "entry_points")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was taken away and what came instead.

    Attributes:
        removed: only in the first.
        added: only in the second.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


@dataclass(frozen=True, kw_only=True)
class LibraryChange:
    """How a binary that both wheels have differs.

    Attributes:
        member: its path.
        needed: libraries.
        run_paths: folders.
        targets: targets of its device code.
        version_needs: symbol versions, as `libc.so.6: GLIBC_2.28`; DLLs have none.
    """

    member: str
    needed: Change
    run_paths: Change
    targets: Change
    version_needs: Change


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What differs between two wheels; the version in folder names does not count.

    Attributes:
        fields: name of the field to its two values.
        requirements: requirements.
        files: files that only one has.
        changed: files with other bytes.
        modes: files whose run bit changed.
        libraries: binaries that differ in what the loader sees.
        order: whether the same members stand in another order, or have other times.
    """

    fields: Mapping[str, tuple[str, ...]]
    requirements: Change
    files: Change
    changed: tuple[str, ...]
    modes: tuple[str, ...]
    libraries: tuple[LibraryChange, ...]
    order: bool


def diff(first: Path, second: Path) -> Difference:
    """Compare two wheels.

    Raises:
        WheelError: one of them cannot be read.
    """
    one, other = _Side(first), _Side(second)
    common = one.members.keys() & other.members.keys()
    changed = {path for path in common if _content(one.members[path]) != _content(other.members[path])}
    modes = {path for path in common if one.members[path].executable != other.members[path].executable}
    return Difference(
        fields={
            name: (_text(getattr(one.info, name)), _text(getattr(other.info, name)))
            for name in _FIELDS
            if getattr(one.info, name) != getattr(other.info, name)
        },
        requirements=_change(one.info.requires_dist, other.info.requires_dist),
        files=_change(one.members, other.members),
        changed=tuple(sorted(changed)),
        modes=tuple(sorted(modes)),
        libraries=tuple(_library_changes(one.libraries, other.libraries)),
        order=_layout(one) != _layout(other),
    )


class _Side:
    """One of the wheels, its paths freed of the version."""

    def __init__(self, path: Path) -> None:
        name = wheel_info.parse_file_name(path.name)
        with Archive.open(path) as archive:
            self.info: WheelInfo = wheel_info.read_archive(archive, name)
            self._stem = self.info.dist_info.removesuffix(".dist-info")
            self.members: dict[str, Member] = {self._neutral(m.name): m for m in archive.members}
            binaries = contents_binaries.read_libraries(archive)
            dlls = windows_dlls.read_libraries(archive)
        self.libraries = {self._neutral(binary.member): _seen(binary) for binary in binaries}
        self.libraries |= {self._neutral(dll.member): _seen_dll(dll) for dll in dlls}

    def _neutral(self, path: str) -> str:
        top, slash, rest = path.partition("/")
        for end in (".dist-info", ".data"):
            if top == self._stem + end:
                return f"{self._stem.rpartition('-')[0]}-*{end}{slash}{rest}"
        return path


def _library_changes(one: Mapping[str, _Seen], other: Mapping[str, _Seen]) -> Iterable[LibraryChange]:
    for path in sorted(one.keys() & other.keys()):
        changes = {kind: _change(one[path][kind], other[path][kind]) for kind in _KINDS}
        if any(changes.values()):
            yield LibraryChange(member=path, **changes)


def _change(one: Iterable[str], other: Iterable[str]) -> Change:
    a, b = set(one), set(other)
    return Change(removed=tuple(sorted(a - b)), added=tuple(sorted(b - a)))


def _seen(library: Library) -> _Seen:
    """What the loader sees of a binary, by the fields of `LibraryChange`."""
    versions = library.elf.version_needs.items()
    return {
        "needed": library.elf.needed,
        "run_paths": library.elf.rpath + library.elf.runpath,
        "targets": library.targets,
        "version_needs": tuple(f"{name}: {version}" for name, found in versions for version in found),
    }


def _seen_dll(library: PeLibrary) -> _Seen:
    return {**dict.fromkeys(_KINDS, ()), "needed": library.needed, "targets": library.targets}


def _content(member: Member) -> tuple[int, int]:
    return member.size, member.crc


def _layout(side: _Side) -> list[tuple[str, int]]:
    return [(path, member.stamp) for path, member in side.members.items()]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
