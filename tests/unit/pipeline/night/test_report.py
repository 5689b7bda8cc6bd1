"""How a night ended is shown as it was, and a night that did not happen is noticed."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cairn import datafile
from cairn.errors import GateError, StoreError, UsageError
from cairn.output import github
from cairn.pipeline.night import plan, progress, promote, report
from cairn.pipeline.night.plan import NightRun, Stage, StepNote
from cairn.release.audit.audit import audit
from cairn.release.index import keys, people
from cairn.release.index.generation import FileEntry, ProjectState, now
from cairn.release.index.snapshot import Change, read_set
from cairn.release.pages.view import Night as NightStatus
from cairn.store.memory import MemoryStore
from cairn.testing.record import Counts
from helpers.night import FROZEN, HOST, MakeNight, Night, leg_of, plan_of
from helpers.release import commit, contents

DAY = timedelta(days=1)


def said(run: NightRun, what: Stage, reason: str, *, leg: int = 0, attempt: int = 1) -> None:
    plan.note(
        run.store,
        StepNote(
            night=run.plan.night, leg=run.plan.legs[leg].id, stage=what, attempt=attempt, good=False,
            reason=reason, started=now(), finished=now(), log="https://example.org/run",
        ),
    )  # fmt: skip


def status(run: NightRun, leg: int = 0) -> NightStatus:
    one = run.plan.legs[leg]
    key = f"release/{one.family}/status/{one.id}.json"
    return datafile.loads(run.store.read(key).data, NightStatus, name=key)


def test_a_leg_of_which_nothing_is_there_ended_in_its_build(run: NightRun) -> None:
    said(run, "build", "no space left")
    first, second = report.of_night(run)
    assert (first.outcome, first.stage, first.reason) == ("failed", "build", "no space left")
    assert first.log == "https://example.org/run"
    assert (second.outcome, second.stage) == ("failed", "build")
    assert "its build left nothing" in str(second.reason)
    ended = report.of_night(run, {"build": "cancelled"})
    assert [one.outcome for one in ended] == ["failed", "cancelled"]


@pytest.mark.parametrize(("how", "told"), [("failure", "failed"), ("cancelled", "was cancelled")])
def test_a_job_that_did_not_come_to_a_leg_is_told_as_that(run: NightRun, how: str, told: str) -> None:
    """Where a bucket is away when sets are staged, notes of good builds do not come into the store either."""
    one, _ = report.of_night(run, {"build": "success", "stage": how})
    assert (one.outcome, one.stage) == (told.rpartition(" ")[2], "stage")
    assert f"the job stage {told} before it came to this" in str(one.reason)
    one, _ = report.of_night(run, {"build": "failure", "stage": how})
    assert one.stage == "build"


def test_a_test_job_that_left_no_word_is_told_from_one_that_failed(night: Night, run: NightRun) -> None:
    night.built_and_staged()
    assert "left no record: no runner (linux-gpu) took the job yet" in str(report.of_night(run)[0].reason)
    said(run, "test", "invalid: this machine has gfx1100")
    shown = report.of_night(run)[0]
    assert (shown.stage, shown.reason) == ("test", "invalid: this machine has gfx1100")


def test_the_last_attempt_has_the_last_word(run: NightRun) -> None:
    said(run, "build", "no space left", attempt=1)
    said(run, "build", "no network", attempt=2)
    assert report.of_night(run)[0].reason == "no network"
    said(run, "build", "it was me", attempt=2)  # of one attempt the first word counts
    assert report.of_night(run)[0].reason == "no network"


def test_a_night_that_goes_on_in_a_different_run_has_its_words(
    run: NightRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, reason in (("100", "no space left"), ("99", "no network")):
        monkeypatch.setenv("GITHUB_RUN_ID", number)
        said(run, "build", reason)
    assert report.of_night(run)[0].reason == "no network"
    monkeypatch.setenv("GITHUB_RUN_ID", "../../x")
    assert github.run_id() == "0"


def test_a_family_that_was_never_published_is_on_the_status_page(run: NightRun) -> None:
    said(run, "build", "no space left")
    report.record(run.store, run.plan, report.of_night(run))
    page = run.store.read("release/status.html").data.decode()
    assert "gfx94X-dcgpu" in page
    assert "failed in build" in page
    assert "no space left" in page
    assert 'href="release/gfx94X-dcgpu/status.html"' in run.store.read("index.html").data.decode()


def test_a_damaged_index_of_one_family_holds_up_no_other(night: Night, run: NightRun) -> None:
    run.store.write("release/gfx94X-dcgpu/state.json", b"{")
    night.built_and_staged(1)
    assert [one.refused for one in promote.promote_night(run)[0]] == [True, False]
    ended = report.of_night(run)
    assert [one.stage for one in ended] == ["stage", "test"]
    problems = report.record(run.store, run.plan, ended)  # the channel's pages show every family
    assert len(problems) == 1
    assert problems[0].startswith("the pages of release/gfx94X-dcgpu were not written: ")
    nights = run.store.read("release/nights.html").data.decode()
    assert all(f"<code>{leg.family}</code>" in nights for leg in run.plan.legs)
    assert status(run, 1).stage == "test"


@pytest.mark.parametrize("data", [b'{"schema": "cairn.%s/9", "more": "of a newer Cairn"}', b"{"])
@pytest.mark.parametrize(
    ("kind", "key", "what"),
    [
        ("nights", "release/nights.json", "the page of the last nights of release"),
        ("trends", "release/gfx94X-dcgpu/trends.json", "what the night measured of release/gfx94X-dcgpu"),
        ("night", "release/gfx94X-dcgpu/status/main-gfx94X-dcgpu-py3.99-linux_x86_64.json", "the status of "),
    ],
)
def test_what_this_cairn_cannot_read_is_not_lost_and_holds_up_nothing_else(
    night_of: MakeNight, kind: str, key: str, what: str, data: bytes
) -> None:
    night = night_of(GOOD)
    run, data = night.run, data.replace(b"%s", kind.encode())
    night.build()
    (staged,) = night.stage()
    made = read_set(run.store, str(staged.set_id))
    night.record(made, counts=Counts(passed=41), verdict="untested", import_seconds=1.5)
    assert promote.promote_night(run)[0][0].promoted
    run.store.write(key, data)
    ended = report.of_night(run)
    (problem,) = report.record(run.store, run.plan, ended)
    assert problem.startswith(what)
    assert f"not written: {key}" in problem
    assert run.store.read(key).data == data
    for name, part in (("nights", "nights.html"), ("trends", "trends.json"), ("night", "status/")):
        assert name == kind or any(part in one for one in contents(run.store))
    assert b"gfx94X-dcgpu" in run.store.read("release/gfx94X-dcgpu/status.html").data
    history = report.history_of(run.store, "release")
    assert "gfx94X-dcgpu" in report.markdown(run.plan, ended, history=history)
    if kind == "night":
        (late,) = progress.overdue(run.store, lines=(), begun_within=DAY, good_within=DAY)
        assert f"how it ended cannot be read: {key}" in late


def test_an_earlier_night_does_not_write_over_a_later_one(run: NightRun) -> None:
    later = msgspec.structs.replace(run.plan, frozen="2999-01-01T00:00:00Z")
    report.record(run.store, later, report.of_night(NightRun(store=run.store, plan=later, stack=run.stack)))
    report.record(run.store, run.plan, report.of_night(run))
    assert status(run).started == later.frozen


def test_the_page_tells_when_the_last_good_night_was(night_of: MakeNight) -> None:
    run = night_of(leg_of("gfx94X-dcgpu")).run
    good = report.of_night(run)[0]
    good = msgspec.structs.replace(good, outcome="good", finished="2026-01-02T03:04:05Z", stage=None)
    report.record(run.store, run.plan, (good,))
    report.record(run.store, run.plan, report.of_night(run))
    assert (status(run).outcome, status(run).last_good) == ("failed", "2026-01-02T03:04:05Z")
    assert "last good night" in run.store.read("release/status.html").data.decode()


def test_an_expected_failure_makes_no_bad_night(night_of: MakeNight) -> None:
    known = leg_of("gfx110X-all", expect_failure=True, known_failure="until 2999-12-31, TheRock#1")
    run = night_of(leg_of("gfx94X-dcgpu"), known).run
    ended = report.of_night(run)
    assert [leg.family for leg, _ in report.bad_legs(run.plan, ended)] == ["gfx94X-dcgpu"]
    assert ended[1].outcome == "expected"
    assert "(expected until 2999-12-31, TheRock#1)" in str(ended[1].reason)


def test_a_failure_whose_day_has_passed_is_bad_again_and_says_so(night_of: MakeNight) -> None:
    run = night_of(leg_of("gfx110X-all", known_failure="until 2026-01-02, TheRock#1")).run
    (ended,) = report.of_night(run)
    assert (ended.outcome, ended.is_bad) == ("failed", True)
    assert "(was expected until 2026-01-02, TheRock#1)" in str(ended.reason)


def test_each_end_that_the_matrix_names_makes_no_bad_night(night_of: MakeNight) -> None:
    held = leg_of("gfx110X-all", test_runs_on=(), push_on_success=False)
    night = night_of(leg_of("gfx94X-dcgpu", test_runs_on=()), held)
    night.tested_on_host(0, 1)
    promote.promote_night(night.run)
    ended = report.of_night(night.run)
    assert [one.outcome for one in ended] == ["untested", "held"]
    assert report.bad_legs(night.run.plan, ended) == ()
    assert report.counts(ended) == "1 untested, 1 held"


def test_what_broke_since_the_last_night_is_told_from_what_failed_before(run: NightRun) -> None:
    first = report.of_night(run)
    assert [one.age for one in first] == ["new", "new"]
    report.record(run.store, run.plan, (first[0], msgspec.structs.replace(first[1], outcome="good")))
    tomorrow = dataclasses.replace(
        run, plan=msgspec.structs.replace(run.plan, night="8", frozen="2999-01-02T03:04:05Z")
    )
    plan.create(run.store, tomorrow.plan, FROZEN)
    second = report.of_night(tomorrow)
    assert [one.age for one in second] == [f"not good since {run.plan.frozen[:10]}", "new"]
    assert report.counts(second) == "2 failed (1 of them new)"
    rows = [line for line in report.markdown(tomorrow.plan, second).splitlines() if "**failed**" in line]
    assert ["gfx110X-all" in row for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("before", "now_", "since"),
    [
        (("good", None), "failed", "22"),
        (("failed", "20"), "failed", "20"),
        (("failed", None), "failed", "21"),  # of a file that an earlier version wrote
        (("cancelled", None), "failed", "22"),  # a run that was ended began nothing
        (("cancelled", "20"), "failed", "20"),  # and ended nothing
        (("good", None), "cancelled", None),
        (("failed", "20"), "cancelled", "20"),
        (("expected", "20"), "failed", "22"),  # its last day has passed
        (("expected", "20"), "expected", "20"),
        (("failed", "20"), "untested", None),
    ],
)
def test_since_when_a_leg_fails(
    run: NightRun, before: tuple[Any, str | None], now_: Any, since: str | None
) -> None:
    def day(number: str | None) -> str | None:
        return number and f"2026-11-{number}T01:17:00Z"

    one = report.of_night(run)[0]
    outcome, first = before
    previous = msgspec.structs.replace(
        one, outcome=outcome, started=day("21"), since=day(first), last_good="x"
    )
    ended = msgspec.structs.replace(one, outcome=now_, started=day("22")).after(previous)
    assert ended.since == day(since)
    assert (ended.last_good == "x") is (now_ != "untested")
    # A night that is reported after a later one learns nothing from that.
    late = msgspec.structs.replace(one, outcome="failed", started=day("20")).after(previous)
    assert (late.since, late.last_good) == (day("20"), None)


def test_a_leg_that_is_held_is_no_expected_failure(night_of: MakeNight) -> None:
    held = leg_of("gfx110X-all", test_runs_on=(), push_on_success=False, expect_failure=True)
    night = night_of(held)
    night.tested_on_host(0)
    assert [one.outcome for one in report.of_night(night.run)] == ["held"]


def test_a_set_of_which_a_failure_was_answered_is_tested(night_of: MakeNight) -> None:
    night = night_of(leg_of("gfx94X-dcgpu"))
    night.built_and_staged(0)
    (staged_set,) = night.run.index(night.leg(0), "staging").load().sets()
    entry = msgspec.structs.replace(
        staged_set, judgement="c" * 64, untested="a failed record was answered by me"
    )
    commit(
        night.run.index(night.leg(0), "release"), "promote", lambda _now: Change(sets={entry.set_id: entry})
    )
    (ended,) = report.of_night(night.run)
    assert (ended.outcome, ended.reason) == ("good", "a failed record was answered by me")


def test_what_is_higher_in_untested_holds_up_no_whole_night(night_of: MakeNight) -> None:
    """A nightly's sets lie there beside those of releases."""
    night = night_of(GOOD, leg_of("gfx110X-all", test_runs_on=()))
    night.tested_on_host(0, 1)
    name = "torch-2.9.9-cp311-cp311-linux_x86_64.whl"
    file = FileEntry(filename=name, sha256="a" * 64, size=1, version="2.9.9", build="e" * 64)
    state = ProjectState(name="torch", files=()).with_files((file,))
    there = night.run.index(night.leg(1), "untested")
    commit(there, "publish", lambda _now: Change(projects={"torch": state}))
    assert [one.promoted for one in promote.promote_night(night.run, whole=True)[0]] == [True, False]


