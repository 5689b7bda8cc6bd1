"""The page and the feed of a channel's last nights: what is wrong, and a grid of families and Pythons."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from xml.etree import ElementTree as ET

import msgspec

from cairn import templates
from cairn.output import safe_text
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet, comparable
from cairn.release.pages import night_history, status
from cairn.release.pages.night_history import Column, History, LegEnd, PastNight
from cairn.release.pages.targets_file import install_arguments, relative
from cairn.release.pages.view import IndexView, Night, Outcome, Trouble, troubles
from cairn.wheels.metadata.tag_words import platform_words

SIGNS: Mapping[Outcome, tuple[str, str, str]] = {
    "good": ("good", "✓", "tested and promoted"),
    "untested": ("plain", "○", "promoted untested, as the matrix says"),
    "held": ("plain", "‖", "left in staging, as the matrix says"),
    "expected": ("plain", "~", "failed, as the matrix expects"),
    "failed": ("bad", "✗", "not built, or did not pass"),
    "cancelled": ("bad", "⊘", "ended before it was done"),
}
"""For each outcome its colour, a sign for who does not see colours, and what it means."""

_WORST_FIRST: tuple[Outcome, ...] = tuple(SIGNS)[::-1]
MOST_LATE = 8
"""Legs whose lateness is told one by one: where a machine was away, all are late."""
_IN_FEED = 60  # nights
_RECENT = 7  # nights; of those before, the grid alone tells that they did not happen
_OVERDUE = 1.5  # steps from one night to the next
_ATOM = "http://www.w3.org/2005/Atom"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """How a leg ended in one night, as the grid shows it; `link` leads to its log, or to its night."""

    tone: str
    sign: str
    words: str
    link: str


class LegRow(msgspec.Struct, frozen=True, kw_only=True):
    """A leg in the grid.

    Attributes:
        python, platform: what the row is of, in its family.
        cells: one for each column; None where the leg was not in that night.
        last: how it ended last, or None.
        last_sign: the cell of that.
        due: when it usually ends, and how long it takes; empty where too little is known.
        late: by how much it was late the last time; empty if it was not.
        machine_minutes: what it cost the last time, or None.
        good: the last good set of it, or None, and where that is.
        install: the part of its install line behind the URL.
    """

    python: str
    platform: str
    cells: tuple[Cell | None, ...]
    last: Night | None
    last_sign: Cell | None
    due: str
    late: str
    machine_minutes: int | None
    good: IndexSet | None
    index: str
    install: str


class FamilyRows(msgspec.Struct, frozen=True, kw_only=True):
    """The legs of a family on a line, and whether one of them is bad."""

    name: str
    rows: tuple[LegRow, ...]
    is_bad: bool


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """A line.

    Attributes:
        name, anchor: its name, and that of its place on the page.
        columns: its nights.
        newest: the last of them that was frozen.
        due: when the next one should have been reported, RFC 3339 in UTC; empty where none is expected.
        troubles: what is not good of the last night of each leg.
        counts: its legs by outcome.
        families: its legs.
        missed: the nights of the last week that did not happen.
    """

    name: str
    anchor: str
    columns: tuple[Column, ...]
    newest: PastNight | None
    due: str
    troubles: tuple[Trouble, ...]
    counts: Mapping[str, int]
    families: tuple[FamilyRows, ...]
    missed: tuple[Column, ...]

    @property
    def late(self) -> tuple[tuple[FamilyRows, LegRow], ...]:
        """The legs that were late the last time, each with its family."""
        return tuple((family, row) for family in self.families for row in family.rows if row.late)


def page(history: History, views: Sequence[IndexView], now: datetime) -> bytes:
    """Render the page of a channel's last nights.

    Args:
        history: of the channel.
        views: its indexes and those of the same families in `untested`, with their nights.
        now: for nights that are overdue.
    """
    shown = status.rows(views)
    names = dict.fromkeys(row.line for row in shown if row.night is not None)
    lines = (_line(history, name, [r for r in shown if r.line == name], now) for name in names)
    return templates.page(
        "nights",
        folder=history.channel,
        lines=tuple(line for line in lines if line.newest is not None),  # others have had none for long
        signs=SIGNS,
        nights=history.nights,
        kept=night_history.KEPT,
        night_anchor=night_anchor,
        counts=counts,
        cost=cost,
        most_late=MOST_LATE,
        relative=lambda key: relative(key, history.channel),
        night_key=keys.night_key,
        set_simple=keys.set_simple_prefix,
        platform_words=platform_words,
        hours=duration,
        links={
            "Install": "index.html",
            "Status of the sets": "status.html",
            "JSON": "nights.json",
            "Feed": "nights.atom",
        },
    ).encode()


def counts(past: PastNight) -> dict[str, int]:
    """Return how many legs of a night ended in which way, the bad ones first."""
    number = Counter(end.outcome for end in past.legs.values())
    return {outcome: number[outcome] for outcome in _WORST_FIRST if number[outcome]}


def cost(ends: Iterable[Night] | Iterable[LegEnd]) -> str:
    """Say how long a night took from the freeze to its last job, and machines for it; empty if unknown."""
    times = [(end.minutes, end.machine_minutes or 0) for end in ends if end.minutes is not None]
    if not times:
        return ""
    took, machines = max(minutes for minutes, _ in times), sum(machine for _, machine in times)
    return f"{duration(took)}, {duration(machines)} of machines"


def late(history: History, minutes: Mapping[str, int | None], *, before: str = "9") -> dict[str, str]:
    """Say of each leg that is late by its own history: `9 h 43 min, usually 4 h 43 min`.

    Args:
        history: of the nights that it is compared with.
        minutes: how long legs took, or have been under way, by id.
        before: only with nights that began before this moment.
    """
    usual = {leg: history.usual_minutes(leg, before=before) for leg in minutes}
    return {
        leg: f"{duration(took)}, usually {duration(expected)}"
        for leg, took in minutes.items()
        if (expected := usual[leg]) is not None and took is not None and night_history.is_late(took, expected)
    }


def night_anchor(past: PastNight) -> str:
    """Return the name of a night's place on the page."""
    return f"night-{past.night}"


