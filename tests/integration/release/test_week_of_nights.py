"""Nights of nine days, reported as the report job does it, and what a release engineer is told of them.

To look at the pages in a browser: `CAIRN_RENDER=DIR pytest tests/integration/release/test_week_of_nights.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan, report
from cairn.pipeline.night.plan import NightPlan, NightRun, StepNote
from cairn.release.audit.audit import audit
from cairn.release.index import keys
from cairn.release.index.generation import IndexSet
from cairn.release.index.snapshot import Change
from cairn.release.pages.night_history import PastNight
from cairn.release.pages.view import Night as Ended
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from helpers.html import Element, parse
from helpers.night import FROZEN, TARGETS, Night, leg_of, run_of
from helpers.program import Cairn
from helpers.release import commit, contents

FIRST = (datetime.now(UTC) - timedelta(days=8, hours=9)).replace(microsecond=0)
GOOD, BROKEN, ALONE = "gfx94X-dcgpu", "gfx110X-all", "gfx120X-all"
NEW_LINE = 'release/<b>"2.15'
ISSUE = f"until {FIRST + timedelta(days=6):%Y-%m-%d}, TheRock#4321"
CRASH = "hipcc: <script>alert(1)</script> error: no member named 'warpSize' in UnaryOps.hip"


def day(number: int) -> str:
    return f"{FIRST + timedelta(days=number):%Y-%m-%d}"


def legs(line: str = "main", **of_broken: object) -> tuple[Leg, ...]:
    """Two families with a runner and one without, for two Pythons."""
    return tuple(
        leg_of(
            family,
            id=f"{'new' if line == NEW_LINE else line}-{family}-py{python}",
            name=f"{line} {family} Python {python} linux_x86_64",
            line=line,
            python=python,
            targets=TARGETS.get(family, "gfx1200,gfx1201"),
            test_runs_on=() if family == ALONE else (f"linux-{family}-gpu",),
            **(of_broken if family == BROKEN else {}),
        )
        for family in (GOOD, BROKEN, ALONE)
        for python in ("3.11", "3.12")
    )


@dataclass
class Nights:
    """The nights of a store: each is frozen, has notes of its jobs and sets, and is reported."""

    folder: Path
    store: MemoryStore = field(default_factory=MemoryStore)
    reports: dict[str, tuple[Ended, ...]] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        number: int,
        legs: Sequence[Leg],
        *,
        failing: str = "",
        without_runner: str = "",
        outage: bool = False,
        hours: float = 5,
    ) -> None:
        """Add the night of a day.

        Args:
            number: of the day, from 0.
            legs: what is expected.
            failing: the family whose build fails.
            without_runner: the leg whose test job no runner takes.
            outage: the run is ended after an hour, for want of the bucket.
            hours: from its beginning to the last promotion.
        """
        began = FIRST + timedelta(days=number)
        line = legs[0].line
        night = NightPlan(
            night=f"{8000 + number}{'' if line == 'main' else 'n'}",
            stack="sample",
            line=line,
            frozen=began.isoformat(),
            # Of a set that is staged, the manifest is that of the helper's wheels.
            manifest_sha256=FROZEN.digest()
            if without_runner
            else hashlib.sha256(f"{line}{number}".encode()).hexdigest(),
            staging="staging",
            release="nightly",
            legs=tuple(legs),
            log=f"https://github.com/me/cairn/actions/runs/{8000 + number}",
        )
        plan.create(self.store, night, FROZEN)
        stack = run_of(*legs, folder=self.folder / night.night).stack
        run = NightRun(store=self.store, plan=night, stack=stack)
        for leg in () if outage else legs:
            built = leg.family != failing
            tested = leg.id != without_runner
            self._note(leg, night, "build", began, hours * 0.6, good=built, reason="" if built else CRASH)
            if built and tested:
                self._note(leg, night, "test", began + timedelta(hours=hours * 0.7), hours * 0.3)
                self._promote(run, leg, began + timedelta(hours=hours))
            elif built:
                Night(run, self.folder / "artifacts").built_and_staged(legs.index(leg))
        ended = tuple(
            _as_of(one, began + timedelta(hours=1 if outage else hours))
            for one in report.of_night(run, {"build": "cancelled"} if outage else {})
        )
        assert report.record(self.store, night, ended) == ()
        self.reports[night.night] = ended
        history = report.history_of(self.store, night.release)
        self.summaries[night.night] = report.markdown(night, ended, history=history)
        if folder := os.environ.get("CAIRN_RENDER"):
            for key, data in contents(self.store).items():
                if key.endswith((".html", "nights.json", ".atom")):
                    path = Path(folder, night.night, key)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
            Path(folder, night.night, "summary.md").write_text(self.summaries[night.night], encoding="utf-8")

    def _note(
        self, leg: Leg, night: NightPlan, stage: plan.Stage, began: datetime, hours: float, *,
        good: bool = True, reason: str = "",
    ) -> None:  # fmt: skip
        plan.note(
            self.store,
            StepNote(
                night=night.night, leg=leg.id, stage=stage, attempt=1, good=good, reason=reason,
                started=began.isoformat(), finished=(began + timedelta(hours=hours)).isoformat(),
                log=f"{night.log}/job/{1 + night.legs.index(leg)}",
            ),
        )  # fmt: skip

    def _promote(self, run: NightRun, leg: Leg, when: datetime) -> None:
        untested = leg.targets.split(",") if leg.family == ALONE else []
        entry = IndexSet(
            set_id=hashlib.sha256(f"{run.plan.night}{leg.id}".encode()).hexdigest(),
            stack="sample",
            manifest_sha256=run.plan.manifest_sha256,
            line=leg.line,
            python=leg.python,
            platform=leg.platform,
            family=leg.family,
            targets=plan.targets_of(leg),
            projects={"torch": f"2.15.0.dev{when:%Y%m%d}+rocm7.11.0"},
            added=when.isoformat(),
            judgement="c" * 64,
            untested="no runner has its hardware" if untested else None,
            untested_targets=tuple(untested),
        )
        commit(run.index(leg, "nightly"), "promote", lambda _now: Change(sets={entry.set_id: entry}))

    def page(self) -> Element:
        return parse(self.store.read("nightly/nights.html").data)


def _as_of(one: Ended, when: datetime) -> Ended:
    """The end of a leg at the time of the night, and not of this test."""
    finished = when.isoformat()
    last_good = finished if one.last_good == one.finished else one.last_good
    return msgspec.structs.replace(one, finished=finished, last_good=last_good)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    nights = Nights(tmp_path_factory.mktemp("nights"))
    for number in (0, 1, 2):
        nights.add(number, legs())
    nights.add(3, legs(), failing=BROKEN)
    nights.add(4, legs(), failing=BROKEN)
    # The night of the fifth day could not be frozen.
    moment, log = (FIRST + timedelta(days=5)).isoformat(), "https://github.com/me/cairn/actions/runs/8005"
    unfrozen = PastNight(
        night="8005", stack="sample", line="main", started=moment, finished=moment, manifest_sha256="",
        log=log, legs={},
    )  # fmt: skip
    report.add_to_history(nights.store, "nightly", unfrozen, {})
    nights.add(6, legs(expect_failure=True, known_failure=ISSUE), outage=True)
    nights.add(7, legs(known_failure=ISSUE), failing=BROKEN, without_runner=f"main-{GOOD}-py3.11")
    nights.add(7, legs(NEW_LINE))
    nights.add(8, legs(), hours=8.5)
    return nights


def ends(week: Nights, night: str, family: str) -> list[tuple[str, str]]:
    return [(one.outcome, one.age) for one in week.reports[night] if one.family == family]


def test_what_is_new_is_told_from_what_fails_since(week: Nights) -> None:
    assert ends(week, "8000", GOOD) == [("good", "nothing known")] * 2
    assert ends(week, "8000", ALONE) == [("untested", "nothing known")] * 2
    assert ends(week, "8003", BROKEN) == [("failed", "new")] * 2
    assert ends(week, "8004", BROKEN) == [("failed", f"not good since {day(3)}")] * 2
    assert ends(week, "8006", GOOD) == [("cancelled", "nothing known")] * 2
    assert {outcome for outcome, _ in ends(week, "8006", BROKEN)} == {"expected"}
    assert ends(week, "8007", BROKEN) == [("failed", "new")] * 2  # its last day has passed
    assert ends(week, "8007", GOOD) == [("failed", "new"), ("good", "nothing known")]
    assert {one.outcome for one in week.reports["8008"]} == {"good", "untested"}


def test_the_summary_says_each_reason_once_with_who_it_is_and_when_it_was_good(week: Nights) -> None:
    rows = [row for row in week.summaries["8004"].splitlines() if row.startswith("| gfx")]
    row, untested = rows
    assert untested.startswith(f"| {ALONE} 3.11, 3.12 | untested | no runner has its hardware |")
    assert f"{BROKEN} 3.11, 3.12 | **failed** in build, not good since {day(3)}" in row
    assert "[log](<https://github.com/me/cairn/actions/runs/8004/job/3>)" in row
    assert row.rstrip(" |").endswith(f"{FIRST + timedelta(days=2, hours=5):%Y-%m-%d %H:%M}")
    assert "2 good, 2 untested, 2 failed (new)" in week.summaries["8003"]
    assert "2 good, 2 untested, 2 failed; 5 h 00 min, 24 h 00 min of machines;" in week.summaries["8004"]
    assert "| late | 8 h 30 min, usually 5 h 00 min |" in week.summaries["8008"]
    first, second, _ = (row for row in week.summaries["8007"].splitlines() if row.startswith("| gfx"))
    assert f"(was expected {ISSUE.replace('#', chr(92) + '#')})" in first
    assert f"no runner (linux-{GOOD}-gpu) took the job yet" in second


def test_the_data_has_each_night_and_what_it_cost(week: Nights) -> None:
    data = json.loads(week.store.read("nightly/nights.json").data)
    assert data["schema"] == "cairn.nights/1"
    assert [one["night"] for one in data["nights"] if one["line"] == "main"] == [
        "8008", "8007", "8006", "8005", "8004", "8003", "8002", "8001", "8000",
    ]  # fmt: skip
    good = data["nights"][-1]["legs"][f"main-{GOOD}-py3.11"]
    assert good == {"outcome": "good", "minutes": 300, "machine_minutes": 270}
    lost = next(one for one in data["nights"] if one["night"] == "8007")["legs"][f"main-{GOOD}-py3.11"]
    assert (lost["outcome"], lost["stage"]) == ("failed", "test")


def test_the_page_shows_the_gap_the_new_line_and_who_is_late(week: Nights) -> None:
    root = week.page()
    new, main = root.all("section")
    assert NEW_LINE in new.one("h2").text
    assert f"No night on {day(5)}: it could not be frozen (log)." in main.text
    assert "Night 8008 began" in main.text
    items = [" ".join(one.text.split()) for one in main.one("ul", class_="troubles").all("li")]
    assert items[0] == f"! untested {ALONE} 3.11, 3.12no runner has its hardware"
    assert f"! late {GOOD} 3.118 h 30 min, usually 5 h 00 min" in items
    assert main.one("p", data_due=(FIRST + timedelta(days=9, hours=12)).isoformat())
    rows, facts = {}, {}
    for family in main.all("details", class_="family"):
        for row, below in (list(leg.all("tr")) for leg in family.all("tbody")):
            key = next(family.all("code")).text, row.one("th").text
            rows[key], facts[key] = row, below
    shown = [cell.text.strip() for cell in rows[BROKEN, "3.11"].all("td")]
    assert shown == ["✓", "✓", "✓", "✗", "✗", "", "~", "✗", "✓"]
    shown = [cell.text.strip() for cell in rows[GOOD, "3.11"].all("td")]
    assert shown == ["✓", "✓", "✓", "✓", "✓", "", "⊘", "✗", "✓"]
    text = facts[GOOD, "3.11"].text
    assert "7 h 39 min of machines" in text
    # The set of an older night stays within reach.
    (good,) = facts[BROKEN, "3.12"].all("a")
    assert str(good.attributes["href"]).startswith("../sets/")


def test_the_feed_is_one_entry_a_night(week: Nights) -> None:
    root = ET.fromstring(week.store.read("nightly/nights.atom").data)  # noqa: S314 - our own
    atom = "{http://www.w3.org/2005/Atom}"
    entries = root.findall(f"{atom}entry")
    assert len(entries) == 10
    assert len({one.findtext(f"{atom}id") for one in entries}) == 10
    titles = [one.findtext(f"{atom}title") for one in entries]
    assert f"main, {day(5)}: not frozen" in titles
    broken = next(
        one for one in entries if (one.findtext(f"{atom}title") or "").startswith(f"main, {day(3)}")
    )
    content = broken.findtext(f"{atom}content") or ""
    assert content == f"failed in build, new: {BROKEN} 3.11, 3.12: {CRASH}"


def test_a_report_again_takes_the_place_of_the_first(week: Nights) -> None:
    night = plan.find(week.store, "8008")
    assert night is not None
    before = report.history_of(week.store, "nightly")
    assert report.record(week.store, night, week.reports["8008"]) == ()
    assert report.history_of(week.store, "nightly") == before


def test_nothing_of_it_is_foreign_in_the_store(week: Nights) -> None:
    assert audit(week.store).keys["foreign"].count == 0
    assert all(keys.kind_of(keys.nights_key("nightly", kind)) for kind in ("html", "json", "atom"))


def test_the_list_says_how_each_night_ended_and_who_is_late(
    week: Nights, tmp_path: Path, cairn: Cairn
) -> None:
    under_way = datetime.now(UTC) - timedelta(hours=9)
    store = LocalStore(tmp_path)
    for key, data in contents(week.store).items():
        if key.startswith("nights/") or key == "nightly/nights.json":
            store.write(key, data)
    last = plan.find(store, "8008")
    assert last is not None
    plan.create(store, msgspec.structs.replace(last, night="9000", frozen=under_way.isoformat()), FROZEN)
    plan.create(store, msgspec.structs.replace(last, night="7000", frozen=f"{day(-3)}T01:17:00Z"), FROZEN)
    out, err = cairn("ci", "night", "list", "--store", tmp_path)
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "under way: 6 waiting" in lines["9000"]
    assert "no report" in lines["7000"]
    assert "3 failed, 2 untested, 1 good" in lines["8007"]
    assert "https://github.com/me/cairn/actions/runs/8006" in lines["8006"]
    assert f"late in 9000: main {GOOD} Python 3.11 linux_x86_64: 9 h 00 min, usually 5 h 00 min" in err
    assert "late in 8008: " in err
    shown = json.loads(cairn("ci", "night", "list", "--store", tmp_path, "--json").out)
    assert [one["night"] for one in shown][:2] == ["9000", "8008"]
    assert shown[1]["counts"] == {"untested": 2, "good": 4}
