"""A stack of two small projects that a real compiler builds, run by the real program, to be disturbed.

`base` and `upper`, which needs it, each compile a few C++ files by make and pack a digest of the objects:
wheels that are the same byte for byte have been compiled whole. While `hold` exists, a named pipe without a
writer, the compiler of `base` waits in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn import isolation
from cairn.build.engine import events
from helpers import packing, stacks
from helpers.build import PYPROJECT, repository

_STACK = stacks.stack(
    stacks.project("base", "https://example.invalid/base", 'version_file = ""'),
    stacks.project("upper", "https://example.invalid/upper", 'version_file = ""\nneeds = ["base"]'),
)
_BACKEND = """
import os, subprocess

def build_wheel(folder, settings=None, metadata=None):
    subprocess.run(["make", "-j" + os.environ["MAX_JOBS"]], check=True)
    objects = sorted(Path("build").glob("*.o"))
    digest = hashlib.sha256(b"".join(o.read_bytes() for o in objects)).hexdigest()
    text = f"objects = {{len(objects)}}\\ndigest = {{digest!r}}\\n"
    return write_wheel(folder, "{name}", "1.0", {{"{name}/__init__.py": text}}).name
"""
_MAKEFILE = """
SOURCES = $(wildcard *.cpp)
all: $(SOURCES:%.cpp=build/%.o)
build/%.o: %.cpp
\t@mkdir -p build
\t{before}g++ -g0 -O1 -c $< -o $@
"""
_SOURCE = """
#if __has_include("{hold}")
#include "{hold}"
#endif
{include}
int {name}(int n) {{ return n + {number}; }}
"""


@dataclass(frozen=True, kw_only=True)
class SmallBuilds:
    """The stack, its trees and where everything goes.

    Attributes:
        folder: all of it.
        output: the output folder.
        hold: while it exists, the compiler of `base` waits.
    """

    folder: Path
    output: Path
    hold: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the program runs with."""
        places = {"CAIRN_CACHE_DIR": str(self.folder / "cache"), isolation.VARIABLE: str(self.hold.parent)}
        return {**os.environ, **places, "CXX": "g++"}

    def command(self, *arguments: str) -> list[str]:
        """`cairn build` for these checkouts."""
        places = ("--stack", str(self.folder / "stack"), "--root-checkout-dir", str(self.folder / "trees"))
        return [
            *(sys.executable, "-m", "cairn", "build", "run", *places),
            *("--output-dir", str(self.output), "--targets", "cpu", *arguments),
        ]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Build to the end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A build that is under way; what is left of it goes with the block."""
        program = subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield program
        finally:
            program.kill()
            program.communicate()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Have the compiler of `base` wait."""
        os.mkfifo(self.hold)
        try:
            yield
        finally:
            if self.hold.is_fifo():
                self.hold.unlink()

    def release(self) -> None:
        """Have the compiler of `base` go on: it reads nothing, and an empty file where it looks again."""
        writer = os.open(self.hold, os.O_RDWR | os.O_NONBLOCK)
        empty = self.hold.with_name("empty")
        empty.touch()
        empty.replace(self.hold)
        os.close(writer)

    def wheels(self) -> dict[str, bytes]:
        """The wheels in the output folder."""
        return {path.name: path.read_bytes() for path in sorted(self.output.glob("*.whl"))}

    def programs(self) -> list[str]:
        """The programs that the last run has started."""
        found = events.last_run(self.output / events.FILE_NAME)
        return [event.program for event in found if isinstance(event, events.ProgramStarted)]

    def endings(self) -> dict[str, str]:
        """How each step of the last run ended."""
        found = events.last_run(self.output / events.FILE_NAME)
        return {event.step: event.ending for event in found if isinstance(event, events.StepEnded)}

    def processes(self, name: str) -> list[int]:
        """The processes of a program that work in our folder, or name it."""
        return [pid for pid in _processes(self.folder) if name in _command(pid)]


def make(folder: Path, *, before: str = "", include: str = "") -> SmallBuilds:
    """Make the stack and its trees.

    Args:
        folder: all of it.
        before: goes in front of the compiler in the recipe of `base`.
        include: what each source includes; without it, nothing takes time or memory to compile.
    """
    hold = folder / "held" / "hold"
    hold.parent.mkdir(parents=True)
    for name in ("base", "upper"):
        sources = {
            f"{name}{number}.cpp": _SOURCE.format(
                name=f"{name}{number}",
                number=number,
                hold=hold if name == "base" else "nothing.h",
                include=include,
            )
            for number in range(3)
        }
        texts = {
            "pyproject.toml": PYPROJECT,
            "backend.py": packing.backend(_BACKEND.format(name=name)),
            "Makefile": _MAKEFILE.format(before=before if name == "base" else ""),
            ".gitignore": "build/\n__pycache__/\n",
        }
        repository(folder / "trees" / name, {**texts, **sources})
    (folder / "stack").mkdir()
    (folder / "stack" / "stack.toml").write_text(_STACK)
    return SmallBuilds(folder=folder, output=folder / "out", hold=hold)


def wait_for(what: Callable[[], object], *, seconds: float = 60) -> None:
    """Wait until something is true.

    Raises:
        AssertionError: it does not come in time.
    """
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come in time"
        time.sleep(0.02)


def kill(pids: list[int]) -> None:
    """End processes as the kernel does where memory is short."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _processes(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inside = Path(entry, "cwd").readlink().is_relative_to(folder)
            if inside or str(folder) in _command(int(entry.name)):
                yield int(entry.name)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def needs() -> str | None:
    """What the machine lacks for these builds; None for nothing."""
    missing = [name for name in ("g++", "make", "git") if not shutil.which(name)]
    if missing or not Path("/proc/self/cwd").exists():
        return f"not here: {' '.join(missing) or '/proc'}"
    return None
