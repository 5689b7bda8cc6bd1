#!/usr/bin/env python3
"""Bootstrap with the standard library only: makes `.venv`, installs Cairn into it, runs one thing.

python3 dev.py quickstart               the whole trail on the sample stack (0.8 GB of disk)
python3 dev.py quickstart --stack pyg   the same on torch-scatter and torch-cluster (3.8 GB)
python3 dev.py test [PYTEST ARGS]       the unit tests; with --all, all tests
python3 dev.py check                    ruff, mypy and the contract on imports
python3 dev.py docs                     the pages of docs/reference that follow from the code
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT

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
EXTRAS = "cluster,diff,fast,release,s3,sign,windows"  # of a developer, who has the group `dev` too
TRAIL_EXTRAS = "diff,release"  # of quickstart and the tutorial
VENV_DISK = {TRAIL_EXTRAS: 130_000_000, EXTRAS: 1_100_000_000}  # bytes, by the extras that are installed
TICK = 0.2  # seconds between two states of a line that moves
HEARTBEAT = 10.0  # seconds between two lines where none can move
LAST_LINES = 12  # of pip's, shown when it fails
UV = """
import subprocess, sys
from cairn import package_index, venv
settings = package_index.read_pip_settings()
uv = [venv.uv_program(), "pip", "install", "--no-config", "--python", sys.executable, *settings.uv_options()]
sys.exit(subprocess.run([*uv, *sys.argv[1:]], env=settings.uv_environment()).returncode)
"""
EXIT_PREREQUISITE = 3
EXIT_SYSTEM = 11
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; returns the exit code."""
    options, rest = parse(argv)
    if missing := missing_prerequisite():
        print(f"error: {missing}", file=sys.stderr)
        return EXIT_PREREQUISITE
    force_utf8_locale()
    try:
        if problem := prepare(options):
            print(f"error: {problem}", file=sys.stderr)
            return EXIT_SYSTEM
        return int(options.run(options, rest))
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(map(str, error.cmd[:6]))} ... failed ({error.returncode})", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.strerror}: {error.filename}", file=sys.stderr)
        return EXIT_SYSTEM
    except KeyboardInterrupt:
        print("interrupted; run the same command again to carry on", file=sys.stderr)
        return EXIT_INTERRUPTED


def prepare(options: argparse.Namespace) -> str | None:
    """Check that there is room on the disk and make `.venv` ready; returns the problem, if any."""
    is_ready = ready(options.extra)
    if problem := too_little_room(options, is_ready=is_ready):
        return problem
    if not is_ready:
        with alone():
            if not ready(options.extra):
                install(options.extra)
    return None


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The options of the command, and what is passed on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="quickstart|test|check|docs")
    quickstart = commands.add_parser(
        "quickstart",
        help="run the whole trail of a stack",
        description="Make .venv, install Cairn there, and run the whole trail of a stack in .cairn/STACK: "
        "checkout, build, stage, smoke-test, gate, promote, install. Needs 0.8 GB of disk for the sample "
        "stack and 3.8 GB for pyg; delete .venv and .cairn to have it back. "
        "A second run does only what changed. Other arguments are passed on to `cairn ci run`.",
        epilog="example: python3 dev.py quickstart --stack pyg",
        allow_abbrev=False,
    )
    quickstart.add_argument(
        "--stack",
        type=stack_name,
        default="sample",
        help="a folder of external-builds/ (default: %(default)s)",
    )
    quickstart.set_defaults(run=run_quickstart, extra=TRAIL_EXTRAS)
    test = commands.add_parser("test", help="run the tests", allow_abbrev=False, add_help=False)
    test.add_argument("--all", action="store_true", help="those with real programs and servers too")
    test.set_defaults(run=run_tests, extra=EXTRAS)
    check = commands.add_parser("check", help="run the linters", allow_abbrev=False)
    check.set_defaults(run=run_checks, extra=EXTRAS)
    docs = commands.add_parser("docs", help="write the generated pages of docs/reference", allow_abbrev=False)
    docs.set_defaults(run=run_docs, extra=EXTRAS)
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


def too_little_room(options: argparse.Namespace, *, is_ready: bool) -> str | None:
    """Say how much disk a first run takes; returns what to do if it is not there, None otherwise."""
    import tomllib  # noqa: PLC0415 - an older Python has none; main() has refused it before

    needed = 0 if is_ready else VENV_DISK[options.extra]
    stack = getattr(options, "stack", None)
    if stack is not None and not (ROOT / ".cairn" / stack / "report.html").exists():
        with contextlib.suppress(OSError, tomllib.TOMLDecodeError):  # Cairn says what is wrong with it
            needed += int(tomllib.loads(stack_file(stack).read_text(encoding="utf-8")).get("disk", 0))
    if not needed:
        return None
    free = shutil.disk_usage(ROOT).free
    print(
        f"needs {needed / 1e9:.1f} GB of disk in {ROOT}, which has {free / 1e9:.1f} GB free", file=sys.stderr
    )
    if free >= needed or free + size_of(VENV, ROOT / ".cairn") >= needed:
        return None
    return "too little disk is free: free some space, or clone Cairn to a different disk"


