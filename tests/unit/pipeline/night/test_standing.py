"""What the store has decides whether a leg is ready, neither a job's result nor the matrix alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from cairn.pipeline.night import promote, report
from cairn.pipeline.night.standing import Standing
from cairn.release.history import yank
from cairn.release.history.rollback import rollback
from cairn.release.index import listing
from cairn.release.index.snapshot import Change, read_set
from cairn.release.publish import stage
from cairn.testing.record import Counts
from helpers.night import FROZEN, HOST, MakeNight, Night, leg_of
from helpers.release import commit, make_set, make_wheel, statement_of

ON_GPU = {"hardware": ("gfx942",)}
UNTESTED = leg_of("gfx94X-dcgpu", test_runs_on=(), bypass_tests=True)


def look(night: Night, *said: dict[str, Any]) -> Standing:
    """Where the first leg stands once it is staged and has records like these."""
    made = night.built_and_staged()
    for changes in said:
        night.record(made, **changes)
    return night.standing()


def test_a_staged_set_without_a_record_is_untested(night: Night) -> None:
    found = look(night)
    assert (found.state, found.reason) == ("untested", "there is no test record")


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (ON_GPU, "ready"),
        ({"verdict": "failed", "reason": "1 failed", **ON_GPU}, "failed"),
        ({"verdict": "invalid", "hardware": ("gfx1100",)}, "untested"),
        ({"verdict": "untested"}, "untested"),
        ({"hardware": ("gfx950",)}, "untested"),
        ({}, "untested"),
    ],
)
def test_only_one_that_has_passed_on_its_gpu_is_ready(night: Night, said: dict[str, Any], state: str) -> None:
    found = look(night, said)
    assert (found.state, found.bypass) == (state, None)


@pytest.mark.parametrize(
    ("leg", "said", "state"),
    [
        ({}, [], "untested"),
        ({}, [{"verdict": "failed", "reason": "1 failed", **ON_GPU}], "failed"),
        ({}, [ON_GPU], "promoted"),
        ({"push_on_success": False}, [ON_GPU], "promoted"),  # there is nowhere to push it
        ({"test_runs_on": ()}, [], "untested"),
        ({"test_runs_on": ()}, [HOST], "promoted"),  # nor is there a channel of the untested
        ({"test_runs_on": (), "host_runs_on": ()}, [], "promoted"),
    ],
)
def test_what_is_staged_where_it_goes_is_there_once_it_is_tested(
    night_of: MakeNight, leg: dict[str, Any], said: list[dict[str, Any]], state: str
) -> None:
    night = night_of(leg_of("gfx94X-dcgpu", **leg))
    open_plan = msgspec.structs.replace(night.run.plan, staging="dev", release="dev")
    night = dataclasses.replace(night, run=dataclasses.replace(night.run, plan=open_plan))
    night.build()
    (staged,) = night.stage()
    for changes in said:
        night.record(read_set(night.run.store, str(staged.set_id)), **changes)
    standing = night.standing()
    on_gpu = ON_GPU in said
    assert (standing.state, standing.is_tested) == (state, on_gpu or state != "promoted")
    (ended,) = promote.promote_night(night.run)[0]
    assert ended.promoted is (state == "promoted")
    (shown,) = report.of_night(night.run)
    outcomes = {"promoted": "good" if on_gpu else "untested"}
    assert shown.outcome == outcomes.get(state, "failed")


@pytest.mark.parametrize(
    ("said", "state"),
    [
        pytest.param([], "untested", id="a test job that left nothing"),
        pytest.param([{}], "ready", id="tests on a host"),
        pytest.param([{**HOST, "counts": Counts(passed=5, skipped=2)}], "ready", id="lacks a GPU alone"),
        pytest.param([{**HOST, "counts": Counts(skipped=9)}], "untested", id="nothing passed"),
        # What failed on the host stands until it is answered.
        pytest.param([{**HOST, "counts": Counts(passed=5, failed=1)}], "failed", id="failed on the host"),
        pytest.param([{**HOST, "counts": Counts(passed=5, errors=1)}], "failed", id="errors on the host"),
        pytest.param([{}, {"verdict": "failed", "counts": Counts(failed=1)}], "failed", id="failed"),
        pytest.param(
            [{"pytest_args": ("-k", "test_one")}, {"hardware": ("gfx1100",), "reason": "elsewhere"}],
            "untested",
            id="not all of them, or on another machine",
        ),
    ],
)
def test_the_matrix_vouches_for_the_gpu_alone(
    night_of: MakeNight, said: list[dict[str, Any]], state: str
) -> None:
    found = look(night_of(leg_of("gfx94X-dcgpu", bypass_tests=True)), *said)
    assert found.state == state, found.reason
    assert state != "ready" or found.bypass is not None


def test_the_matrix_vouches_for_hardware_that_no_runner_has(night_of: MakeNight) -> None:
    found = look(night_of(UNTESTED), HOST)
    assert found.state == "ready"
    assert found.bypass is not None
    assert found.bypass.reason == "no runner has its hardware"


def test_a_family_without_a_runner_goes_to_untested(night_of: MakeNight) -> None:
    night = night_of(leg_of("gfx94X-dcgpu", test_runs_on=()))
    assert look(night, HOST).state == "ready"
    (done,) = promote.promote_night(night.run)[0]
    assert done.promoted
    assert done.reason.startswith("in untested/gfx94X-dcgpu; untested on hardware: gfx942")
    assert "no runner has its hardware" in done.reason
    assert night.run.index(night.leg(), "release").load().set_ids == ()
    again = night.standing()
    assert (again.state, again.is_tested) == ("promoted", False)


def test_a_set_in_untested_stays_there_when_its_night_is_released(night_of: MakeNight) -> None:
    tested, untested = leg_of("gfx94X-dcgpu"), leg_of("gfx110X-all", test_runs_on=())
    night = night_of(tested, untested)
    night.record(night.built_and_staged(0), **ON_GPU)
    night.tested_on_host(1)
    promote.promote_night(night.run)
    released = promote.release_night(night.run, "prerelease")[0]
    assert [leg.promoted for leg in released] == [True, False]
    assert released[1].reason.startswith("stays in untested/gfx110X-all: untested on hardware: gfx1100")
    assert night.run.index(untested, "prerelease").load().set_ids == ()


def test_without_a_runner_what_failed_goes_nowhere(night_of: MakeNight) -> None:
    night = night_of(leg_of("gfx94X-dcgpu", test_runs_on=()))
    failed = {"verdict": "failed", "reason": "1 failed", "counts": Counts(failed=1)}
    assert look(night, failed).state == "failed"
    assert [one.promoted for one in promote.promote_night(night.run)[0]] == [False]
    assert night.run.index(night.leg(), "untested").load().set_ids == ()


@pytest.mark.parametrize("bypass_tests", [True, False])
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "there is no test record"),
        ([{**HOST, "host": None}], "no record shows that every package imports"),
        ([{**HOST, "pytest_args": ("-k", "one")}], "pytest was given -k one"),
        ([{**HOST, "translated": "torchdevice 0.1"}], "untested: none on a GPU"),
    ],
)
def test_what_did_not_run_without_a_gpu_goes_to_no_channel(
    night_of: MakeNight, said: list[dict[str, Any]], why: str, *, bypass_tests: bool
) -> None:
    night = night_of(leg_of("gfx94X-dcgpu", test_runs_on=(), bypass_tests=bypass_tests))
    found = look(night, *said)
    assert (found.state, found.bypass) == ("untested", None)
    assert why in found.reason
    assert [one.promoted for one in promote.promote_night(night.run)[0]] == [False]
    for channel in ("release", "untested"):
        assert night.run.index(night.leg(), channel).load().set_ids == ()


def test_a_leg_that_no_machine_tests_stays_in_staging_and_says_so(night_of: MakeNight) -> None:
    good = leg_of("gfx110X-all", test_runs_on=(), bypass_tests=True)
    night = night_of(leg_of("gfx94X-dcgpu", test_runs_on=(), host_runs_on=(), bypass_tests=True), good)
    night.built_and_staged(0)
    night.tested_on_host(1)
    found = night.standing()
    assert found.state == "held"
    assert found.reason == (
        "no machine tests linux_x86_64: name one in the matrix.toml, platforms.linux_x86_64.host_test"
    )
    # It holds up no other leg, neither here nor where the night is released.
    assert [one.promoted for one in promote.promote_night(night.run, whole=True)[0]] == [False, True]
    assert [one.promoted for one in promote.release_night(night.run, "prerelease")[0]] == [False, True]
    shown = report.of_night(night.run)
    assert [(one.outcome, one.stage) for one in shown] == [("held", "promote"), ("untested", None)]
    assert shown[0].reason == found.reason
    # Tests by hand, on a machine that no runner is, count as those of a job.
    night.record(read_set(night.run.store, str(found.set_id)), **HOST)
    assert night.standing().state == "ready"


def test_a_leg_that_the_matrix_holds_back_is_held(night_of: MakeNight) -> None:
    assert look(night_of(leg_of("gfx94X-dcgpu", push_on_success=False)), ON_GPU).state == "held"


def test_what_nobody_tested_goes_to_its_own_channel_where_the_last_was_tested(night_of: MakeNight) -> None:
    """As with gfx1151, whose users got four nights of segfaults from a bypass: ROCm/TheRock#5763."""
    night = night_of(UNTESTED)
    run, leg = night.run, night.leg()
    tested = msgspec.structs.replace(
        listing.index_set(msgspec.structs.replace(night.build(), set_id="a" * 64)),
        manifest_sha256="d" * 64,  # of the night before
        records=("b" * 64,),
        judgement="c" * 64,
    )
    commit(run.index(leg, "release"), "promote", lambda _now: Change(sets={tested.set_id: tested}))
    night.tested_on_host()
    (done,) = promote.promote_night(run)[0]
    assert done.promoted
    assert done.reason.startswith(
        "in untested/gfx94X-dcgpu, since release/gfx94X-dcgpu has a set that was tested; untested on hardware"
    )
    assert run.index(leg, "release").load().set_ids == (tested.set_id,)
    (there,) = run.index(leg, "untested").load().sets()
    assert there.untested_targets == ("gfx942",)
    again = night.standing()
    assert again.state == "promoted"
    assert str(again.caveat).startswith("in untested/gfx94X-dcgpu: ")