def test_the_summary_is_a_table_in_which_a_reason_is_text(run: NightRun) -> None:
    said(run, "build", "a | b\nc ![x](https://evil/a.png) <b> `c` \x1b[2J \u202e")
    lines = report.markdown(run.plan, report.of_night(run)).splitlines()
    (row,) = [line for line in lines if "gfx94X" in line]
    assert r"a \| b c \!\[x\](https://evil/a.png) \<b\> \`c\` \\x1b\[2J \\u202e" in row


def test_nothing_is_promoted_of_a_night_that_expects_nothing(run: NightRun) -> None:
    empty = plan_of(night="8")
    plan.create(run.store, empty, FROZEN)
    with pytest.raises(GateError, match="expects nothing"):
        promote.promote_night(NightRun(store=run.store, plan=empty, stack=run.stack))


def test_nothing_is_promoted_by_a_manifest_that_was_changed(run: NightRun) -> None:
    run.store.write("nights/7/manifest.json", FROZEN.canonical().replace(b"gfx942", b"gfx950"))
    with pytest.raises(StoreError, match="was changed"):
        promote.promote_night(run)


def test_an_untested_set_stays_where_it_is_and_is_no_error(night: Night, run: NightRun) -> None:
    night.built_and_staged()
    legs, _ = promote.promote_night(run)
    assert [(one.promoted, one.refused) for one in legs] == [(False, False), (False, False)]
    assert run.index(run.plan.legs[0], "release").load().set_ids == ()


