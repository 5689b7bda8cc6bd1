"""Run pytest on an environment without installing pytest into it.

pytest brings packages of its own (packaging, pygments, ...). Installed into the tested environment, they
would hide that a wheel forgot to require them, so they are in a separate folder that comes last on the path,
after the environment's packages. The built-in checks detect what even that could hide: they import every
module in its own process, without pytest.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from cairn import datafile, files, process
from cairn.errors import PrerequisiteError, ProcessError, TestsFailedError, UsageError
from cairn.output import Progress
from cairn.stack import recipe
from cairn.testing import junit, record
from cairn.testing.junit import JUnit
from cairn.testing.record import Deselected

# Run by `python -c`. A test that calls `pytest.exit` ends the run with the exit code that it likes, 0 too,
# and the results look like those of a shorter suite: pytest calls the first hook then, as for Ctrl-C. And
# where pytest is to set up tests without running them, it calls each of them passed.
_MAIN = """
import sys
sys.path += filter(None, [sys.argv[1]])
import pytest


class Stopped:
    code = 0
    def pytest_keyboard_interrupt(self, excinfo): self.code = pytest.ExitCode.INTERRUPTED
    def pytest_configure(self, config):
        if config.getoption("setuponly"): raise pytest.UsageError("--setup-only and --setup-plan run no test")
stopped = Stopped()
sys.exit(pytest.main(sys.argv[2:], plugins=[stopped]) or stopped.code)
"""
# Our own, so that no pytest.ini above the tests is found. xunit1 is the family in which tests may record
# properties.
_INI = "[pytest]\njunit_family = xunit1\nxfail_strict = true\n"
TIMED_OUT = -1
"""The exit code of a run that was killed."""

COUNTER = "cairn_collection"
"""The name of `collection_plugin` where it is copied to: `pytest -p cairn_collection`."""
# Named instead of imported: it imports pytest, which takes longer than most commands do.
_PLUGIN, _COUNTS = "cairn.testing.collection_plugin", "CAIRN_COLLECTION"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One run of pytest.

    Attributes:
        folder: used by this run alone, outside any source tree; receives the tests and pytest's output files.
        tests: folders and files of tests, by the path below `folder` that each is copied to, since nothing of
            the source tree around it may be imported. Test names count from `folder`.
        arguments: further arguments for pytest.
        variables: its whole environment.
        timeout: seconds until it is killed with all its children.
        log: receives its output.
        on_line: called with each line of that.
    """

    folder: Path
    tests: Mapping[str, Path]
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str]
    timeout: float
    log: Path
    on_line: Progress | None = None

    @property
    def junit(self) -> Path:
        """The JUnit XML that pytest writes."""
        return self.folder / "junit.xml"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run of pytest, with its results.

    Attributes:
        exit_code: pytest's, -1 when it had to be killed.
        outcome: its results; None if there are none that can be trusted.
        problem: why there are none, or why it was killed; empty otherwise.
        junit: its JUnit XML.
        deselected: the tests that were collected and did not run.
        hooks: what else decided which tests ran and how they ended; see `TestRecord.hooks`.
        pytest: its version; empty if it did not get to know its tests.
        tests_sha256: of the test files as they were before they ran.
    """

    exit_code: int
    outcome: JUnit | None
    problem: str
    junit: Path
    deselected: tuple[Deselected, ...] = ()
    hooks: tuple[str, ...] = ()
    pytest: str = ""
    tests_sha256: str | None = None


def run_inside(python: Path, tools: Path, session: Session) -> Run:
    """Run pytest in a tested environment's interpreter, isolated from the caller; `tools` holds pytest."""
    # -I: isolated from PYTHONPATH, the user's site-packages and the working folder.
    return _run([python, "-I", "-c", _MAIN, tools], COUNTER, session)


def run_beside(session: Session, *, reads: Sequence[str] = ()) -> Run:
    """Run pytest in our own interpreter, for checks that look at an environment, `reads`, from outside."""
    # -P: the working folder is not put on sys.path.
    return _run([sys.executable, "-P", "-c", _MAIN, ""], _PLUGIN, session, reads)


