"""Installing the ROCm SDK into an environment, and querying the SDK of an environment."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn import files, isolation, package_index, platforms, process, simple_index, venv
from cairn.errors import NetworkError, PrerequisiteError, ProcessError, UsageError
from cairn.process import Completed
from cairn.venv import PackageSource

FAMILY_VARIABLE = "ROCM_SDK_TARGET_FAMILY"
DEFAULT_EXTRAS = ("libraries", "devel")
_HOST_LIBRARIES = "rocm-sdk-libraries"  # a family follows, unless the code of all is in packages of its own

# Run in the environment that is asked: its SDK may be of any release.
_FIND = """
import sys, rocm_sdk
for name in sys.argv[1:]:
    try:
        rocm_sdk.find_libraries(name)
    except Exception:
        continue
    print(name)
"""
# The same of its program `rocm-sdk`: an interpreter, and a confined start, for all questions at once. What it
# prints is read from the file that stands for its output meanwhile, as children of it write there, too.
_ANSWERS = "cairn answers: "
_ASK = """
import json, os, runpy, sys, tempfile
mark, answers, output = sys.argv[2], [], os.dup(1)
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            runpy.run_module("rocm_sdk", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.stdout.flush()
            os.dup2(output, 1)
        file.seek(0)
        answers.append(file.read().decode().strip())
os.write(1, ("\\n" + mark + json.dumps(answers) + "\\n").encode())
"""
_QUESTIONS = (("version",), ("targets",), ("path", "--root"), ("path", "--bin"), ("path", "--cmake"))
_NO_ROCM = re.compile(r"No matching distribution found for (rocm\S*)")
_LISTED_ONLY = re.compile(r"HTTP error (\d+) while getting (\S+)")
_PLACES = ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
_UNKNOWN_EXTRA = re.compile(r"does not provide the extra '([^']+)'")


class InstallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which SDK to install, and from where.

    Attributes:
        python: the interpreter of the environment, or the environment's folder.
        source: where pip looks; by default where the user's own does.
        version: ROCm's version, or what it must be (`>1.0`); None takes the newest.
        extras: what to install in addition to the runtime.
        family: the target family to install libraries for; None lets the SDK choose.
        report: receives pip's report of what it installed; None for none.
        reviewed: file name to the sha256 that it may have (one of several, with spaces between), of all that
            may be installed; needs `report`. None for anything.
    """

    python: Path
    source: PackageSource = PackageSource()
    version: str | None = None
    extras: tuple[str, ...] = DEFAULT_EXTRAS
    family: str | None = None
    report: Path | None = None
    reviewed: Mapping[str, str] | None = None

    @property
    def requirement(self) -> str:
        """The requirement to pass to pip."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        if not self.version:
            return f"rocm{extras}"
        return f"rocm{extras}{'' if self.version[0] in '<>=!~' else '=='}{self.version}"


class SdkInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The SDK of an environment.

    Attributes:
        version: ROCm's version.
        targets: targets its libraries were compiled for.
        root: what `ROCM_PATH` should be.
        bin: its tools.
        cmake: what `CMAKE_PREFIX_PATH` should be.
    """

    version: str
    targets: tuple[str, ...]
    root: Path
    bin: Path
    cmake: Path


def install_command(request: InstallRequest) -> tuple[str, ...]:
    """The pip command for a request; pip is ours, the environment needs none."""
    source = request.source
    if request.family is not None:
        # pip caches the wheel it makes of the `rocm` sdist, with the family that was chosen when it did; so
        # each family has a cache of its own.
        cache = (source.cache_dir or files.cache_dir() / "pip") / f"family-{request.family}"
        source = dataclasses.replace(source, cache_dir=cache)
    report = ("--report", str(request.report)) if request.report else ()
    return (*venv.pip_command(request.python), *source.arguments(), *report, request.requirement)


def install(request: InstallRequest, *, log: Path | None = None) -> SdkInfo | None:
    """Install the SDK; answers what was installed, or None where the devel extra was not asked for.

    Raises:
        UsageError: the index has no such `rocm`, or it has no such extra.
        NetworkError: the index cannot be reached.
        ProcessError: pip failed otherwise.
    """
    with venv.own_pip(request.source) as env:
        if request.family is not None:
            env[FAMILY_VARIABLE] = request.family
        for name in _PLACES if request.reviewed is not None else ():  # pip would look there, too
            env.pop(name, None)
        command = install_command(request)
        result = process.run(
            command,
            env=env,
            log=log,
            check=False,
            writes=[*venv.places(request.python), *([request.report.parent] if request.report else ())],
            network=True,
        )
    if result.returncode:
        raise _failure(request, result)
    _refuse_unreviewed(request)
    # pip only warns about an extra that a package does not have, and exits with 0.
    unknown = tuple(dict.fromkeys(_UNKNOWN_EXTRA.findall(result.output)))
    if any(name in request.extras for name in unknown):
        raise UsageError(
            f"rocm has no extra {', '.join(unknown)}", tip=f"the usual ones are {', '.join(DEFAULT_EXTRAS)}"
        )
    if "devel" not in request.extras:
        return None
    # Like pip's `--python`, a request names an interpreter or the folder of its environment.
    is_folder = request.python.is_dir()
    return query(platforms.here.python_of(request.python) if is_folder else request.python)


def _refuse_unreviewed(request: InstallRequest) -> None:
    """Before anything of it runs, and by what pip says of the bytes, however a page spelt its links."""
    if request.reviewed is None or request.report is None:
        return
    for file in venv.installed_files(request.report):
        if not file.sha256 or file.sha256 not in request.reviewed.get(file.file_name, "").split():
            raise UsageError(
                f"{file.file_name} with sha256 {file.sha256} is not one that was reviewed",
                tip="find out who put it into the index; where it should be: cairn index mirror lock",
            )


def query(python: Path) -> SdkInfo:
    """Ask an environment's SDK about itself; unpacks its development files where that has not happened.

    Args:
        python: the interpreter of the environment.

    Raises:
        PrerequisiteError: it has no ROCm SDK, or one without development files.
    """
    # The module, not the program: an environment need not be on PATH.
    result = _run_in(python, "-I", "-c", _ASK, json.dumps(_QUESTIONS), _ANSWERS)
    lines = [line for line in result.output.splitlines() if line.startswith(_ANSWERS)]
    answers = json.loads(lines[-1].removeprefix(_ANSWERS)) if lines and not result.returncode else ("",) * 5
    version, targets, root, binaries, cmake = answers
    if not (version and root and binaries and cmake):
        last = (process.tail(result.stderr, 1) or ("rocm-sdk failed without a message",))[0]
        if "No module named rocm_sdk" in last:
            last = f"there is no ROCm SDK in the environment of {python}"
        raise PrerequisiteError(
            last.removeprefix("rocm-sdk: error: "),
            tip="install one with: cairn rocm install --python PYTHON --index-url URL",
        )
    return SdkInfo(
        version=version,
        targets=tuple(filter(None, re.split(r"[;,\s]+", targets))),
        root=Path(root),
        bin=Path(binaries),
        cmake=Path(cmake),
    )


def device_packages(environment: Path) -> str | None:
    """The version of the SDK's packages with the device code of its libraries, one for each processor.

    None where its libraries have their code in them: upstream names the package of such after a family.

    Args:
        environment: the folder of a virtual environment with an SDK.
    """
    packages = venv.describe(environment).site_packages
    for distribution in importlib.metadata.distributions(path=[str(packages)]):
        if canonicalize_name(distribution.metadata["Name"]) == _HOST_LIBRARIES:
            return distribution.version
    return None


def available_libraries(python: Path, shortnames: Sequence[str]) -> tuple[str, ...]:
    """Those of the shortnames that the environment's SDK has a library for, in the order given.

    SDKs differ by platform and by release; all of them have a `rocm_sdk` with `find_libraries`.
    """
    result = _run_in(python, "-I", "-c", _FIND, *shortnames)
    if result.returncode:
        raise ProcessError(
            f"the ROCm SDK of {python} cannot be asked for its libraries",
            returncode=result.returncode,
            output=result.stderr,
        )
    return tuple(result.output.split())


def _run_in(python: Path, *words: str) -> Completed:
    """Run a program of an environment's SDK, which is no code of ours."""
    with isolation.own_home() as home:
        return process.run(
            [python, *words],
            env=isolation.variables(isolation.Isolation.BUILD, home),
            check=False,
            separate_stderr=True,
            writes=venv.places(python),  # rocm-sdk init unpacks the devel files there
        )


def _failure(request: InstallRequest, result: Completed) -> Exception:
    source = request.source
    where = source.index_url or " ".join(source.find_links) or "pip's index"
    problems = (
        package_index.index_problem(source.index_url, "rocm"),
        *map(package_index.page_problem, source.find_links),
    )
    if problem := next(filter(None, problems), None):
        return NetworkError(problem, tip=package_index.TIP)
    if match := _LISTED_ONLY.search(result.output):
        return NetworkError(
            f"{where} lists {match[2]}, and its server answers {match[1]}",
            tip="its publisher may be at work: try again later, or name another version",
        )
    if match := _NO_ROCM.search(result.output):
        name = match[1] if match[1].startswith(("rocm-sdk", "rocm-profiler")) else request.requirement
        rest = f"; {simple_index.instead(source.index_url, 'rocm')}" if source.index_url else ""
        return UsageError(
            f"{where} has no {name}{rest}",
            tip="check the URL and the version; add --pre for nightlies",
        )
    return ProcessError(
        f"pip could not install {request.requirement}",
        returncode=result.returncode,
        output="\n".join(process.tail(result.output)),
    )
