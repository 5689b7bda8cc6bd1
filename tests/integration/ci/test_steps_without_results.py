"""A step of a night that made nothing prints no ✓: no wheels, no staged set, no test record."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn import stack as stacks
from cairn.output import Progress
from cairn.pipeline.night import driver, handover, plan, stage
from cairn.pipeline.night.driver import DriveRequest, Here
from cairn.pipeline.night.placing import Demand
from cairn.pipeline.night.plan import NightRun
from cairn.pipeline.night.stage import NOTE_FILE
from cairn.pipeline.night.step_run import StepEnd, StepJob
from cairn.pipeline.night.steps import Settings
from cairn.pipeline.pipeline_options import FreezeOptions
from cairn.release import recipes
from cairn.release.index.generation import now
from cairn.stack import recipe
from cairn.store.folder import LocalStore
from helpers import night as nights
from helpers.night import Night, leg_of

# Not a shipped stack: nothing of it is built.
STACK = """schema = "cairn.stack/1"
name = "sample"
line = "main"
targets = ["gfx942"]

[[projects]]
name = "torch"
distribution = "torch"
checkout_dir = "torch"
hashtag = "main"
origin = { url = "https://example.invalid/torch" }
"""
LEG = leg_of("gfx94X-dcgpu")


class Elsewhere(Here):
    """A machine that ends each step with one exit code, and leaves nothing."""

    def __init__(self, code: int) -> None:
        super().__init__(1)
        self.code = code

    def carry_out(self, job: StepJob, _demand: Demand, *, urgency: float, say: Progress) -> StepEnd:  # noqa: ARG002
        return StepEnd(code=self.code, log=f"elsewhere:{job.name}.log")


def nothing(_night: Night, _run: NightRun) -> None:
    pass


def refused(night: Night, run: NightRun) -> None:
    """A build left a set for other targets than its leg's."""
    night.build(0, targets=("gfx1100",))
    note = plan.step_note(run, run.plan.builds[0], "build", now(), good=True, reason="done")
    datafile.write(night.artifact() / NOTE_FILE, note)
    assert handover.keep_built(run, LEG.build_id, night.artifact())


def staged(night: Night, run: NightRun) -> None:
    night.build()
    (leg,) = stage.stage_night(run, night.artifacts)
    assert leg.set_id, leg.reason


@pytest.mark.parametrize(
    ("before", "code", "failed"),
    [
        pytest.param(nothing, 6, ("build", "stage"), id="its build failed"),
        pytest.param(nothing, -9, ("build", "stage"), id="its build was killed"),
        pytest.param(refused, 0, ("stage",), id="its set was refused"),
        pytest.param(staged, 0, ("test",), id="its tests left no record"),
        pytest.param(staged, -9, ("test",), id="its tests were killed"),
    ],
)
def test_no_step_is_good_that_made_nothing(
    before: Callable[[Night, NightRun], None],
    code: int,
    failed: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample/stack.toml").write_text(STACK)
    stack = stacks.load(tmp_path / "sample").for_line("main")
    frozen = msgspec.structs.replace(nights.FROZEN, recipe=recipe.digest_of(stack))
    monkeypatch.setattr(nights, "FROZEN", frozen)
    night, store = (
        Night(nights.run_of(LEG, folder=tmp_path), tmp_path / "artifacts"),
        LocalStore(tmp_path / "s"),
    )
    plan.create(store, night.run.plan, frozen)
    recipes.put(store, stack)
    run = NightRun(store=store, plan=night.run.plan, stack=stack)
    before(night, run)
    request = DriveRequest(
        night=run.plan.night,
        stack=stack,
        store=store,
        legs=run.plan.legs,
        freeze_options=FreezeOptions(release="release", work_dir=tmp_path),
        settings=Settings(
            stack=tmp_path / "sample", store=str(tmp_path / "s"), work_dir=tmp_path / "w", cores=1
        ),
    )
    drive = driver._Drive(request, Elsewhere(code), driver._due(request, run.plan), {})
    drive.carry_out()
    shown = capsys.readouterr().err
    found = re.findall(r"^ *\[\d/\d\] ([✓✗=-]) (build|stage|test|promote) main", shown, re.MULTILINE)
    ends = {step: mark for mark, step in found}
    assert {step for step, mark in ends.items() if mark == "✗"} == set(failed), shown
    assert ends["promote"] == "-", shown
    assert shown.count("✓") == ("✓" in ends.values()) == (before is staged), shown
