"""The steps of a night and what waits for what: the jobs of a workflow, without its barriers.

    build ─> stage ─┬─> test ─────────────────┬─> promote
                    └─> suite, each shard ─> merge ┘

Each build goes its own way, and from there each leg: one that fails or waits for a GPU holds up no other.
What a step does is what a job of GitHub Actions does (.github/actions/night-*/action.yml): a build and a test
in the phases fetch, run and keep, of which `run` has no credentials (`step_run`); the others by one command.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import structs

from cairn.build.engine.schedule import Graph, Step
from cairn.image_engines import Engine
from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan, shards
from cairn.pipeline.night.placing import Demand, demand_of
from cairn.pipeline.night.plan import NightPlan
from cairn.pipeline.night.shards import Shard
from cairn.stack import Stack

CORES = "{cores}"
"""In an argument: how many cores the step has."""

FETCHED = "night"
"""In the folder of a step: what its first phase has fetched, which is a store."""

Kind = Literal["build", "test", "suite", "merge"]
"""What `cairn ci night step` does; all but the last in phases."""


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests of a night run in, so that they see nothing of their machine but its GPUs.

    Attributes:
        image: its name; it has this version of Cairn, and the Pythons of the legs.
        engine: by which program; None for the first that answers.
        gpu: it gets the machine's GPUs.
    """

    image: str
    engine: Engine | None = None
    gpu: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command of Cairn, as a step runs it.

    Attributes:
        arguments: of `cairn`.
        has_credentials: it may reach a store; without, it gets no variable that is named like a secret.
        container: what it runs in; None for the machine as it is.
    """

    arguments: tuple[str, ...]
    has_credentials: bool = True
    container: Container | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What all steps are given.

    Attributes:
        stack: the folder of the stack.
        store: the URL of the store.
        endpoint_url: of its server; None for the cloud's own.
        patience: seconds for which a bucket that does not answer is waited for; None for the usual.
        sign_key: the private key that this machine signs with; None for that of its environment.
        work_dir: where steps work, on each machine.
        cache_store: where built wheels are kept for other machines; empty for nowhere.
        cores: the most that a build may use.
        on_one_machine: all steps run on this machine, so that those of one GPU come one after another.
        container: what tests run in; None for the machines as they are.
    """

    stack: Path
    store: str
    endpoint_url: str | None = None
    patience: float | None = None
    sign_key: Path | None = None
    work_dir: Path
    cache_store: str = ""
    cores: int
    on_one_machine: bool = True
    container: Container | None = None


class LegStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step in phases; values that fit into a message.

    Attributes:
        kind: what it does; a `merge` has one phase.
        night: the night, as `NightPlan.sealed_id`.
        leg: the id of the leg, or of the build.
        config: of a suite.
        shard: of a suite.
        folder: where it works. What it fetches is in `FETCHED`, what it leaves in `left`.
        settings: see `Settings`.
    """

    kind: Kind
    night: str
    leg: str
    config: str = ""
    shard: int = 0
    folder: Path
    settings: Settings

    @property
    def name(self) -> str:
        """Its name for people, and in the graph."""
        return f"{self.kind} {self.leg}" + (f" {self.config}-{self.shard}" if self.kind == "suite" else "")

    @property
    def left(self) -> Path:
        """The folder of what `run` leaves for `keep`."""
        if self.kind == "suite":
            return self.folder / "suite" / f"{self.config}-{self.shard}"
        return self.folder / {"build": "wheels", "test": "smoke", "merge": "suites"}[self.kind]

    def run_command(self, *, gpu: bool = False) -> Command:
        """Return the command of the phase `run`, which names no store but a cache's; `gpu`: it gets GPUs."""
        settings, container = self.settings, self.settings.container
        of_leg: tuple[str, ...] = ("--leg", self.leg)
        if self.kind == "suite":
            of_leg += ("--test-config", self.config, "--shard", str(self.shard))
        if self.kind == "build":
            of_leg += ("--work-dir", str(settings.work_dir), "--jobs", CORES)
            if settings.cache_store:
                of_leg += ("--cache-store", settings.cache_store)
                of_leg += ("--endpoint-url", settings.endpoint_url) if settings.endpoint_url else ()
        where = ("--stack", str(settings.stack), "--night", self.night, "--output-dir", str(self.folder))
        return Command(
            arguments=("ci", "night", "step", self.kind, "--phase", "run", *where, *of_leg),
            # Which wheels a cache has is known as the build goes on.
            has_credentials=self.kind == "build" and bool(settings.cache_store),
            container=structs.replace(container, gpu=gpu) if container and self.kind != "build" else None,
        )


class NightStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a night.

    Attributes:
        step: as the engine sees it.
        command: what it runs.
        phases: of a build, a test or a merge: what is fetched before, and kept after; None for the others.
        folder: its work folder, which goes when it has succeeded.
        demand: what it needs of the machine it runs on.
        is_central: it runs beside the driver, with its credentials: it writes what users see.
    """

    step: Step
    command: Command
    phases: LegStep | None = None
    folder: Path
    demand: Demand
    is_central: bool = False


def graph_of(steps: Sequence[NightStep]) -> Graph:
    """Return the graph of steps."""
    return Graph(tuple(step.step for step in steps))


def steps_of(
    night: NightPlan,
    stack: Stack,
    settings: Settings,
    *,
    builds: Collection[str],
    legs: Sequence[Leg],
) -> tuple[NightStep, ...]:
    """Return the steps that a night still needs.

    Args:
        night: its plan.
        stack: its stack, on its line.
        settings: what all commands are given.
        builds: the ids of the builds that are to be made.
        legs: those that are not where they should be, with all legs that are built.
    """
    return tuple(_Steps(night, stack, settings).all(builds, legs))


class _Steps:
    def __init__(self, night: NightPlan, stack: Stack, settings: Settings) -> None:
        self._night, self._stack, self._settings = night, stack, settings
        self._root = settings.work_dir / f"night-{night.night}"

    def all(self, builds: Collection[str], legs: Sequence[Leg]) -> Iterator[NightStep]:
        """Yield every step, each after those it waits for."""
        for name in dict.fromkeys(leg.build_id for leg in legs):
            built_legs = [leg for leg in legs if leg.build_id == name]
            if name in builds:
                yield self._build(name, built_legs[0].platform)
            # A build that failed is noted.
            after = (f"build {name}",) if name in builds else ()
            yield self._central("stage", name, built_legs, after=after)
        for leg in legs:
            tests = list(self._tests(leg))
            yield from tests
            yield self._promote(leg, tests)

    def _build(self, name: str, platform: str) -> NightStep:
        phases = self._phases("build", name)
        return NightStep(
            step=Step(name=phases.name, kind="build", cores=self._settings.cores),
            command=phases.run_command(),
            phases=phases,
            folder=phases.folder,
            demand=Demand(platform=platform),
        )

    def _tests(self, leg: Leg) -> Iterator[NightStep]:
        if leg.smoke_runs_on:
            yield self._test(leg, demand_of(leg, leg.smoke_runs_on))
        suites = list(shards.expected(self._stack, leg))
        for shard in suites:
            yield self._test(leg, demand_of(leg, shard.runs_on), shard)
        if suites:
            # Also where shards failed: one that left nothing is a failure.
            yield self._central(
                "merge",
                leg.id,
                (leg,),
                needs=(f"stage {leg.build_id}",),
                after=tuple(f"suite {leg.id} {shard.part}" for shard in suites),
            )

    def _test(self, leg: Leg, demand: Demand, shard: Shard | None = None) -> NightStep:
        phases = self._phases("suite" if shard else "test", leg.id, shard)
        return NightStep(
            step=Step(
                name=phases.name,
                kind=phases.kind,
                project=phases.config,
                needs=(f"stage {leg.build_id}",),
                exclusive=(demand.gpu,) if demand.gpu and self._settings.on_one_machine else (),
            ),
            command=phases.run_command(gpu=bool(demand.gpu)),
            phases=phases,
            folder=phases.folder,
            demand=demand,
        )

    def _phases(self, kind: Kind, leg: str, shard: Shard | None = None) -> LegStep:
        return LegStep(
            kind=kind,
            night=self._night.sealed_id,
            leg=leg,
            config=shard.config if shard else "",
            shard=shard.number if shard else 0,
            folder=self._folder(kind, f"{leg} {shard.part}" if shard else leg),
            settings=self._settings,
        )

    def _promote(self, leg: Leg, tests: Sequence[NightStep]) -> NightStep:
        """Promote a leg, whatever its tests came to: the gate judges what the store has."""
        return self._central(
            "promote",
            leg.id,
            (leg,),
            needs=(f"stage {leg.build_id}",),
            after=tuple(test.step.name for test in tests),
        )

    def _central(
        self,
        kind: str,
        name: str,
        legs: Sequence[Leg],
        *,
        needs: tuple[str, ...] = (),
        after: tuple[str, ...] = (),
    ) -> NightStep:
        channel = self._night.staging if kind == "stage" else self._night.release
        indexes = tuple(dict.fromkeys(plan.index_of(leg, channel) for leg in legs))
        folder, settings = self._folder(kind, name), self._settings
        words = ["step", kind, "--output-dir", str(folder)] if kind == "merge" else [kind]
        words += ["--stack", str(settings.stack), "--night", self._night.sealed_id, "--store", settings.store]
        words += ["--endpoint-url", settings.endpoint_url] if settings.endpoint_url else []
        words += ["--patience", f"{settings.patience:g}"] if settings.patience is not None else []
        return NightStep(
            step=Step(
                name=f"{kind} {name}",
                kind=kind,
                needs=needs,
                after=after,
                # Of two writers of an index the second begins again, and installs the set on trial again.
                exclusive=() if kind == "merge" else indexes,
            ),
            command=Command(
                arguments=("ci", "night", *words, *(word for leg in legs for word in ("--leg", leg.id)))
            ),
            phases=self._phases("merge", name) if kind == "merge" else None,
            folder=folder,
            demand=Demand(),
            is_central=True,
        )

    def _folder(self, kind: str, name: str) -> Path:
        return self._root / re.sub(r"[^A-Za-z0-9._-]", "-", f"{kind}-{name}")
