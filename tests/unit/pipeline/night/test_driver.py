"""A step of a night is ✓ by what the store has of it, not by its exit code."""

from __future__ import annotations

from pathlib import Path

from cairn import datafile
from cairn.pipeline.night import driver, handover, plan
from cairn.pipeline.night.driver import DriveRequest, Here, _Drive
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.stage import NOTE_FILE
from cairn.pipeline.night.steps import Settings
from cairn.pipeline.pipeline_options import FreezeOptions
from cairn.release.index.generation import now
from helpers.night import Night
from helpers.release import move
from helpers.trust import BUILDER, rooted


def request_of(run: NightRun, folder: Path) -> DriveRequest:
    return DriveRequest(
        night=run.plan.night,
        stack=run.stack,
        store=run.store,
        legs=run.plan.legs,
        freeze_options=FreezeOptions(release="release", work_dir=folder),
        settings=Settings(stack=folder, store="store", work_dir=folder, cores=1),
    )


def test_in_a_store_with_a_root_a_build_that_no_builder_signed_is_made(night: Night, tmp_path: Path) -> None:
    run = night.run
    first, second = run.plan.builds
    for build, is_signed in ((first, False), (second, True)):
        folder = tmp_path / build.id
        note = plan.step_note(run, build, "build", now(), good=True, reason="done")
        datafile.write(folder / NOTE_FILE, note)
        assert handover.keep_built(run, build.id, folder, BUILDER if is_signed else None)
    rooted(run.store)
    due = [one.step.name for one in driver._due(request_of(run, tmp_path), run.plan)]
    assert f"build {first.id}" in due, "whoever may write could keep a leg from being built"
    assert f"build {second.id}" not in due


def test_a_step_that_made_nothing_is_not_good(night: Night, tmp_path: Path) -> None:
    run = night.run
    request = request_of(run, tmp_path)
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
