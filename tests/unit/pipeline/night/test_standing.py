"""What the store has decides whether a leg is ready, neither a job's result nor the matrix alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.pipeline.night import promote, report, stage, standing
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.standing import Standing
from cairn.release import records
from cairn.release.history import yank
from cairn.release.history.rollback import rollback
from cairn.release.index.snapshot import Change
from cairn.release.publish import wheel_set
from cairn.testing.record import Counts
from helpers.gate import data_of, record_of
from helpers.night import FROZEN, Build, leg_of, run_of, staged
from helpers.release import commit, make_set, make_wheel, statement_of


def look(run: NightRun, build: Build, tmp_path: Path, *said: dict[str, Any]) -> Standing:
    """Where the first leg stands once it is staged and has records like these."""
    leg = run.plan.legs[0]
    build(leg)
    set_id = stage.stage_night(run, tmp_path / "artifacts")[0].set_id
    assert set_id is not None
    for changes in said:
        records.add(run.store, data_of(record_of(staged(run, set_id), **changes)))
    return standing.look(run, leg)


ON_GPU = {"hardware": ("gfx942",)}


def test_a_staged_set_without_a_record_is_untested(run: NightRun, build: Build, tmp_path: Path) -> None:
    found = look(run, build, tmp_path)
    assert (found.state, found.reason) == ("untested", "there is no test record")


def test_one_that_has_passed_on_its_gpu_is_ready(run: NightRun, build: Build, tmp_path: Path) -> None:
    found = look(run, build, tmp_path, ON_GPU)
    assert (found.state, found.bypass) == ("ready", None)


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"verdict": "failed", "reason": "1 failed", **ON_GPU}, "failed"),
        ({"verdict": "invalid", "hardware": ("gfx1100",)}, "untested"),
        ({"verdict": "untested"}, "untested"),
        ({"hardware": ("gfx950",)}, "untested"),
        ({}, "untested"),
    ],
)
def test_anything_else_is_not(
    run: NightRun, build: Build, tmp_path: Path, said: dict[str, Any], state: str
) -> None:
    assert look(run, build, tmp_path, said).state == state


def test_the_matrix_vouches_for_hardware_that_no_runner_has(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", test_runs_on=(), bypass_tests=True), folder=tmp_path)
    found = look(run, build, tmp_path)
    assert found.state == "ready"
    assert found.bypass is not None
    assert found.bypass.reason == "no runner has its hardware"


def test_it_does_not_vouch_for_a_test_job_that_left_nothing(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", bypass_tests=True), folder=tmp_path)
    assert look(run, build, tmp_path).state == "untested"


def test_nor_for_tests_that_failed(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", bypass_tests=True), folder=tmp_path)
    failed = {"verdict": "failed", "reason": "1 failed", "counts": Counts(failed=1)}
    assert look(run, build, tmp_path, {}, failed).state == "failed"


def test_tests_on_a_host_are_enough_where_it_does(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", bypass_tests=True), folder=tmp_path)
    found = look(run, build, tmp_path, {})
    assert found.state == "ready"
    assert found.bypass is not None


def test_it_vouches_for_the_gpu_alone_that_an_untested_record_lacks(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", bypass_tests=True), folder=tmp_path)
    on_host = {"verdict": "untested", "reason": "none on a GPU", "counts": Counts(passed=5, skipped=2)}
    found = look(run, build, tmp_path, on_host)
    assert (found.state, found.bypass is not None) == ("ready", True)


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        (Counts(skipped=9), "untested"),
        (Counts(passed=5, failed=1), "failed"),  # what failed on the host stands until it is answered
        (Counts(passed=5, errors=1), "failed"),
    ],
)
def test_nothing_that_passed_on_the_host_is_nothing_to_vouch_for(
    build: Build, tmp_path: Path, counts: Counts, state: str
) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", bypass_tests=True), folder=tmp_path)
    assert look(run, build, tmp_path, {"verdict": "untested", "counts": counts}).state == state


def test_a_family_without_a_runner_goes_to_untested(build: Build, tmp_path: Path) -> None:
    leg = leg_of("gfx94X-dcgpu", test_runs_on=())
    run = run_of(leg, folder=tmp_path)
    assert look(run, build, tmp_path).state == "ready"
    (done,) = promote.promote_night(run).legs
    assert done.promoted
    assert done.reason.startswith("in untested/gfx94X-dcgpu; untested on hardware: gfx942")
    assert "no runner has its hardware" in done.reason
    assert run.index(leg, "release").load().set_ids == ()
    again = standing.look(run, leg)
    assert (again.state, again.is_tested) == ("promoted", False)


def test_without_a_runner_what_failed_goes_nowhere(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", test_runs_on=()), folder=tmp_path)
    failed = {"verdict": "failed", "reason": "1 failed", "counts": Counts(failed=1)}
    assert look(run, build, tmp_path, failed).state == "failed"
    assert [one.promoted for one in promote.promote_night(run).legs] == [False]
    assert run.index(run.plan.legs[0], "untested").load().set_ids == ()


def test_a_leg_that_the_matrix_holds_back_is_held(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", push_on_success=False), folder=tmp_path)
    assert look(run, build, tmp_path, ON_GPU).state == "held"


def test_tests_that_were_not_all_run_are_not_enough_for_the_matrix(build: Build, tmp_path: Path) -> None:
    run = run_of(leg_of("gfx94X-dcgpu", bypass_tests=True), folder=tmp_path)
    some = {"pytest_args": ("-k", "test_one")}
    other = {"hardware": ("gfx1100",), "reason": "on another machine"}
    assert look(run, build, tmp_path, some, other).state == "untested"


def test_what_nobody_tested_goes_to_its_own_channel_where_the_last_was_tested(
    build: Build, tmp_path: Path
) -> None:
    """As with gfx1151, whose users got four nights of segfaults from a bypass: ROCm/TheRock#5763."""
    leg = leg_of("gfx94X-dcgpu", test_runs_on=(), bypass_tests=True)
    run = run_of(leg, folder=tmp_path)
    made = build(leg)
    tested = msgspec.structs.replace(
        wheel_set.index_set(msgspec.structs.replace(made, set_id="a" * 64)),
        manifest_sha256="d" * 64,  # of the night before
        records=("b" * 64,),
        judgement="c" * 64,
    )
    commit(run.index(leg, "release"), "promote", lambda _now: Change(sets={tested.set_id: tested}))
    stage.stage_night(run, tmp_path / "artifacts")
    (done,) = promote.promote_night(run).legs
    assert done.promoted
    assert done.reason.startswith(
        "in untested/gfx94X-dcgpu, since release/gfx94X-dcgpu has a set that was tested; untested on hardware"
    )
    assert run.index(leg, "release").load().set_ids == (tested.set_id,)
    (there,) = run.index(leg, "untested").load().sets()
    assert there.untested_targets == ("gfx942",)
    again = standing.look(run, leg)
    assert again.state == "promoted"
    assert str(again.caveat).startswith("in untested/gfx94X-dcgpu: ")