def test_a_weak_policy_is_said_by_the_night_and_by_the_pages(night_of: MakeNight) -> None:
    night = night_of(UNTESTED)
    night.tested_on_host()
    gate = msgspec.structs.replace(night.run.stack.gate, records={})
    run = dataclasses.replace(night.run, stack=msgspec.structs.replace(night.run.stack, gate=gate))
    (done,) = promote.promote_night(run)[0]
    weak = f"the stack {run.stack.name} demands no test record"
    assert f"weak policy: {weak}" in done.reason
    (there,) = run.index(night.leg(), "release").load().sets()
    assert weak in there.weakened
    assert f"weak policy: {weak}" in str(Night(run, night.artifacts).standing().caveat)
    for name in ("index.html", "status.html"):
        page = run.store.read(f"release/gfx94X-dcgpu/{name}").data.decode()
        assert "weak policy" in page
        assert weak in page


def stage_a_second(night: Night) -> None:
    """Stage a different set of the first leg, as of two runs at once that had the same manifest."""
    made, frozen = night.build(), FROZEN.canonical()
    folder = night.artifact()
    wheels = [folder / made.wheels[0].file_name, make_wheel(folder / "extra", "vision", "0.24.0")]
    other = make_set(wheels, family=made.family, targets=made.targets, python=made.python)
    other = msgspec.structs.replace(other, manifest_sha256=made.manifest_sha256)
    index, statement = night.run.index(night.leg(), "staging").name, statement_of(other, wheels, frozen)
    stage.stage_set(night.run.store, index, other, wheels, manifest=frozen, statement=statement)


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema": "cairn.set/99"}', b"[]"])
def test_a_leg_whose_set_is_damaged_holds_up_no_other(night: Night, data: bytes) -> None:
    made = night.built_and_staged(0)
    night.run.store.write(f"sets/{made.id}/set.json", data)
    assert [night.standing(number).state for number in (0, 1)] == ["unclear", "missing"]


def test_a_leg_of_which_there_are_two_sets_holds_up_no_other(night: Night) -> None:
    run = night.run
    night.build()
    first = night.stage()[0].set_id
    assert first is not None
    stage_a_second(night)
    stood = [night.standing(number) for number in (0, 1)]
    assert [one.state for one in stood] == ["unclear", "missing"]
    assert "has 2 sets for" in stood[0].reason
    legs, _ = promote.promote_night(run)
    assert [one.refused for one in legs] == [True, False]
    assert "has 2 sets for" in str(report.of_night(run)[0].reason)
    index = run.index(night.leg(), "staging")
    before = str(index.load().generation.number - 1)
    rollback(run.store, index.name, before)  # what the message says to do helps
    assert night.standing().set_id == first
    yank.yank(run.store, first, reason="it breaks")
    assert night.standing().state == "yanked"