def _line(history: History, line: str, rows: Sequence[status.Row], now: datetime) -> LineView:
    columns = night_history.columns([night for night in history.nights if night.line == line], now)
    ids = {
        (name.family, name.python, name.platform): leg
        for leg, name in history.legs.items()
        if name.line == line
    }
    # A set lies in `untested` where nobody tested it: the leg is the same.
    by_leg: dict[tuple[str, str, str], list[status.Row]] = {}
    for row in rows:
        by_leg.setdefault((row.family, row.python, row.platform), []).append(row)
    families: dict[str, list[LegRow]] = {}
    for key, of in by_leg.items():
        if any(row.night is not None for row in of):
            families.setdefault(key[0], []).append(_leg(history, ids.get(key, ""), of, columns))
    nights = [row.night for row in rows if row.night is not None]
    number = Counter(night.outcome for night in nights)
    frozen = [column.night for column in columns if column.night is not None]
    every = night_history.usual_step([datetime.fromisoformat(night.started) for night in frozen])
    return LineView(
        name=line,
        anchor="line-" + "".join(c if c.isalnum() else "-" for c in line),
        columns=columns,
        newest=frozen[-1] if frozen else None,
        due=(datetime.fromisoformat(frozen[-1].started) + every * _OVERDUE).isoformat()
        if frozen and not frozen[-1].refs
        else "",
        troubles=troubles(nights, every=True),
        counts={outcome: number[outcome] for outcome in _WORST_FIRST if number[outcome]},
        families=tuple(
            FamilyRows(
                name=family,
                rows=tuple(sorted(of, key=lambda leg: (leg.platform, comparable(leg.python)))),
                is_bad=any(leg.last is not None and leg.last.is_bad for leg in of),
            )
            for family, of in families.items()
        ),
        missed=tuple(column for column in columns[-_RECENT:] if column.night is None),
    )


