"""The demands `gate.VERIFIED` and `gate.COMPLETE`.

Files pass `verify`, keep to their budgets and break no consumer; mirrored ones are in the lock. A set is
complete if it is what the stack and its manifest ask for, and the store has all of it, unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from cairn import datafile, targets
from cairn.errors import CairnError
from cairn.files import sha256_of
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.output.wording import short_id
from cairn.release.consumers import fetched
from cairn.release.gate import installation
from cairn.release.gate.case import Case, Files, ref
from cairn.release.index import keys
from cairn.release.index.generation import MIRRORED, PUBLISHED, IndexSet, project_of, version_of
from cairn.release.index.snapshot import MANIFEST_FILE, read_set
from cairn.release.index.write import set_objects
from cairn.release.provenance import evidence
from cairn.release.publish import distribution, locks, mirror_lock, rules
from cairn.release.publish.compatibility import Platform
from cairn.store import transfer
from cairn.targets import CPU
from cairn.wheels import budgets, consumers, wheels_to_set
from cairn.wheels.contents import providers
from cairn.wheels.interface.read import read_interface
from cairn.wheels.metadata import wheel_info
from cairn.wheels.verify import Expectation, Verdict, judge_alone, judge_together
from cairn.wheels.verify.findings import Finding, FindingCode, apply_allowed, read_allowed
from cairn.wheels.wheelset import ClosureFile, SetWheel, WheelSet

# How others link their binaries is theirs to know: PyPI's own torch and scipy name folders of the machines
# that built them. What a file says of itself, what installers do with it and what is in it counts.
_NOT_OF_MIRRORED = {FindingCode.NEEDED, FindingCode.RPATH, FindingCode.DLL_FOLDER}
_BUILD_OF = {"mirrored": (MIRRORED,), "published": (PUBLISHED,), "rocm-sdk": (PUBLISHED, MIRRORED)}


def findings(case: Case, files: Files) -> Iterator[str]:
    """The findings of `verify` and of `users` on the wheels, and the sdists that cannot be read."""
    wheels = {name: path for name, path in files.paths.items() if name.endswith(".whl")}
    by_wheel, unreadable = _judged(case, wheels)
    for path, finding in over_budget_or_broken(case, files):
        by_wheel[path] = (*by_wheel.get(path, ()), finding)
    entries = read_allowed([Path(case.stack.gate.allow)] if case.stack.gate.allow else [])
    judged = apply_allowed(by_wheel, entries, today=case.moment.date())
    for path, left in judged.findings.items():
        for finding in left:
            where = f" ({finding.member})" if finding.member else ""
            yield f"{path.name}{where}: {finding.reason}"
    yield from unreadable.values()
    for name in sorted(files.paths.keys() - wheels.keys()):
        try:
            sdist = distribution.read(files.paths[name])
            with sdist.path.open("rb") as stream:
                distribution.build_requirements(stream, filename=name)
            for requirement in sdist.needs.requires:  # ROCm/TheRock#7362
                of_extra = requirement.extras or "extra" in str(requirement.marker or "")
                if canonicalize_name(requirement.name) == sdist.name and not of_extra:
                    yield f"{name}: it requires itself: {requirement}"
        except CairnError as error:
            yield f"{name}: {error}"
    yield from files.missing.values()


def unmet(case: Case) -> Iterator[str]:
    """The requirements that the set does not meet, by the metadata that its index gives installers."""
    yield from locks.unmet(case.wheel_set, locks.metadata_of(case.store, case.wheel_set))


def _judged(case: Case, wheels: Mapping[str, Path]) -> tuple[dict[Path, tuple[Finding, ...]], dict[str, str]]:
    """The findings on wheels that are installed together, and those that cannot be read."""
    shipped, unreadable = _libraries(wheels)
    mirrored = {file.file_name for file in case.wheel_set.closure if file.origin == "mirrored"}
    verdicts: dict[Path, Verdict] = {}
    for name, expected in _expectations(case, shipped):
        if name in wheels and name not in unreadable:
            verdicts[wheels[name]] = judge_alone(wheels[name], expected)
    by_wheel: dict[Path, tuple[Finding, ...]] = {}
    for path, verdict in judge_together(verdicts, dict.fromkeys(verdicts, tuple(verdicts))).items():
        passed = _NOT_OF_MIRRORED if path.name in mirrored else set()
        by_wheel[path] = tuple(finding for finding in verdict.findings if finding.code not in passed)
    return by_wheel, unreadable


def counted(files: Files) -> str:
    """Say how many files `findings` has read: `8 wheels and 1 sdist`."""
    wheels = [name for name in files.paths if name.endswith(".whl")]
    sdists = files.paths.keys() - wheels
    return wording.count(wheels, "wheel") + (f" and {wording.count(sdists, 'sdist')}" if sdists else "")


def unreviewed(case: Case) -> Iterator[str]:
    """Files of the closure that the index has differently or not at all, or that nobody vouches for.

    In a store without a root, the builder's statement vouches for the ROCm SDK, and without a lock the rest
    needs nobody.
    """
    for file in case.wheel_set.closure:
        try:
            build = case.source.entry(ref(file.file_name, file.sha256)).build
        except CairnError as error:
            yield str(error)
            continue
        if build not in _BUILD_OF[file.origin]:
            yield f"{file.file_name} is {build} in {case.source.index.name}, and the set says {file.origin}"
    yield from _unvouched(case)


def _unvouched(case: Case) -> Iterator[str]:
    files, stack, lock = case.wheel_set.closure, case.stack, case.mirror_lock
    has_root = case.trust is not None and case.trust.builders is not None
    from_index = stack.takes_sdk and not case.wheel_set.for_cpu
    needs = from_index or (has_root and files)
    built_with = evidence.builder_statement(case.store, case.wheel_set).sdk if needs else {}
    if from_index and not built_with:
        yield "the builder does not say with which files of the ROCm SDK it was built: build it again"
    if has_root:
        yield from mirror_lock.unvouched(files, lock, built_with, believed=stack.makes_sdk)
        return
    of_sdk = [file for file in files if mirror_lock.is_of_sdk(project_of(file.file_name))]
    for file in of_sdk if from_index else ():
        if built_with.get(file.file_name) != file.sha256:
            yield f"{file.file_name} with sha256 {file.sha256} is not what the builder says it installed"
    if lock is not None:
        others = (file for file in files if file not in of_sdk)
        yield from mirror_lock.unvouched(others, lock, {}, believed=True)


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
    """What each file of the set is expected to be."""
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
        yield wheel.file_name, structs.replace(common, targets=targets, require_device_code=targets != (CPU,))
    for file in case.wheel_set.closure:
        # ROCm's own packages are of this place and have no manylinux tag; others come from PyPI. One that
        # requires torch (optree, for an extra) was not built against this one, and has no pin to it.
        yield (
            file.file_name,
            structs.replace(
                common,
                siblings={} if file.origin == "mirrored" else siblings,
                require_platform_tag=file.origin != "rocm-sdk",
            ),
        )


class _Manifest(msgspec.Struct, frozen=True):
    """The fields of a manifest that the gate needs, whichever version of Cairn wrote it."""

    stack: str
    line: str
    platform: str
    pythons: tuple[str, ...]
    targets: tuple[str, ...]
    platforms: tuple[str, ...] = ()
    off_line: tuple[str, ...] = ()


def not_of_stack(case: Case) -> Iterator[str]:
    """The ways in which the set differs from what the stack asks for."""
    made, stack = case.wheel_set, case.stack
    if (made.stack, made.line) != (stack.name, stack.line):
        yield f"it is of {made.stack}, line {made.line}, and not of {stack.name}, line {stack.line}"
    for axis, value, supported in (
        ("Python", made.python, stack.pythons),
        ("the platform", made.platform, stack.platforms),
    ):
        if supported and value not in supported:
            yield f"the stack is not for {axis} {value}, but for {', '.join(supported)}"
    have = {project.name for wheel in made.wheels if (project := case.project_of(wheel)) is not None}
    required = stack.gate.required or [p.name for p in stack.projects if not (p.rocm_only and made.for_cpu)]
    if lacking := [name for name in required if name not in have]:
        yield f"it has no {', '.join(lacking)}"
    if strange := [wheel.distribution for wheel in made.wheels if case.project_of(wheel) is None]:
        yield f"the stack has no project that makes {', '.join(strange)}"
    yield from _targets(case)


def _targets(case: Case) -> Iterator[str]:
    made = case.wheel_set
    gpus = [name for name in made.targets if name != targets.CPU]
    processors = {targets.parse_target_id(name).processor for name in gpus}
    members = targets.families().get(made.family)
    family = targets.family_of(made.targets or (targets.CPU,))
    if not (processors and processors <= set(members) if members else made.family == family):
        yield f"it is for {', '.join(made.targets)}, and calls itself {made.family}"
    for project in case.stack.projects:
        wheels = [wheel for wheel in made.wheels if case.project_of(wheel) == project]
        has = {name for wheel in wheels for name in wheel.targets}
        lacking = [name for name in gpus if name not in has]
        if project.device_code and wheels and lacking:
            yield f"{project.distribution} has no device code for {', '.join(lacking)}"


def not_of_split(case: Case, files: Files) -> Iterator[str]:
    """The host and device wheels that do not belong together, or that are missing from a split."""
    if not files.missing:
        wheels = [files.paths[wheel.file_name] for wheel in case.wheel_set.wheels]
        floor = case.stack.device_wheels.runtime
        yield from rules.split_problems(case.wheel_set, wheels, floor=floor, all_recorded=True)


def not_of_manifest(case: Case) -> Iterator[str]:
    """The ways in which the set contradicts the manifest that it names."""
    made = case.wheel_set
    key = keys.set_key(made.id, MANIFEST_FILE)
    data = case.store.read(key).data
    if hashlib.sha256(data).hexdigest() != made.manifest_sha256:
        yield "its manifest was changed"
        return
    try:
        manifest = datafile.decode(data, _Manifest)
    except msgspec.DecodeError as error:
        yield f"its manifest cannot be read: {error}"
        return
    for name in ("stack", "line", "platform"):
        if getattr(manifest, name) != getattr(made, name) and not (
            name == "platform" and made.platform in manifest.platforms
        ):
            yield f"the {name} of its manifest is {getattr(manifest, name)}, and not {getattr(made, name)}"
    if made.python not in manifest.pythons:
        yield f"its manifest is not for Python {made.python}"
    if lacking := [name for name in made.targets if name not in manifest.targets]:
        yield f"its manifest is not for {', '.join(lacking)}"
    if manifest.off_line and keys.is_gated(case.target.index.name):
        yield (
            f"the commit of {' and '.join(manifest.off_line)} is not that of {made.line}: somebody chose it "
            f"for a night whose sets stay in {keys.DEV}"
        )


def not_of_store(case: Case, files: Files) -> Iterator[str]:
    """The parts of the set that the store lacks, or has with other content."""
    yield from files.missing.values()
    for file in case.wheel_set.files:
        if file.file_name not in files.paths:
            continue
        if sha256_of(files.paths[file.file_name]) != file.sha256:
            yield f"{file.file_name} was changed in the store"
            continue
        try:
            yield from _differences(case, file, files)
        except CairnError as error:
            yield f"{file.file_name}: {error}"
    for key, data in set_objects(case.wheel_set).items():
        if not case.store.exists(key) or case.store.read(key).data != data:
            yield f"{key}, from which the set was tested, does not say what the set is"


def _differences(case: Case, file: SetWheel | ClosureFile, files: Files) -> Iterator[str]:
    """The differences between the set, the index and the file itself."""
    entry = case.source.entry(ref(file.file_name, file.sha256))
    yield from _listed_otherwise(case, file)
    path = files.paths[file.file_name]
    if path.stat().st_size != file.size:
        yield f"{file.file_name} has {path.stat().st_size} bytes, and set.json says {file.size}"
    if file.metadata_sha256 is not None:
        beside = case.store.read(keys.sidecar_key(file.sha256, file.file_name)).data
        if hashlib.sha256(beside).hexdigest() != file.metadata_sha256:
            yield f"the metadata beside {file.file_name} was changed"
    if isinstance(file, SetWheel):
        if entry.build != case.wheel_set.manifest_sha256:
            yield f"{file.file_name} is of a different build than the set: {short_id(entry.build)}"
        # `not_of_store` has compared its bytes with that sha256.
        if wheels_to_set.describe(path, sha256=file.sha256) != file:
            yield f"{file.file_name} is not what set.json says of it"


def _listed_otherwise(case: Case, file: SetWheel | ClosureFile) -> Iterator[str]:
    expected = (file.size, file.metadata_sha256, file.requires_python)
    for snapshot in (case.source, case.target):
        entry = snapshot.project(project_of(file.file_name)).file(file.file_name)
        if entry is not None and (entry.size, entry.metadata_sha256, entry.requires_python) != expected:
            yield f"{file.file_name}: set.json and {snapshot.index.name} say different things of it"


_MEND = "mend it, or allow it by name, reason and expiry in the file that the gate's `allow` names"


def last_set(case: Case) -> IndexSet | None:
    """The last set of the target that is for the same place as the case's, and not yanked."""
    made = case.wheel_set
    same = [
        entry
        for entry in case.target.sets()
        if entry.yanked is None
        and (entry.stack, entry.line, entry.family) == (made.stack, made.line, made.family)
        and (entry.python, entry.platform) == (made.python, made.platform)
    ]
    return max(same, key=lambda entry: (entry.added, entry.set_id), default=None)


