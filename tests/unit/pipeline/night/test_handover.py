"""What a job with credentials brings to one without, and what it takes from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cairn.errors import UsageError
from cairn.pipeline.night import handover, smoke
from cairn.pipeline.night.plan import NightRun
from cairn.release import records
from cairn.release.index import keys
from cairn.release.index.snapshot import read_set
from cairn.stack import Sdk
from cairn.store.folder import LocalStore
from cairn.testing import record
from helpers.gate import record_of
from helpers.night import Night, staged


@pytest.fixture
def set_id(night: Night, run: NightRun) -> str:
    night.built_and_staged()
    return smoke.staged_set(run, run.plan.legs[0])


def test_the_staged_set_and_its_files_are_fetched(run: NightRun, set_id: str, tmp_path: Path) -> None:
    leg, without_gpus = run.plan.legs[0], msgspec.structs.replace(run.stack, sdk=Sdk(devices=False))
    handover.fetch(replace(run, stack=without_gpus), tmp_path / "fetched", leg)
    apart = replace(run, store=LocalStore(tmp_path / "fetched"))
    assert smoke.staged_set(apart, leg) == set_id
    there = {found.key for found in apart.store.list("")}
    assert {found.key for found in run.store.list("files/")} & there == {
        found.key
        for file in read_set(run.store, set_id).files
        for found in run.store.list(keys.file_key(file.sha256, file.file_name))
    }
    assert f"sets/{set_id}/simple/torch/index.html" in there
    assert not any(key.startswith(("ledger/", "release/")) for key in there)


def test_no_files_are_fetched_for_a_machine_that_cannot_test_them(
    run: NightRun, set_id: str, tmp_path: Path
) -> None:
    reaching = replace(run, stack=msgspec.structs.replace(run.stack, sdk=Sdk()))
    handover.fetch(reaching, tmp_path / "fetched", run.plan.legs[0])
    there = LocalStore(tmp_path / "fetched")
    assert there.exists(f"sets/{set_id}/set.json")
    assert not list(there.list("files/"))


def test_a_record_of_the_staged_set_is_kept_and_of_another_is_refused(
    run: NightRun, set_id: str, tmp_path: Path
) -> None:
    leg, good = run.plan.legs[0], record_of(staged(run, set_id))
    assert not handover.keep_tests(run, leg, tmp_path, None)
    record.write(tmp_path / record.FILE, msgspec.structs.replace(good, set_id="5e" * 32))
    with pytest.raises(UsageError, match="is of the set 5e5e"):
        handover.keep_tests(run, leg, tmp_path, None)
    record.write(tmp_path / record.FILE, good)
    assert handover.keep_tests(run, leg, tmp_path, None)
    assert [kept.record for kept in records.read(run.store, set_id).records] == [good]
