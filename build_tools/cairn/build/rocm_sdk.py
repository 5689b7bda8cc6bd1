"""Make the ROCm SDK, if the stack brings its own, and install it into a separate environment.

Builds import it from there (`venv.share`): it has many gigabytes, and one copy serves all projects.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import datafile, files, formats, isolation, process, simple_index, venv
from cairn import targets as gpu
from cairn.build import cache, environments
from cairn.build.inputs import variables
from cairn.build.model import InstalledSdk, SdkRequest
from cairn.errors import CairnError, NetworkError, PrerequisiteError, ProcessError, UsageError
from cairn.interpreters import Interpreter
from cairn.output import Progress
from cairn.rocm import install as rocm
from cairn.rocm.install import SdkInfo
from cairn.stack import Sdk, Stack
from cairn.venv import PackageSource

_MARKER = "cairn-sdk.json"
_WAIT = 3600.0  # seconds that another run may take to make one
_LIBRARIES = re.compile(r"rocm-sdk-(?:libraries|device)-(.+)")
_SCRIPT = re.compile(r"(\.\./)+(bin|Scripts)/")  # of a RECORD: where an environment has its programs


class _Marker(datafile.Value, tag_field="schema", tag="cairn.sdk-environment/1"):
    """The SDK in an environment; written last, so that an unfinished environment has none."""

    request: str
    digest: str
    version: str
    targets: tuple[str, ...]
    root: str
    bin: str
    cmake: str
    python: str = ""  # the only one that its packages are for; empty for any
    files: Mapping[str, str] = {}
    index_url: str | None = None
    find_links: tuple[str, ...] = ()

    def sdk(self, environment: Path) -> InstalledSdk:
        """The SDK in this environment."""
        folders = {"root": Path(self.root), "bin": Path(self.bin), "cmake": Path(self.cmake)}
        info = rocm.SdkInfo(version=self.version, targets=self.targets, **folders)
        source = PackageSource(index_url=self.index_url, find_links=self.find_links)
        return InstalledSdk(
            environment=environment, info=info, digest=self.digest, files=self.files, source=source
        )


def recipe(stack: Stack) -> tuple[Sdk, Path, str]:
    """Return the SDK that a stack brings itself, its packaging description, and its version.

    Raises:
        UsageError: the stack brings none.
    """
    sdk = stack.sdk
    if sdk is None or not sdk.build or sdk.packages is None or sdk.version is None:
        raise UsageError(
            f"the stack {stack.name} does not say how to make its ROCm SDK",
            tip="`cairn build --install-rocm --index-url URL` builds with one from an index",
        )
    return sdk, Path(sdk.packages), sdk.version


def make(
    stack: Stack, targets: Sequence[str], work_dir: Path, *, log: Path, say: Progress
) -> tuple[Path, ...]:
    """Make the SDK packages of a stack that brings its own SDK, unless this machine has made them already.

    Args:
        stack: the stack, with an `[sdk]` that has a `build` command.
        targets: GPU targets the SDK must serve.
        work_dir: where the packages go, into one folder for each distinct input.
        log: receives the output of the programs that are run.
        say: called with a line of progress.

    Returns:
        The distributions: one sdist and the wheels.

    Raises:
        PrerequisiteError: the machine lacks what the SDK is made of.
        ProcessError: the `build` command failed.
    """
    from cairn.rocm import package  # noqa: PLC0415 - only a stack that brings its SDK needs it

    sdk, packages, version = recipe(stack)
    inputs = {
        "machine": _of_machine(stack, sdk),
        "sources": _digests(packages.parent),
        "packager": [_digests(Path(package.__file__).parent), _digests(Path(*formats.__path__))],
        "build": [*sdk.build, *sdk.build_requires],
        "version": version,
        "targets": list(targets),
    }
    key = cache.key_of(inputs)[:16]
    folder, shared = work_dir / key, files.cache_dir() / "sdk" / key
    lock, everyones = work_dir / "sdk.lock", shared.with_suffix(".lock")
    with files.locked(lock, timeout=_WAIT), files.locked(everyones, timeout=_WAIT):
        if not (shared / "dists").is_dir():
            _trim(shared.parent)
            prefix = _build_prefix(stack, sdk, targets, shared, log=log, say=say)
            say("packaging it")
            with files.folder_beside(shared / "dists") as part:
                package.package(
                    package.PackageRequest(
                        prefix=prefix,
                        description=packages,
                        version=version,
                        targets=tuple(targets),
                        family=gpu.family_of(targets),
                        output_dir=part,
                    )
                )
            # The packages have all that they need of these, which are as large as the whole SDK.
            for name in ("prefix", "tools"):
                shutil.rmtree(shared / name, ignore_errors=True)
        os.utime(shared)  # its last use, for `_trim`
        if not (folder / "dists").is_dir():
            folder.mkdir(exist_ok=True)
            with files.folder_beside(folder / "dists") as part:
                for path in (shared / "dists").iterdir():
                    files.link_or_copy(path, part / path.name)
    return tuple(sorted((folder / "dists").iterdir()))


def _trim(folder: Path) -> None:
    """Remove the packages that no build has used for as long as an environment is kept without."""
    for path in (path for path in folder.iterdir() if path.is_dir()):
        if time.time() - path.stat().st_mtime > environments.KEPT.total_seconds():
            shutil.rmtree(path, ignore_errors=True)


def install(
    env_dir: Path, request: SdkRequest, *, python: Interpreter, log: Path, say: Progress
) -> InstalledSdk:
    """Install the SDK into the environment at `env_dir`, unless just this is installed there.

    Builds for other Pythons share it where its packages are for any of them, as AMD's are.

    Args:
        env_dir: the folder of the virtual environment; what was there is replaced. Beside it is one for each
            Python that cannot share it.
        request: which SDK.
        python: the interpreter of the environment.
        log: receives pip's output.
        say: called with a line of progress.

    Raises:
        NetworkError: it is to be fetched, and must not be.
    """
    env_dir = _place_for(python, env_dir)
    # Which version is the newest, only the index knows: one that is not named is installed again.
    fixed = request.exact is not None or request.source.offline
    if fixed and (present := _installed_at(env_dir, request.identity())) is not None:
        return present
    if request.source.offline:
        raise NetworkError(
            "the ROCm SDK that is asked for is not installed yet, and --offline fetches nothing",
            tip="install it first with the same flags, without --offline",
        )
    # First, so that a folder of which a killed run has removed a part never counts as an SDK.
    (env_dir / _MARKER).unlink(missing_ok=True)
    env = venv.create(env_dir, python=python.path)
    say(f"pip install rocm[{','.join(request.extras)}]")
    report = env_dir.with_name(f"{env_dir.name}-report.json")  # where no wheel can write
    try:
        info = rocm.install(
            rocm.InstallRequest(
                python=env.python,
                source=request.source,
                version=request.version,
                extras=request.extras,
                family=request.family,
                report=report,
                reviewed=request.reviewed,
            ),
            log=log,
        )
    except CairnError:
        (env_dir / _MARKER).unlink(missing_ok=True)  # what was refused may have brought one
        raise
    installed = _described(env, info or rocm.query(env.python), request, report, python)
    datafile.write(env_dir / _MARKER, installed)
    return installed.sdk(env.path)


def _described(
    env: venv.VirtualEnvironment, info: SdkInfo, request: SdkRequest, report: Path, python: Interpreter
) -> _Marker:
    of_sdk = (file for file in venv.installed_files(report) if file.distribution.startswith("rocm"))
    return _Marker(
        request=request.identity(),
        digest=digest_of(env.site_packages),
        version=info.version,
        targets=info.targets,
        python="" if _is_for_any_python(env.site_packages) else python.version,
        files={file.file_name: file.sha256 for file in of_sdk if file.sha256},
        index_url=request.source.index_url,
        find_links=tuple(
            str(Path(link).absolute()) if Path(link).is_dir() else link for link in request.source.find_links
        ),
        **{name: str(getattr(info, name)) for name in ("root", "bin", "cmake")},
    )


def digest_of(site_packages: Path) -> str:
    """Return a digest of the SDK that is installed in an environment, the same in each where it is installed.

    The scripts that pip makes of entry points begin with the path of their environment: those do not count.
    """
    records = sorted(site_packages.glob("rocm*.dist-info/RECORD"))
    lines = {path.parent.name: path.read_text(encoding="utf-8").splitlines() for path in records}
    return cache.key_of(
        {name: [line for line in rows if not _SCRIPT.match(line)] for name, rows in lines.items()}
    )


def runtime_requirements(installed: InstalledSdk, *, devices: bool = True) -> tuple[str, ...]:
    """Exact requirements for the packages that `rocm` chose at its installation, which no METADATA names.

    It is an sdist that looks at the machine and at its extras while pip builds it (TheRock's
    build_python_packages.py). `devel` is for builds alone.

    Args:
        installed: the SDK.
        devices: with packages of device code; device wheels say themselves which they need.
    """
    packages = venv.describe(installed.environment).site_packages
    versions = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions(path=[str(packages)])}
    return tuple(
        f"{name}=={version}"
        for name, version in sorted(versions.items())
        if name.startswith("rocm-sdk-")
        and name != "rocm-sdk-devel"
        and (devices or not name.startswith("rocm-sdk-device-"))
    )


def existing(env_dir: Path, python: Interpreter) -> InstalledSdk:
    """Return the SDK for an interpreter that was installed at `env_dir` before.

    Raises:
        PrerequisiteError: there is none.
    """
    env_dir = _place_for(python, env_dir)
    present = _installed_at(env_dir, None)
    if present is None:
        raise PrerequisiteError(
            "no ROCm SDK is installed for this build",
            tip="add --install-rocm --index-url URL, which installs one; URL is an index of ROCm packages",
        )
    return present


def offered_targets(request: SdkRequest) -> tuple[str, ...]:
    """Return the targets that an index has SDK packages for, by their names; none where those do not say.

    The libraries of a family are in a package of its name, or the code for each target in one of its own:
    `rocm-sdk-libraries-gfx110x-all`, `rocm-sdk-device-gfx1100`. Nothing is downloaded but the list of names.
    """
    families = {name.lower(): members for name, members in gpu.families().items()}
    if request.family is not None:
        return families.get(request.family.lower(), ())
    if request.source.index_url is None or request.source.find_links:  # pip chooses among several places
        return ()
    served: list[str] = []
    names: tuple[str, ...] = ()
    with contextlib.suppress(NetworkError):  # installing says it better
        names = simple_index.projects(request.source.index_url)
    for match in filter(None, (_LIBRARIES.fullmatch(canonicalize_name(name)) for name in names)):
        targets = families.get(match[1]) or match[1].split("-")
        if not set(targets) <= set(gpu.known_targets()):
            return ()
        served += targets
    return gpu.in_order(served)


def _place_for(python: Interpreter, env_dir: Path) -> Path:
    """Return the folder of the SDK for an interpreter: `env_dir`, unless that is for another Python only."""
    with contextlib.suppress(UsageError):
        if datafile.read(env_dir / _MARKER, _Marker).python not in ("", python.version):
            return env_dir.with_name(f"{env_dir.name}-{python.tag}")
    return env_dir


def _is_for_any_python(site_packages: Path) -> bool:
    """Whether all that is installed has a tag such as `py3-none-linux_x86_64` (PEP 425)."""
    texts = [path.read_text(encoding="utf-8") for path in site_packages.glob("*.dist-info/WHEEL")]
    tags = [line.partition(":")[2].strip() for text in texts for line in text.splitlines() if "Tag:" in line]
    return all(tag.startswith(("py3-none-", "py2.py3-none-")) for tag in tags)


def _installed_at(env_dir: Path, identity: str | None) -> InstalledSdk | None:
    with contextlib.suppress(UsageError):
        installed = datafile.read(env_dir / _MARKER, _Marker)
        if identity in (None, installed.request) and Path(installed.root).is_dir():
            return installed.sdk(env_dir)
    return None


def _of_machine(stack: Stack, sdk: Sdk) -> str:
    """Run the stack's `machine` command and return its output."""
    values = {"python": sys.executable, "stack_dir": stack.folder}
    command = [variables.expand(word, values, where="sdk.machine") for word in sdk.machine]
    try:
        return _run(command) if command else ""
    except ProcessError as error:
        reason = error.output.strip().rpartition("\n")[2] or str(error)
        raise PrerequisiteError(
            f"the ROCm SDK of the stack {stack.name} cannot be made here: {reason}",
            tip="install what is missing, then run the same command again",
        ) from error


