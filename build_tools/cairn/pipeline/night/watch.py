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

_MANY = 48  # hours; from then on an age is said in days


def problems(
    store: Store, *, lines: tuple[str, ...], begun_within: timedelta, good_within: timedelta
) -> tuple[str, ...]:
    """What is wrong with the last nights, a sentence each; nothing where all is well.

    Args:
        store: where the nights live.
        lines: the release lines that must have some.
        begun_within: how long ago the last one may have begun.
        good_within: how long ago each of its legs may have come through.
    """
    newest: dict[str, NightPlan] = {}
    for one in sorted(plan.every(store), key=lambda one: one.frozen):
        newest[one.line] = one
    found: list[str] = []
    for line in lines or tuple(newest):
        if (night := newest.get(line)) is None:
            found.append(f"{line}: there was no night yet")
            continue
        if (age := _age(night.frozen)) > begun_within:
            found.append(f"{line}: the last night, {night.night}, began {_said(age)} ago")
        found += _stale(store, night, good_within)
    return tuple(found) or (("no night was ever frozen",) if not newest else ())


def _stale(store: Store, night: NightPlan, good_within: timedelta) -> list[str]:
    found = []
    for leg in night.legs:
        if leg.expect_failure:
            continue
        key = keys.status_key(plan.index_of(leg, night.release), leg.id)
        try:
            shown = datafile.loads(store.read(key).data, Night, name=key)
        except (MissingKeyError, UsageError):
            if _age(night.frozen) > good_within:
                found.append(f"{leg.name}: no night of it came to an end yet")
            continue
        if shown.last_good is None:
            found.append(f"{leg.name}: no night of it was good yet; the last {_ended(shown)}")
        elif (age := _age(shown.last_good)) > good_within:
            found.append(f"{leg.name}: its last good night was {_said(age)} ago; the last {_ended(shown)}")
    return found


def _ended(shown: Night) -> str:
    why = f": {shown.reason}" if shown.reason else ""
    return f"{shown.outcome} in {shown.stage}{why}" if shown.stage else f"was {shown.outcome}{why}"


def _age(moment: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(moment)


def _said(age: timedelta) -> str:
    hours = int(age.total_seconds() // 3600)
    return f"{hours // 24} days" if hours >= _MANY else f"{hours} hours"
