"""Share compile jobs among the steps that run side by side.

A tool that speaks GNU make's jobserver protocol (make >= 4.4 and ninja >= 1.13, by a named pipe) asks for a
token before each compile job after its first, and puts it back when the job ends. Each step has a pipe of its
own: what a killed tool still holds goes with its pipe, and no token is ever lost. Tokens that lie unused in
one pipe are carried to the steps that have none left, the longest remaining path first.

Source: GNU make's manual, "POSIX Jobserver Interaction"; ninja's manual, "GNU Jobserver support".
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cairn import files, isolation, process
from cairn.build.engine import schedule
from cairn.build.engine.schedule import Limits, Step
from cairn.errors import CairnError

_VERSION = re.compile(r"(\d+)\.(\d+)")
_NINJA, _MAKE = (1, 13), (4, 4)  # the first that take part by a named pipe
_WITHOUT = """\
#!/bin/sh
# This make is older than 4.4, and would stop at a jobserver that is a named pipe. Written by Cairn.
unset MAKEFLAGS
exec {make} "$@"
"""


class Tokens:
    """The pipe of one step.

    Attributes:
        held: compile jobs that it may run: the first one, which needs no token, and its tokens.
    """

    def __init__(self, path: Path, most: int) -> None:
        os.mkfifo(path)
        self._most = most
        self.path = path
        self.held = 1
        # Opened for both ends: it stays open, and never blocks, whoever else has it open.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def makeflags(self) -> str:
        """The value of `MAKEFLAGS` by which tools find it."""
        return f" -j{self._most} --jobserver-auth=fifo:{self.path}"

    def put(self, count: int) -> None:
        """Add tokens, up to its maximum."""
        count = min(count, self._most - self.held)
        self.held += os.write(self._pipe, b"+" * count) if count > 0 else 0

    def take(self, count: int) -> int:
        """Take unused tokens; return how many there were."""
        try:
            taken = len(os.read(self._pipe, count)) if count > 0 else 0
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            taken = 0
        self.held -= taken
        return taken

    def close(self) -> None:
        """Remove the pipe."""
        os.close(self._pipe)
        self.path.unlink(missing_ok=True)


class Pool:
    """All compile jobs of a run; a context that holds the folder of the pipes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps: dict[str, Tokens] = {}
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def join(self, step: Step) -> Iterator[str]:
        """Make a pipe for a step; yield the value of `MAKEFLAGS`."""
        most = step.cores
        if self._limits.memory is not None and step.memory:
            most = max(1, min(most, self._limits.memory // step.memory))
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="cairn-jobs-"))
            self._made += 1
            tokens = self._steps[step.name] = Tokens(self._folder / f"{self._made}.fifo", most)
        self.balance({}, {})
        try:
            yield tokens.makeflags()
        finally:
            with self._lock:
                del self._steps[step.name]
                tokens.close()

    def balance(self, paths: Mapping[str, float], jobs: Mapping[str, int]) -> None:
        """Move unused tokens to the steps that need them.

        Args:
            paths: remaining seconds behind each step; those with the most come first.
            jobs: of every step that runs; those that have no pipe keep theirs.
        """
        with self._lock:
            # What lies unused is collected, and dealt out again: to those that had nothing left first.
            idle = {name: tokens.take(self._limits.cores) for name, tokens in self._steps.items()}
            fixed = sum(count for name, count in jobs.items() if name not in self._steps)
            used = sum(tokens.held for tokens in self._steps.values()) + int(fixed / schedule.OVER)
            free = max(0, self._limits.cores - used)
            order = sorted(self._steps, key=lambda name: (idle[name] > 0, -paths.get(name, 0.0)))
            busy = [name for name in order if not idle[name]] or order
            for position, name in enumerate(busy):
                share = math.ceil(free / (len(busy) - position))
                self._steps[name].put(share)
                free -= share


def speaks(path: str) -> bool:
    """Whether the tools on a PATH support the jobserver: a ninja that is new enough."""
    ninja = shutil.which("ninja", path=path)
    return hasattr(os, "mkfifo") and ninja is not None and _version(ninja) >= _NINJA


def without_old_make(path: str, folder: Path) -> str:
    """Return a PATH that calls an old make without `MAKEFLAGS`, as the named pipe there would stop it.

    Args:
        path: as it is.
        folder: receives scripts that stand in front of an old make; it has to stay there.
    """
    old = {name: program for name in ("make", "gmake") if (program := shutil.which(name, path=path))}
    old = {name: program for name, program in old.items() if _version(program) < _MAKE}
    for name, program in old.items():
        files.write_text(folder / name, _WITHOUT.format(make=shlex.quote(program)))
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), path]) if old else path


def _version(program: str) -> tuple[int, int]:
    try:
        with isolation.own_home() as home:  # a package of the build may have brought it
            env = isolation.variables(isolation.Isolation.BUILD, home)
            output = process.run([program, "--version"], env=env, timeout=10).output
    except CairnError:
        return (0, 0)
    match = _VERSION.search(output)
    return (int(match[1]), int(match[2])) if match else (0, 0)
