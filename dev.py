#!/usr/bin/env python3
"""Bootstrap with the standard library only: makes `.venv`, installs Cairn into it, runs one thing.

python3 dev.py quickstart               the whole trail on the sample stack
python3 dev.py quickstart --stack pyg   the same on torch-scatter and torch-cluster
python3 dev.py test [PYTEST ARGS]       the tests
python3 dev.py check                    ruff, mypy and the contract on imports
"""

from __future__ import annotations

import os
import signal
import sys

EXIT_INTERRUPTED = 130


def leave_on_interrupt() -> None:
    """Answer Ctrl-C while Python still imports the rest; nothing is under way yet."""

    def leave(_signal: int, _frame: object) -> None:
        os.write(2, b"error: interrupted\n")
        os._exit(EXIT_INTERRUPTED)

    # A shell has its background jobs ignore the signal; that stays.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, leave)


if __name__ == "__main__":
    leave_on_interrupt()

import argparse
import contextlib
import difflib
import hashlib
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows; two first runs at once are rare there
    fcntl = None  # type: ignore[assignment]

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / "cairn-stamp"
MINIMUM_PYTHON = (3, 11)
BUILD_REQUIRES = ["pip", "setuptools"]
EXIT_PREREQUISITE = 3
EXIT_SYSTEM = 11


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; returns the exit code."""
    options, rest = parse(argv)
    if missing := missing_prerequisite():
        print(f"error: {missing}", file=sys.stderr)
        return EXIT_PREREQUISITE
    allow_all_letters()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if not ready(options.extra):
            with alone():
                if not ready(options.extra):
                    install(options.extra)
        return int(options.run(options, rest))
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd[:6]))} … failed ({error.returncode})", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.strerror}: {error.filename}", file=sys.stderr)
        return EXIT_SYSTEM
    except KeyboardInterrupt:
        print("interrupted; run the same command again to carry on", file=sys.stderr)
        return EXIT_INTERRUPTED


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The options of the command, and what is passed on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="quickstart|test|check")
    quickstart = commands.add_parser("quickstart", help="run the whole trail of a stack", allow_abbrev=False)
    quickstart.add_argument(
        "--stack",
        type=stack_name,
        default="sample",
        help="a folder of external-builds/ (default: %(default)s)",
    )
    quickstart.set_defaults(run=run_quickstart, extra="")
    test = commands.add_parser("test", help="run the tests", allow_abbrev=False, add_help=False)
    test.set_defaults(run=run_tests, extra="dev,fast,s3")
    check = commands.add_parser("check", help="run the linters", allow_abbrev=False)
    check.set_defaults(run=run_checks, extra="dev,fast,s3")
    return parser.parse_known_args(argv)


def stack_name(text: str) -> str:
    """The name of a stack, or what is wrong with it: known at once, not after everything is installed."""
    names = sorted(path.parent.name for path in ROOT.glob("external-builds/*/stack.toml"))
    if text not in names:
        close = difflib.get_close_matches(text, names)
        tip = f"did you mean {' or '.join(close)}?" if close else f"the stacks are {', '.join(names)}"
        raise argparse.ArgumentTypeError(f"there is no stack {text!r}: {tip}")
    return text


def missing_prerequisite() -> str | None:
    """What the machine lacks, with the package that brings it; None when it has all."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sys.version_info < MINIMUM_PYTHON:
        return f"Python {version} is too old: run this with Python 3.11 or newer"
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            package = f"python{version}-venv"
            return f"Python's {module} is missing: install it, on Debian and Ubuntu: apt install {package}"
    if shutil.which("git") is None:
        return "git is missing: install it, on Debian and Ubuntu: apt install git"
    return None


def allow_all_letters() -> None:
    """Under `LC_ALL=C`, setuptools could not write down where Cairn is when that is below `/home/josé`."""
    if os.name == "posix" and os.environ.get("LC_ALL") in {"C", "POSIX"}:
        os.environ["LC_ALL"] = "C.UTF-8"


