"""What the sets that an index has already become by a promotion.

They were tested with what they resolved to. A set that brings a newer version of what they need, unpinned,
would have installers take that version with them too, which nobody has tested.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from cairn.release.gate.case import Case
from cairn.release.index.generation import FileEntry, project_of
from cairn.release.index.snapshot import read_set
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.set_resolution import resolve_set
from cairn.wheels.wheelset import WheelSet

_SHORT = 12  # digits of a set's id


def problems(case: Case) -> Iterator[str]:
    """The sets of the target that would not resolve to what they were tested with, a sentence each.

    Only those are resolved that need a project of which the promotion brings a file that they could take.
    One that resolves to something else already, whatever did that, holds up no other.
    """
    coming = _coming(case)
    for entry in case.target.sets():
        if entry.yanked is not None or entry.set_id == case.wheel_set.id or not coming:
            continue
        staying = read_set(case.store, entry.set_id)
        if not _concerned(staying, coming):
            continue
        found = resolve_set(case.after, staying).problems
        if found and not resolve_set(case.target, staying).problems:
            versions = ", ".join(f"{wheel.distribution} {wheel.version}" for wheel in staying.wheels)
            yield (
                f"{case.target.index.name} has the set {entry.set_id[:_SHORT]} ({versions}), which would not "
                f"be what was tested any more: {'; '.join(found)}: seal the new set with what it has, or "
                f"take that one off first (cairn release retain, or yank)"
            )


def _coming(case: Case) -> dict[str, list[FileEntry]]:
    """The files that the target would newly offer, or offer again, by project."""
    coming: dict[str, list[FileEntry]] = {}
    for name in case.after.changed.projects:
        old = {file.filename for file in case.target.project(name).files if file.yanked is None}
        new = [file for file in case.after.project(name).files if file.filename not in old]
        if new:
            coming[name] = new
    return coming


def _concerned(staying: WheelSet, coming: dict[str, list[FileEntry]]) -> bool:
    """Whether installers could take one of these files with a set: its own wheels are asked for exactly."""
    own = {(wheel.distribution, Version(wheel.version)) for wheel in staying.wheels}
    pinned = {name for name, _ in own}
    names = {project_of(file.file_name) for file in staying.files}
    platform = Platform(python=staying.python, tag=staying.platform)
    return any(
        platform.fits(file) and (name not in pinned or (name, Version(file.version)) in own)
        for name in names & coming.keys()
        for file in coming[name]
    )
