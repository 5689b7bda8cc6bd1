"""Run the steps of a graph: each starts as soon as its needs are met, and all end together.

    ready ─ schedule ─> running ── returns ──────> done (or kept) ──> those that waited for it are ready
      ^                   │ └───── raises ───────> failed ──────────> those that waited for it are skipped
      └── fewer jobs ─────┘ out of memory, out of time, killed: see `_failed`

A step is a function that runs in a thread of its own. The programs that it starts are a `process.Group`, so
that its time limit, or the failure of a different step, ends what it has started and nothing else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from cairn import platforms, process
from cairn.build import build_log
from cairn.build.engine import compile_jobs, events, schedule
from cairn.build.engine.compile_jobs import Pool
from cairn.build.engine.schedule import Graph, Limits, Record, Step
from cairn.errors import BuildError, CairnError, ProblemsError, SystemFailureError
from cairn.output import console

T = TypeVar("T")

_TICK = 0.1  # seconds between two looks at time limits, and at who has compile jobs to spare
_LEAVING = 4.0  # seconds that a step whose programs were ended has to return
_ATTEMPTS = 5  # of a step that runs out of memory: jobs are halved each time
_TAIL = 12  # lines of a log that are shown


class OutOfMemoryError(BuildError):
    """A step's programs were killed for memory, or got none; it may succeed with fewer jobs."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options for running a graph.

    Attributes:
        limits: of the machine.
        keep_going: after a failure, go on with what does not need the failed step.
        time_limit: seconds after which a step is ended and has failed; None for as long as it takes.
        events: file of events; None for none.
        durations: file of what steps took; None for none.
        logs: the logs of steps that have one, by name.
        place: a folder on the disk that the steps work on.
    """

    limits: Limits
    keep_going: bool = False
    time_limit: float | None = None
    events: Path | None = None
    durations: Path | None = None
    logs: Mapping[str, Path] = msgspec.field(default_factory=dict)
    place: Path = msgspec.field(default_factory=Path)


@dataclass(kw_only=True)
class Running:
    """A step that runs, as its own function sees it.

    Attributes:
        step: which.
        jobs: compile jobs that it may run; those of `makeflags` come and go instead.
        attempt: from 1.
        log: its log; empty when it begins.
        pool: of compile jobs, that of the whole run.
        note: writes an event of the step's own.
        kept: why it had nothing to do; None where it worked.
    """

    step: Step
    jobs: int
    attempt: int
    log: Path | None
    pool: Pool
    note: Callable[[events.AnyEvent], None]
    kept: str | None = None

    def keep(self, why: str) -> None:
        """Mark the step as having nothing to do: its earlier result still holds."""
        self.kept = why
        console.current().say_kept(self.step.name, why)

    @contextlib.contextmanager
    def makeflags(self, path: str) -> Iterator[str | None]:
        """Share in the compile jobs that the steps beside it do not use.

        Args:
            path: where the step's build tools are found, as in `PATH`.

        Returns:
            What `MAKEFLAGS` has to be; None where the tools cannot take part, and get `jobs` of their own.
        """
        # One that ran out of memory has a number of jobs that must not grow.
        if self.attempt > 1 or self.step.cores == 1 or not compile_jobs.speaks(path):
            yield None
            return
        with self.pool.join(self.step) as makeflags:
            yield makeflags


Work = Callable[[Running], T]


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[T]):
    """The outcome of a graph.

    Attributes:
        results: by the names of the steps that are done.
        failures: why a step failed.
        skipped: for each step that never ran, the failed step that it waited for.
    """

    results: Mapping[str, T]
    failures: Mapping[str, CairnError]
    skipped: Mapping[str, str]

    def require(self) -> None:
        """Raise the failures, if there are any.

        Raises:
            CairnError: the only failure.
            ProblemsError: several.
        """
        if len(self.failures) == 1:
            raise next(iter(self.failures.values()))
        if self.failures:
            skipped = f", and {len(self.skipped)} were skipped" if self.skipped else ""
            raise ProblemsError(
                f"{len(self.failures)} steps failed{skipped}", problems=tuple(self.failures.values())
            )


def run(graph: Graph, work: Mapping[str, Work[T]], options: Options) -> Outcome[T]:
    """Run a graph.

    Without `keep_going`, the first failure ends the programs of all other steps. What a step raises that is
    not a `CairnError`, and an interrupt, ends everything and is raised.

    Args:
        graph: the steps.
        work: what each does, by name.
        options: how.

    Raises:
        SystemFailureError: the disk is too small for what the steps have needed before.
    """
    return _Run(graph, work, options).carry_out()


@dataclass(kw_only=True)
class _Thread:
    """A running step."""

    running: Running
    group: process.Group
    thread: threading.Thread
    started: float
    free: int
    deadline: float | None
    alone: bool = True
    late: bool = False


class _Run(Generic[T]):
    def __init__(self, graph: Graph, work: Mapping[str, Work[T]], options: Options) -> None:
        self._graph, self._work, self._options = graph, work, options
        self._known = (
            schedule.read_durations(options.durations) if options.durations else schedule.Durations()
        )
        self._paths = schedule.remaining_paths(graph, self._known.costs(graph), options.limits.cores)
        self._left = {step.name: len(step.waits_for) for step in graph.steps}
        self._ready = {step.name: step for step in graph.steps if not step.waits_for}
        self._running: dict[str, _Thread] = {}
        self._attempts: dict[str, int] = {}
        self._ended: queue.Queue[tuple[str, T | None, BaseException | None]] = queue.Queue()
        self._results: dict[str, T] = {}
        self._failures: dict[str, CairnError] = {}
        self._skipped: dict[str, str] = {}
        self._records: dict[str, Record] = {}
        self._pool = Pool(options.limits)
        self._log = events.Log(options.events)

    def carry_out(self) -> Outcome[T]:
        limits, began = self._options.limits, time.monotonic()
        self._require_room()
        self._log.write(
            events.RunStarted(steps=len(self._graph.steps), cores=limits.cores, memory=limits.memory or 0)
        )
        ending: events.RunEnding = "stopped"
        try:
            with platforms.here.guarding(), self._pool:
                try:
                    while self._ready or self._running:
                        self._start()
                        self._wait()
                finally:
                    self._stop()
            ending = "failed" if self._failures else "done"
        finally:
            if self._options.durations:
                schedule.add_durations(self._options.durations, self._records)
            self._log.write(events.RunEnded(ending=ending, seconds=round(time.monotonic() - began, 3)))
        return Outcome(results=self._results, failures=self._failures, skipped=self._skipped)

    def _require_room(self) -> None:
        """Refuse to begin where the disk is too small for what steps have needed before; warn of memory."""
        waiting = [step for step in self._graph.steps if step.seconds != 0]
        place, memory = self._options.place, self._options.limits.memory
        needed, free = sum(step.disk for step in waiting), shutil.disk_usage(place).free
        if needed > free:
            raise SystemFailureError(
                f"the build needs about {console.size(needed)} of disk; {console.size(free)} are free at "
                f"{place}",
                tip="free some space there, or name folders on a different disk",
            )
        for step in waiting:
            if memory is not None and step.memory > memory:
                console.current().warn(
                    f"{step.name} needs about {console.size(step.memory)} of memory for one compile job, and "
                    f"it may have {console.size(memory)}: it runs alone, with one job"
                )

    def _start(self) -> None:
        busy = {name: (t.running.step, t.running.jobs) for name, t in self._running.items()}
        limits = self._options.limits
        for step, cores in schedule.starts(self._ready.values(), busy, paths=self._paths, limits=limits):
            name = step.name
            del self._ready[name]
            attempt = self._attempts[name] = self._attempts.get(name, 0) + 1
            log = self._options.logs.get(name)
            running = Running(
                step=step,
                jobs=cores,
                attempt=attempt,
                log=log,
                pool=self._pool,
                note=self._log.write,
            )
            group = process.Group(on_start=functools.partial(self._note_program, name))
            limit = self._options.time_limit
            now = time.monotonic()
            thread = threading.Thread(target=self._run_step, args=(running, group), name=name, daemon=True)
            self._running[name] = _Thread(
                running=running,
                group=group,
                thread=thread,
                started=now,
                free=shutil.disk_usage(self._options.place).free,
                deadline=None if limit is None else now + limit,
            )
            for each in self._running.values() if len(self._running) > 1 else ():
                each.alone = False
            self._log.write(
                events.StepStarted(
                    step=name,
                    kind=step.kind,
                    digest=self._graph.digests[name],
                    jobs=cores,
                    attempt=attempt,
                    log=None if log is None else str(log),
                )
            )
            thread.start()

    def _note_program(self, name: str, command: tuple[str, ...]) -> None:
        self._log.write(events.ProgramStarted(step=name, program=program_of(command)))

    def _run_step(self, running: Running, group: process.Group) -> None:
        group.join()
        name = running.step.name
        try:
            result = self._work[name](running)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._ended.put((name, None, error))
        else:
            self._ended.put((name, result, None))

    def _wait(self) -> None:
        """Wait for a step to end; meanwhile enforce time limits and share out compile jobs."""
        while True:
            try:
                name, result, error = self._ended.get(timeout=_TICK)
            except queue.Empty:
                self._end_late()
                self._pool.balance(self._paths, {n: t.running.jobs for n, t in self._running.items()})
                continue
            break
        thread = self._running.pop(name, None)
        if thread is None:
            return  # it was left behind, and has ended after all
        failure = self._of_late(thread) if error is not None and thread.late else error
        if failure is None:
            self._on_result(thread, result)  # type: ignore[arg-type] # None where T is None
        elif not isinstance(failure, CairnError):
            self._note_end(thread, "failed", why=str(failure))
            raise failure
        elif not (isinstance(failure, OutOfMemoryError) and self._retry(thread, failure)):
            self._failed(thread, failure)

    def _end_late(self) -> None:
        now = time.monotonic()
        late = [t for t in self._running.values() if t.deadline is not None and now >= t.deadline]
        for thread in late:
            if not thread.late:
                thread.late = True
                # It takes a while: other steps go on meanwhile.
                threading.Thread(target=thread.group.end, daemon=True).start()
            elif thread.deadline is not None and now >= thread.deadline + _LEAVING + _LEAVING:
                # It hangs in something that is not a program of its own: it is left behind.
                name = thread.running.step.name
                self._ended.put((name, None, self._of_late(thread)))
                thread.deadline = None

    def _of_late(self, thread: _Thread) -> CairnError:
        step, log = thread.running.step, thread.running.log
        limit = self._options.time_limit or 0.0
        tail = build_log.tail(log, _TAIL) if log is not None else ()
        return BuildError(
            f"{step.name} was ended: it had not come to its end within {console.clock(limit)}",
            log=log,
            tail=tuple(text for _, text in tail),
            tip="give it more time with --time-limit, or see in its log what it was waiting for",
        )

    def _retry(self, thread: _Thread, error: OutOfMemoryError) -> bool:
        """Retry a step that ran out of memory, with half the jobs or alone; False if that cannot help."""
        running = thread.running
        step, limits = running.step, self._options.limits
        if running.attempt >= _ATTEMPTS or (running.jobs == 1 and not self._running):
            return False
        jobs = max(1, running.jobs // 2)
        memory = max(2 * step.memory, schedule.MEMORY_PER_JOB)
        if running.jobs == 1:
            memory = limits.memory or memory  # nothing else beside it
        self._ready[step.name] = dataclasses.replace(step, cores=jobs, memory=memory)
        how = (
            f"again with {jobs} compile jobs instead of {running.jobs}"
            if running.jobs > 1
            else "again, alone"
        )
        console.current().warn(f"{error}; {how.replace(' 1 compile jobs', ' 1 compile job')}")
        self._log.write(events.StepRetried(step=step.name, why=str(error), jobs=jobs))
        return True

    def _on_result(self, thread: _Thread, result: T) -> None:
        step, reason = thread.running.step, thread.running.kept
        self._results[step.name] = result
        self._note_end(thread, "done" if reason is None else "kept", why=reason or "")
        if reason is None:
            self._records[step.name] = Record(
                kind=step.kind,
                project=step.project,
                seconds=round(time.monotonic() - thread.started, 3),
                cpu=round(thread.group.cpu, 3),
                cores=thread.running.jobs,
                memory=thread.group.largest,
                # Of steps side by side no one can tell whose it is: what is known of it stays.
                disk=max(0, thread.free - shutil.disk_usage(self._options.place).free)
                if thread.alone
                else self._known.disk(step.kind, step.project),
                ended=time.time(),
            )
        self._let_go_on(step.name)

    def _let_go_on(self, ended: str) -> None:
        """Make those steps ready that waited for nothing but a step that has ended, or never will run."""
        for name in self._graph.followers[ended]:
            self._left[name] -= 1
            if not self._left[name] and name not in self._skipped:
                self._ready[name] = self._graph.by_name[name]

    def _failed(self, thread: _Thread, error: CairnError) -> None:
        name = thread.running.step.name
        self._failures[name] = error
        self._note_end(thread, "failed", why=str(error))
        if not self._options.keep_going:
            ended = {*self._results, *self._running}
            self._stop()
            behind = [s.name for s in self._graph.order if s.name not in ended]
        else:
            behind = list(self._graph.behind(name))
        ended_now = [name]
        for after in behind:
            if after not in self._failures and after not in self._skipped:
                self._skipped[after] = name
                ended_now.append(after)
                self._ready.pop(after, None)
                self._log.write(events.StepEnded(step=after, ending="skipped", why=f"{name} failed"))
                if after in self._graph.behind(name):
                    console.current().skipped(after, f"because {name} failed")
        for each in ended_now:
            self._let_go_on(each)

    def _stop(self) -> None:
        """End all running steps."""
        process.end_groups([thread.group for thread in self._running.values()])
        until = time.monotonic() + _LEAVING
        for thread in self._running.values():
            thread.thread.join(max(0.0, until - time.monotonic()))
            self._note_end(thread, "stopped")
        self._running.clear()
        self._ready.clear()

    def _note_end(self, thread: _Thread, ending: events.Ending, *, why: str = "") -> None:
        name = thread.running.step.name
        self._log.write(
            events.StepEnded(
                step=name,
                ending=ending,
                digest=self._graph.digests[name],
                seconds=round(time.monotonic() - thread.started, 3),
                cpu=round(thread.group.cpu, 3),
                memory=thread.group.largest,
                why=why,
            )
        )


def program_of(command: tuple[str, ...]) -> str:
    """Return the program of a command, with the module if it is a Python: `python -m pip`."""
    name = Path(command[0]).name
    if len(command) > 2 and command[1] == "-m":  # noqa: PLR2004 - the program, the option and its module
        return f"{name} -m {command[2]}"
    return name
