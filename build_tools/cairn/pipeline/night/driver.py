"""Drive a whole night from one process: freeze it, run what it still needs, and report.

The steps are the commands of the jobs of a workflow, and what they have done is in the store: a driver that
is killed loses no finished step, since the next one asks the store what is left. Two drivers of one night do
the same work twice; the store takes the first of each set, as it does of two runs of a workflow.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import structs

from cairn import interpreters, process
from cairn.build.engine import run as engine
from cairn.build.engine import schedule
from cairn.build.engine.run import Running
from cairn.build.engine.schedule import Limits, Record
from cairn.errors import BuildError, CairnError, NetworkError
from cairn.matrix.legs import Leg
from cairn.output import Progress, console, github, wording
from cairn.pipeline.night import freeze as freezing
from cairn.pipeline.night import handover, plan, shards, standing, step_run, steps
from cairn.pipeline.night import report as reporting
from cairn.pipeline.night.needs import FreezeRequest
from cairn.pipeline.night.placing import Demand, Machine
from cairn.pipeline.night.plan import NightPlan, NightRun
from cairn.pipeline.night.step_run import StepEnd, StepJob
from cairn.pipeline.night.steps import NightStep, Settings
from cairn.pipeline.pipeline_options import FreezeOptions
from cairn.release import records
from cairn.release.index import keys
from cairn.release.trust import anchor
from cairn.stack import Stack
from cairn.store.protocol import Store
from cairn.testing.gpus import kernel
from cairn.testing.gpus.visible import visible_gpus

DURATIONS = "night-durations.json"
"""In the work folder: how long the steps of earlier nights took."""
_DONE = ("promoted", "yanked")


class ExecutorGoneError(Exception):
    """What carries the steps out is gone: no step has failed, and those that ran may have ended."""


class Executor(Protocol):
    """Where steps are carried out.

    Attributes:
        machines: what it has.
        cores: of all its machines.
        limits: how many steps may be begun.
    """

    machines: tuple[Machine, ...]
    cores: int
    limits: Limits

    def renew(self) -> bool:
        """Wait for it after an `ExecutorGoneError`; return whether it is back."""

    def carry_out(self, job: StepJob, demand: Demand, *, urgency: float, say: Progress) -> StepEnd:
        """Run a step to its end on a machine that meets its demand; called in a thread of the step's own.

        Args:
            job: the step.
            demand: what it needs.
            urgency: seconds from its start to the end of the last step behind it: the longest come first.
            say: progress callback.

        Raises:
            CairnError: no machine could carry it out.
            ExecutorGoneError: nothing can be carried out any more.
        """


class Here:
    """This machine, as an executor."""

    def __init__(self, cores: int) -> None:
        names = visible_gpus(kernel.gpu_names(), os.environ.get("ROCR_VISIBLE_DEVICES"))
        gpus = {name: names.count(name) for name in names}
        here = Machine(name="this machine", platform=interpreters.current().platform, cores=cores, gpus=gpus)
        self.machines: tuple[Machine, ...] = (here,)
        self.cores, self.limits = cores, Limits(cores=cores)

    def renew(self) -> bool:
        """See `Executor.renew`."""
        return False

    def carry_out(self, job: StepJob, _demand: Demand, *, urgency: float, say: Progress) -> StepEnd:  # noqa: ARG002
        """See `Executor.carry_out`."""
        return step_run.run_step(job, say=say, is_ended=process.is_ended)


class DriveRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A night to drive.

    Attributes:
        night: its id.
        stack: its stack, on its line.
        store: where it lives.
        legs: what is expected of it, with the runners that there are; not used for one that is frozen.
        others: those that its manifest is for, too.
        freeze_options: how it begins.
        notify: a command that gets the report of a night that was not good; empty for none.
        settings: what all its commands are given.
    """

    night: str
    stack: Stack
    store: Store
    legs: tuple[Leg, ...]
    others: tuple[Leg, ...] = ()
    freeze_options: FreezeOptions
    notify: str = ""
    settings: Settings


def planned(request: DriveRequest) -> tuple[NightStep, ...]:
    """Return the steps that a night needs, as far as the store knows it, and begin nothing."""
    night = plan.find(request.store, request.night)
    if night is None:
        night = NightPlan(
            night=request.night,
            stack=request.stack.name,
            line=request.stack.line,
            frozen="1970-01-01T00:00:00Z",
            manifest_sha256="",
            staging=keys.DEV if request.freeze_options.refs else keys.STAGING,
            release=request.freeze_options.release,
            legs=request.legs,
        )
        builds = {build.id for build in night.builds}
        return steps.steps_of(night, request.stack, request.settings, builds=builds, legs=night.legs)
    return _due(request, night)