def size_of(*folders: Path) -> int:
    """The bytes of all files below folders, of which others may be writing and deleting some."""
    size = 0
    for folder in folders:
        # `Path.rglob` ends in an error where a folder goes away; `os.walk` passes over it.
        for place, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    size += Path(place, name).lstat().st_size
    return size


def force_utf8_locale() -> None:
    """Under `LC_ALL=C`, setuptools could not write down where Cairn is when that is below `/home/josé`."""
    if os.name == "posix" and os.environ.get("LC_ALL") in {"C", "POSIX"}:
        os.environ["LC_ALL"] = "C.UTF-8"


def interpreter() -> str:
    """The Python that runs this; an environment made with a different one is replaced."""
    return f"{sys.version_info[:3]} {sys.base_prefix} {ROOT}"


def stamp(extra: str) -> str:
    """What the virtual environment was made from; a different value means that it must be installed again."""
    inputs = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    digest = hashlib.sha256(inputs).hexdigest()
    return f"{interpreter()}\n{digest} {extra}"


def made_from() -> str:
    """The stamp that the last whole installation left; empty when there is none."""
    try:
        return STAMP.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def ready(extra: str) -> bool:
    """Whether `.venv` holds Cairn with these extras (or with more)."""
    return made_from() in {stamp(extra), stamp(EXTRAS)} and works("cairn.cli.main")


def works(*modules: str) -> bool:
    """Whether the interpreter of `.venv` starts and imports these; not so after half of it was deleted."""
    command = [str(python()), "-c", f"import {', '.join(modules)}"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Progress:
    """What is under way, in a line that moves; in plain lines where none can, as in a file or in CI."""

    def __init__(self) -> None:
        self.doing: Callable[[], str] = str
        self.moves = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")
        self._began = time.monotonic()

    def seconds(self) -> int:
        """Whole seconds since it began."""
        return round(time.monotonic() - self._began)

    def show_until(self, ended: threading.Event) -> None:
        """Show it until the event is set, or until nobody reads it any more."""
        with contextlib.suppress(OSError):
            self._show_until(ended)

    def _show_until(self, ended: threading.Event) -> None:
        while not ended.wait(TICK if self.moves else HEARTBEAT):
            line = f"  {self.seconds()} s  {self.doing()}"
            if self.moves:
                # One column is left free: a full line would make some terminals begin a new one.
                line = line[: shutil.get_terminal_size().columns - 1]
                self._write(f"\r{line}\x1b[K")
            else:
                self._write(f"{line}\n")
        if self.moves:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextlib.contextmanager
def showing(task: str) -> Iterator[Progress]:
    """Show progress while the block runs, and how long it took."""
    progress, ended = Progress(), threading.Event()
    print(f"{task} ...", file=sys.stderr, flush=True)
    ticker = threading.Thread(target=progress.show_until, args=(ended,), daemon=True)
    ticker.start()
    try:
        yield progress
    finally:
        ended.set()
        ticker.join()
    print(f"{task}: done in {progress.seconds()} s", file=sys.stderr)


def install(extra: str) -> None:
    """Make `.venv` and install Cairn there, editable."""
    with showing(f"installing Cairn into {VENV}") as progress:
        if not made_from().startswith(f"{interpreter()}\n") or not works("pip", "cairn.cli.main"):
            progress.doing = lambda: "making the environment"
            # Not `sys.executable`: that may be the one of the very environment that is cleared.
            base = getattr(sys, "_base_executable", sys.executable)
            subprocess.run([base, "-m", "venv", "--clear", VENV], check=True)
        STAMP.unlink(missing_ok=True)
        # What builds Cairn comes first: an environment of pip's own would not be constrained. Then what gives
        # uv the settings of the user's pip; uv installs the rest in a fraction of pip's time.
        group = ["--group", f"{ROOT / 'pyproject.toml'}:dev"] if extra == EXTRAS else []
        words = ["--no-build-isolation", "--editable", f"{ROOT}[{extra}]", *group]
        pip_install(BUILD_REQUIRES, progress)
        pip_install(["--no-build-isolation", "--editable", str(ROOT), "uv"], progress)
        if not uv_install(words, progress):
            pip_install(words, progress)  # it says what is wrong, or manages what uv does not
        STAMP.write_text(stamp(extra), encoding="utf-8")


def pip_install(words: Sequence[str], progress: Progress) -> None:
    """Install into `.venv`, regardless of the user's settings on where packages go."""
    where = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_QUIET", "PIP_VERBOSE", "PIP_LOG")
    env = {name: value for name, value in os.environ.items() if name not in where}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--no-color", "--no-user"]
    # Python compiles what is imported, which is a small part; where it must not, pip compiles it all.
    compiling = [] if sys.dont_write_bytecode else ["--no-compile"]
    versions = ["--constraint", str(ROOT / "constraints.txt")]
    command = [str(python()), "-m", "pip", "install", *options, *compiling, *versions, *words]
    (ROOT / ".cairn").mkdir(exist_ok=True)
    log_path = ROOT / ".cairn" / "dev.log"
    lines = []
    output = PipOutput()
    progress.doing = output.doing
    pip = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=PIPE, stderr=STDOUT, encoding="utf-8", errors="replace"
    )
    with log_path.open("w", encoding="utf-8") as log, pip:
        for line in pip.stdout or ():
            log.write(line)
            lines.append(line.rstrip())
            output.read(line)
    if pip.returncode:
        reasons = [line for line in lines if line and not line.startswith("WARNING:")]
        for line in reasons[-LAST_LINES:]:
            print(f"  | {line}", file=sys.stderr)
        print(f"  the whole log: {log_path}", file=sys.stderr)
        raise subprocess.CalledProcessError(pip.returncode, command)


