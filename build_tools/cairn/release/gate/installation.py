"""The demand `gate.INSTALLS`: pip and uv can install the set from the index as it will be.

uv resolves for any Python and platform, so it always has an answer. pip and uv install where an interpreter
of the set is available, into temporary environments (`install`); where none is, the judgement and the pages
say that installation was not tried.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import Version

from cairn import interpreters, isolation, process, venv
from cairn.errors import CairnError, ProcessError, UsageError
from cairn.formats.zip.reader import Archive
from cairn.output import console, wording
from cairn.output.console import size as readable_size
from cairn.output.wording import short_id
from cairn.release.gate.case import Case, Files
from cairn.release.index import keys, write
from cairn.release.index.generation import FileEntry, IndexSet, comparable, project_of, version_of
from cairn.release.index.snapshot import read_set
from cairn.release.publish import distribution
from cairn.release.publish.compatibility import Platform
from cairn.release.publish.resolve import resolve_set
from cairn.release.serve import serving
from cairn.store.memory import OverlayStore
from cairn.store.protocol import Store
from cairn.targets import CPU
from cairn.wheels.wheelset import SetWheel, WheelSet

Installer = Literal["pip", "uv"]
Extras: TypeAlias = tuple[SetWheel, tuple[str, ...], tuple[str, ...]]  # see `extras_of`
_TIMEOUT = 3600.0  # seconds; a torch wheel of gigabytes on a slow disk takes minutes
_IGNORED_EXTRA = "does not provide the extra"  # pip and uv only warn, and install something incomplete
_UNTRIED = {"__main__", "conftest", "setup", "test", "tests", "testing"}  # parts of modules
_INSTALLERS: tuple[Installer, ...] = ("pip", "uv")


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of resolving and installing a set.

    Attributes:
        problems: why it cannot be installed as it was tested, a sentence each.
        metadata_size: bytes that an installer reads to choose the files; None if it cannot choose them.
        installed_with: the installers that installed it.
        note: what was done, or why something could not be tried.
    """

    problems: tuple[str, ...]
    metadata_size: int | None = None
    installed_with: tuple[str, ...] = ()
    note: str = ""


def judge(case: Case, files: Files) -> Installation:
    """Resolve the set from the index as it will be, and install it where an interpreter is available."""
    extras = tuple(extras_of(case, files))
    requested = requirements(extras)
    try:
        resolution = resolve_set(case.after, case.wheel_set)
        problems = resolution.problems
        read = None if problems else resolution.metadata_bytes
    except CairnError as error:
        problems, read = (str(error),), None
    problems += tuple(no_longer_resolving(case))
    count, size = len(case.wheel_set.files), readable_size(sum(file.size for file in case.wheel_set.files))
    note = f"uv chooses the {count} files of the set, {size}, after reading {readable_size(read or 0)}"
    for wheel, _, absent in extras:
        if absent:
            note = f"{note}; {wheel.distribution} has no wheel here for its extras {', '.join(absent)}"
    try:
        python = interpreter(case)
    except CairnError as error:
        return Installation(problems=(*problems, str(error)), metadata_size=read)
    if python is None:
        place = f"Python {case.wheel_set.python} for {case.wheel_set.platform}"
        note = f"{note}; not installed, since no {place} is at hand"
        return Installation(problems=problems, metadata_size=read, note=note)
    failed, installers = _installed(case, requested, python)
    return Installation(
        problems=(*problems, *failed),
        metadata_size=read,
        installed_with=installers,
        note=f"{note}; {' and '.join(installers)} installed them",
    )


