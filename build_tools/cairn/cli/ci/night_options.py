"""Options of the commands of a night, the note of how a job ended, and the outputs with its legs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.errors import CairnError, UsageError
from cairn.options import flag, option, repeated

if TYPE_CHECKING:
    from cairn.matrix.legs import Build, Leg
    from cairn.pipeline.night.plan import NightRun, Stage
    from cairn.pipeline.night.shards import Shard
    from cairn.stack import Stack


def to_channel() -> Any:
    """`--to` of commands that only look at nights."""
    return option(
        "only nights whose sets go there; a release is none of the nights (default: any)",
        metavar="CHANNEL",
        convert=converters.nonempty,
    )


def later() -> Any:
    """`--later`."""
    return flag("write nothing into the store: leave what it came to in the work folder, for `keep`")


def only() -> Any:
    """`--leg` of commands that work on all legs without it."""
    return repeated("which leg of it (default: all)", "--leg", metavar="ID", convert=converters.nonempty)


def shard(default: int | None = None) -> Any:
    """`--shard`."""
    without = " (default: smoke tests)" if default is None else ""
    return option(f"which shard, from 1{without}", convert=converters.positive, default=default)


@dataclass(frozen=True, kw_only=True)
class NightOptions(common.StackOptions, common.PatientStoreOptions):
    """`--stack`, `--line`, `--store`, `--patience` and `--night`; the others are of some commands alone."""

    night: str = option(
        "which night; `latest` is the one that was frozen last. In a store with a root, ID@DIGEST as the log "
        "of its freezing names it",
        metavar="ID",
        convert=converters.nonempty,
        required=True,
    )
    to: str | None = None
    trust: tuple[str, ...] = ()
    dry_run: bool = False
    only: tuple[str, ...] = ()

    def load_run(self, *, by_id: bool = False) -> NightRun:
        """Load the night, with its stack on the line that it was frozen for.

        `by_id` is for a command that neither signs nor leads to what is signed.

        Raises:
            UsageError: it is of a different stack, line or channel; or it is named by its id alone, and the
                store has a root.
        """
        from cairn import stack as stacks
        from cairn.pipeline.night import plan
        from cairn.release import night_names

        store = self.open_existing_store()
        if not by_id:
            night_names.refuse_unnamed(store, self.night)
        stack = stacks.load(self.stack)
        night = plan.read(store, self.night, stack=stack.name, line=self.line, release=self.to)
        if self.to not in (None, night.release):
            raise UsageError(f"the night {night.night} goes to {night.release}, and not to {self.to}")
        if self.line not in (None, night.line):
            raise UsageError(f"the night {night.night} is of the line {night.line}", tip="leave --line out")
        if stack.name != night.stack:
            raise UsageError(
                f"the night {night.night} is of the stack {night.stack}, and not of {stack.name}",
                tip="name that one with --stack",
            )
        return plan.NightRun(
            store=store,
            plan=night,
            stack=stack.for_line(night.line),
            trust=signing.read_trust(self.trust, store=store),
            dry_run=self.dry_run,
            only=self.only,
        )


@dataclass(frozen=True, kw_only=True)
class AttestedNightOptions(signing.AttestOptions, NightOptions):
    """A night, and what vouches for its wheels."""

    @contextmanager
    def attested_run(self) -> Iterator[NightRun]:
        """The night, with whoever vouches for its wheels."""
        with self.attester() as attester:
            yield dataclasses.replace(self.load_run(), attester=attester)


@dataclass(frozen=True, kw_only=True)
class LegOptions(NightOptions):
    """A night, and `--leg`."""

    leg: str = option("which leg of it", metavar="ID", convert=converters.nonempty, required=True)


@dataclass(frozen=True, kw_only=True)
class BuildIdOptions(NightOptions):
    """A night, and `--leg` for one of its builds."""

    leg: str = option(
        "which build of it, by the id that `freeze` gave: that of a leg, or one for all families of a Python",
        metavar="ID",
        convert=converters.nonempty,
        required=True,
    )


def shard_of(run: NightRun, leg: Leg, config: str, number: int) -> Shard:
    """A shard of a leg's suites.

    Raises:
        UsageError: the leg has none like that.
    """
    from cairn.pipeline.night import shards

    expected = shards.expected(run.stack, leg)
    for shard in expected:
        if (shard.config, shard.number) == (config, number):
            return shard
    raise UsageError(
        f"{leg.name} has no shard {number} of {config}",
        tip=f"its shards are: {', '.join(one.part for one in expected)}"
        if expected
        else "its matrix names no suites",
    )


@contextmanager
def note_ending(
    run: NightRun, leg: Leg | Build, stage: Stage, folder: Path | None = None, *, part: str = ""
) -> Iterator[None]:
    """Record how a job of a leg ends: in the store, or in `folder`, for `cairn ci night keep`."""
    from cairn import datafile
    from cairn.pipeline.night import plan
    from cairn.pipeline.night.stage import NOTE_FILE
    from cairn.release.index.generation import now

    started = now()
    failure: Exception | None = None
    try:
        yield
    except (CairnError, OSError) as error:
        failure = error
    reason = str(failure or "done")
    note = plan.step_note(run, leg, stage, started, good=failure is None, reason=reason, part=part)
    if folder is None:
        plan.note(run.store, note)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        datafile.write(folder / NOTE_FILE, note)
    if failure is not None:
        raise failure


def outputs(name: str, legs: Sequence[Leg | Build], stack: Stack | None = None) -> dict[str, str]:
    """Return the step outputs that pass legs or builds to a job matrix: NAME and NAME_count.

    With their stack, these are legs to test, each with the runner and the container of its tests.
    """
    from cairn import datafile
    from cairn.output import github

    include = [datafile.to_plain(leg) for leg in legs]
    if stack is not None:
        include = [
            {
                **leg,
                "test_runs_on": leg["test_runs_on"] or leg["host_runs_on"],
                **_container(stack, leg["targets"], gpu=bool(leg["test_runs_on"])),
            }
            for leg in include
        ]
    return {name: github.matrix(include), f"{name}_count": str(len(legs))}


def shard_outputs(due: Sequence[Shard], stack: Stack) -> dict[str, str]:
    """Return the step outputs that pass shards to a job matrix: `suite` and `suite_count`."""
    from cairn.output import github

    include = [
        {
            "id": shard.leg.id,
            "name": shard.name,
            "python": shard.leg.python,
            "os": shard.leg.os,
            "config": shard.config,
            "shard": shard.number,
            "num_shards": shard.count,
            "runs_on": shard.runs_on,
            **_container(stack, shard.leg.targets),
        }
        for shard in due
    ]
    return {"suite": github.matrix(include), "suite_count": str(len(include))}


def _container(stack: Stack, targets: str, *, gpu: bool = True) -> dict[str, str]:
    from cairn import images
    from cairn.targets import CPU

    return {"container_options": images.job_options(gpu=gpu and stack.reaches_gpus and targets != CPU)}
