"""What a fat wheel got: sizes per library and target, and what it did not get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.targets import TargetId
from cairn.wheels.fat import target_names
from cairn.wheels.fat.data_files import DataFolder
from cairn.wheels.fat.libraries import LeftOut, LibraryBundle, sizes
from cairn.wheels.fat.plan import FatPlan
from cairn.wheels.rewrite.wheel import Edit


@dataclass(frozen=True, kw_only=True)
class CarriedPart:
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
class FatReport:
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
    parts: tuple[CarriedPart, ...]
    sizes: Mapping[str, int]
    changed: tuple[str, ...]
    dropped: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    size: int


def report(plan: FatPlan, change: Edit, path: Path) -> FatReport:
    """What was made by a plan and its change of the wheel."""
    parts = tuple(_parts(plan.bundle, plan.folders))
    totals: dict[str, int] = {}
    for part in parts:
        for target, size in part.sizes.items():
            totals[target] = totals.get(target, 0) + size
    return FatReport(
        wheel=str(path),
        version=str(change.version),
        targets=tuple(map(str, plan.targets)),
        parts=parts,
        sizes=dict(sorted(totals.items())),
        changed=tuple(change.binaries),
        dropped=change.remove_requirements,
        left_out=(*plan.left_out, *_shortfalls(plan.bundle, plan.folders, plan.targets)),
        size=path.stat().st_size,
    )


def _parts(bundle: LibraryBundle, folders: Sequence[DataFolder]) -> Iterator[CarriedPart]:
    """Every library and every folder of data."""
    for library in bundle.libraries:
        yield CarriedPart(name=f"lib/{library.name}", size=library.binary.size, sizes=library.sizes)
    for folder in folders:
        size = sum(path.stat().st_size for path in folder.files.values())
        yield CarriedPart(name=folder.target, size=size, sizes=folder.sizes, files=len(folder.files))


def _shortfalls(
    bundle: LibraryBundle, folders: Sequence[DataFolder], targets: Sequence[TargetId]
) -> Iterator[LeftOut]:
    """Which parts have nothing for some of the wanted targets, and what was left out of them."""
    for library in bundle.libraries:
        # All of its code counts, since what is trimmed is for none of the wanted targets.
        code_targets = [code.target for code in library.binary.code_objects]
        lacking = [str(t) for t in targets if code_targets and not target_names.serves(code_targets, (t,))]
        if lacking:
            yield LeftOut(name=f"lib/{library.name}", reason=f"it has no code for {', '.join(lacking)}")
        if library.trimmed:
            removed = sizes(library.trimmed)
            reason = (
                f"its code for {', '.join(sorted(removed))} ({sum(removed.values())} bytes) was taken out"
            )
            yield LeftOut(name=f"lib/{library.name}", reason=reason)
    for folder in folders:
        if folder.left_out:
            reason = f"{folder.left_out} files of {folder.left_out_size} bytes are for other targets"
            yield LeftOut(name=folder.target, reason=reason)
        if folder.lacking:
            yield LeftOut(name=folder.target, reason=f"it has no file for {', '.join(folder.lacking)}")