def test_a_staged_set_that_no_leg_expects_is_named(night: Night, run: NightRun) -> None:
    made = night.built_and_staged()
    other = NightRun(
        store=run.store, plan=plan_of(leg_of("gfx94X-dcgpu", python="3.12"), night="9"), stack=run.stack
    )
    plan.create(run.store, other.plan, FROZEN)
    assert promote.promote_night(other)[1] == (made.set_id,)


GOOD = leg_of("gfx94X-dcgpu", test_runs_on=(), bypass_tests=True)


def test_a_night_that_goes_whole_leaves_aside_what_is_expected_to_fail(night_of: MakeNight) -> None:
    night = night_of(GOOD, leg_of("gfx110X-all", expect_failure=True))
    night.tested_on_host()
    assert [one.promoted for one in promote.promote_night(night.run, whole=True)[0]] == [True, False]


def test_what_has_no_runner_holds_up_no_whole_night_and_goes_to_untested(night_of: MakeNight) -> None:
    night = night_of(GOOD, leg_of("gfx110X-all", test_runs_on=()))
    night.tested_on_host(0, 1)
    assert [one.promoted for one in promote.promote_night(night.run, whole=True)[0]] == [True, True]
    names = ("release", "untested")
    there = [len(night.run.index(night.leg(n), name).load().set_ids) for n in (0, 1) for name in names]
    assert there == [1, 0, 0, 1]