def test_a_weak_policy_is_said_by_the_night_and_by_the_pages(build: Build, tmp_path: Path) -> None:
    leg = leg_of("gfx94X-dcgpu", test_runs_on=(), bypass_tests=True)
    run = run_of(leg, folder=tmp_path)
    run = dataclasses.replace(
        run,
        stack=msgspec.structs.replace(run.stack, gate=msgspec.structs.replace(run.stack.gate, records={})),
    )
    build(leg)
    stage.stage_night(run, tmp_path / "artifacts")
    (done,) = promote.promote_night(run).legs
    weak = f"the stack {run.stack.name} demands no test record"
    assert f"weak policy: {weak}" in done.reason
    (there,) = run.index(leg, "release").load().sets()
    assert there.weakened == (weak,)
    assert f"weak policy: {weak}" in str(standing.look(run, leg).caveat)
    for name in ("index.html", "status.html"):
        page = run.store.read(f"release/gfx94X-dcgpu/{name}").data.decode()
        assert "weak policy" in page
        assert weak in page


def stage_twice(run: NightRun, build: Build, tmp_path: Path) -> tuple[str, str]:
    """Two sets of one leg, as two runs leave them that stage at once what the same manifest gave."""
    leg = run.plan.legs[0]
    made = build(leg)
    first = stage.stage_night(run, tmp_path / "artifacts")[0].set_id
    index = run.index(leg, "staging")
    extra = [make_wheel(tmp_path / "extra", "vision", "0.24.0")]
    folder = tmp_path / "artifacts" / stage.artifact_name(leg, 1)
    other = make_set([folder / made.wheels[0].file_name, *extra], family=made.family, targets=made.targets)
    other = msgspec.structs.replace(other, manifest_sha256=made.manifest_sha256)
    wheels = [folder / made.wheels[0].file_name, *extra]
    frozen = FROZEN.canonical()
    statement = statement_of(other, wheels, frozen)
    second = wheel_set.stage_set(run.store, index.name, other, wheels, manifest=frozen, statement=statement)
    assert first is not None
    return first, second.id


def test_a_leg_of_which_there_are_two_sets_holds_up_no_other(
    run: NightRun, build: Build, tmp_path: Path
) -> None:
    first, _ = stage_twice(run, build, tmp_path)
    stood = [standing.look(run, leg) for leg in run.plan.legs]
    assert [one.state for one in stood] == ["unclear", "missing"]
    assert "has 2 sets for" in stood[0].reason
    done = promote.promote_night(run)
    assert [one.refused for one in done.legs] == [True, False]
    assert "has 2 sets for" in str(report.of_night(run)[0].reason)
    index = run.index(run.plan.legs[0], "staging")
    before = str(index.load().generation.number - 1)
    rollback(run.store, index.name, before)  # what the message says to do helps
    assert standing.look(run, run.plan.legs[0]).set_id == first
    yank.yank(run.store, first, reason="it breaks")
    assert standing.look(run, run.plan.legs[0]).state == "yanked"
