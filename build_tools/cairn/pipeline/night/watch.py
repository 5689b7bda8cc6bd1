"""Whether the nights happen at all: a schedule that has stopped fails nothing, and nobody is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cairn import datafile
from cairn.errors import UsageError
from cairn.pipeline.night import plan
from cairn.pipeline.night.plan import NightPlan
from cairn.release.index import keys
from cairn.release.pages.view import Night
from cairn.store.protocol import MissingKeyError, Store

_SKEW = timedelta(minutes=5)  # by which the clocks of two machines may differ
_MANY = 48  # hours; from then on an age is said in days


def problems(
    store: Store,
    *,
    lines: tuple[str, ...],
    begun_within: timedelta,
    good_within: timedelta,
    release: str | None = None,
) -> tuple[str, ...]:
    """What is wrong with the last nights, a sentence each; nothing where all is well.

    Args:
        store: where the nights live.
        lines: the release lines that must have some.
        begun_within: how long ago the last one may have begun.
        good_within: how long ago each of its legs may have come through.
        release: only nights to that channel are looked at: a release is none; None looks at all.
    """
    nights = [one for one in plan.every(store) if release in (None, one.release)]
    # A night of tomorrow, by a clock that was wrong, would hide for as long that none happens.
    texts = [f"{n.line}: the night {n.night} began at {n.frozen}" for n in nights if _age(n.frozen) < -_SKEW]
    newest: dict[str, NightPlan] = {}
    for one in sorted(nights, key=lambda one: one.frozen):
        if _age(one.frozen) >= -_SKEW:
            newest[one.line] = one
    for line in lines or tuple(newest):
        if (night := newest.get(line)) is None:
            texts.append(f"{line}: there was no night yet")
            continue
        if (age := _age(night.frozen)) > begun_within:
            texts.append(f"{line}: the last night, {night.night}, began {_duration(age)} ago")
        texts += _stale(store, night, good_within)
    return tuple(texts) or (("no night was ever frozen",) if not nights else ())


def _stale(store: Store, night: NightPlan, good_within: timedelta) -> list[str]:
    texts = []
    for leg in night.legs:
        if leg.expect_failure:
            continue
        key = keys.status_key(plan.index_of(leg, night.release), leg.id)
        try:
            shown = datafile.loads(store.read(key).data, Night, name=key)
        except (MissingKeyError, UsageError):
            if _age(night.frozen) > good_within:
                texts.append(f"{leg.name}: no night of it came to an end yet")
            continue
        if shown.last_good is None:
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
    except (ValueError, TypeError) as error:  # of a status that somebody else wrote
        raise UsageError(f"{moment!r} is not a moment: RFC 3339 in UTC") from error


def _duration(age: timedelta) -> str:
    hours = int(age.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= _MANY else f"{hours} hours"
