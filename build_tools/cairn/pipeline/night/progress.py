"""What has become of the nights of a store: how those that were reported ended, how far the others are.

A schedule that has stopped causes no failure and no message: `overdue` detects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cairn.errors import StoreError, UsageError
from cairn.pipeline.night import plan, report
from cairn.pipeline.night.plan import STAGES, NightPlan
from cairn.release.index import keys
from cairn.release.pages import nights as nights_page
from cairn.release.pages.night_history import History, PastNight
from cairn.release.pages.view import CAME_THROUGH, Night
from cairn.release.weighing import SKEW
from cairn.store.protocol import Store, read_or_none

_MANY = 48  # hours; from then on an age is said in days
_LONGEST = timedelta(hours=48)  # that a night is under way: then it was ended before it could be reported


class Progress(msgspec.Struct, frozen=True, kw_only=True):
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
    plans = sorted(plan.every(store), key=lambda night: night.frozen, reverse=True)
    channels = {channel: report.history_of(store, channel) for channel in {night.release for night in plans}}
    return tuple(_of(store, night, channels[night.release]) for night in plans)


def _of(store: Store, night: NightPlan, history: History) -> Progress:
    past = next((past_night for past_night in history.nights if past_night.night == night.night), None)
    if past is not None:
        took = {leg.id: past.legs[leg.id].minutes for leg in night.legs if leg.id in past.legs}
        late = nights_page.late(history, took, before=night.frozen)
        sentences = tuple(f"{night.leg(name).name}: {text}" for name, text in late.items())
        return Progress(plan=night, state="reported", counts=nights_page.counts(past), late=sentences)
    elapsed = datetime.now(UTC) - datetime.fromisoformat(night.frozen)
    if elapsed > _LONGEST:
        return Progress(plan=night, state="no report", counts={})
    notes = plan.by_stage(plan.notes_of_parts(store, night).values())
    minutes = round(elapsed.total_seconds() / 60)
    counts: dict[str, int] = {}
    late, waiting = nights_page.late(history, {leg.id: minutes for leg in night.legs}), []
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


def failures(store: Store, name: str) -> tuple[dict[str, str | None], ...]:
    """Return what did not come through in a night, by leg: its step, its verdict, why, and where its log is.

    Of a leg that was reported, the verdict is the report's, and each failed part of its last step is named,
    such as a shard; of a night under way, all that failed so far.

    Raises:
        StoreError: the store has no such night.
    """
    try:
        night = plan.read(store, name)
    except StoreError:
        past = next((night for night in _not_frozen(store) if night.night == name), None)
        if past is None:
            raise
        return (_failure("-", "freeze", "failed", "the night was not frozen", past.log),)
    history = report.history_of(store, night.release)
    past = next((past_night for past_night in history.nights if past_night.night == night.night), None)
    unread: list[str] = []
    bad = [note for note in plan.notes_of_parts(store, night, unread).values() if not note.good]
    bad.sort(key=lambda note: (STAGES.index(note.stage), note.part))
    rows = [_failure("-", None, "unread", f"{key} cannot be read", night.log) for key in unread]
    for leg in night.legs:
        end = past.legs.get(leg.id) if past else None
        if end is not None and end.outcome in CAME_THROUGH:
            continue
        verdict = end.outcome if end is not None else "failed"
        notes = [note for note in bad if note.leg in (leg.id, leg.build_id)]
        if end is not None:
            notes = [note for note in notes if note.stage == end.stage]
        rows += [
            _failure(
                leg.name, f"{note.stage} {note.part}".strip(), verdict, note.reason, note.log or night.log
            )
            for note in notes
        ]
        if end is not None and not notes:
            rows.append(_failure(leg.name, end.stage, verdict, end.reason, end.log or night.log))
        elif end is None and not notes and _age(night.frozen) > _LONGEST:
            rows.append(_failure(leg.name, None, "no report", "it ended before it was reported", night.log))
    return tuple(rows)


def _failure(
    leg: str, step: str | None, verdict: str, reason: str | None, log: str | None
) -> dict[str, str | None]:
    cause = next(filter(None, map(str.strip, (reason or "").splitlines())), "no reason was given")
    return {"leg": leg, "step": step, "verdict": verdict, "cause": cause, "log": log}


def _not_frozen(store: Store) -> Iterator[PastNight]:
    """Yield the nights of each channel that ended before they had a plan."""
    for channel in keys.CHANNELS:
        yield from (night for night in report.history_of(store, channel).nights if not night.manifest_sha256)


def overdue(
    store: Store,
    *,
    lines: tuple[str, ...],
    begun_within: timedelta,
    good_within: timedelta,
    release: str | None = None,
) -> tuple[str, ...]:
    """Return problems of the last nights, a sentence each; empty if there are none.

    A night of chosen commits, which somebody began by hand, is none of its line.

    Args:
        store: where the nights live.
        lines: the release lines that must have some.
        begun_within: how long ago the last one may have begun.
        good_within: how long ago each of its legs may have come through.
        release: only nights to that channel are looked at: a release is none; None looks at all.
    """
    nights = [night for night in plan.every(store) if release in (None, night.release)]
    # Stacks may have lines of the same name, and legs.
    several = len({night.stack for night in nights}) > 1
    texts = []
    newest: dict[str, dict[str, NightPlan]] = {line: {} for line in lines}
    for each_night in sorted(nights, key=lambda night: night.frozen):
        stack = f"{each_night.stack}, " if several else ""
        # A night of tomorrow, by a clock that was wrong, would hide for as long that none happens.
        if _age(each_night.frozen) < -SKEW:
            texts.append(
                f"{stack}{each_night.line}: the night {each_night.night} began at {each_night.frozen}"
            )
        elif not each_night.refs and each_night.line in (lines or (each_night.line,)):
            newest.setdefault(each_night.line, {})[stack] = each_night
    for line, nights_of in newest.items():
        if not nights_of:
            texts.append(f"{line}: there was no night yet")
        for stack, night in nights_of.items():
            if (age := _age(night.frozen)) > begun_within:
                texts.append(f"{stack}{line}: the last night, {night.night}, began {_duration(age)} ago")
            alike = [
                past_night
                for past_night in nights
                if (past_night.stack, past_night.line, past_night.refs) == (night.stack, line, ())
            ]
            texts += (f"{stack}{text}" for text in _stale(store, night, good_within, alike))
    return tuple(texts) or (("no night was ever frozen",) if not nights else ())


def _stale(store: Store, night: NightPlan, good_within: timedelta, nights: Sequence[NightPlan]) -> list[str]:
    texts = []
    for leg in night.legs:
        if leg.expect_failure:
            continue
        key = keys.status_key(plan.index_of(leg, night.release), leg.id)
        try:
            shown = report.read_page(read_or_none(store, key), Night, key)
        except UsageError as error:
            texts.append(f"{leg.name}: how it ended cannot be read: {error}")
            continue
        if shown is None:
            # The first night that expects it; the newest one is young wherever there is one a day.
            first = min(night.frozen for night in nights if any(each.id == leg.id for each in night.legs))
            if _age(first) > good_within:
                texts.append(f"{leg.name}: no night of it came to an end yet")
        elif shown.last_good is None:
            texts.append(f"{leg.name}: no night of it was good yet; the last {_ended(shown)}")
        elif (age := _age(shown.last_good)) > good_within:
            texts.append(
                f"{leg.name}: its last good night was {_duration(age)} ago; the last {_ended(shown)}"
            )
    return texts


def _ended(shown: Night) -> str:
    why = f": {shown.reason}" if shown.reason else ""
    return f"{shown.outcome} in {shown.stage}{why}" if shown.stage else f"was {shown.outcome}{why}"


def _age(moment: str) -> timedelta:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(moment)
    except (ValueError, TypeError) as error:  # of a status that another program wrote
        raise UsageError(f"{moment!r} is not a moment: RFC 3339 in UTC") from error


def _duration(age: timedelta) -> str:
    hours = int(age.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= _MANY else f"{hours} hours"
