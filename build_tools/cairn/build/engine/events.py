"""The events of a run, one line of JSON each, for programs: `events.jsonl` in the output folder.

Each line is written whole by one call, and all of them are there whatever ends the run. A run appends to what
those before it wrote; the line that a kill has cut off is skipped by readers.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.output import safe_text

FILE_NAME = "events.jsonl"
_LONGEST = 20_000_000  # bytes after which a file begins anew

Ending = Literal["done", "kept", "failed", "skipped", "stopped"]
"""How a step ended: `kept` had nothing to do, `skipped` never ran, `stopped` was ended with the run."""
RunEnding = Literal["done", "failed", "stopped"]
"""How a run ended: `stopped` by an interrupt, or by something that is not the failure of a step."""


class Event(datafile.Value, tag_field="event"):
    """The fields of every event.

    Attributes:
        run: which run, the same for all its events.
        at: seconds since the epoch.
    """

    run: str = ""
    at: float = 0.0


class RunStarted(Event, tag="run-started"):
    """A run begins: how many steps it has, and what it may use (bytes of memory, 0 where no one knows)."""

    steps: int
    cores: int
    memory: int = 0


class StepStarted(Event, tag="step-started"):
    """A step begins, or begins again (`attempt` from 1), with a number of compile jobs."""

    step: str
    kind: str
    digest: str
    jobs: int
    attempt: int = 1
    log: str | None = None


class ProgramStarted(Event, tag="program-started"):
    """A step has started a program: its file name, without arguments."""

    step: str
    program: str


class StepRetried(Event, tag="step-retried"):
    """A step ran out of memory, and begins again with fewer jobs."""

    step: str
    why: str
    jobs: int


class CacheStatistics(Event, tag="compilations-counted"):
    """How many compilations of one build the compiler cache answered.

    Attributes:
        step: whose compilations; empty until the step notes it.
        program: which cache.
        hits: taken from the cache.
        misses: compiled, and put into the cache.
        distributed: of these, compiled by a server of sccache-dist.
        undistributed: of these, compiled here since no server of sccache-dist did it.
        uncached: compiled past the cache: the program cannot keep such a call.
        errors: failures of the cache itself; the compilers ran all the same.
        problem: why these counts cannot be complete; None where they may be.
    """

    step: str = ""
    program: Literal["ccache", "sccache"]
    hits: int = 0
    misses: int = 0
    distributed: int = 0
    undistributed: int = 0
    uncached: int = 0
    errors: int = 0
    problem: str | None = None

    @property
    def calls(self) -> int:
        """Compilations that the cache has seen."""
        return self.hits + self.misses + self.uncached + self.errors

    def __str__(self) -> str:
        cacheable = self.hits + self.misses
        rate = f" ({100 * self.hits // cacheable}%)" if cacheable else ""
        elsewhere = f", {self.distributed} compiled by sccache-dist" if self.distributed else ""
        beside = f", {self.uncached} not cacheable" if self.uncached else ""
        failed = f", {self.errors} errors" if self.errors else ""
        counts = f"{self.hits} of {cacheable} compilations from the cache{rate}"
        return f"{self.program} {counts}{elsewhere}{beside}{failed}"

    def judge(self, *, compiled: bool) -> CacheStatistics:
        """The same, with its `problem`; `compiled` says that the build has left object files."""
        problem = None
        if compiled and not self.calls:
            problem = (
                f"{self.program} counted no compilation, although files were compiled: "
                "the build calls its compilers by paths that Cairn does not know"
            )
        elif self.errors and self.errors >= self.hits + self.misses:
            problem = f"{self.program} failed {self.errors} times: it saved nothing"
        elif self.undistributed:
            problem = (
                f"{self.undistributed} of {self.misses} compilations were for sccache-dist and were done "
                "here: its scheduler or a worker is gone, or refuses"
            )
        return structs.replace(self, problem=problem)


class StepEnded(Event, tag="step-ended"):
    """A step has ended.

    Attributes:
        step: its name.
        ending: how.
        digest: of the step, where it was reached.
        seconds: wall time.
        cpu: core-seconds of its programs.
        memory: bytes of the largest of them.
        why: what failed, or what it was skipped or kept for.
    """

    step: str
    ending: Ending
    digest: str = ""
    seconds: float = 0.0
    cpu: float = 0.0
    memory: int = 0
    why: str = ""


class RunEnded(Event, tag="run-ended"):
    """A run has come to its end; one without this line was killed."""

    ending: RunEnding
    seconds: float


AnyEvent: TypeAlias = (
    RunStarted | StepStarted | ProgramStarted | StepRetried | CacheStatistics | StepEnded | RunEnded
)


class Log:
    """Where a run writes its events; threads may share it."""

    def __init__(self, path: Path | None) -> None:
        """Write to `path`; None writes nowhere."""
        self._path = path
        self._run = f"{int(time.time())}-{secrets.token_hex(4)}"
        self._lock = threading.Lock()
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            size = file.tell()
            if size > _LONGEST:
                file.truncate(0)
            elif size:
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    file.write(b"\n")  # a kill, or a full disk, has cut the last line off

    def write(self, event: AnyEvent) -> None:
        """Append an event, with the run and the time."""
        if self._path is None:
            return
        whole = structs.replace(event, run=self._run, at=round(time.time(), 3))
        text = json.dumps(msgspec.to_builtins(whole), ensure_ascii=False, separators=(",", ":"))
        # A path may have bytes that are not UTF-8, which no reader of JSON takes.
        line = safe_text.mask(text).encode(errors="replace") + b"\n"
        # A full disk stops the step that fills it; that nothing can be noted here stops nothing.
        with self._lock, contextlib.suppress(OSError), self._path.open("ab", buffering=0) as file:
            file.write(line)


def read(path: Path) -> Iterator[AnyEvent]:
    """The events of a file, oldest first; lines that are not events are left out."""
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    yield datafile.decode(line, AnyEvent)  # type: ignore[arg-type] # a union is no `type`
                except msgspec.MsgspecError:
                    continue
    except OSError:
        return


def last_run(path: Path) -> tuple[AnyEvent, ...]:
    """The events of the run that began last; none where there was none."""
    run: list[AnyEvent] = []
    for event in read(path):
        if isinstance(event, RunStarted):
            run = []
        run.append(event)
    return tuple(run)