def over_budget_or_broken(case: Case, files: Files) -> Iterator[tuple[Path, Finding]]:
    """The wheels of the set that are over budget or break a consumer, each with the finding.

    Raises:
        StoreError: the last set cannot be read.
        WheelError: a wheel of the set, or of the last one, cannot be read.
    """
    if not (case.stack.budgets or case.stack.consumers) or files.missing:
        return
    last = last_set(case)
    if last is None or last.set_id == case.wheel_set.id:
        yield from _over_budget(case, files, {})
        return
    before = {
        wheel.distribution: keys.file_key(wheel.sha256, wheel.file_name)
        for wheel in read_set(case.store, last.set_id).wheels
    }
    with transfer.as_files(case.store, before.values()) as paths:
        old = {name: paths[key] for name, key in before.items()}
        yield from _over_budget(case, files, old)
        yield from _broken(case, files, list(old.values()), read_set(case.store, last.set_id))


def _over_budget(case: Case, files: Files, old: Mapping[str, Path]) -> Iterator[tuple[Path, Finding]]:
    users = [consumer.name for consumer in case.stack.consumers]
    seconds = min(
        (s for entry in case.set_records.records if (s := entry.record.import_seconds)), default=0.0
    )
    for wheel in case.wheel_set.wheels:
        project = case.project_of(wheel)
        budget = case.stack.budgets.get(project.name) if project else None
        if budget is None:
            continue
        path, before = files.paths[wheel.file_name], old.get(wheel.distribution)
        last = read_interface(before, python=False) if before else None
        read = read_interface(path, python=False)
        for name, text in budgets.over(budget, last, read, import_seconds=seconds):
            reason = f"{text} (consumers: {wording.some(users)})" if users else text
            yield path, Finding(code=FindingCode.OVER_BUDGET, member=name, reason=reason, fix=_MEND)


