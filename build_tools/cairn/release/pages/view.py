"""The view of an index for its pages for people: its sets, its recent changes, its last nights."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet, LogEntry
from cairn.release.pages.trends import Trends

Outcome = Literal["good", "untested", "held", "expected", "failed", "cancelled"]
"""How a leg ended: promoted as tested, promoted untested, left in staging as the matrix says, failed as the
matrix expects, failed, or ended from outside."""

CAME_THROUGH: frozenset[Outcome] = frozenset({"good", "untested", "held"})
"""The outcomes that a leg ends in if nothing fails."""


_BYPASS = re.compile("bypassed by [^;]+")  # in the caveat of a set (`weighing.Bypass`)


class Night(datafile.Value, tag_field="schema", tag="cairn.night/1"):
    """The result of the last nightly run of one line, family, Python and platform; whoever runs it writes it.

    Attributes:
        line: the release line that was run.
        family: of the targets.
        python: such as `3.12`.
        platform: such as `linux_x86_64`.
        started: RFC 3339 in UTC.
        finished: RFC 3339 in UTC.
        outcome: `good` and `untested` only if a set came out of it and was published.
        stage: where it ended, such as `build`; None for one whose set was published.
        reason: what went wrong, or what the pages say of its set, in one sentence.
        set_id: the set that was published, or None.
        log: a URL where the run can be read, or None.
        last_good: when the last one of it had finished in which nothing failed, RFC 3339 in UTC; None where
            that is not known.
        since: when the first of the runs in a row had begun in which something failed, RFC 3339 in UTC; None
            where nothing did.
        night: the id of the night, or None.
        measures: what was measured of its set, by the names in `trends.MEASURES`, and `sdk_size`.
        minutes: from the beginning of the night to the end of its last job, or None.
        machine_minutes: how long machines worked on it, with its share of a build for several, or None.
    """

    line: str
    family: str
    python: str
    platform: str
    started: str
    finished: str
    outcome: Outcome
    stage: str | None = None
    reason: str | None = None
    set_id: str | None = None
    log: str | None = None
    last_good: str | None = None
    since: str | None = None
    night: str | None = None
    minutes: int | None = None
    machine_minutes: int | None = None
    measures: Mapping[str, float] = {}

    @property
    def is_bad(self) -> bool:
        """Whether something failed that was not expected to."""
        return self.outcome in ("failed", "cancelled")

    @property
    def why(self) -> str:
        """The reason; of one that was promoted untested, without its targets, which others have too."""
        text = self.reason or "no reason was given"
        match = _BYPASS.search(text) if self.outcome == "untested" else None
        return match[0] if match else text

    @property
    def is_new(self) -> bool:
        """Whether it failed, and had come through, or was not there, the last time."""
        return self.since == self.started

    @property
    def age(self) -> str:
        """Since when: `new`, or `not good since 2026-11-20`; of one that was ended, nothing is known."""
        if self.since is None:
            return "nothing known"
        return "new" if self.is_new else f"not good since {self.since[:10]}"

    def after(self, previous: Night | None) -> Night:
        """Return this run with what depends on the run before it: `last_good` and `since`."""
        if previous is not None and previous.started > self.started:
            previous = None  # of a later night, which says nothing of this one
        if self.outcome in CAME_THROUGH:
            return structs.replace(self, last_good=self.finished, since=None)
        since = None if self.outcome == "cancelled" else self.started
        # A run that was ended neither began a failure nor ended one.
        if previous is not None and (
            previous.outcome == self.outcome or "cancelled" in (previous.outcome, self.outcome)
        ):
            first = previous.started if previous.outcome == "failed" else None  # in files without `since`
            since = previous.since or first or since
        last_good = previous.last_good if previous is not None else None
        return structs.replace(self, last_good=last_good, since=since)


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What is not good for one and the same reason.

    Attributes:
        nights: the legs of it, at least one; first those that fail for longest.
    """

    nights: tuple[Night, ...]

    @property
    def first(self) -> Night:
        """One of them, which stands for all in outcome, stage, reason and age."""
        return self.nights[0]

    @property
    def varies(self) -> bool:
        """Whether some were good for longer than the first: an outage meets those that fail, and others."""
        return len({(night.since or "")[:10] for night in self.nights}) > 1

    @property
    def age(self) -> str:
        """Since when they are not good."""
        return f"{self.first.age}, some more recently" if self.varies else self.first.age

    @property
    def who(self) -> str:
        """Which legs they are: `gfx110X-all 3.11, 3.12; gfx94X-dcgpu 3.12 (win_amd64)`."""
        pythons: dict[tuple[str, str], list[str]] = {}
        for night in self.nights:
            pythons.setdefault((night.family, night.platform), []).append(night.python)
        return "; ".join(
            f"{family} {', '.join(of)}" + ("" if platform.startswith("linux") else f" ({platform})")
            for (family, platform), of in pythons.items()
        )

    @property
    def last_good(self) -> str | None:
        """When the last good night of the leg had finished that has had none for longest; None if unknown."""
        return min((night.last_good for night in self.nights if night.last_good), default=None)


