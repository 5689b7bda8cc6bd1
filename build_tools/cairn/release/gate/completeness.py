"""The last demand: the set is what the stack asks for, whole, and the store has all that it names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from cairn import datafile, targets
from cairn.errors import CairnError
from cairn.files import sha256_of
from cairn.release.gate.case import Case, Files, ref
from cairn.release.index import keys
from cairn.release.index.snapshot import MANIFEST_FILE
from cairn.release.index.write import set_objects
from cairn.release.publish import rules
from cairn.wheels import wheels_to_set
from cairn.wheels.wheelset import ClosureFile, SetWheel


class _Manifest(msgspec.Struct, frozen=True):
    """What matters here of a manifest, whichever version of Cairn wrote it."""

    stack: str
    line: str
    platform: str
    pythons: tuple[str, ...]
    targets: tuple[str, ...]
    platforms: tuple[str, ...] = ()


def of_stack(case: Case) -> Iterator[str]:
    """How the set is not what the stack asks for."""
    made, stack = case.wheel_set, case.stack
    if (made.stack, made.line) != (stack.name, stack.line):
        yield f"it is of {made.stack}, line {made.line}, and not of {stack.name}, line {stack.line}"
    for what, value, known in (
        ("Python", made.python, stack.pythons),
        ("the platform", made.platform, stack.platforms),
    ):
        if known and value not in known:
            yield f"the stack is not for {what} {value}, but for {', '.join(known)}"
    have = {project.name for wheel in made.wheels if (project := case.project_of(wheel)) is not None}
    required = stack.gate.required or [p.name for p in stack.projects if not (p.rocm_only and case.for_cpu)]
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


def of_split(case: Case, files: Files) -> Iterator[str]:
    """How host wheels and device wheels do not belong together, or are not all that was split."""
    if not files.missing:
        wheels = [files.paths[wheel.file_name] for wheel in case.wheel_set.wheels]
        floor = case.stack.device_wheels.runtime
        yield from rules.split_problems(case.wheel_set, wheels, floor=floor, all_recorded=True)


def of_manifest(case: Case) -> Iterator[str]:
    """How the set is not of the manifest that it names."""
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


def of_store(case: Case, files: Files) -> Iterator[str]:
    """What the store lacks of the set, or has differently."""
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
    """How the set, the index and the file itself say different things."""
    entry = case.source.entry(ref(file.file_name, file.sha256))
    listed = (file.size, file.metadata_sha256, file.requires_python)
    if (entry.size, entry.metadata_sha256, entry.requires_python) != listed:
        yield f"{file.file_name}: set.json and {case.source.index.name} say different things of it"
    path = files.paths[file.file_name]
    if path.stat().st_size != file.size:
        yield f"{file.file_name} has {path.stat().st_size} bytes, and set.json says {file.size}"
    if file.metadata_sha256 is not None:
        beside = case.store.read(keys.sidecar_key(file.sha256, file.file_name)).data
        if hashlib.sha256(beside).hexdigest() != file.metadata_sha256:
            yield f"the metadata beside {file.file_name} was changed"
    if isinstance(file, SetWheel):
        if entry.build != case.wheel_set.manifest_sha256:
            yield f"{file.file_name} is of a different build than the set: {entry.build[:12]}"
        if wheels_to_set.describe(path) != file:
            yield f"{file.file_name} is not what set.json says of it"
