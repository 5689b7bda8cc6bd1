"""Finish a wheel after the build backend: version, pins, repair, bill of materials, verify.

A change of these steps that changes wheels raises `cairn.build.plan.POSTPROCESS_VERSION`.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import targets as gpu
from cairn import venv
from cairn.build.inputs import machine, variables
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.build.plan import BuildStep
from cairn.errors import WheelError
from cairn.output import console
from cairn.sources.git.repository import root_at
from cairn.venv import VirtualEnvironment
from cairn.wheels import repair, sbom
from cairn.wheels.metadata import rocm_version, wheel_info
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.verify import Expectation, verify
from cairn.wheels.verify.findings import apply_allowed, read_allowed

_SHOWN = 5  # findings named in the error
_VERSION_MODULE = re.compile(r"[^/]+/_?version\.py")


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """A build step in progress.

    Attributes:
        step: the project.
        request: the build.
        built: the wheels of the projects before it.
        env: the environment it is built in.
        values: of the placeholders.
        stage: shown to the user while it runs.
        log: receives the output of the programs that are run.
    """

    step: BuildStep
    request: BuildRequest
    built: Mapping[str, BuiltWheel]
    env: VirtualEnvironment
    values: Mapping[str, str]
    stage: console.Stage
    log: Path


def finish(wheel: Path, context: Context, output_dir: Path, *, sources: Sequence[sbom.Source]) -> Path:
    """Finish the wheel of a build backend for publishing.

    Args:
        wheel: what it made.
        context: of the build.
        output_dir: receives the wheel.
        sources: the commits that it was made of, for the bill of materials.

    Raises:
        WheelError: `verify` has findings (the first are in the message), or it is of a different version than
            was asked for.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    provided = provided_libraries(context)
    _require_version(wheel, context)
    edited = _edit(wheel, context, output_dir / "edited", commit=sources[0].commit)
    installed = context.request.sdk
    sdk = venv.describe(installed.environment).site_packages if installed else None
    # Repair may graft libraries into the wheel; the bill of materials lists what is there in the end.
    library_path = context.request.env_of(context.step.project).get("LD_LIBRARY_PATH", "")
    search = [Path(folder) for folder in library_path.split(os.pathsep) if folder]
    libc = platform.libc_ver()[0] or "musl"  # which that function does not know
    repaired = repair.repair_linked(
        edited, output_dir / "repaired", exclude=provided, sdk=sdk, search=search, libc=libc
    )
    sbom_member = sbom.add(
        repaired,
        output_dir / "listed",
        sources=sources,
        rocm_version=installed.info.version if installed else None,
    )
    _verify(sbom_member, context, provided)
    return sbom_member


def provided_libraries(context: Context) -> tuple[str, ...]:
    """Return the libraries that other packages provide at run time: the SDK's, siblings', the stack's."""
    stack = context.request.stack
    needed = [stack.project(name).distribution for name in context.step.needs]
    needed += [Requirement(text).name for text in stack.extra_wheels]
    # They are on the loader's path, or loaded, before the wheel's own are; repair must not copy them into it.
    libraries = set(installed_libraries(context.env, needed))
    if context.request.sdk is not None:
        packages = venv.describe(context.request.sdk.environment).site_packages
        libraries |= {path.name for path in packages.glob("_rocm_sdk_*/**/*.so*")}
    return tuple(sorted(libraries))


def installed_libraries(env: VirtualEnvironment, distributions: Sequence[str]) -> tuple[str, ...]:
    """Return the file names of shared libraries in installed distributions, from their RECORDs."""
    names = {canonicalize_name(name) for name in distributions}
    libraries = set()
    for distribution in importlib.metadata.distributions(path=[str(env.site_packages)]):
        if canonicalize_name(distribution.metadata["Name"]) in names:
            libraries |= {path.name for path in distribution.files or () if ".so" in path.suffixes}
    return tuple(sorted(libraries))


def _require_version(wheel: Path, context: Context) -> None:
    """Refuse a wheel whose backend ignored the requested version, which other wheels pin."""
    project, expected = context.step.project, context.values.get("version")
    version = wheel_info.read(wheel).version
    if expected is None or project.version_edit or Version(version) == Version(expected):
        return
    if Version(rocm_version.again(version, context.request.again(project))) == Version(expected):
        return  # `_edit` adds the mark
    raise WheelError(
        f"{project.name} was built as version {version}, and was to be {expected}",
        tip="its build reads no version from what stack.toml sets: say `version_edit = true` there, or give "
        "the variable that it reads",
    )