def no_longer_resolving(case: Case) -> Iterator[str]:
    """The sets of the target that would no longer resolve to what they were tested with, a sentence each.

    A set that brings a newer version of what they need, unpinned, would have installers take that version
    with them too, which nobody has tested.

    Only those sets are resolved that need a project for which the promotion brings a file that they could
    take. A set that already resolves to something else, for whatever reason, does not block the promotion.
    """
    coming = _coming(case)
    for entry in case.target.sets():
        if entry.yanked is not None or entry.set_id == case.wheel_set.id or not _may_concern(entry, coming):
            continue
        staying = read_set(case.store, entry.set_id)
        if not _concerned(staying, coming):
            continue
        problems = resolve_set(case.after, staying).problems
        if problems and not resolve_set(case.target, staying).problems:
            versions = ", ".join(f"{wheel.distribution} {wheel.version}" for wheel in staying.wheels)
            yield (
                f"{case.target.index.name} has the set {short_id(entry.set_id)} ({versions}), which would "
                f"not be what was tested any more: {'; '.join(problems)}: seal the new set with what it has, "
                f"or take that one off first (cairn release retain, or yank)"
            )


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one installer.

    Attributes:
        installer: which.
        problem: why the set cannot be installed, in one sentence; None if it can.
        installed: `name==version` of everything in the environment afterwards.
        imports: each module that was asked for and cannot be imported, with the error.
    """

    installer: Installer
    problem: str | None
    installed: tuple[str, ...] = ()
    imports: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def versions(self) -> frozenset[tuple[str, Version]]:
        """The installed projects, by normalised name, with their versions."""
        pairs = (line.split("==", 1) for line in self.installed)
        return frozenset((str(canonicalize_name(name)), Version(version)) for name, version in pairs)


def install(
    installer: Installer,
    requirements: Sequence[str],
    *,
    index_url: str,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
    beside: Mapping[Path, Iterable[str]] = MappingProxyType({}),
) -> Trial:
    """Install `requirements` from one index alone, ignoring the user's own configuration.

    Args:
        installer: pip or uv.
        requirements: what to install.
        index_url: the only index.
        python: the interpreter to make the environment with; None is ours.
        environment: further variables for the installer.
        beside: wheels that are installed afterwards, without what they require; each with modules to import.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cairn-trial-") as folder,
        isolation.own_home(index_url) as home,
    ):
        # Caches of its own: one that earlier installations filled would hide a file that is not on the index.
        env = isolation.variables(isolation.Isolation.INSTALLER, home)
        env |= {"UV_CACHE_DIR": str(Path(folder, "uv")), **(environment or {})}
        uv_pip = [venv.uv_program(), "pip"]
        try:
            inside = venv.create(Path(folder, "venv"), python=python, environ=env).python
            head: dict[Installer, list[str | Path]] = {
                # Neither a cache of downloads nor bytecode outlives the trial: of torch, half the time.
                "pip": [*venv.pip_command(inside), "--isolated", "--no-cache-dir", "--no-compile"],
                "uv": [*uv_pip, "install", "--no-config", "--python", inside],
            }
            installed = process.run(
                [*head[installer], "--index-url", index_url, *requirements],
                env=env,
                timeout=_TIMEOUT,
                writes=[Path(folder)],
                network=True,
            )
            if beside:
                offline: list[str | Path] = ["--no-config", "--no-index", "--no-deps", "--python", inside]
                process.run([*uv_pip, "install", *offline, *beside], env=env, writes=[Path(folder)])
            else:
                process.run([*uv_pip, "check", "--no-config", "--python", inside], env=env)
            frozen = process.run([*uv_pip, "freeze", "--no-config", "--python", inside], env=env)
            modules = itertools.chain.from_iterable(beside.values())
            imports = {module: error for module in modules if (error := _import_error(inside, module, home))}
        except ProcessError as error:
            return Trial(installer=installer, problem=_reason(error))
    ignored = next((line.strip() for line in installed.output.splitlines() if _IGNORED_EXTRA in line), None)
    names = tuple(line for line in frozen.output.splitlines() if "==" in line)
    return Trial(installer=installer, problem=ignored, installed=names, imports=imports)


def _import_error(python: Path, module: str, home: Path) -> str:
    """Why a module cannot be imported, in one line; empty if it can."""
    line = "import importlib, sys; importlib.import_module(sys.argv[1])"
    variables = isolation.variables(isolation.Isolation.TEST, home)
    try:
        process.run([python, "-I", "-c", line, module], cwd=home, env=variables, timeout=_TIMEOUT)
    except ProcessError as error:
        return next(iter(process.tail(error.output, 1)), "") or str(error)
    return ""


