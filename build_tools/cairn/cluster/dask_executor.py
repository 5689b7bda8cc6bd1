"""Submit the steps of a night to a Dask cluster: https://distributed.dask.org/en/stable/resources.html.

A worker says what it has by its resources: `cores`, and a GPU by its target, such as `gfx1100=1`. One that
names no cores takes a step for each of its threads.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

import msgspec
from distributed import Client, KilledWorker, Status
from distributed.comm.core import CommClosedError
from msgspec import structs

import cairn
from cairn import extras, process
from cairn.build.engine.schedule import Limits
from cairn.cluster import worker_step
from cairn.errors import NetworkError, PrerequisiteError, ProcessError, UsageError
from cairn.output import Progress, console
from cairn.pipeline.night.driver import ExecutorGoneError
from cairn.pipeline.night.placing import Demand, Machine
from cairn.pipeline.night.step_run import StepEnd, StepJob


@dataclass(kw_only=True, eq=False)
class Wish:
    """A step that waits for a worker, or runs on one.

    Attributes:
        cores: that it takes.
        demand: what it needs besides.
        urgency: seconds from its start to the end of the last step behind it.
        worker: the name of the machine that it runs on; empty while it waits.
        is_placed: set once it has one.
    """

    cores: int
    demand: Demand
    urgency: float
    worker: str = ""
    is_placed: threading.Event = field(default_factory=threading.Event)


class Places:
    """The places of all workers.

    Dask alone would deal steps out as they are submitted, to workers that are busy, too: some would wait in
    line at one while another has nothing to do.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machines: tuple[Machine, ...] = ()
        self._unfit: set[tuple[str, str]] = set()
        self._waiting: list[Wish] = []
        self._running: list[Wish] = []

    def renew(self, machines: Sequence[Machine]) -> None:
        """Take note of the workers that there are by now."""
        with self._lock:
            self._machines = tuple(machines)
            self._place()

    def exclude(self, worker: str, gpu: str) -> None:
        """Give a worker no more steps for a GPU, such as one that hangs."""
        with self._lock:
            self._unfit.add((worker, gpu))

    def can_take(self, demand: Demand) -> bool:
        """Whether there is a worker for a demand, busy or not."""
        return any(self._fits(machine, demand) for machine in self._machines)

    def ask(self, cores: int, demand: Demand, urgency: float) -> Wish:
        """Wait in line; `give_back` has to follow, whether a worker was had or not."""
        wish = Wish(cores=cores, demand=demand, urgency=urgency)
        with self._lock:
            self._waiting.append(wish)
            self._place()
        return wish

    def give_back(self, wish: Wish) -> None:
        """Leave the line, or the worker."""
        with self._lock:
            (self._running if wish.worker else self._waiting).remove(wish)
            self._place()

    def _place(self) -> None:
        for wish in sorted(self._waiting, key=lambda wish: -wish.urgency):
            fit = (machine for machine in self._machines if self._fits(machine, wish.demand))
            free = [machine for machine in fit if self._has_room(machine, wish)]
            if free:
                # GPUs are left to those who need them.
                best = min(
                    free,
                    key=lambda machine: (bool(machine.gpus) and not wish.demand.gpu, self._load(machine)),
                )
                wish.worker = best.name
                self._waiting.remove(wish)
                self._running.append(wish)
                wish.is_placed.set()

    def _fits(self, machine: Machine, demand: Demand) -> bool:
        return demand.is_met_by(machine) and (machine.name, demand.gpu) not in self._unfit

    def _has_room(self, machine: Machine, wish: Wish) -> bool:
        beside = [task for task in self._running if task.worker == machine.name]
        gpus = sum(task.demand.gpus for task in beside if task.demand.gpu == wish.demand.gpu)
        # A step that is larger than the machine has it alone.
        has_cores = not beside or sum(task.cores for task in beside) + wish.cores <= machine.cores
        has_gpus = not wish.demand.gpu or gpus + wish.demand.gpus <= machine.gpus[wish.demand.gpu]
        return has_cores and has_gpus

    def _load(self, machine: Machine) -> float:
        return sum(task.cores for task in self._running if task.worker == machine.name) / machine.cores