def _edit(wheel: Path, context: Context, output_dir: Path, *, commit: str) -> Path:
    """Write into a wheel what its backend did not: version, exact pins, upstream's commit."""
    info = wheel_info.read(wheel)
    project, suffix, version = context.step.project, context.request.suffix_of(context.step.project), None
    # A backend that takes the whole version from a variable has written the suffix already.
    if not info.version.endswith(suffix):
        if project.version_edit:
            version = info.version + suffix
        elif number := context.request.again(project):
            version = rocm_version.again(info.version, number)
    values = {**context.values, "version": version or info.version}
    pins = variables.exact_requirements(project, values, request=context.request)
    requirements = [wheel_info.requirement(text) for text in info.requires_dist]
    missing = {
        canonicalize_name(Requirement(pin).name): pin for pin in pins if Requirement(pin) not in requirements
    }
    modules = _version_modules(wheel, root_at(context.step.checkout).head() or commit, commit)
    with zipfile.ZipFile(wheel) as archive:
        members = frozenset(archive.namelist())
    added = machine.missing_members(context.request, project, context.step.checkout, members)
    if version is None and not missing and not modules and not added:
        return wheel
    present = {canonicalize_name(requirement.name) for requirement in requirements}
    change = rewrite_wheel.Edit(
        version=version,
        replace_requirements={name: pin for name, pin in missing.items() if name in present},
        add_requirements=tuple(pin for name, pin in missing.items() if name not in present),
        replace_files=modules,
        add_files=added,
    )
    output_dir.mkdir()
    return rewrite_wheel.edit_wheel(wheel, change, output_dir)


def _version_modules(wheel: Path, head: str, commit: str) -> dict[str, bytes]:
    """Return the version modules of a wheel that name HEAD, with upstream's commit in its place.

    torch, vision and audio write HEAD there, as `git_version` (their setup.py). Hipify's commit, or that of a
    developer, exists nowhere else.
    """
    if head == commit:
        return {}
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if _VERSION_MODULE.fullmatch(name)]
        texts = {name: archive.read(name) for name in names}
    old, new = head.encode(), commit.encode()
    return {name: text.replace(old, new) for name, text in texts.items() if old in text}


def texts_of(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return the texts that would reveal these folders in a wheel's files, with links resolved and not."""
    paths = dict.fromkeys(str(path) for folder in folders for path in (folder, folder.resolve()))
    # One of a single name, as in a container, is in addresses as well: `github.com/pytorch/pytorch`.
    return tuple(
        text
        for path in paths
        for text in ([f"{before}{path}/" for before in "\0\"' =:"] if path.count("/") == 1 else [path])
    )


def _verify(wheel: Path, context: Context, provided: Sequence[str]) -> None:
    """Refuse a wheel with findings of `verify`, which include paths of this machine in its files.

    Findings that the stack's gate allows are allowed here too.
    """
    request, step = context.request, context.step
    trees = (step.checkout, request.checkouts[step.project.name])
    expected = Expectation(
        targets=request.targets if step.project.device_code else (gpu.CPU,),
        require_device_code=step.project.device_code and not request.for_cpu,
        siblings={request.stack.project(n).distribution: w.version for n, w in context.built.items()},
        provided_libraries=tuple(provided),
        # A build back end that drops it makes a torch that finds no library (ROCm/TheRock#6965).
        members=(step.project.rocm_init,) if step.project.rocm_init and not request.for_cpu else (),
        python=request.python.version,
        forbidden_strings=texts_of((*trees, request.work_dir, context.env.path)),
    )
    allowed = request.stack.gate.allow
    entries = read_allowed([Path(allowed)] if allowed else [])
    judged = apply_allowed({wheel: verify(wheel, expected)}, entries, today=datetime.now(UTC).date())
    if findings := judged.findings[wheel]:
        sbom_member = "; ".join(f"{f.code} {f.member or ''}: {f.reason}" for f in findings[:_SHOWN])
        raise WheelError(
            f"{wheel.name} was built, but must not be published: {sbom_member}", tip=findings[0].fix
        )
