"""What has become of the nights of a store: how those that were reported ended, how far the others are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cairn.pipeline.night import plan, report
from cairn.pipeline.night.plan import STAGES, NightPlan
from cairn.release.pages import nights
from cairn.release.pages.night_history import History
from cairn.store.protocol import Store

_LONGEST = timedelta(hours=48)  # that a night is under way: then it was ended before it could be reported


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a night is.

    Attributes:
        plan: the night.
        state: `reported`, `under way`, or `no report`: it began more than two days ago, and was lost, or is
            older than the nights that are kept.
        counts: legs by outcome; of a night under way, by the last stage that they have left.
        late: legs that are late by their own history, a sentence each.
    """

    plan: NightPlan
    state: str
    counts: dict[str, int]
    late: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The state and the counts in one line."""
        counted = ", ".join(f"{number} {word}" for word, number in self.counts.items())
        return counted if self.state == "reported" else f"{self.state}: {counted}" if counted else self.state


def of_nights(store: Store) -> tuple[Progress, ...]:
    """Return how far each night of a store is, the newest first.

    That is one read for each night and one for each channel; the notes of jobs are read of a night under way.
    """
    plans = sorted(plan.every(store), key=lambda one: one.frozen, reverse=True)
    channels = {channel: report.history_of(store, channel) for channel in {one.release for one in plans}}
    return tuple(_of(store, one, channels[one.release]) for one in plans)


def _of(store: Store, night: NightPlan, history: History) -> Progress:
    past = next((one for one in history.nights if one.night == night.night), None)
    if past is not None:
        took = {leg.id: past.legs[leg.id].minutes for leg in night.legs if leg.id in past.legs}
        late = nights.late(history, took, before=night.frozen)
        sentences = tuple(f"{night.leg(name).name}: {text}" for name, text in late.items())
        return Progress(plan=night, state="reported", counts=nights.counts(past), late=sentences)
    elapsed = datetime.now(UTC) - datetime.fromisoformat(night.frozen)
    if elapsed > _LONGEST:
        return Progress(plan=night, state="no report", counts={})
    notes = plan.by_stage(plan.notes_of_parts(store, night).values())
    minutes = round(elapsed.total_seconds() / 60)
    counts: dict[str, int] = {}
    late, waiting = nights.late(history, {leg.id: minutes for leg in night.legs}), []
    for leg in night.legs:
        last = next((stage for stage in reversed(STAGES) if (leg.id, stage) in notes), None)
        failed = last is not None and not notes[leg.id, last].good
        word = f"failed in {last}" if failed else f"after {last}" if last else "waiting"
        counts[word] = counts.get(word, 0) + 1
        if not failed and last != "promote" and leg.id in late:
            labels = ", ".join(leg.smoke_runs_on)
            waits = f"; its tests have not ended on a runner ({labels})" if last == "stage" and labels else ""
            waiting.append(f"{leg.name}: {late[leg.id]}{waits}")
    return Progress(plan=night, state="under way", counts=counts, late=tuple(waiting))