def _broken(case: Case, files: Files, old: Sequence[Path], last: WheelSet) -> Iterator[tuple[Path, Finding]]:
    made, code = case.wheel_set, FindingCode.CONSUMER_BREAKS
    set_files = {wheel.distribution: files.paths[wheel.file_name] for wheel in made.wheels}
    first = next(iter(set_files.values()))
    place = Platform(python=made.python, tag=made.platform)
    with fetched(case.stack.consumers, place=place, store=case.store, family=made.family) as (
        wheels,
        unknown,
    ):
        judged = consumers.judge(
            old, list(set_files.values()), wheels, markers=place.markers(), unknown=unknown
        )
        lost: Mapping[Path, str] = {}
        try:
            read = {wheel: wheel_info.read(wheel) for wheel in wheels if wheel.name in judged.consumers}
            lost = installation.lost_imports(
                case, last, [path for path in read if read[path].distribution not in set_files]
            )
        except (CairnError, OSError) as error:
            judged = structs.replace(judged, unknown={**judged.unknown, "a consumer": str(error)})
        for wheel, why in lost.items():
            name = read[wheel].distribution
            required = [
                canonicalize_name(wheel_info.requirement(text).name) for text in read[wheel].requires_dist
            ]
            provider = next((set_files[project] for project in required if project in set_files), first)
            reason = f"{name} {read[wheel].version} can no longer be imported: {why}"
            yield provider, Finding(code=code, member=name, reason=reason, fix=_MEND)
    for name, why in judged.unknown.items():
        reason = f"whether {name} breaks is not known: {why}"
        yield first, Finding(code=code, member=name, reason=reason, fix=_MEND)
    for breakage in judged.breaks:
        yield (
            set_files[breakage.provider],
            Finding(code=code, member=breakage.consumer, reason=str(breakage), fix=_MEND),
        )
