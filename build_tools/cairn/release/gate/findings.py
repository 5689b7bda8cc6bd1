"""The first demand: every file that the set installs passes `verify`, and what is mirrored was reviewed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn.errors import CairnError
from cairn.formats.zip.reader import Archive
from cairn.release.gate.case import Case, Files, ref
from cairn.release.index.generation import MIRRORED, PUBLISHED, project_of, version_of
from cairn.release.publish import distribution
from cairn.release.publish.mirror_lock import is_of_sdk
from cairn.targets import CPU
from cairn.wheels.contents import providers
from cairn.wheels.verify import Expectation, Finding, verify
from cairn.wheels.verify.findings import FindingCode, apply_allowed, read_allowed

# How others link their binaries is theirs to know: PyPI's own torch and scipy name folders of the machines
# that built them. What a file says of itself, what installers do with it and what is in it counts.
_NOT_OF_MIRRORED = {FindingCode.NEEDED, FindingCode.RPATH, FindingCode.DLL_FOLDER}
_BUILD_OF = {"mirrored": (MIRRORED,), "published": (PUBLISHED,), "rocm-sdk": (PUBLISHED, MIRRORED)}


def problems(case: Case, files: Files) -> Iterator[str]:
    """Findings on its wheels, and its sdists that cannot be read."""
    wheels = {name: path for name, path in files.paths.items() if name.endswith(".whl")}
    shipped, unreadable = _libraries(wheels)
    mirrored = {file.file_name for file in case.wheel_set.closure if file.origin == "mirrored"}
    by_wheel: dict[Path, tuple[Finding, ...]] = {}
    for name, expected in _expectations(case, shipped):
        if name in wheels and name not in unreadable:
            passed = _NOT_OF_MIRRORED if name in mirrored else set()
            findings = verify(wheels[name], expected)
            by_wheel[wheels[name]] = tuple(one for one in findings if one.code not in passed)
    entries = read_allowed([Path(case.stack.gate.allow)] if case.stack.gate.allow else [])
    judged = apply_allowed(by_wheel, entries, today=case.moment.date())
    for path, findings in judged.findings.items():
        for finding in findings:
            where = f" ({finding.member})" if finding.member else ""
            yield f"{path.name}{where}: {finding.reason}"
    yield from unreadable.values()
    yield from _unreadable_sdists(files)
    yield from files.missing.values()


def unreviewed(case: Case) -> Iterator[str]:
    """Files of the closure that are not in the index as what the set says they are, or not in the lock."""
    locked = {file.file_name: file.sha256 for file in case.lock.files} if case.lock else {}
    for file in case.wheel_set.closure:
        try:
            build = case.source.entry(ref(file.file_name, file.sha256)).build
        except CairnError as error:
            yield str(error)
            continue
        if build not in _BUILD_OF[file.origin]:
            yield f"{file.file_name} is {build} in {case.source.index.name}, and the set says {file.origin}"
        # The SDK comes from ROCm, and no lock has it.
        reviewed = is_of_sdk(project_of(file.file_name)) or locked.get(file.file_name) == file.sha256
        if case.lock is not None and not reviewed:
            yield f"{file.file_name} with sha256 {file.sha256} is not in the lock of the mirror"


def _libraries(wheels: Mapping[str, Path]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The shared libraries in wheels by file name, and the wheels that cannot be read."""
    shipped: set[str] = set()
    unreadable = {}
    for name, path in wheels.items():
        try:
            with Archive.open(path) as archive:
                shipped |= providers.library_names(archive)
        except CairnError as error:
            unreadable[name] = f"{name}: {error}"
    return tuple(sorted(shipped)), unreadable


def _expectations(case: Case, shipped: tuple[str, ...]) -> Iterator[tuple[str, Expectation]]:
    """What each file of the set was asked to be."""
    siblings = {wheel.distribution: wheel.version for wheel in case.wheel_set.wheels}
    beside: dict[str, tuple[str, ...]] = {}
    for name in case.wheel_set.sha256s:
        project = str(canonicalize_name(project_of(name)))
        beside[project] = (*beside.get(project, ()), version_of(name))
    common = Expectation(
        siblings=siblings,
        beside=beside,
        provided_libraries=shipped,
        python=case.wheel_set.python,
        split_targets=case.wheel_set.targets,
    )
    for wheel in case.wheel_set.wheels:
        targets = case.code_of(wheel)
        yield wheel.file_name, replace(common, targets=targets, require_device_code=targets != (CPU,))
    for file in case.wheel_set.closure:
        # ROCm's own packages are of this place and have no manylinux tag; others come from PyPI. One that
        # requires torch (optree, for an extra) was not built against this one, and has no pin to it.
        yield (
            file.file_name,
            replace(
                common,
                siblings={} if file.origin == "mirrored" else siblings,
                require_platform_tag=file.origin != "rocm-sdk",
            ),
        )


def _unreadable_sdists(files: Files) -> Iterator[str]:
    for name, path in files.paths.items():
        if name.endswith(".whl"):
            continue
        try:
            distribution.read(path)
        except CairnError as error:
            yield f"{name}: {error}"