def test_a_night_that_goes_whole_waits_for_each_leg_that_may_come(night_of: MakeNight) -> None:
    night = night_of(GOOD, leg_of("gfx110X-all"))
    run = night.run
    for number in (0, 1):
        with pytest.raises(GateError) as refused:
            promote.promote_night(run, whole=True)
        assert any("no set of it was staged" in reason for reason in refused.value.reasons)
        made = night.built_and_staged(number)
        if number == 0:
            night.record(made, **HOST)
    with pytest.raises(GateError) as refused:
        promote.promote_night(run, whole=True)
    assert refused.value.reasons == (f"{run.plan.legs[1].name}: there is no test record",)
    assert run.index(GOOD, "release").load().set_ids == ()
    assert [one.promoted for one in promote.promote_night(run)[0]] == [True, False]


def test_the_gate_is_asked_of_each_leg_before_one_goes(night_of: MakeNight) -> None:
    night = night_of(GOOD, leg_of("gfx110X-all", test_runs_on=(), bypass_tests=True))
    run, wheel = night.run, night.tested_on_host(0, 1).wheels[0]
    run.store.delete(keys.file_key(wheel.sha256, wheel.file_name))
    with pytest.raises(GateError, match="1 of 2 legs") as refused:
        promote.promote_night(run, whole=True)
    assert run.plan.legs[1].name in refused.value.reasons[0]
    assert run.index(GOOD, "release").load().set_ids == ()


