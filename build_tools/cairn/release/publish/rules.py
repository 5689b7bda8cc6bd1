"""What must hold of a file or set that comes into a channel, given what the channel has already."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from cairn import targets
from cairn.errors import GateError
from cairn.release.index import keys, write
from cairn.release.index.generation import FileRef
from cairn.release.index.snapshot import Snapshot
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.rocm_version import sorts_above
from cairn.wheels.wheelset import WheelSet


def refuse_gated(channel: str) -> None:
    """Nothing reaches a channel that users install from except through the gate.

    Raises:
        GateError: `channel` is one of these.
    """
    if keys.is_gated(keys.checked_channel(channel)):
        raise GateError(
            f"nothing is put into {channel} directly: sets reach it through the gate",
            tip=f"publish into staging, then: cairn release promote SET --to {channel}",
        )


def refuse_other_family(index: str, wheel_set: WheelSet) -> None:
    """An index of one family takes sets for targets of that family alone.

    Raises:
        GateError: the set is for a different family, or for none.
    """
    family = index.partition("/")[2]
    members = targets.families().get(family, (family,))
    processors = {
        targets.parse_target_id(name).processor for name in wheel_set.targets if name != targets.CPU
    }
    if family and not (processors and processors <= set(members)):
        raise GateError(
            f"the set {wheel_set.set_id[:12]} is for {wheel_set.family}, not for {family}",
            tip=f"name the index {index.partition('/')[0]}, or that of its own family",
        )


def name_clashes(target: Snapshot, refs: Sequence[FileRef]) -> tuple[str, ...]:
    """The files whose names `target` has with other bytes."""
    clashes = []
    for ref in refs:
        entry = target.project(write.project_of(ref.filename)).file(ref.filename)
        if entry is not None and entry.sha256 != ref.sha256:
            clashes.append(f"{ref.filename} is there with sha256 {entry.sha256}")
    return tuple(clashes)


def sorting_below(target: Snapshot, wheels: Sequence[FileRef]) -> tuple[str, ...]:
    """Why a version would not be preferred to what `target` has of the same line (same major and minor)."""
    # Only within a line: 2.8.2 may come after 2.9.0, and no one who asks for 2.9 gets it. Yanked versions do
    # not count, since an installer passes over them.
    problems = []
    for ref in wheels:
        name = wheel_info.parse_file_name(ref.filename)
        line = Version(name.version).release[:2]
        have = {file.version for file in target.project(name.distribution).files if file.yanked is None}
        problem = sorts_above(name.version, (v for v in have if Version(v).release[:2] == line))
        if problem:
            problems.append(f"{name.distribution} {problem}")
    return tuple(problems)
