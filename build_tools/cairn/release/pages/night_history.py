"""The history of a channel's nights: how each leg ended in the last ones of each line.

It is one object of the channel, `nights.json`: whoever reports a night adds that one and drops the oldest, so
the page, the feed and `cairn ci night list` need one request for all nights.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.release.pages.view import CAME_THROUGH, Night, Outcome

KEPT = 30
"""Nights of each stack and line."""

_DAY = timedelta(days=1)
_LONGEST_REASON = 300  # characters; the whole of it is in the log
_TO_COMPARE = 3  # good nights, from which on one can say how long a leg usually takes
_SLOW = 1.5  # of the usual time
_SLACK = 30  # minutes more than usual that nobody calls late


class LegName(datafile.Value):
    """What a leg is of: a line, family, Python and platform."""

    line: str
    family: str
    python: str
    platform: str


class LegEnd(datafile.Value, omit_defaults=True):
    """How a leg ended in one night.

    Attributes:
        outcome, stage, reason, log, minutes, machine_minutes, since, last_good: as `cairn.night/1` has them;
            of a leg that came through, without log and last_good, which is this night, and of a good one
            without reason. The log only where it is not that of the night, and the reason cut to 300
            characters.
    """

    outcome: Outcome
    stage: str | None = None
    reason: str | None = None
    log: str | None = None
    minutes: int | None = None
    machine_minutes: int | None = None
    since: str | None = None
    last_good: str | None = None


class PastNight(datafile.Value):
    """One night.

    Attributes:
        night: its id.
        stack, line: of what.
        started, finished: when it was frozen, and when it was reported last, RFC 3339 in UTC.
        manifest_sha256: of its manifest, which lies in `nights/<id>/manifest.json`; empty for a night that
            could not be frozen, and has no legs.
        log: a URL where the run can be read, or None.
        legs: how each leg ended, by id.
        refs: what was chosen in place of the line's commits, such as `torch=my-branch`.
    """

    night: str
    stack: str
    line: str
    started: str
    finished: str
    manifest_sha256: str
    log: str | None
    legs: Mapping[str, LegEnd]
    refs: tuple[str, ...] = ()


class History(datafile.Value, tag_field="schema", tag="cairn.nights/1"):
    """The last nights of a channel.

    Attributes:
        channel: such as `nightly`.
        legs: what the legs of these nights are of, by id.
        nights: at most 30 of each stack and line, the newest first.
    """

    channel: str
    legs: Mapping[str, LegName] = {}
    nights: tuple[PastNight, ...] = ()

    def plus(self, past: PastNight, names: Mapping[str, LegName]) -> History:
        """Return the history with a night, which replaces what was there of the same id."""
        others = [night for night in self.nights if night.night != past.night]
        remaining: list[PastNight] = []
        for night in sorted((past, *others), key=lambda night: (night.started, night.night), reverse=True):
            if sum((night.stack, night.line) == (k.stack, k.line) for k in remaining) < KEPT:
                remaining.append(night)
        every = {**self.legs, **names}
        legs = {name: every[name] for night in remaining for name in night.legs if name in every}
        return structs.replace(self, legs=dict(sorted(legs.items())), nights=tuple(remaining))

    def night_of(self, past: PastNight, leg: str) -> Night:
        """Return how a leg ended in one of the nights, as its page has it."""
        of, end = self.legs[leg], past.legs[leg]
        return Night(
            line=of.line,
            family=of.family,
            python=of.python,
            platform=of.platform,
            started=past.started,
            finished=past.finished,
            outcome=end.outcome,
            stage=end.stage,
            reason=end.reason,
            log=end.log or past.log,
            night=past.night,
            since=end.since,
            last_good=past.finished if end.outcome in CAME_THROUGH else end.last_good,
            minutes=end.minutes,
            machine_minutes=end.machine_minutes,
        )

    @property
    def last(self) -> tuple[Night, ...]:
        """How each leg ended last."""
        newest: dict[str, PastNight] = {}
        for past in reversed(self.nights):
            newest |= dict.fromkeys(past.legs, past)
        return tuple(self.night_of(past, leg) for leg, past in newest.items())

    def usual_minutes(self, leg: str, *, before: str = "9") -> int | None:
        """Return the median time that a leg took in the good nights that began before a moment, or None."""
        times = [
            end.minutes
            for night in self.nights
            if night.started < before
            and (end := night.legs.get(leg)) is not None
            and end.outcome in CAME_THROUGH
            and end.minutes is not None
        ]
        return round(statistics.median(times)) if len(times) >= _TO_COMPARE else None


def is_late(minutes: int | None, usual: int | None) -> bool:
    """Whether a leg took, or has been under way for, clearly more than its usual time."""
    return minutes is not None and usual is not None and minutes > max(_SLOW * usual, usual + _SLACK)


def leg_end(night: Night, *, log: str | None) -> LegEnd:
    """Return how a leg ended, as the history keeps it; `log` is that of the night."""
    tells = night.outcome not in CAME_THROUGH
    return LegEnd(
        outcome=night.outcome,
        stage=night.stage,
        reason=night.why[:_LONGEST_REASON] if night.outcome != "good" and night.reason else None,
        log=night.log if tells and night.log != log else None,
        minutes=night.minutes,
        machine_minutes=night.machine_minutes,
        since=night.since,
        last_good=night.last_good if tells else None,
    )


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One night of a line, or the day of one that did not happen.

    Attributes:
        when: when it began, or would have.
        night: None for one that did not happen.
        log: of one that could not be frozen, where its run can be read, or None.
    """

    when: datetime
    night: PastNight | None
    log: str | None = None


def usual_step(moments: Sequence[datetime]) -> timedelta:
    """Return how long after one night of a line the next one usually begins, of some in their order."""
    steps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return max(_DAY, statistics.median_low(steps)) if len(steps) >= _TO_COMPARE else _DAY


def columns(nights: Sequence[PastNight], now: datetime) -> tuple[Column, ...]:
    """Return the nights of one line, the oldest first, and those that did not happen between them or since.

    A line has a night each day, or as rarely as its nights usually follow each other.
    """
    ordered = sorted((night for night in nights if night.legs), key=lambda night: night.started)
    moments = [datetime.fromisoformat(night.started) for night in ordered]
    every = usual_step(moments)
    shown: list[Column] = []
    for i, (night, began) in enumerate(zip(ordered, moments, strict=True)):
        shown.append(Column(when=began, night=night))
        is_last = i + 1 == len(moments)
        # The next one may begin late: half a step, or, if it is still to come, a quarter.
        missing = (now - began) / every - 0.25 if is_last else (moments[i + 1] - began) / every - 0.5
        if night.refs:  # what somebody has built by hand lets nothing be expected
            continue
        shown += (Column(when=began + every * (n + 1), night=None) for n in range(min(int(missing), KEPT)))
    for unfrozen in nights:  # those that could not be frozen, in place of the gap that each is
        began = datetime.fromisoformat(unfrozen.started)
        near = [column for column in shown if abs(column.when - began) < every / 2]
        if not unfrozen.legs and all(column.night is None for column in near):
            shown = [column for column in shown if column not in near]
            shown.append(Column(when=began, night=None, log=unfrozen.log))
    return tuple(sorted(shown, key=lambda column: column.when)[-KEPT:])