def interpreter() -> str:
    """The Python that runs this; an environment made with another one is made anew."""
    return f"{sys.version_info[:3]} {sys.base_prefix} {ROOT}"


def stamp(extra: str) -> str:
    """What the virtual environment was made from; another value means that it must be installed again."""
    asked = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    digest = hashlib.sha256(asked).hexdigest()
    return f"{interpreter()}\n{digest} {extra}"


def made_from() -> str:
    """The stamp that the last whole installation left; empty when there is none."""
    try:
        return STAMP.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def ready(extra: str) -> bool:
    """Whether `.venv` holds Cairn with these extras (or with more)."""
    return made_from() in {stamp(extra), stamp("dev,fast,s3")} and works("cairn.cli.main")


def works(*modules: str) -> bool:
    """Whether the interpreter of `.venv` starts and imports these; not so after half of it was deleted."""
    command = [str(python()), "-c", f"import {', '.join(modules)}"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def install(extra: str) -> None:
    """Make `.venv` and install Cairn there, editable."""
    print(f"installing Cairn into {VENV} …", file=sys.stderr)
    if not made_from().startswith(f"{interpreter()}\n") or not works("pip", "cairn.cli.main"):
        # Not `sys.executable`: that may be the one of the very environment that is cleared.
        base = getattr(sys, "_base_executable", sys.executable)
        subprocess.run([base, "-m", "venv", "--clear", VENV], check=True)
    STAMP.unlink(missing_ok=True)
    requirement = f"{ROOT}[{extra}]" if extra else str(ROOT)
    # What builds Cairn comes first: in a build environment of pip's own, versions would not be constrained.
    for asked in (BUILD_REQUIRES, ["--no-build-isolation", "--editable", requirement]):
        pip_install(asked)
    STAMP.write_text(stamp(extra), encoding="utf-8")


def pip_install(asked: Sequence[str]) -> None:
    """Install into `.venv`, whatever a person's settings say about where packages go."""
    where = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
    env = {name: value for name, value in os.environ.items() if name not in where}
    pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-user"]
    versions = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *versions, *asked], check=True, cwd=ROOT, env=env)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process at a time make `.venv`; a lock ends with its process, however that ends."""
    folder = ROOT / ".cairn"
    folder.mkdir(exist_ok=True)
    with (folder / "dev.lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def python() -> Path:
    """The interpreter of `.venv`."""
    return BIN / ("python.exe" if os.name == "nt" else "python")


def run(*command: str | Path) -> int:
    """Run a program of `.venv` in the root folder; returns its exit code."""
    with subprocess.Popen(command, cwd=ROOT) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue  # the program was interrupted too; let it clean up and say so


def run_quickstart(options: argparse.Namespace, rest: list[str]) -> int:
    """Everything from upstream repositories to `pip install`, for one stack, in `.cairn/<stack>`."""
    stack = ROOT / "external-builds" / options.stack / "stack.toml"
    work = ROOT / ".cairn" / options.stack
    os.environ.setdefault("CAIRN_CACHE_DIR", str(ROOT / ".cairn" / "cache"))
    return run(python(), "-m", "cairn", "ci", "run", "--stack", stack, "--work-dir", work, *rest)


def run_tests(_options: argparse.Namespace, rest: list[str]) -> int:
    """The test suite, as many at a time as there are cores unless `-n` says otherwise."""
    os.environ.setdefault("CAIRN_TEST_CACHE", str(ROOT / ".cairn" / "test-cache"))
    workers = [] if any(word.startswith("-n") for word in rest) else ["-n", "auto", "--dist", "loadgroup"]
    return run(python(), "-m", "pytest", *workers, *rest)


def run_checks(_options: argparse.Namespace, _rest: list[str]) -> int:
    """Every linter, also after one has failed; 0 only when all pass."""
    results = [
        run(python(), "-m", "ruff", "check", "."),
        run(python(), "-m", "ruff", "format", "--check", "."),
        run(python(), "-m", "mypy"),
        run(BIN / "lint-imports"),
    ]
    return int(any(results))


if __name__ == "__main__":
    sys.exit(main())