def troubles(nights: Iterable[Night], *, every: bool = False) -> tuple[Trouble, ...]:
    """Group what did not come through by reason: bad ones first, and among them what is new.

    Args:
        nights: the legs.
        every: also what was promoted untested, or held, as the matrix says; these come last.
    """
    groups: dict[tuple[object, ...], list[Night]] = {}
    for night in sorted(nights, key=lambda night: night.since or ""):
        if night.outcome not in CAME_THROUGH or (every and night.outcome != "good"):
            groups.setdefault((night.outcome, night.stage, night.why, night.is_new), []).append(night)
    ordered = sorted(
        groups.values(),
        key=lambda group: (
            not group[0].is_bad,
            group[0].outcome in CAME_THROUGH,
            not group[0].is_new,
            group[0].outcome != "failed",
            -len(group),
        ),
    )
    return tuple(Trouble(nights=tuple(group)) for group in ordered)


class IndexView(datafile.Value, dict=True):
    """An index at one moment.

    Attributes:
        name: such as `release` or `release/gfx110X-all`.
        generation: the number of the state that is shown.
        when: when that came to be, RFC 3339 in UTC.
        sets: its sets, or those that pages show (`shown_sets`), in any order.
        changes: the recent generations, in any order.
        nights: the last run of each line, family, Python and platform, in any order.
        trends: what the last nights measured; None where none did.
        damaged: whether it cannot be read; the rest is empty then.
    """

    name: str
    generation: int = 0
    when: str = ""
    sets: tuple[IndexSet, ...] = ()
    changes: tuple[LogEntry, ...] = ()
    nights: tuple[Night, ...] = ()
    trends: Trends | None = None
    damaged: bool = False

    @property
    def simple(self) -> str:
        """The key of the folder with its simple pages."""
        return keys.simple_prefix(self.name)

    @functools.cached_property  # each page asks for it
    def live(self) -> tuple[IndexSet, ...]:
        """The sets that are not yanked, newest first."""
        return tuple(sorted((s for s in self.sets if s.yanked is None), key=lambda s: s.order, reverse=True))


def shown_sets(sets: Iterable[IndexSet]) -> tuple[IndexSet, ...]:
    """The sets that pages show of an index: what is yanked, and the newest of each kind of the others.

    The pages choose among sets by version, by arrival, and by arrival of those that were tested: for the same
    installers, targets and projects they take none but the first. So they are made of a few sets, however
    many an index has.
    """
    chosen: dict[str, IndexSet] = {}
    first: dict[tuple[object, ...], tuple[tuple[object, ...], IndexSet]] = {}
    for entry in sets:
        if entry.yanked is not None:
            chosen[entry.set_id] = entry
            continue
        place, lead, order = (entry.python, entry.platform), entry.lead, entry.order
        leg, arrival = (entry.stack, entry.line, entry.family, *place), (entry.added, entry.set_id)
        for kind, rank in (
            (("offered", *leg, entry.targets, *entry.projects), order),
            (("arrived", *leg), arrival),
            (("tested", *leg), (entry.untested is None, *arrival)),
            # Installers take the highest version; a pre-release only where there is nothing else.
            (("taken", lead, *place), (not order[0].is_prerelease, *order)),
        ):
            if kind not in first or first[kind][0] < rank:
                first[kind] = rank, entry
    chosen |= {entry.set_id: entry for _, entry in first.values()}
    return tuple(chosen.values())


def by_channel(views: Sequence[IndexView]) -> dict[str, tuple[IndexView, ...]]:
    """Group indexes by channel, the channel itself before its families, in the order of the names."""
    ordered = sorted(views, key=lambda view: view.name)
    channels = dict.fromkeys(view.name.partition("/")[0] for view in ordered)
    return {name: tuple(v for v in ordered if v.name.partition("/")[0] == name) for name in channels}
