"""What is refused before a single test runs."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import PrerequisiteError, TestsFailedError, UsageError
from cairn.testing.suite import run
from helpers.hardware import kernel_nodes
from helpers.suites import request_of, suite_of


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"pytest_args": ("-n4",)}, "-n4 would run tests in processes that are not watched"),
        ({"pytest_args": ("--dist", "load")}, "--dist would run"),
        ({"shard": 3, "shards": 2}, "there is no shard 3 of 2"),
        ({"config": "defualt"}, "no configuration 'defualt'"),
        ({"suite": suite_of(tests="none")}, "has no folder none"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    request = request_of(tmp_path, {"test_a.py": ""}, **more)
    with pytest.raises(UsageError, match=said):
        run.run_suite(request)
    assert not request.work_dir.exists()


def test_a_machine_with_other_gpus_is_invalid_at_once(tmp_path: Path) -> None:
    request = request_of(tmp_path, {"test_a.py": ""}, nodes=kernel_nodes(tmp_path, 110000))
    tested = dataclasses.replace(request.tested, targets=("gfx942",))
    with pytest.raises(TestsFailedError, match=r"invalid: this machine has gfx1100, of which .* gfx942"):
        run.run_suite(dataclasses.replace(request, tested=tested))


def test_an_interpreter_without_the_wheel_is_named(tmp_path: Path) -> None:
    suite = suite_of(project="torch", version_module="no_torch_here/version.py")
    request = request_of(tmp_path, {"test_a.py": ""}, suite=suite)
    with pytest.raises(PrerequisiteError, match="has no torch to test: no_torch_here is not installed"):
        run.run_suite(request)
