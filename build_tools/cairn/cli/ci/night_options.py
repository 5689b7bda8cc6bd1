"""Options of the commands of a night, the note of how a step ended, and the outputs with its legs."""

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
from cairn.errors import CairnError
from cairn.options import option, repeated

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


def only() -> Any:
    """`--leg` of commands that work on all legs without it."""
    return repeated("which leg of it (default: all)", "--leg", metavar="ID", convert=converters.nonempty)


def cache_store() -> Any:
    """`--cache-store`, which may be empty."""
    return option(
        "where built wheels are kept for other machines, such as s3://bucket/cache; empty for nowhere",
        metavar="URL",
        default="",
    )


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
        from cairn.pipeline.night import plan
        from cairn.release.trust import signers

        run = plan.open_run(
            self.open_existing_store(),
            self.night,
            self.stack,
            line=self.line,
            release=self.to,
            trust=signers.trust_of(self.trust) or None,
            by_id=by_id,
        )
        return dataclasses.replace(run, dry_run=self.dry_run, only=self.only)


@dataclass(frozen=True, kw_only=True)
class AttestedNightOptions(signing.AttestOptions, NightOptions):
    """A night, and what vouches for its wheels."""

    @contextmanager
    def attested_run(self) -> Iterator[NightRun]:
        """The night, with whoever vouches for its wheels."""
        with self.attester() as attester:
            yield dataclasses.replace(self.load_run(), attester=attester)


@contextmanager
def note_ending(
    run: NightRun, leg: Leg | Build, stage: Stage, folder: Path, *, part: str = ""
) -> Iterator[None]:
    """Record in `folder`, for the phase `keep`, how a step of a leg ends."""
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
