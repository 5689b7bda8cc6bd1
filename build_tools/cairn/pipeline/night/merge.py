"""The shards of a night's suites judged together, each configuration of a leg as one record in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import CairnError, TestsFailedError
from cairn.matrix.legs import Leg
from cairn.output import Progress, silent
from cairn.pipeline.night import plan, results, shards, standing
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.shards import Shard
from cairn.release.index.generation import now
from cairn.release.provenance.signing_key import Signer
from cairn.testing.suite import merge as merging
from cairn.testing.suite.merge import Merged


@dataclass(frozen=True, kw_only=True)
class SuiteMerge:
    """The verdict on one configuration of a leg's suite.

    Attributes:
        leg: whose set was tested.
        config: the configuration.
        good: nothing stands against the set, also where the matrix lets it through without a GPU.
        reason: of the verdict.
    """

    leg: Leg
    config: str
    good: bool
    reason: str

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"{self.leg.name}, {self.config}"


def merge_night(
    run: NightRun, work_dir: Path, *, signer: Signer | None = None, say: Progress = silent
) -> tuple[SuiteMerge, ...]:
    """Judge every suite that a staged leg must have run, and keep the records; a missing shard is a failure.

    A leg that was promoted is left alone. One whose shards left nothing at all gets no record, and without
    one it is not promoted.

    Args:
        run: the night.
        work_dir: receives a folder `suites/<leg>.<config>` for each, with JUnit XML, outcomes and record.
        signer: signs the records.
        say: progress callback.
    """
    merges = []
    for leg in run.plan.legs:
        stands = standing.look(run, leg)
        if stands.set_id is None or stands.state == "promoted":
            continue
        by_config: dict[str, list[Shard]] = {}
        for shard in shards.expected(run.stack, leg):
            by_config.setdefault(shard.config, []).append(shard)
        for config, suite_shards in by_config.items():
            say(f"{leg.name}, {config}")
            started = now()
            result = _guarded(run, suite_shards, stands.set_id, work_dir, signer)
            reason = f"the suite {config}: {result.reason}"
            ended = plan.ended(run, leg, "test", started, good=result.good, reason=reason, part=config)
            plan.note(run.store, ended)
            merges.append(result)
    return tuple(merges)


def _guarded(
    run: NightRun, suite_shards: Sequence[Shard], set_id: str, work_dir: Path, signer: Signer | None
) -> SuiteMerge:
    first = suite_shards[0]
    try:
        merged = _merge(run, suite_shards, set_id, work_dir / "suites" / f"{first.leg.id}.{first.config}")
        record = merged.record
        if record is None:
            return SuiteMerge(
                leg=first.leg, config=first.config, good=False, reason="nothing says what was tested"
            )
        title = f"Suite {first.config} of {first.leg.name}"
        name = f"the record of {first.leg.name}, {first.config}"
        results.keep(run, first.leg, merged.junit.parent, title=title, name=name, signer=signer)
    except (CairnError, OSError) as error:  # one leg holds up no other
        return SuiteMerge(leg=first.leg, config=first.config, good=False, reason=str(error))
    let_through = record.verdict == "untested" and first.leg.bypass_tests
    why = "; ".join((f"{record.verdict}: {record.reason}", *_notes_of_missing(run, suite_shards, merged)))
    return SuiteMerge(
        leg=first.leg,
        config=first.config,
        good=record.verdict == "passed" or let_through,
        reason=why,
    )


def _merge(run: NightRun, suite_shards: Sequence[Shard], set_id: str, folder: Path) -> Merged:
    first = suite_shards[0]
    results = shards.results_of(run.store, run.plan, first, set_id=set_id)
    if not results:
        raise TestsFailedError(f"none of its {first.count} shards left a result", tip="read their logs")
    folders = [
        shards.fetch(run.store, one, folder / "shards" / str(number))
        for number, one in sorted(results.items())
    ]
    config = shards.config_of(run.stack, first.config)
    on_gpus = any(one.result.hardware for one in results.values())
    return merging.merge(
        folders, folder, floor=config.floor, device_floor=config.device_floor if on_gpus else 0
    )


def _notes_of_missing(run: NightRun, suite_shards: Sequence[Shard], merged: Merged) -> list[str]:
    """Why shards that left no result have left none, as far as they could say so."""
    numbers = {result.shard for result in merged.results}
    by_part = plan.notes_of_parts(run.store, run.plan)
    notes = [by_part.get((one.leg.id, "test", one.part)) for one in suite_shards if one.number not in numbers]
    return [f"{note.part}: {note.reason}" for note in notes if note is not None]