def test_neither_a_night_of_tomorrow_nor_a_release_hides_that_none_happens(run: NightRun) -> None:
    found = progress.overdue(run.store, lines=("main",), begun_within=DAY, good_within=DAY, release="nightly")
    assert found == ("main: there was no night yet",)
    later = msgspec.structs.replace(run.plan, night="8", frozen="2999-01-01T00:00:00+00:00")
    plan.create(run.store, later, FROZEN)
    found = progress.overdue(run.store, lines=("main",), begun_within=timedelta(0), good_within=DAY)
    assert "main: the night 8 began at 2999" in found[0]
    assert "main: the last night, 7, began 0 hours ago" in found


def test_a_night_of_chosen_commits_hides_not_that_no_usual_one_happens(run: NightRun) -> None:
    values: dict[str, Any] = {"night": "8", "frozen": now(), "refs": ("torch=my-branch",)}
    by_hand = msgspec.structs.replace(run.plan, **values, legs=run.plan.legs[:1])
    plan.create(run.store, by_hand, FROZEN)
    found = progress.overdue(run.store, lines=("main",), begun_within=timedelta(0), good_within=timedelta(0))
    assert found[0].startswith("main: the last night, 7, began")
    assert len(found) == 1 + len(run.plan.legs)


def test_a_stack_does_not_hide_that_another_one_has_no_night(run: NightRun) -> None:
    """Both may have a line of the same name, and legs."""
    other = msgspec.structs.replace(run.plan, night="8", stack="other", frozen=now())
    plan.create(run.store, other, FROZEN)
    none = timedelta(0)
    for lines in (("main",), ()):
        found = progress.overdue(run.store, lines=lines, begun_within=none, good_within=none)
        assert found[0].startswith(f"{run.plan.stack}, main: the last night, 7, began")
        assert found[len(found) // 2].startswith("other, main: the last night, 8, began")
        assert len(set(found)) == 2 * (1 + len(run.plan.legs))


def test_a_night_that_did_not_happen_is_noticed(run: NightRun) -> None:
    def problems(*lines: str, begun: timedelta = DAY, good: timedelta = DAY) -> str:
        return "; ".join(progress.overdue(run.store, lines=lines, begun_within=begun, good_within=good))

    assert problems("main") == ""  # it has just begun
    assert "nightly: there was no night yet" in problems("nightly")
    assert "began 0 hours ago" in problems("main", begun=timedelta(0))
    assert "no night of it came to an end" in problems("main", good=timedelta(0))
    report.record(run.store, run.plan, report.of_night(run))
    assert "no night of it was good yet; the last failed in build" in problems("main")
    found = progress.overdue(MemoryStore(), lines=(), begun_within=DAY, good_within=DAY)
    assert found == ("no night was ever frozen",)


def test_what_a_night_measured_is_kept_and_drawn(night_of: MakeNight) -> None:
    night, index = night_of(GOOD), "release/gfx94X-dcgpu"
    run = night.run
    night.build()
    (staged,) = night.stage()
    made = read_set(run.store, str(staged.set_id))
    night.record(made, counts=Counts(passed=41), verdict="untested", import_seconds=1.5)
    assert promote.promote_night(run)[0][0].promoted
    for _ in "once", "and again":
        report.record(run.store, run.plan, report.of_night(run))
    trends = people.trends_of(run.store, index)
    assert trends is not None
    ((leg, (point,)),) = trends.legs.items()
    assert leg == "main gfx94X-dcgpu 3.99 linux_x86_64"
    assert point.set_id == made.id
    assert point.values == {
        "wheel_size": made.wheels[0].size,
        "installed_size": point.values["installed_size"],
        "kernels": 0,
        "passed_tests": 41,
        "import_seconds": 1.5,
    }
    assert point.values["installed_size"] > 0
    before = msgspec.structs.replace(point, night="before", started="2026-01-01T00:00:00Z")
    run.store.write(keys.trends_key(index), datafile.dumps(trends.plus(leg, before)).encode())
    assert people.write(run.store, index)
    assert "<polyline" in run.store.read(f"{index}/status.html").data.decode()
    assert audit(run.store).keys["foreign"].count == 0


def test_what_nights_leave_in_a_store_is_nothing_foreign(night: Night, run: NightRun) -> None:
    night.built_and_staged()
    said(run, "build", "no space left", leg=1)
    report.record(run.store, run.plan, report.of_night(run))
    found = audit(run.store)
    assert found.problems == ()
    assert found.keys["foreign"].count == 0
    unnamed = {name for kind in ("pending", "garbage") for name in found.keys[kind].names}
    assert not [name for name in unnamed if name.startswith(("nights/", "release/"))]
    # A channel without an index has pages for people, and nothing that installers read.
    assert [key for key in contents(run.store) if key.startswith("release/") and "/simple/" in key] == []


def test_a_night_is_released_as_the_bytes_that_were_tested_whole_or_not_at_all(night_of: MakeNight) -> None:
    other = leg_of("gfx110X-all", test_runs_on=(), bypass_tests=True)
    night = night_of(GOOD, other)
    run = night.run
    night.tested_on_host(0)
    assert [one.promoted for one in promote.promote_night(run)[0]] == [True, False]
    with pytest.raises(GateError, match="1 of 2 legs") as refused:
        promote.release_night(run, "prerelease")
    assert "no set of it was staged" in refused.value.reasons[0]
    night.tested_on_host(1)
    promote.promote_night(run)
    files = set(run.store.folders("files/"))
    tried, _ = promote.release_night(dataclasses.replace(run, dry_run=True), "prerelease")
    assert [one.promoted for one in tried] == [True, True]
    assert run.index(GOOD, "prerelease").load().set_ids == ()
    for _ in "once", "and again":
        assert all(one.promoted for one in promote.release_night(run, "prerelease")[0])
    for leg in (GOOD, other):
        assert run.index(leg, "prerelease").load().set_ids == run.index(leg, "release").load().set_ids
    assert set(run.store.folders("files/")) == files
    with pytest.raises(UsageError, match="goes to release by itself"):
        promote.release_night(run, "release")
