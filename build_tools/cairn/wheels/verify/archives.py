"""Whether device wheels have the code that ROCm's runtime looks for in them, by their bytes alone.

Others who split wheels leave no record of it. The runtime opens the archive of the most specific target that
exists, and up to ROCm 7.14 looks in no other where that one lacks a kernel: an archive for `gfx90a:xnack-`
with one kernel beside one for `gfx90a` with all of them made every launch fail (ROCm/TheRock#7081). Each
wrapper of a library finds its code under its own number (ROCm/rocm-systems#6943).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.formats import kpack
from cairn.formats.offload.wrappers import LAYOUT, SECTION
from cairn.output import wording
from cairn.targets import parse_target_id
from cairn.wheels.contents import providers
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.verify.environments import environment
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_AGAIN = "split the whole wheel again, for all of its targets at once"
_WITH = "build, publish and install the device wheels of one split together"


def check(archived: Mapping[str, Mapping[str, frozenset[str]]]) -> Iterator[Finding]:
    """Each archive of a wheel has the keys of every one that is less specific.

    Args:
        archived: path to the targets of an archive, each with the keys that it has code under.
    """
    by_start: dict[str, list[tuple[str, str]]] = {}  # archives that one search path leads to
    for path, targets in archived.items():
        if targets and not any(targets.values()):
            reason = "it has no code at all, and hides what others have"
            yield Finding(code=FindingCode.KPACK_INCOMPLETE, member=path, reason=reason, fix=_AGAIN)
        for target in targets:
            by_start.setdefault(path.removesuffix(f"{target}{kpack.SUFFIX}"), []).append((target, path))
    for group in by_start.values():
        for target, path in group:
            specific = parse_target_id(target)
            for name, beside in group:
                general = parse_target_id(name)
                if (
                    general.processor == specific.processor
                    and set(general.features) < set(specific.features)
                    and (lacking := archived[beside][name] - archived[path][target])
                ):
                    reason = (
                        f"a GPU that finds it looks in no other, and it lacks {len(lacking)} of the keys for "
                        f"{name}: {wording.some(sorted(lacking), shown=2)}"
                    )
                    yield Finding(code=FindingCode.KPACK_INCOMPLETE, member=path, reason=reason, fix=_AGAIN)


def check_host(binaries: Sequence[Binary], extras: Sequence[str]) -> Iterator[Finding]:
    """A wheel whose extras bring its device code has none itself."""
    if not any(extra.startswith("device-gfx") for extra in extras):
        return
    for binary in binaries:
        if binary.code_objects:
            reason = f"it has code for {wording.some(binary.targets)}, which the extras of the wheel bring"
            yield Finding(code=FindingCode.SPLIT_DIFFERS, member=binary.path, reason=reason, fix=_AGAIN)


def check_with_host(
    archived: Mapping[str, Mapping[str, frozenset[str]]], libraries: Sequence[Binary]
) -> tuple[list[Finding], int]:
    """Archives have code under the numbers of the wrappers of their libraries; and how many have none there.

    Some wrappers never had code for a target, which nobody can tell without a record.

    Args:
        archived: see `check`.
        libraries: those of the host wheels beside.
    """
    counts = {}
    for library in libraries:
        section = library.section(SECTION)
        if library.reference and section:
            counts[library.reference.kernel_name] = section.size // LAYOUT.size
    findings, without = [], 0
    for path, targets in archived.items():
        ordinals: dict[str, set[int]] = {}
        for key in (key for keys in targets.values() for key in keys):
            name, _, number = key.rpartition("#")
            ordinals.setdefault(name, set()).add(int(number))
        for name in ordinals.keys() & counts.keys():
            without += len(set(range(counts[name])) - ordinals[name])
            if strange := sorted(number for number in ordinals[name] if number >= counts[name]):
                numbers = wording.some([str(number) for number in strange])
                reason = f"it has code for wrapper {numbers} of {name}, which has {counts[name]}, from 0 on"
                findings.append(
                    Finding(code=FindingCode.KPACK_INCOMPLETE, member=path, reason=reason, fix=_AGAIN)
                )
    return findings, without


def check_extras(
    info: WheelInfo, name: FileName, expected: Expectation
) -> tuple[list[Finding], tuple[str, ...]]:
    """All wheels that an extra for a GPU names are there, where one of them or its target is asked for.

    Returns:
        The breaches, and the extras whose wheels are not there.
    """
    requires = []
    for text in info.requires_dist:
        with contextlib.suppress(WheelError):  # which `metadata` reports
            requires.append(wheel_info.requirement(text))

    def has(wheel: Requirement) -> bool:
        versions = expected.beside.get(canonicalize_name(wheel.name), ())
        return any(providers.meets(version, wheel) for version in versions)

    findings, without = [], []
    for extra, absent, is_torn in device_names.lacking(requires, environment(name, expected.python), has):
        if is_torn:
            names = wording.some([f"{wheel.name}{wheel.specifier}" for wheel in absent])
            reason = f"its extra {extra} names {names}, which is not there, beside what is"
            findings.append(Finding(code=FindingCode.REQUIREMENT_UNMET, reason=reason, fix=_WITH))
        elif absent and extra != device_names.EVERY:
            without.append(extra)
    return findings, (f"the wheels that its extras name: {wording.some(without)}",) if without else ()