def drive(request: DriveRequest, executor: Executor) -> tuple[int, Mapping[str, object]]:
    """Run a night to its end, or what an earlier run has left of it.

    Returns:
        The exit code and the JSON of `cairn ci night report`.

    Raises:
        CairnError: it could not be frozen, or not be reported.
    """
    variables = _run_variables()
    # By the name that freezing gives it: whoever changes it from then on is noticed.
    request = structs.replace(request, night=_freeze(request, variables))
    night = plan.read(request.store, request.night)
    if anchor.anchor(request.store) is not None:
        console.current().info(f"to go on with it later: --night {night.sealed_id}")
    while due := _due(request, night):
        try:
            _Drive(request, executor, due, variables).carry_out()
            break
        except ExecutorGoneError as error:
            if not executor.renew():
                raise NetworkError(
                    "the scheduler is gone",
                    tip=f"finished steps are kept: start it again, and go on with --night {request.night}",
                ) from error
            variables = _run_variables()  # of two notes of one run, the first counts
    return _report(request, variables)


def _run_variables() -> dict[str, str]:
    """The variables by which commands tell one run of a night from another."""
    if os.environ.get("GITHUB_RUN_ID", "").isdecimal():
        return {}
    return {"GITHUB_RUN_ID": str(time.time_ns() // 1_000_000), "GITHUB_RUN_ATTEMPT": "1"}


def _freeze(request: DriveRequest, variables: Mapping[str, str]) -> str:
    """Begin the night, or find it; return what it is named."""
    asked_for = FreezeRequest(
        night=request.night,
        stack=request.stack,
        legs=request.legs,
        others=request.others,
        **vars(request.freeze_options),
    )
    name = f"freeze the night {request.night}"
    with github.running_as(variables), console.current().stage(name) as stage:
        return freezing.freeze(request.store, asked_for, say=stage.update).sealed_id


def _run_of(request: DriveRequest, night: NightPlan) -> NightRun:
    trusted = anchor.anchor(request.store)
    trust = trusted.root.trust() if trusted else None
    return NightRun(store=request.store, plan=night, stack=request.stack, trust=trust)


def _due(request: DriveRequest, night: NightPlan) -> tuple[NightStep, ...]:
    """Return the steps of what the store does not have yet."""
    run = _run_of(request, night)
    stood = {leg.id: standing.look(run, leg).state for leg in night.legs}
    legs = [leg for leg in night.legs if stood[leg.id] not in _DONE]
    builds = {leg.build_id for leg in legs if stood[leg.id] == "missing"} - handover.built(run)
    return steps.steps_of(night, request.stack, request.settings, builds=builds, legs=legs)


class _Drive:
    """One run of the steps of a night."""

    def __init__(
        self,
        request: DriveRequest,
        executor: Executor,
        due: Sequence[NightStep],
        variables: Mapping[str, str],
    ) -> None:
        self._request, self._executor, self._variables = request, executor, variables
        self._steps = {step.step.name: step for step in due}
        self._graph = steps.graph_of(due)
        self._durations = request.settings.work_dir / DURATIONS
        durations = schedule.read_durations(self._durations)
        costs = durations.costs(self._graph)
        self._paths = schedule.remaining_paths(self._graph, costs, executor.limits.cores)
        self._work = {name: cost.work for name, cost in costs.items()}
        self._kinds = {record.kind for record in durations.steps.values()}
        self._left = set(self._steps)
        self._records: dict[str, Record] = {}
        self._beside = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._to_test: set[str] = set()  # what staging has left to do

    def carry_out(self) -> engine.Outcome[StepEnd]:
        """Run them."""
        work = {name: functools.partial(self._end_of, step) for name, step in self._steps.items()}
        self._request.settings.work_dir.mkdir(parents=True, exist_ok=True)
        options = engine.Options(
            limits=self._executor.limits,
            keep_going=True,
            durations=self._durations,
            place=self._request.settings.work_dir,
        )
        try:
            with console.current().steps(len(self._steps)):
                return engine.run(self._graph, work, options)
        finally:
            # What the engine has noted has the time in it for which a step waited for a machine.
            schedule.add_durations(self._durations, self._records)

    def _end_of(self, step: NightStep, running: Running) -> StepEnd:
        name = step.step.name
        try:
            if step.step.kind not in ("build", "stage"):
                leg = self._run().plan.leg(name.split()[1])
                if standing.staged_in(self._run(), leg) is None:
                    running.kept = "no set of it was staged"
                    console.current().skipped(name, running.kept)
                    return StepEnd(code=0)
            if step.step.kind in ("test", "suite") and name not in self._to_test:
                running.keep("nothing to test")
                return StepEnd(code=0)
            before = self._results(name) if step.step.kind != "merge" else ()
            with console.current().stage(name) as stage:
                end = self._carry_out(step, running.jobs, stage.update)
                self._left.discard(name)
                if end.code:
                    raise BuildError(
                        f"{name} failed with exit code {end.code}", tip=f"its log is {end.log}", tail=end.tail
                    )
                mark, made = self._made(name, before)
                stage.end_as(mark, "; ".join(filter(None, (made, self._eta()))))
        except CairnError as error:
            if not process.is_ended():
                lines = error.tail if isinstance(error, BuildError) else ()
                console.current().error(str(error), tip=error.tip, lines=lines)
            raise
        finally:
            self._left.discard(name)
        if step.step.kind == "stage":  # builds and tests run foreign code, which may write any
            self._to_test.update(_tests(end.outputs))
        self._records[name] = Record(
            kind=step.step.kind,
            project=step.step.project,
            seconds=end.seconds,
            cores=running.jobs,
            ended=time.time(),
        )
        return end

    def _carry_out(self, step: NightStep, cores: int, say: Progress) -> StepEnd:
        job = StepJob(
            name=step.step.name,
            command=step.command,
            phases=step.phases,
            folder=step.folder,
            cores=cores,
            variables=self._variables,
        )
        if not step.is_central:
            return self._executor.carry_out(job, step.demand, urgency=self._paths[step.step.name], say=say)
        with self._beside:
            return step_run.run_step(job, say=say, is_ended=process.is_ended)

    def _run(self) -> NightRun:
        request = self._request
        return _run_of(request, plan.read(request.store, request.night))

    def _made(self, step: str, before: Collection[str] = ()) -> tuple[console.Mark, str]:
        """Return how a step ended, by what the store has of it now.

        Args:
            step: its name.
            before: the keys of `_results` before it began.
        """
        kind, _, name = step.partition(" ")
        if kind == "build":
            return "done", ""
        if kind in ("test", "suite", "merge"):
            # A suite that is judged again by the same shards has the same record.
            results = {key: text for key, text in self._results(step).items() if key not in before}
            return ("done", "; ".join(results.values())) if results else ("failed", "it left no record")
        run = self._run()
        mark: console.Mark = "done"
        texts = []
        for leg in (leg for leg in run.plan.legs if name in (leg.id, leg.build_id)):
            stands, place = standing.look(run, leg), None
            if kind == "stage":
                place = standing.staged_in(run, leg)
            elif stands.state == "promoted":
                place = standing.promoted_in(run, leg)
            if place is None:
                mark = "failed" if kind == "stage" else "skipped"
            texts.append(str(place or f"{leg.name}: {stands.reason}"))
        return mark, "; ".join(texts)

    def _results(self, step: str) -> dict[str, str]:
        """Return what the store has of a step's tests, in words: records by digest, or shards by key."""
        kind, leg_id, *part = step.split()
        if kind not in ("test", "suite", "merge"):
            return {}
        run = self._run()
        leg = run.plan.leg(leg_id)
        staged = standing.staged_in(run, leg)
        if staged is None:
            return {}
        if kind != "suite":
            every = records.read(run.store, staged.set_id).records
            return {
                entry.digest: f"record {wording.short_id(entry.digest)}: {entry.record.verdict}"
                for entry in every
                if (entry.record.kind == "suite") == (kind == "merge")
            }
        (shard,) = (shard for shard in shards.expected(run.stack, leg) if shard.part == part[0])
        stored = shards.results_of(run, shard, set_id=staged.set_id).get(shard.number)
        return {stored.prefix: f"results {stored.prefix[-13:-1]}"} if stored else {}

    def _eta(self) -> str:
        """Say how long the rest will take, where it is known of steps of each kind."""
        left = [self._steps[name].step for name in self._left.copy()]
        if not left or not {step.kind for step in left} <= self._kinds:
            return ""
        work = sum(self._work[step.name] for step in left) / self._executor.cores
        seconds = max([work, *(self._paths[step.name] for step in left)])
        return f"about {console.clock(seconds)} to go"


def _tests(outputs: Mapping[str, str]) -> list[str]:
    """Return the names of the steps that test what a step has staged."""
    tests = json.loads(outputs.get("test") or "{}").get("include", [])
    shards = json.loads(outputs.get("suite") or "{}").get("include", [])
    return [
        *(f"test {test['id']}" for test in tests),
        *(f"suite {shard['id']} {shard['config']}-{shard['shard']}" for shard in shards),
    ]


def _report(request: DriveRequest, variables: Mapping[str, str]) -> tuple[int, Mapping[str, object]]:
    run = _run_of(request, plan.read(request.store, request.night))
    with github.running_as(variables), console.current().stage(f"report the night {request.night}"):
        report, _, error = reporting.reported(run, notify=request.notify)
    return error.exit_code if error else 0, report
