"""What changed between two wheels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.formats import kpack
from cairn.formats.kpack import without_build
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries, code_archives
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import wheel_info

_FIELDS = ("name", "version", "build", "tags", "requires_python", "extras", "entry_points")


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The items removed and the items added between two wheels.

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
    """The differences between the two versions of a binary that both wheels contain.

    Attributes:
        member: its path.
        needed: libraries.
        run_paths: folders.
        targets: targets of its device code.
        version_needs: symbol versions, as `libc.so.6: GLIBC_2.28`; DLLs have none.
    """

    member: str
    needed: Delta
    run_paths: Delta
    targets: Delta
    version_needs: Delta


@dataclass(frozen=True, kw_only=True)
class ArchiveChange:
    """The differences in a kpack archive that both wheels contain, by `library#wrapper` and target.

    Attributes:
        member: its path.
        targets: that it has code for.
        code: what has code in only one of them.
        changed: what has different code.
        same: how many have the same.
    """

    member: str
    targets: Delta
    code: Delta
    changed: tuple[str, ...]
    same: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What differs between two wheels; the version in folder names does not count.

    Attributes:
        fields: name of the field to its two values.
        requirements: requirements; an exact one of the wheel's own version is the same in every version.
        files: files that only one has.
        changed: files with other bytes.
        modes: files whose run bit changed.
        libraries: binaries that differ in what the loader sees.
        archives: kpack archives that differ in what a runtime finds in them.
        order: whether the same members are in a different order, or have other times.
    """

    fields: Mapping[str, tuple[str, ...]]
    requirements: Delta
    files: Delta
    changed: tuple[str, ...]
    modes: tuple[str, ...]
    libraries: tuple[LibraryChange, ...]
    archives: tuple[ArchiveChange, ...]
    order: bool


def diff(first: Path, second: Path) -> Difference:
    """Compare two wheels.

    Raises:
        WheelError: one of them cannot be read.
    """
    one, other = _Side(first), _Side(second)
    # The CRC of the central directory stands for the content, so that only binaries are unpacked.
    pairs = {path: (one.members[path], other.members[path]) for path in one.members if path in other.members}
    requirements = _change(one.requirements, other.requirements)
    changed = tuple(sorted(p for p, (a, b) in pairs.items() if (a.size, a.crc) != (b.size, b.crc)))
    return Difference(
        fields={
            name: (_text(getattr(one.info, name)), _text(getattr(other.info, name)))
            for name in _FIELDS
            if getattr(one.info, name) != getattr(other.info, name)
        },
        requirements=Delta(
            removed=tuple(one.requirements[key] for key in requirements.removed),
            added=tuple(other.requirements[key] for key in requirements.added),
        ),
        files=_change(one.members, other.members),
        changed=changed,
        modes=tuple(sorted(path for path, (a, b) in pairs.items() if a.executable != b.executable)),
        libraries=tuple(_library_changes(one.binaries, other.binaries)),
        archives=tuple(_archive_changes(one, other, changed)),
        order=[(path, member.stamp) for path, member in one.members.items()]
        != [(path, member.stamp) for path, member in other.members.items()],
    )


class _Side:
    """One of the two wheels, with the version removed from its paths."""

    def __init__(self, path: Path) -> None:
        self.path = path
        wheel_info.parse_file_name(path.name, variants_too=True)
        with Archive.open(path) as archive:
            self.info = wheel_info.read_archive(archive, variants_too=True)
            self.members = {self._neutral(member.name): member for member in archive.members}
            # A host wheel requires each of its device wheels in its own version, thrice (PEP 508 pins: `==`).
            own = re.compile(rf"=={re.escape(self.info.version)}(?![\w.+!*-])")
            self.requirements = {own.sub("==*", text): text for text in self.info.requires_dist}
            self.binaries = {self._neutral(binary.path): binary for binary in binaries.read_archive(archive)}

    def code_of(self, path: str) -> dict[tuple[str, str], str]:
        """The digests of the code in a kpack archive, by names that do not change with each build."""
        with Archive.open(self.path) as archive:
            digests = code_archives.digests(archive, self.members[path].name)
        return {(without_build(key), arch): sha256 for (key, arch), sha256 in digests.items()}

    def _neutral(self, path: str) -> str:
        """The path, with `demo-*.dist-info` for `demo-1.0.dist-info`, and so for `.data`."""
        stem = self.info.dist_info.removesuffix(".dist-info")
        top, slash, rest = path.partition("/")
        for end in (".dist-info", ".data"):
            if top == stem + end:
                return f"{stem.rpartition('-')[0]}-*{end}{slash}{rest}"
        return path


def _library_changes(one: Mapping[str, Binary], other: Mapping[str, Binary]) -> Iterable[LibraryChange]:
    for path in sorted(one.keys() & other.keys()):
        a, b = one[path], other[path]
        change = LibraryChange(
            member=path,
            needed=_change(a.needed, b.needed),
            run_paths=_change(a.run_paths, b.run_paths),
            targets=_change(a.targets, b.targets),
            version_needs=_change(_versions(a), _versions(b)),
        )
        if change.needed or change.run_paths or change.targets or change.version_needs:
            yield change


def _archive_changes(one: _Side, other: _Side, changed: Iterable[str]) -> Iterable[ArchiveChange]:
    for path in changed:
        if not path.endswith(kpack.SUFFIX):
            continue
        a, b = one.code_of(path), other.code_of(path)
        both = a.keys() & b.keys()
        differing = sorted(_shown(place) for place in both if a[place] != b[place])
        change = ArchiveChange(
            member=path,
            targets=_change((arch for _, arch in a), (arch for _, arch in b)),
            code=_change(map(_shown, a), map(_shown, b)),
            changed=tuple(differing),
            same=len(both) - len(differing),
        )
        if change.targets or change.code or change.changed:
            yield change


def _shown(place: tuple[str, str]) -> str:
    """A wrapper and a target: `lib/libtorch_hip.so#3 gfx942`."""
    return " ".join(place)


def _versions(binary: Binary) -> list[str]:
    return [f"{name}: {version}" for name, versions in binary.version_needs.items() for version in versions]


def _change(one: Iterable[str], other: Iterable[str]) -> Delta:
    a, b = set(one), set(other)
    return Delta(removed=tuple(sorted(a - b)), added=tuple(sorted(b - a)))


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