def _leg(history: History, leg: str, rows: Sequence[status.Row], columns: Sequence[Column]) -> LegRow:
    night = max((row.night for row in rows if row.night is not None), key=lambda night: night.started)
    with_set = [row for row in rows if row.good is not None]
    best = max(with_set, key=lambda row: row.good.added if row.good is not None else "", default=rows[0])
    usual = history.usual_minutes(leg, before=night.started) or history.usual_minutes(leg)
    due = ""
    if usual is not None:
        began = datetime.fromisoformat(night.started)
        due = f"{began + timedelta(minutes=usual):%H:%M} UTC, after {duration(usual)}"
    ends = [(column, column.night.legs.get(leg) if column.night is not None else None) for column in columns]
    cells = tuple(
        _cell(column.night, end) if column.night is not None and end is not None else None
        for column, end in ends
    )
    return LegRow(
        python=rows[0].python,
        platform=rows[0].platform,
        cells=cells,
        last=night,
        last_sign=next((cell for cell in reversed(cells) if cell is not None), None),
        due=due,
        late=late(history, {leg: night.minutes}, before=night.started).get(leg, ""),
        machine_minutes=night.machine_minutes,
        good=best.good,
        index=best.index,
        install=" ".join(install_arguments("", best.good.packages)[2:]) if best.good is not None else "",
    )


def _cell(past: PastNight, end: LegEnd) -> Cell:
    tone, sign, _ = SIGNS[end.outcome]
    where = f" in {end.stage}" if end.stage else ""
    why = f": {end.reason}" if end.reason and end.outcome != "good" else ""
    log = (end.log or past.log) if end.outcome in ("failed", "expected", "cancelled") else None
    link = log if log and templates.web_address(log) else f"#{night_anchor(past)}"
    return Cell(tone=tone, sign=sign, words=f"{past.started[:10]} {end.outcome}{where}{why}", link=link)


def duration(minutes: int) -> str:
    """Return a time in hours and minutes: `5 h 20 min`."""
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004


def feed(history: History) -> bytes:
    """Render the last nights as an Atom feed (RFC 4287), an entry for each, the newest first."""
    ET.register_namespace("", _ATOM)
    root = ET.Element(f"{{{_ATOM}}}feed")

    def add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
        element = ET.SubElement(parent, f"{{{_ATOM}}}{name}", attributes)
        # XML has no way to write most control characters (XML 1.0, section 2.2).
        element.text = "\n".join(map(safe_text.visible, text.split("\n"))) or None
        return element

    def identify(parent: ET.Element, name: str) -> None:
        add(parent, "id", f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'cairn:{history.channel}/{name}')}")

    nights = history.nights[:_IN_FEED]
    add(root, "title", f"Nights of {history.channel}")
    identify(root, "")
    add(root, "updated", max((night.finished for night in nights), default="1970-01-01T00:00:00Z"))
    add(add(root, "author"), "name", "Cairn")
    add(root, "link", rel="alternate", href="nights.html")
    add(root, "link", rel="self", href="nights.atom")
    for night in nights:
        entry = add(root, "entry")
        summary = (
            ", ".join(f"{number} {outcome}" for outcome, number in counts(night).items()) or "not frozen"
        )
        add(entry, "title", f"{', '.join((night.line, *night.refs))}, {night.started[:10]}: {summary}")
        identify(entry, night.night)
        add(entry, "updated", night.finished)
        add(entry, "published", night.started)
        add(entry, "link", rel="alternate", href=f"nights.html#{night_anchor(night)}")
        if night.log and templates.web_address(night.log):
            add(entry, "link", rel="related", href=night.log)
        of = troubles(history.night_of(night, leg) for leg in night.legs)
        add(
            entry,
            "content",
            "\n".join(
                f"{t.first.outcome} in {t.first.stage}{f', {t.age}' if t.first.is_bad else ''}: "
                f"{t.who}: {t.first.why}"
                for t in of
            )
            or ("Nothing failed." if night.legs else "Nothing was built: the log of the run says why."),
            type="text",
        )
    return ET.tostring(root, encoding="unicode", xml_declaration=True).encode()