def _reason(error: ProcessError) -> str:
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "no matching" in line.lower()]
    chosen = errors or lines[-3:] or [str(error)]
    return " ".join(chosen[:4])[:600]


def lost_imports(case: Case, last: WheelSet, consumers: Sequence[Path]) -> dict[Path, str]:
    """Import the modules of consumers beside the set, and beside the last one what fails.

    Nothing else of what consumers require is installed: a module that fails beside both sets is no loss. What
    was not compared is said.

    Args:
        case: the set, and the index as it will be.
        last: the set of that index that it follows.
        consumers: their wheels; those of the set's own projects are left out.

    Returns:
        For each wheel of which a module is lost, the first error. Nothing where no interpreter is at hand.

    Raises:
        CairnError: one of the sets cannot be installed with the consumers.
    """
    python = interpreter(case)
    failing = {wheel: _modules_of(wheel) for wheel in consumers}
    if python is None and consumers:
        names = wording.some([wheel.name for wheel in consumers])
        console.current().warn(f"consumers were not imported, since no interpreter is at hand: {names}")
    errors, before = dict[str, str](), failing
    with serving(as_it_will_be(case)) as server:
        for wheel_set in (case.wheel_set, last):
            if python is None or not any(failing.values()):
                return {}
            trial = install(
                "uv",
                [f"{wheel.distribution}=={wheel.version}" for wheel in wheel_set.wheels],
                index_url=keys.index_url(server.url, case.target.index.name),
                python=python,
                environment=_environment(wheel_set),
                beside=failing,
            )
            if trial.problem is not None:
                raise CairnError(trial.problem)
            fails = wheel_set is case.wheel_set
            before = failing
            failing = {
                wheel: tuple(module for module in modules if (module in trial.imports) is fails)
                for wheel, modules in failing.items()
            }
            errors = errors or dict(trial.imports)
    for wheel, modules in before.items():
        if unlike := [module for module in modules if module not in failing[wheel]]:
            text = f"{wheel.name}: not compared, since they can be imported beside neither set"
            console.current().warn(f"{text}: {wording.some(unlike)}")
    return {wheel: f"{modules[0]}: {errors[modules[0]]}" for wheel, modules in failing.items() if modules}


def _modules_of(wheel: Path) -> tuple[str, ...]:
    """The modules of a wheel that are Python files, but its tests and programs."""
    with Archive.open(wheel) as archive:
        paths = [PurePosixPath(member.name) for member in archive.members]
    names = [path.with_suffix("").parts for path in paths if path.suffix == ".py"]
    return tuple(
        sorted(
            ".".join(parts).removesuffix(".__init__")
            for parts in names
            if all(map(str.isidentifier, parts)) and not _UNTRIED.intersection(parts)
        )
    )


def _environment(wheel_set: WheelSet) -> dict[str, str]:
    # The `rocm` sdist chooses its libraries for this, where there is no GPU to ask.
    return {} if wheel_set.family == CPU else {"ROCM_SDK_TARGET_FAMILY": wheel_set.family}


def _coming(case: Case) -> dict[str, list[FileEntry]]:
    """The files that the target would offer newly or again, by project."""
    coming: dict[str, list[FileEntry]] = {}
    for name in case.after.changed.projects:
        old = {file.filename for file in case.target.project(name).files if file.yanked is None}
        new = [file for file in case.after.project(name).files if file.filename not in old]
        if new:
            coming[name] = new
    return coming


def _may_concern(entry: IndexSet, coming: dict[str, list[FileEntry]]) -> bool:
    """Whether a set need be read for `_concerned`: the index has the versions of its own wheels."""
    projects = entry.projects
    return any(
        name not in projects or any(comparable(file.version) == comparable(projects[name]) for file in files)
        for name, files in coming.items()
    )


