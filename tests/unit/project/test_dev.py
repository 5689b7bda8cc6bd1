"""`dev.py`: when its environment may be used, and when it must be made anew."""

from __future__ import annotations

import contextlib
import fcntl
import fnmatch
import importlib.util
import math
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import threading
import tomllib
import types
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers import progress, scheduling
from helpers.churn import again_and_again, churned

DEV = Path(__file__).resolve().parents[3] / "dev.py"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", DEV)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path / ".venv"
    monkeypatch.setattr(module, "VENV", folder)
    monkeypatch.setattr(module, "BIN", folder / "bin")
    monkeypatch.setattr(module, "STAMP", folder / "cairn-stamp")
    return module


def test_a_stamp_is_not_believed_where_half_of_the_environment_is_gone(dev: ModuleType) -> None:
    venv.create(dev.VENV, with_pip=False, symlinks=True)
    dev.STAMP.write_text(dev.stamp(""), encoding="utf-8")
    assert dev.works("json")
    assert not dev.works("cairn.cli.main")
    assert not dev.ready("")
    dev.python().unlink()
    assert not dev.works("json")


def test_another_python_or_another_place_needs_another_environment(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dev.interpreter()
    assert dev.stamp("dev").startswith(before)
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert dev.interpreter() != before
    monkeypatch.undo()
    monkeypatch.setattr(dev, "ROOT", Path("/elsewhere"))
    assert dev.interpreter() != before


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_other_packages_make_it_be_installed_again(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    for each in ("pyproject.toml", "constraints.txt"):
        shutil.copy(DEV.with_name(each), tmp_path)
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    before = dev.stamp("dev")
    with (tmp_path / name).open("a") as file:
        file.write("# more\n")
    assert dev.stamp("dev") != before


def needed(name: str, extras: Iterable[str] = (), seen: set[str] | None = None) -> set[str]:
    """Every package that one that is installed needs, and what those need."""
    found = set() if seen is None else seen
    for requirement in map(Requirement, metadata.requires(name) or ()):
        marker = requirement.marker
        wanted = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if wanted and canonicalize_name(requirement.name) not in found:
            found.add(canonicalize_name(requirement.name))
            needed(requirement.name, requirement.extras, found)
    return found


def test_every_package_that_is_installed_has_one_version_which_pyproject_allows() -> None:
    lines = DEV.with_name("constraints.txt").read_text().splitlines()
    held = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in held}
    extras = metadata.metadata("cairn-wheels").get_all("Provides-Extra") or []
    pyproject = tomllib.loads(DEV.with_name("pyproject.toml").read_text())
    group = [Requirement(text) for text in pyproject["dependency-groups"]["dev"]]
    packages = needed("cairn-wheels", extras) - {"cairn-wheels"}
    for one in group:
        packages |= {canonicalize_name(one.name)} | needed(one.name, one.extras)
    assert packages <= versions.keys()
    for requirement in (*map(Requirement, metadata.requires("cairn-wheels") or ()), *group):
        if canonicalize_name(requirement.name) in packages:
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.xdist_group("together")
def test_workers_keep_groups_together(request: pytest.FixtureRequest) -> None:
    # Where they do not, each makes for itself what the tests of a group share, and nothing fails.
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("for workers of `--dist loadgroup`")
    assert request.node.nodeid.endswith("@together")


def test_workers_keep_the_tests_of_a_file_together() -> None:
    scheduler = object.__new__(scheduling.ByFile)
    names = (
        "tests/unit/test_a.py::test_1",
        "tests/unit/test_a.py::TestA::test_2[a@b]",
        "tests/test_b.py::test_3@g",
    )
    assert [scheduler._split_scope(name) for name in names] == ["tests/unit/test_a.py"] * 2 + ["g"]


@pytest.mark.parametrize(
    ("words", "quick"),
    [
        (["test"], True),
        (["test", "-x", "-n", "4"], True),
        (["test", "--all"], False),
        (["test", "tests/e2e"], False),
        (["test", "tests/e2e/test_trail.py::test_no_temporary_file_is_left", "-x"], False),
        (["test", "-k", "trail"], False),
        (["test", "-m", "slow"], False),
    ],
)
def test_all_tests_are_run_where_they_are_asked_for(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, words: list[str], *, quick: bool
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(dev, "run", lambda *command: commands.append([*map(str, command)]) or 0)
    monkeypatch.setattr(dev, "prepare", lambda _options: None)
    monkeypatch.chdir(dev.ROOT)
    assert dev.main(words) == 0
    (command,) = commands
    assert ("not slow" in command) == ("tests/unit" in command) == quick
    assert command[-len(words) + 1 :] == words[1:] or words[1:] in ([], ["--all"])
    assert "--all" not in command


def test_a_run_of_tests_says_how_far_it_is_and_keeps_the_times(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "TIMES", tmp_path / "folder" / "times.json")
    lines: list[str] = []
    config = types.SimpleNamespace(getoption={"numprocesses": 1}.__getitem__)
    terminal = types.SimpleNamespace(write_line=lines.append, config=config)
    shown = progress.Progress(terminal)  # type: ignore[arg-type]
    names = [f"tests/unit/test_a.py::test_{number}@group" for number in range(4)]
    shown.pytest_xdist_node_collection_finished(names)
    assert re.fullmatch(r"  0 of 4 tests, 0 min, about 0 min left", shown.line())
    for name in names[:2]:
        for when in ("setup", "call", "teardown"):
            outcome = "failed" if (name, when) == (names[0], "call") else "passed"
            report = pytest.TestReport(name, ("", 0, ""), {}, outcome, None, when, duration=40.0)  # type: ignore[arg-type]
            shown.pytest_runtest_logreport(report)
    shown.began -= 120
    assert lines == ["  failed: tests/unit/test_a.py::test_0"]
    assert shown.line() == "  2 of 4 tests, 1 failed, 2 min, about 2 min left"
    shown.pytest_sessionfinish()
    again = progress.Progress(terminal)  # type: ignore[arg-type]
    again.pytest_xdist_node_collection_finished(names)
    assert again.line().endswith("about 4 min left")  # two of two minutes, and two that nothing is known of


def test_no_folder_of_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    # pytest passes over folders called `build` or `dist` unless it is told which to pass over.
    tests = Path(__file__).parents[2]
    names = {part for path in tests.rglob("test_*.py") for part in path.relative_to(tests).parts[:-1]}
    patterns = pytestconfig.getini("norecursedirs")
    assert not [name for name in names for pattern in patterns if fnmatch.fnmatch(name, pattern)]


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_names_of_folders_may_have_all_letters(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, locale: str
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    program = "import sys; open(sys.argv[1], 'w', encoding='locale').write('/home/jos\\u00e9')"
    write = [sys.executable, "-c", program, str(tmp_path / "cairn.pth")]
    assert dev.run(*write) == 1
    dev.force_utf8_locale()
    assert dev.run(*write) == 0
    assert (tmp_path / "cairn.pth").read_text(encoding="utf-8") == "/home/josé"


def test_a_mistyped_stack_is_named_before_anything_is_installed(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "ready", lambda _extra: pytest.fail("it looked at the environment"))
    with pytest.raises(SystemExit) as caught:
        dev.main(["quickstart", "--stack", "sampel"])
    assert caught.value.code == 2
    assert "there is no stack 'sampel': did you mean sample?" in capsys.readouterr().err


PIP_LINES = [
    ("Obtaining file:///work", "asking the package index"),
    ("Collecting rich==14.2.0 (from cairn==0.1)", "packages: 1, rich"),
    ("  Downloading rich-14.2.0-py3-none-any.whl (243 kB)", "packages: 1, downloading rich (243 kB)"),
    ("  Using cached https://x.org/a/uv-0.9-py3.whl.metadata", "packages: 1, downloading uv"),
    ("WARNING: Location 'file:///x' is ignored", "packages: 1, downloading uv"),
    ("Collecting Jinja2>=3", "packages: 2, Jinja2"),
    ("Requirement already satisfied: pip in /x (26.1)", "packages: 3, pip"),
    ("Installing collected packages: a, b, c", "unpacking: 0 of 3 packages"),
]


def test_what_pip_says_becomes_counts(dev: ModuleType) -> None:
    site = dev.VENV / "lib" / "python3.11" / "site-packages"
    (site / "there-1.dist-info").mkdir(parents=True)
    said = dev.PipOutput()
    for line, shown in PIP_LINES:
        said.read(f"{line}\n")
        assert said.doing() == shown
    (site / "a-1.dist-info").mkdir()
    assert said.doing() == "unpacking: 1 of 3 packages"


def test_progress_is_counted_while_pip_writes_and_deletes(dev: ModuleType) -> None:
    with churned(dev.VENV / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"):
        again_and_again(dev.installed)
        again_and_again(lambda: dev.size_of(dev.VENV))


def test_progress_ends_where_nobody_reads_it_any_more(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    monkeypatch.setattr(dev, "HEARTBEAT", 0.01)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writes, "w") as nobody:
        monkeypatch.setattr(sys, "stderr", nobody)
        dev.Progress().show_until(threading.Event())


SHOW = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("dev", sys.argv[1])
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)
dev.TICK = dev.HEARTBEAT = 0.05
with dev.showing("installing") as progress:
    progress.doing = lambda: "word " * 60
    time.sleep(0.4)
"""


@pytest.mark.parametrize("variables", [{}, {"TERM": "dumb"}, {"CI": "1"}])
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_one_line_that_moves_on_a_terminal_and_plain_lines_elsewhere(
    variables: dict[str, str], *, terminal: bool
) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    dropped = ("CI", "COLUMNS", "TERM")
    env = {k: v for k, v in os.environ.items() if k not in dropped} | {"TERM": "xterm"} | variables
    command = [sys.executable, "-c", SHOW, str(DEV)]
    subprocess.run(command, stderr=theirs, env=env, check=True, timeout=60)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        shown = b""
        with contextlib.suppress(OSError):  # Linux says EIO where the other side of a terminal is closed
            while data := file.read(65536):
                shown += data
    text = shown.decode("ascii").replace("\r\n", "\n")
    assert text.startswith("installing ...\n")
    assert re.search(r"installing: done in \d+ s\n$", text)
    moves = terminal and not variables
    assert ("\x1b[K" in text) is moves
    assert text.count("word word") >= 12
    if moves:
        assert all(len(part.removesuffix("\x1b[K")) < 80 for part in text.split("\r"))
        assert text.count("\n") == 2


def ask_for_room(dev: ModuleType, stack: str, *, is_ready: bool) -> str | None:
    options, _ = dev.parse(["quickstart", "--stack", stack])
    found: str | None = dev.too_little_room(options, is_ready=is_ready)
    return found


def test_room_on_the_disk_is_told_and_asked_for_before_anything_is_made(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    stack = tmp_path / "external-builds" / "mine" / "stack.toml"
    stack.parent.mkdir(parents=True)
    stack.write_text("disk = 600_000_000\n")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=500_000_000))
    assert "too little disk" in str(ask_for_room(dev, "mine", is_ready=False))
    shown = capsys.readouterr().err
    assert shown == f"needs 0.7 GB of disk in {tmp_path}, which has 0.5 GB free\n"
    # What is there already need not be free: a run that was interrupted carries on.
    (tmp_path / ".cairn").mkdir()
    with (tmp_path / ".cairn" / "half").open("wb") as file:
        file.truncate(250_000_000)
    assert ask_for_room(dev, "mine", is_ready=False) is None
    # Nothing is said of a run that has little to do.
    (tmp_path / ".cairn" / "mine").mkdir()
    (tmp_path / ".cairn" / "mine" / "report.html").touch()
    capsys.readouterr()
    assert ask_for_room(dev, "mine", is_ready=True) is None
    assert capsys.readouterr().err == ""


def test_help_says_how_much_disk_the_stacks_need(dev: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dev.parse(["quickstart", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    readme = " ".join(DEV.with_name("README.md").read_text().split())
    for name in ("sample", "pyg"):
        disk = tomllib.loads(dev.stack_file(name).read_text())["disk"]
        need = f"{math.ceil((disk + dev.VENV_DISK[dev.TRAIL_EXTRAS]) / 1e8) / 10:.1f} GB"
        assert need in shown
        assert need in dev.__doc__
        assert f"{need} of disk" in readme


def test_an_installation_that_fails_shows_pips_last_lines(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    (tmp_path / "constraints.txt").touch()
    monkeypatch.setattr(dev, "python", lambda: Path(sys.executable))
    monkeypatch.setenv("PIP_QUIET", "3")
    with pytest.raises(subprocess.CalledProcessError):
        dev.pip_install(["--no-index", "--dry-run", "no-such-project-anywhere"], dev.Progress())
    shown = capsys.readouterr().err
    assert "  | ERROR: No matching distribution found for no-such-project-anywhere" in shown
    assert str(tmp_path / ".cairn" / "dev.log") in shown