def _run(start: Sequence[str | Path], counter: str, session: Session, reads: Sequence[str] = ()) -> Run:
    tests = [session.folder / name for name in session.tests]
    for source, copy in zip(session.tests.values(), tests, strict=True):
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            copy.mkdir(parents=True)
            shutil.copy2(source, copy / source.name)
    tests_sha256 = recipe.digest_of_files(tests)
    working_dir = session.folder / "run"
    working_dir.mkdir(exist_ok=True)
    counts = working_dir / "collection.json"
    for earlier in (session.junit, counts):  # those of an earlier run must not count
        earlier.unlink(missing_ok=True)
    ini = working_dir / "pytest.ini"
    files.write_text(ini, _INI)
    options = ["-p", counter, "-p", "no:cacheprovider", "--import-mode=importlib"]
    options += ["-ra", "--color=no", "--tb=short"]
    # Ours come last: the user's own arguments must not send the results elsewhere.
    fixed = [f"--config-file={ini}", f"--rootdir={session.folder}", f"--junit-xml={session.junit}"]
    # The folder that all pytest runs share may belong to a different user, or be too full to be cleaned soon.
    fixed.append(f"--basetemp={working_dir / 'pytest-tmp'}")
    exit_code, problem = TIMED_OUT, f"the tests did not end within {session.timeout:g} seconds"
    with contextlib.suppress(ProcessError):
        completed = process.run(
            [*start, *options, *session.arguments, *fixed, *tests],
            cwd=working_dir,
            env={**session.variables, _COUNTS: str(counts)},
            log=session.log,
            on_line=session.on_line,
            timeout=session.timeout,
            check=False,
            reads=reads,
            writes=[session.folder, session.junit.parent],
        )
        exit_code, problem = completed.returncode, ""
    outcome, collection = None, _Collection()
    try:
        outcome, collection = junit.read(session.junit), datafile.read(counts, _Collection)
    except (TestsFailedError, UsageError) as error:
        outcome, problem = None, problem or str(error)
    return Run(
        exit_code=exit_code,
        outcome=outcome,
        problem=problem,
        junit=session.junit,
        deselected=record.with_origins(collection.gone, session.arguments),
        hooks=collection.hooks,
        pytest=collection.pytest,
        tests_sha256=tests_sha256,
    )


class _Collection(datafile.Value):
    """The answer of `collection_plugin`."""

    pytest: str = ""
    collected: int = 0
    gone: tuple[Deselected, ...] = ()
    hooks: tuple[str, ...] = ()


def copy_pytest(target: Path) -> None:
    """Copy pytest and its requirements from our own environment to a folder, without using an index.

    Raises:
        PrerequisiteError: pytest is not installed in a way that can be copied.
    """
    for name in sorted(_closure("pytest")):
        for top, source in _top_level(importlib.metadata.distribution(name)):
            if source.is_dir():
                # With its bytecode, which a Python of the same version takes: compiling takes half a second.
                shutil.copytree(source, target / top)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / top)
    copy_counter(target)


def copy_counter(target: Path) -> None:
    """Copy the plugin that counts collected tests to a folder, as the module `COUNTER`."""
    shutil.copyfile(Path(__file__).with_name("collection_plugin.py"), target / f"{COUNTER}.py")


def _closure(name: str) -> set[str]:
    """Return the canonical names of a distribution and all its requirements here, without extras."""
    names: set[str] = set()
    waiting = [name]
    while waiting:
        current = canonicalize_name(waiting.pop())
        if current in names:
            continue
        names.add(current)
        try:
            texts = importlib.metadata.distribution(current).requires or []
        except importlib.metadata.PackageNotFoundError as error:
            raise PrerequisiteError(f"{current}, which the smoke tests need, is not installed") from error
        needed = map(Requirement, texts)
        waiting += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return names


def _top_level(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    # `..` are the programs (`../../bin/pytest`), which are not needed: pytest is called by its module.
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
    if not tops:
        raise PrerequisiteError(f"{distribution.name} cannot be copied: it has no list of files")
    for top in sorted(tops):
        yield top, Path(str(distribution.locate_file(top)))


def translation_name(wheel: Path | None) -> str:
    """Return name and version of TorchDevice's wheel for records (`torchdevice 0.1.0`), or an empty text.

    With TorchDevice, code that says "cuda" runs on a machine without a GPU, and proves nothing about a GPU.

    Raises:
        UsageError: the file is not named as a wheel.
    """
    if wheel is None:
        return ""
    try:
        name, version, *_ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise UsageError(str(error), tip="name the wheel of TorchDevice") from error
    return f"{name} {version}"


def unpack_translation(wheel: Path, folder: Path) -> None:
    """Unpack TorchDevice's wheel, which is not under test, into a folder that comes last on the path.

    Raises:
        UsageError: the file is not a wheel, or not one of TorchDevice.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel} is not a wheel that can be read", tip="name TorchDevice's") from error
    if not (folder / "torchdevice" / "pytest_plugin.py").is_file():
        raise UsageError(f"{wheel} has no TorchDevice", tip="see external-builds/torchdevice/README.md")