_LOOK = 0.5  # seconds between two looks at whether the run has ended
_FRESH = 5.0  # seconds for which the list of workers is taken to be right
_GRACE = 60.0  # seconds that a worker which meets a demand may be away, where others start workers
_MANY = 100_000  # steps that may wait for a worker
_DEATHS = 4  # workers that a step may lose: as many as Dask would let it
_GONE = (CommClosedError, CancelledError)


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Which cluster.

    Attributes:
        scheduler: the address of a scheduler, or None.
        cluster: a class of dask-jobqueue, such as `SLURMCluster`, or None: it is started, and ends with us.
        workers: how many to wait for, and to start.
        patience: seconds to wait for them, and for a scheduler that is gone.
    """

    scheduler: str | None = None
    cluster: str | None = None
    workers: int = 1
    patience: float = 600.0


@contextlib.contextmanager
def connect(where: Where) -> Iterator[Cluster]:
    """Connect to a cluster, or start one.

    Raises:
        NetworkError: the scheduler does not answer, or no worker came.
        PrerequisiteError: workers have no Cairn, or another version of it; jobs cannot be submitted.
        UsageError: dask-jobqueue has no such cluster.
    """
    logging.disable(logging.CRITICAL)  # what goes wrong is ours to say, also while the program ends
    warnings.filterwarnings("ignore", module="distributed")  # such as of the port of a dashboard
    with contextlib.ExitStack() as stack:
        fill: Callable[[], object] = lambda: None  # noqa: E731
        if where.cluster:
            jobs = _start(where.cluster, where.workers)
            stack.callback(_end, jobs)
            fill = functools.partial(jobs.sync, _fill, jobs, where.workers)
            where = structs.replace(where, scheduler=jobs.scheduler_address)
        cluster = Cluster(where, fill)
        stack.callback(cluster.close)
        yield cluster


def _start(name: str, workers: int) -> Any:  # noqa: ANN401 # dask-jobqueue has no types
    """Start a scheduler in this process, and submit jobs that are its workers."""
    # Its import has Ctrl-C end the program as if all were well: dask_jobqueue/runner.py, line 18.
    interrupt = signal.getsignal(signal.SIGINT)
    import dask_jobqueue  # noqa: PLC0415

    signal.signal(signal.SIGINT, interrupt)
    kind = getattr(dask_jobqueue, name, None)
    if kind is None or getattr(kind, "job_cls", None) is None:
        raise UsageError(
            f"dask-jobqueue has no {name!r}", tip="such as SLURMCluster, PBSCluster, HTCondorCluster"
        )
    submit = kind.job_cls.submit_command
    if shutil.which(submit) is None:
        raise PrerequisiteError(
            f"{name} needs {submit}, which is not on PATH", tip="run it on a machine that submits jobs"
        )
    try:
        jobs = kind()
        try:
            jobs.sync(_fill, jobs, workers)
        except RuntimeError:
            _end(jobs)
            raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise PrerequisiteError(
            f"{name} does not start: {' '.join(str(error).split())}",
            tip="see the configuration of dask-jobqueue: ~/.config/dask/jobqueue.yaml",
        ) from error
    return jobs


async def _fill(jobs: Any, workers: int) -> None:  # noqa: ANN401
    """Submit the jobs that are missing: as many as never were, have ended, or were refused.

    Raises:
        RuntimeError: one is refused. `scale` alone tells nobody (distributed/deploy/spec.py), and takes a job
            that was refused for one that runs.
    """
    for name, job in tuple(jobs.workers.items()):
        if job.status == Status.created:
            del jobs.workers[name]
    jobs.scale(workers)
    await jobs._correct_state()  # noqa: SLF001


def _end(jobs: Any) -> None:  # noqa: ANN401
    """End the jobs, also where one could not be submitted, of which Distributed asserts that it began."""
    with contextlib.suppress(AssertionError, RuntimeError, TimeoutError):
        jobs.close()


class Cluster:
    """A cluster, as an executor of steps (`cairn.pipeline.night.driver.Executor`).

    Args:
        where: of a scheduler that runs.
        fill: called now and then: it starts workers in place of those that are gone, where they are ours.
    """

    def __init__(self, where: Where, fill: Callable[[], object]) -> None:
        self._where, self._fill = where, fill
        # Jobs that end at their time limit, or are preempted, wait in the queue again.
        self._grace = where.patience if where.cluster else _GRACE
        self._lock = threading.Lock()
        self._looked = 0.0
        self._places = Places()
        self._run = time.time_ns()
        self._connect()
        self.machines: tuple[Machine, ...] = self._look()
        self.cores = sum(machine.cores for machine in self.machines)
        self.limits = Limits(cores=_MANY)

    def close(self) -> None:
        """Let go of the scheduler, which ends the steps that still run."""
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self._client.close(timeout=5)

    def renew(self) -> bool:
        """Connect again to a scheduler that was gone; False if it does not come back."""
        console.current().warn(f"the scheduler is gone; waiting for it for {self._where.patience:.0f} s")
        self.close()
        try:
            self._connect()
        except NetworkError:
            return False
        self._looked = 0.0
        self._look()
        return True

    def carry_out(self, job: StepJob, demand: Demand, *, urgency: float, say: Progress) -> StepEnd:
        """See `Executor.carry_out`.

        A worker that lacks what a step for a GPU needs, such as one whose GPU hangs, gets no more of them,
        and the step goes to another, once: what hangs every GPU that it meets must not have them all.

        Raises:
            ExecutorGoneError: the scheduler is gone.
            PrerequisiteError: the workers that could do it are gone, or died of it.
            ProcessError: the run has ended.
        """
        end = self._on_workers(job, demand, urgency=urgency, say=say)
        if demand.gpu and end.code == PrerequisiteError.exit_code and end.worker:
            self._places.exclude(end.worker, demand.gpu)
            if self._places.can_take(demand):
                text = f"{job.name} goes to another worker, since {end.worker} cannot test"
                console.current().warn(": ".join((text, *end.tail[-1:])))
                end = self._on_workers(job, demand, urgency=urgency, say=say)
        return end

    def _on_workers(self, job: StepJob, demand: Demand, *, urgency: float, say: Progress) -> StepEnd:
        """Run a step on a worker with room for it, and on another where that one dies."""
        for _ in range(_DEATHS):
            say("waits for a worker")
            with self._room_for(job, demand, urgency) as worker:
                say(f"on {worker}")
                if (end := self._at(worker, job, demand)) is not None:
                    return end
        raise PrerequisiteError(
            f"the workers of {job.name} died, the last one at {worker}",
            tip="see their logs: did they run out of memory?",
        )

    @contextlib.contextmanager
    def _room_for(self, job: StepJob, demand: Demand, urgency: float) -> Iterator[str]:
        """Wait until a worker has room for a step and no step is more urgent; yield its address."""
        missing_since: float | None = None
        wish = self._places.ask(job.cores, demand, urgency)
        try:
            while not wish.is_placed.wait(_LOOK):
                if process.is_ended():
                    raise ProcessError(f"{job.name} was ended", returncode=-1)
                self._look()
                if self._places.can_take(demand):
                    missing_since = None
                elif missing_since is None:
                    missing_since = time.monotonic()
                elif time.monotonic() - missing_since > self._grace:
                    raise PrerequisiteError(
                        f"no worker has {demand} any more", tip="start one, and run the night again"
                    )
            yield wish.worker
        finally:
            self._places.give_back(wish)

    def _at(self, worker: str, job: StepJob, demand: Demand) -> StepEnd | None:
        """Run a step on a worker; None where that one is gone."""
        try:
            future = self._client.submit(
                worker_step.carry_out,
                job,
                key=f"{job.name}-{self._run}-{time.time_ns()}",
                resources=self._resources(job, demand),
                workers=[worker],
                pure=False,
            )
            is_over = threading.Event()
            future.add_done_callback(lambda _: is_over.set())
            while not is_over.wait(_LOOK):
                if process.is_ended():
                    future.cancel()
                    raise ProcessError(f"{job.name} was ended", returncode=-1)
                if all(machine.name != worker for machine in self._look()):
                    future.cancel()
                    return None
            # Of one that was cancelled, as all are whose scheduler was gone for a while, the result is an
            # internal error: Distributed's `sync` does not reckon with a CancelledError of asyncio.
            if future.status not in ("finished", "error"):
                raise ExecutorGoneError
            end: StepEnd = future.result()
        except KilledWorker:
            return None
        except (*_GONE, UnboundLocalError) as error:  # likewise, where it goes while its result is fetched
            raise ExecutorGoneError from error
        return end

    def _connect(self) -> None:
        where, patience = self._where, self._where.patience
        try:
            self._client: Any = Client(where.scheduler, timeout=patience, name="cairn")
            self._client.wait_for_workers(where.workers, timeout=patience)
            descriptions = self._client.run(worker_step.describe, on_error="return")
        except (OSError, TimeoutError, *_GONE) as error:
            raise NetworkError(
                f"the Dask cluster at {where.scheduler} does not answer, or has not {where.workers} workers",
                tip="see that both run: dask scheduler, dask worker",
            ) from error
        for address, answer in descriptions.items():
            if not isinstance(answer, tuple):
                raise PrerequisiteError(
                    f"the worker at {address} cannot run Cairn: {answer}",
                    tip=f"{extras.line('cluster')} there",
                )
            if answer[0] != cairn.__version__:
                raise PrerequisiteError(
                    f"the worker at {address} has Cairn {answer[0]}, and this is {cairn.__version__}",
                    tip="install one version everywhere",
                )
        self._platforms = {address: platform for address, (_, platform) in descriptions.items()}

    def _look(self) -> tuple[Machine, ...]:
        """Return the workers that there are, by a list that is a few seconds old at most."""
        with self._lock:
            if time.monotonic() - self._looked < _FRESH:
                return self.machines
            with contextlib.suppress(RuntimeError, TimeoutError):  # it is asked again
                self._fill()
            workers = self._client.scheduler_info()["workers"]
            default = next(iter(self._platforms.values()))
            self.machines = tuple(
                Machine(
                    name=address,
                    # One that came later is as the others were.
                    platform=self._platforms.get(address, default),
                    cores=int(worker["resources"].get("cores", worker["nthreads"])),
                    gpus={
                        name: int(count)
                        for name, count in worker["resources"].items()
                        if name.startswith("gfx")
                    },
                )
                for address, worker in workers.items()
            )
            self._counts = any("cores" in worker["resources"] for worker in workers.values())
            self._looked = time.monotonic()
            self._places.renew(self.machines)
            return self.machines

    def _resources(self, job: StepJob, demand: Demand) -> dict[str, float]:
        resources: dict[str, float] = {"cores": job.cores} if self._counts else {}
        return resources | ({demand.gpu: demand.gpus} if demand.gpu else {})
