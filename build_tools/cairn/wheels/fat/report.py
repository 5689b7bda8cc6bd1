"""What a fat wheel got: sizes per library and target, and what it did not get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cairn.targets import TargetId, parse_target_id
from cairn.wheels.fat import target_names
from cairn.wheels.fat.binaries import sizes
from cairn.wheels.fat.data_files import Folder
from cairn.wheels.fat.libraries import Bundle, LeftOut


@dataclass(frozen=True, kw_only=True)
class Part:
    """A library, or the data of one.

    Attributes:
        name: its path in the package's folder.
        size: bytes.
        sizes: target to bytes that serve it; data that serves all targets counts as `any`.
        files: how many files.
    """

    name: str
    size: int
    sizes: Mapping[str, int]
    files: int = 1


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was made.

    Attributes:
        wheel: the new wheel.
        version: its version.
        targets: the targets that it serves.
        parts: what it carries.
        sizes: target to bytes that serve it, of all parts.
        changed: binaries of the wheel whose run paths or needs changed.
        dropped: requirements that it has no longer.
        left_out: what it does not carry, and why.
        size: bytes of the wheel.
    """

    wheel: str
    version: str
    targets: tuple[str, ...]
    parts: tuple[Part, ...]
    sizes: Mapping[str, int]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    size: int


def parts_of(bundle: Bundle, folders: Sequence[Folder]) -> tuple[Part, ...]:
    """Every library and every folder of data."""
    libraries = [Part(name=f"lib/{b.name}", size=b.size, sizes=b.sizes) for b in bundle.libraries]
    data = [
        Part(
            name=folder.target,
            size=sum(path.stat().st_size for path in folder.files.values()),
            sizes=folder.sizes,
            files=len(folder.files),
        )
        for folder in folders
    ]
    return (*libraries, *data)


def totals(parts: Sequence[Part]) -> dict[str, int]:
    """Target to bytes, of all parts."""
    found: dict[str, int] = {}
    for part in parts:
        for target, size in part.sizes.items():
            found[target] = found.get(target, 0) + size
    return dict(sorted(found.items()))


def shortfalls(bundle: Bundle, folders: Sequence[Folder], wanted: Sequence[TargetId]) -> Iterator[LeftOut]:
    """What parts have nothing for some of the wanted targets, and what data was left out."""
    for binary in bundle.libraries:
        there = [parse_target_id(name) for name in sizes((*binary.codes, *binary.trimmed))]
        lacking = [str(t) for t in wanted if there and not target_names.serves(there, (t,))]
        if lacking:
            yield LeftOut(name=f"lib/{binary.name}", reason=f"it has no code for {', '.join(lacking)}")
        if binary.trimmed:
            gone = sizes(binary.trimmed)
            reason = f"its code for {', '.join(sorted(gone))} ({sum(gone.values())} bytes) was taken out"
            yield LeftOut(name=f"lib/{binary.name}", reason=reason)
    for folder in folders:
        if folder.left_out:
            reason = f"{folder.left_out} files of {folder.left_out_size} bytes are for other targets"
            yield LeftOut(name=folder.target, reason=reason)
        if folder.lacking:
            yield LeftOut(name=folder.target, reason=f"it has no file for {', '.join(folder.lacking)}")