def uv_install(words: Sequence[str], progress: Progress) -> bool:
    """Install into `.venv` by uv, from the indexes that the user's pip is set up for; whether it could."""
    progress.doing = lambda: f"unpacking: {installed()} packages"
    compiling = ["--compile-bytecode"] if sys.dont_write_bytecode else []
    versions = ["--constraint", str(ROOT / "constraints.txt")]
    command = [str(python()), "-c", UV, *compiling, *versions, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


class PipOutput:
    """What pip is doing, from the lines it writes: how many packages it has found, and how far it is."""

    def __init__(self) -> None:
        self._packages: set[str] = set()
        self._step = "asking the package index"
        self._unpacking: tuple[int, int] | None = None  # how many, and how many were there before

    def read(self, line: str) -> None:
        """Take a line of pip's."""
        if package := re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line):
            self._packages.add(package[1].lower())
            self._step = package[1]
        elif file := re.match(r"\s+(?:Downloading|Using cached) (\S+?)(?:-\d\S*)?( \(.*\))?$", line):
            self._step = f"downloading {file[1].rpartition('/')[2]}{file[2] or ''}"
        elif line.startswith("Installing collected packages:"):
            self._unpacking = (line.count(",") + 1, installed())

    def doing(self) -> str:
        """What to show now."""
        if self._unpacking is not None:
            total, before = self._unpacking
            # pip removes the old version of a package before it unpacks the new one.
            return f"unpacking: {max(0, installed() - before)} of {total} packages"
        return f"packages: {len(self._packages)}, {self._step}" if self._packages else self._step


def installed() -> int:
    """How many packages `.venv` has; pip writes this folder of a package last."""
    import sysconfig  # noqa: PLC0415 - it takes a while, and is needed by a first run only

    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(VENV)}))
    try:
        return sum(path.suffix == ".dist-info" for path in site.iterdir())
    except OSError:  # it is not made yet
        return 0


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


def stack_file(name: str) -> Path:
    """What describes a stack of `external-builds/`."""
    return ROOT / "external-builds" / name / "stack.toml"


def run_quickstart(options: argparse.Namespace, rest: list[str]) -> int:
    """Everything from upstream repositories to `pip install`, for one stack, in `.cairn/<stack>`."""
    stack = stack_file(options.stack)
    work = ROOT / ".cairn" / options.stack
    os.environ.setdefault("CAIRN_CACHE_DIR", str(ROOT / ".cairn" / "cache"))
    return run(python(), "-m", "cairn", "ci", "run", "--stack", stack, "--work-dir", work, *rest)


def run_tests(options: argparse.Namespace, rest: list[str]) -> int:
    """The unit tests, or those that the words name; as many at a time as there are cores or `-n` says."""
    os.environ.setdefault("CAIRN_TEST_CACHE", str(ROOT / ".cairn" / "test-cache"))
    workers = ["--dist", "loadgroup", "-p", "helpers.scheduling"]
    workers += [] if any(word.startswith("-n") for word in rest) else ["-n", "auto"]
    chosen = {"-k", "-m"} & {*rest} or any(Path(word.partition("::")[0]).exists() for word in rest)
    quick = [] if options.all or chosen else ["-m", "not slow", "tests/unit"]
    return run(python(), "-m", "pytest", "-p", "helpers.progress", *workers, *quick, *rest)


def run_checks(_options: argparse.Namespace, _rest: list[str]) -> int:
    """Every linter, also after one has failed; 0 only when all pass."""
    results = [
        run(python(), "-m", "ruff", "check", "."),
        run(python(), "-m", "ruff", "format", "--check", "."),
        run(python(), "-m", "mypy"),
        run(BIN / "lint-imports"),
    ]
    return int(any(results))


def run_docs(_options: argparse.Namespace, _rest: list[str]) -> int:
    """Write the pages that follow from the code; a test refuses ones that are out of date."""
    return run(python(), ROOT / "docs" / "generate_reference.py")


if __name__ == "__main__":
    sys.exit(main())
