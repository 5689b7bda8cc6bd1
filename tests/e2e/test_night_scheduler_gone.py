"""What a driver makes of a scheduler that was gone, and of what a step says of those behind it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cairn import interpreters
from cairn import stack as stacks
from cairn.output import Progress
from cairn.pipeline.night import driver, plan
from cairn.pipeline.night.driver import DriveRequest, ExecutorGoneError, Here
from cairn.pipeline.night.placing import Demand
from cairn.pipeline.night.step_run import StepEnd, StepJob
from cairn.pipeline.night.steps import Settings
from cairn.pipeline.pipeline_options import FreezeOptions
from cairn.stack import recipe
from cairn.store.folder import LocalStore
from helpers import tiny_stack
from helpers.night import FROZEN, leg_of, plan_of

pytestmark = pytest.mark.slow


class GoneOnce(Here):
    """An executor whose scheduler is gone as its first step ends, and that comes back; it builds nothing."""

    def __init__(self) -> None:
        super().__init__(1)
        self.jobs: list[StepJob] = []

    def renew(self) -> bool:
        return True

    def carry_out(self, job: StepJob, _demand: Demand, *, urgency: float, say: Progress) -> StepEnd:  # noqa: ARG002
        self.jobs.append(job)
        if len(self.jobs) == 1:
            raise ExecutorGoneError
        return StepEnd(code=0, outputs={"test": "{", "suite": "[]"})  # as foreign code may write them


def test_each_round_is_a_run_of_its_own(tmp_path: Path) -> None:
    folder, store = tiny_stack.write(tmp_path / "stack"), LocalStore(tmp_path / "store")
    here, stack = interpreters.current(), stacks.load(folder).for_line(None)
    leg = leg_of("cpu", line=stack.line, python=here.version, platform=here.platform)
    manifest = msgspec.structs.replace(
        FROZEN, stack=stack.name, line=stack.line, recipe=recipe.digest_of(stack)
    )
    night = msgspec.structs.replace(plan_of(leg), stack=stack.name, manifest_sha256=manifest.digest())
    plan.create(store, night, manifest)
    executor = GoneOnce()
    request = DriveRequest(
        night=night.night,
        stack=stack,
        store=store,
        legs=(leg,),
        freeze_options=FreezeOptions(release="release", work_dir=tmp_path / "work"),
        settings=Settings(stack=folder, store=str(store.path), work_dir=tmp_path / "work", cores=1),
    )
    assert driver.drive(request, executor)[0] != 0
    first, second = (dict(job.variables) for job in executor.jobs)
    assert first["GITHUB_RUN_ID"] != second["GITHUB_RUN_ID"]
