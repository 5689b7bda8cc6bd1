"""The steps of a night and what waits for what: the jobs of a workflow, without its barriers.

    build ─> stage ─┬─> test ─────────────────┬─> promote
                    └─> suite, each shard ─> merge ┘

Each build goes its own way, and from there each leg: one that fails or waits for a GPU holds up no other.
What a step does is the commands that a job of GitHub Actions runs (.github/actions/night-*/action.yml); which
of them are given credentials is as it is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cairn.build.engine.step import Graph, Step
from cairn.image_engines import Engine
from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan, shards
from cairn.pipeline.night.placing import Demand, demand_of
from cairn.pipeline.night.plan import NightPlan
from cairn.pipeline.night.shards import Shard
from cairn.stack import Stack

CORES = "{cores}"
"""In an argument: how many cores the step has."""


@dataclass(frozen=True, kw_only=True)
class Container:
    """What the tests of a night run in, so that they see nothing of their machine but its GPUs.

    Attributes:
        image: its name; it has this version of Cairn, and the Pythons of the legs.
        engine: by which program; None for the first that answers.
        gpu: it gets the machine's GPUs.
    """

    image: str
    engine: Engine | None = None
    gpu: bool = False


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of Cairn, as a step runs it.

    Attributes:
        arguments: of `cairn`.
        has_credentials: it may reach the store; without, it gets no variable that is named like a secret.
        always: it also runs where one before it failed.
        container: what it runs in; None for the machine as it is.
    """

    arguments: tuple[str, ...]
    has_credentials: bool = True
    always: bool = False
    container: Container | None = None


@dataclass(frozen=True, kw_only=True)
class NightStep:
    """A step of a night.

    Attributes:
        step: as the engine sees it.
        commands: what it does, in this order.
        folder: its own work folder, which goes when it has succeeded.
        demand: what it needs of the machine it runs on.
        is_central: it runs beside the driver, with its credentials: it writes what users see.
    """

    step: Step
    commands: tuple[Command, ...]
    folder: Path
    demand: Demand
    is_central: bool = False


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the commands of all steps are given.

    Attributes:
        stack: the folder of the stack.
        store: the URL of the store.
        store_arguments: options for those that reach it, such as `--endpoint-url`.
        work_dir: where steps work, on each machine.
        cache_store: where built wheels are kept for other machines; empty for nowhere.
        cores: the most that a build may use.
        on_one_machine: all steps run on this machine, so that those of one GPU come one after another.
        container: what tests run in; None for the machines as they are.
    """

    stack: Path
    store: str
    store_arguments: tuple[str, ...] = ()
    work_dir: Path
    cache_store: str = ""
    cores: int
    on_one_machine: bool = True
    container: Container | None = None


def graph_of(steps: Sequence[NightStep]) -> Graph:
    """Return the graph of steps."""
    return Graph(tuple(one.step for one in steps))


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
            own = [leg for leg in legs if leg.build_id == name]
            if name in builds:
                yield self._build(name, own[0].platform)
            # A build that failed is noted.
            after = (f"build {name}",) if name in builds else ()
            yield self._central("stage", name, own, after=after)
        for leg in legs:
            tests = list(self._tests(leg))
            yield from tests
            yield self._promote(leg, tests)

    def _build(self, name: str, platform: str) -> NightStep:
        settings = self._settings
        folder = self._folder("build", name)
        build = self._command(
            *(
                "build",
                "--leg",
                name,
                "--store",
                str(folder / "night"),
                "--output-dir",
                str(folder / "wheels"),
            ),
            *("--jobs", CORES, "--work-dir", str(settings.work_dir)),
            *(("--cache-store", settings.cache_store) if settings.cache_store else ()),
            # Which wheels the cache has is known as the build goes on.
            has_credentials=bool(settings.cache_store),
        )
        return NightStep(
            step=Step(name=f"build {name}", kind="build", cores=settings.cores),
            commands=(
                self._reaching("fetch", "--output-dir", str(folder / "night")),
                build,
                self._reaching("keep", "--leg", name, "--built-dir", str(folder / "wheels"), always=True),
            ),
            folder=folder,
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
        kind = "suite" if shard else "test"
        name = f"{leg.id} {shard.part}" if shard else leg.id
        folder = self._folder(kind, name)
        of_leg = ["--leg", leg.id]
        if shard is not None:
            of_leg += ["--test-config", shard.config, "--shard", str(shard.number)]
        work = ("--work-dir", str(folder / "work"))
        fetched, container = str(folder / "night"), self._settings.container
        return NightStep(
            step=Step(
                name=f"{kind} {name}",
                kind=kind,
                project=shard.config if shard else "",
                needs=(f"stage {leg.build_id}",),
                exclusive=(demand.gpu,) if demand.gpu and self._settings.on_one_machine else (),
            ),
            commands=(
                self._reaching("fetch", *of_leg, "--output-dir", fetched),
                replace(
                    self._command(kind, *of_leg, "--store", fetched, *work, "--later", has_credentials=False),
                    container=container and replace(container, gpu=bool(demand.gpu)),
                ),
                self._reaching("keep", *of_leg, *work, always=True),
            ),
            folder=folder,
            demand=demand,
        )

    def _promote(self, leg: Leg, tests: Sequence[NightStep]) -> NightStep:
        """Promote a leg, whatever its tests came to: the gate judges what the store has."""
        return self._central(
            "promote",
            leg.id,
            (leg,),
            needs=(f"stage {leg.build_id}",),
            after=tuple(one.step.name for one in tests),
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
        folder = self._folder(kind, name)
        of_legs = [word for leg in legs for word in ("--leg", leg.id)]
        work = ("--work-dir", str(folder)) if kind == "merge" else ()
        return NightStep(
            step=Step(
                name=f"{kind} {name}",
                kind=kind,
                needs=needs,
                after=after,
                # Of two writers of an index the second begins again, and installs the set on trial again.
                exclusive=() if kind == "merge" else indexes,
            ),
            commands=(self._reaching(kind, *of_legs, *work),),
            folder=folder,
            demand=Demand(),
            is_central=True,
        )

    def _reaching(self, *arguments: str, always: bool = False) -> Command:
        settings = self._settings
        return self._command(*arguments, "--store", settings.store, *settings.store_arguments, always=always)

    def _command(
        self, name: str, *arguments: str, has_credentials: bool = True, always: bool = False
    ) -> Command:
        common = ("--stack", str(self._settings.stack), "--night", self._night.named)
        return Command(
            arguments=("ci", "night", name, *common, *arguments),
            has_credentials=has_credentials,
            always=always,
        )

    def _folder(self, kind: str, name: str) -> Path:
        return self._root / re.sub(r"[^A-Za-z0-9._-]", "-", f"{kind}-{name}")