def _build_prefix(
    stack: Stack, sdk: Sdk, targets: Sequence[str], folder: Path, *, log: Path, say: Progress
) -> Path:
    say("making an environment for its tools")
    env = venv.create(folder / "tools")
    subject = "the tools that the ROCm SDK is made with"
    environments.install(env, sdk.build_requires, PackageSource(), subject=subject, log=log, on_line=say)
    shutil.rmtree(folder / "prefix", ignore_errors=True)  # half of one, where an earlier run was ended
    values = {
        "python": str(env.python),
        "stack_dir": stack.folder,
        "prefix": str(folder / "prefix"),
        "targets": ",".join(targets),
    }
    command = [variables.expand(word, values, where="sdk.build") for word in sdk.build]
    say("compiling it")
    _run(command, log=log, say=say, writes=[folder])
    return folder / "prefix"


def _run(
    command: Sequence[str],
    *,
    log: Path | None = None,
    say: Progress | None = None,
    writes: Sequence[Path] = (),
) -> str:
    """Run a command of the stack; returns its output."""
    with isolation.own_home() as home:
        env = isolation.variables(isolation.Isolation.BUILD, home)
        return process.run(command, env=env, log=log, on_line=say, writes=writes).output


def _digests(folder: Path) -> dict[str, str]:
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(folder).as_posix(): files.sha256_of(p) for p in paths}