def _concerned(staying: WheelSet, coming: dict[str, list[FileEntry]]) -> bool:
    """Whether installers could take one of these files for a set; its own wheels are pinned exactly."""
    expected = {(wheel.distribution, Version(wheel.version)) for wheel in staying.wheels}
    pinned = {name for name, _ in expected}
    names = {project_of(file.file_name) for file in staying.files}
    platform = Platform(python=staying.python, tag=staying.platform)
    return any(
        platform.fits(file) and (name not in pinned or (name, Version(file.version)) in expected)
        for name in names & coming.keys()
        for file in coming[name]
    )


def requirements(extras: Iterable[Extras]) -> tuple[str, ...]:
    """The requirements to install a set: each wheel, pinned to its version, with every extra it has."""
    return tuple(
        f"{wheel.distribution}{f'[{names}]' if names else ''}=={wheel.version}"
        for wheel, given, _ in extras
        for names in [",".join(given)]
    )


def extras_of(case: Case, files: Files) -> Iterator[Extras]:
    """Yield each wheel of the set, the extras that the set has, and those for device wheels of other sets.

    Raises:
        CairnError: one of them cannot be read.
    """
    expected = {wheel.distribution for wheel in case.wheel_set.wheels}
    for wheel in case.wheel_set.wheels:
        path = files.paths.get(wheel.file_name)
        if path is None:
            yield wheel, (), ()
            continue
        needs = distribution.read(path, sha256=wheel.sha256).needs  # `files_of_set` compares that
        given = distribution.extras_beside(needs, wheel.distribution, expected)
        yield wheel, given, tuple(extra for extra in needs.extras if extra not in given)


def interpreter(case: Case) -> Path | None:
    """An interpreter on this machine that the set is for; None if there is none.

    Raises:
        UsageError: the interpreter that was named is for something else.
    """
    target, here = Platform(python=case.wheel_set.python, tag=case.wheel_set.platform), Platform.here()
    if case.python is not None:
        if not _is_for(interpreters.ask(case.python), target):
            raise UsageError(
                f"{case.python} is not {target}, which the set is for",
                tip="name one that is, or leave --python out",
            )
        return case.python
    if _is_for(interpreters.current(), target):
        return Path(sys.executable)
    if not target.may_run_on(here):
        return None
    fitting = (python for python in interpreters.of_version(target.python) if _is_for(python, target))
    return next((python.path for python in fitting), None)


def _is_for(python: interpreters.Interpreter, target: Platform) -> bool:
    return python.version == target.python and target.is_same_machine(
        Platform(python=python.version, tag=python.platform)
    )


def as_it_will_be(case: Case) -> Store:
    """The store, overlaid with the pages that the target will have."""
    prefix = keys.simple_prefix(case.target.index.name)
    names = {project_of(name) for name in case.wheel_set.sha256s} | case.after.changed.projects.keys()
    pages: dict[str, bytes] = {}
    for name in sorted(names):
        page = write.page_after(case.target, case.after.project(name))
        pages |= {f"{prefix}{name}/index.json": page.json, f"{prefix}{name}/index.html": page.html}
    return OverlayStore(case.store, pages)


def _installed(case: Case, requested: Sequence[str], python: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The problems of installing the set, and the installers that succeeded."""
    of_set = {(project_of(name), Version(version_of(name))) for name in case.wheel_set.sha256s}
    expected = {(wheel.distribution, Version(wheel.version)) for wheel in case.wheel_set.wheels}
    problems, installers = [], []
    with serving(as_it_will_be(case)) as server:
        for installer in _INSTALLERS:
            trial = install(
                installer,
                requested,
                index_url=keys.index_url(server.url, case.target.index.name),
                python=python,
                environment=_environment(case.wheel_set),
            )
            strange = sorted(f"{name} {version}" for name, version in trial.versions - of_set)
            if trial.problem:
                problems.append(f"{installer}: {trial.problem}")
            elif strange or not expected <= trial.versions:
                problems.append(
                    f"{installer} installed something else: {', '.join(strange or trial.installed)}"
                )
            else:
                installers.append(installer)
    return tuple(problems), tuple(installers)
