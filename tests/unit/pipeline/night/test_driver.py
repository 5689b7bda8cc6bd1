"""A step of a night is ✓ by what the store has of it, not by its exit code."""

from __future__ import annotations

from pathlib import Path

from cairn.pipeline.night.driver import DriveRequest, Here, _Drive
from cairn.pipeline.night.steps import Settings
from cairn.pipeline.pipeline_options import FreezeOptions
from helpers.night import Night
from helpers.release import move


def test_a_step_that_made_nothing_is_not_good(night: Night, tmp_path: Path) -> None:
    run = night.run
    request = DriveRequest(
        night=run.plan.night,
        stack=run.stack,
        store=run.store,
        legs=run.plan.legs,
        freeze_options=FreezeOptions(release="release", work_dir=tmp_path),
        report_arguments=(),
        settings=Settings(stack=tmp_path, store="store", work_dir=tmp_path, cores=1),
    )
    drive = _Drive(request, Here(1), (), {})
    first, second = run.plan.legs
    assert drive._made(f"build {first.build_id}") == ("done", "")
    assert drive._made(f"stage {first.build_id}") == ("failed", f"{first.name}: no set of it was staged")
    made = night.built_and_staged()
    mark, text = drive._made(f"stage {first.build_id}")
    assert (mark, text.partition(", generation")[0]) == (
        "done",
        f"set {made.id[:12]} in staging/gfx94X-dcgpu",
    )
    assert drive._made(f"stage {second.build_id}")[0] == "failed"
    test = f"test {first.id}"
    assert drive._made(test) == ("failed", "it left no record")
    night.record(made, verdict="failed", reason="1 of 9 tests failed")
    before = drive._results(test)
    assert drive._made(test) == ("done", f"record {next(iter(before))[:12]}: failed")
    assert drive._made(test, before) == ("failed", "it left no record"), "that of an earlier attempt"
    mark, text = drive._made(f"promote {first.id}")
    assert mark == "skipped"
    assert "1 of 9 tests failed" in text
    move(run.store, made, origin="staging/gfx94X-dcgpu", target="release/gfx94X-dcgpu")
    assert drive._made(f"promote {first.id}")[1].startswith(f"set {made.id[:12]} in release/gfx94X-dcgpu, ")
