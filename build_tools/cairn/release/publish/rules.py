"""What must hold of a file or set that comes into an index, given what the index has already."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from cairn import targets
from cairn.errors import GateError
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, FileEntry, FileRef, project_of
from cairn.release.index.snapshot import Snapshot
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.rocm_version import sorts_above
from cairn.wheels.wheelset import WheelSet


def refuse_gated(index: str) -> None:
    """Nothing reaches an index that users install from except through the gate.

    Raises:
        GateError: `index` is one of these.
    """
    if keys.is_gated(keys.checked_index(index)):
        raise GateError(
            f"nothing is put into {index} directly: sets reach it through the gate",
            tip=f"publish into staging, then: cairn release promote SET --to {index}",
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
            f"the set is for {wheel_set.family}, not for {family}",
            tip=f"name the index {index.partition('/')[0]}, or that of its own family",
        )


def name_clashes(target: Snapshot, refs: Sequence[FileRef]) -> tuple[str, ...]:
    """The files whose names `target` has with other bytes."""
    clashes = []
    for ref in refs:
        entry = target.project(project_of(ref.filename)).file(ref.filename)
        if entry is not None and entry.sha256 != ref.sha256:
            clashes.append(f"{ref.filename} is there with sha256 {entry.sha256}")
    return tuple(clashes)


def second_builds(target: Snapshot, files: Sequence[FileEntry]) -> tuple[str, ...]:
    """The files whose version `target` has from a different build, or for the same Python and platform.

    pip takes any file of a version that fits: of two builds, it would mix what was tested apart.
    """
    problems = []
    for file in files:
        for there in target.project(project_of(file.filename)).files:
            if there.filename == file.filename or Version(there.version) != Version(file.version):
                continue
            if there.build != file.build:
                problems.append(f"{file.filename} beside {there.filename}, of a different build")
            elif file.build != MIRRORED and _overlap(there.filename, file.filename):
                problems.append(f"{file.filename} beside {there.filename}, for the same Python and platform")
    return tuple(problems)


def _overlap(first: str, second: str) -> bool:
    """Whether an installer could take either of two files."""
    if not (first.endswith(".whl") and second.endswith(".whl")):
        return first.endswith(".whl") == second.endswith(".whl")
    one, other = (wheel_info.parse_file_name(name) for name in (first, second))
    places = [{_place(tag) for tag in name.tags} for name in (one, other)]
    return bool(places[0] & places[1])


def _place(tag: str) -> tuple[str, str, str]:
    """Interpreter, ABI and machine of a tag: `linux_x86_64` and `manylinux_2_28_x86_64` are one place."""
    interpreter, abi, platform = tag.split("-")
    system, _, rest = platform.partition("_")
    if system in ("linux", "manylinux1", "manylinux2010", "manylinux2014"):
        return interpreter, abi, f"linux {rest}"
    if system in ("manylinux", "musllinux", "macosx"):  # {system}_{major}_{minor}_{machine}, PEP 600 and 656
        return interpreter, abi, f"{system.removeprefix('many')} {rest.split('_', 2)[-1]}"
    return interpreter, abi, platform


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
