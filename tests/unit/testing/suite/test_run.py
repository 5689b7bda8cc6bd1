"""What is refused before a single test runs."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cairn import venv
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
    tested = structs.replace(request.tested, targets=("gfx942",))
    with pytest.raises(TestsFailedError, match=r"invalid: this machine has gfx1100, of which .* gfx942"):
        run.run_suite(dataclasses.replace(request, tested=tested))


def test_an_interpreter_without_the_wheel_is_named(tmp_path: Path) -> None:
    suite = suite_of(project="torch", version_module="no_torch_here/version.py")
    request = request_of(tmp_path, {"test_a.py": ""}, suite=suite)
    with pytest.raises(PrerequisiteError, match="has no torch to test: no_torch_here is not installed"):
        run.run_suite(request)


@pytest.mark.parametrize("with_pip", [True, False])
def test_an_interpreter_without_pytest_is_named_with_the_line_that_installs_it(
    tmp_path: Path, *, with_pip: bool
) -> None:
    environment = venv.create(tmp_path / "env")
    python, packages = environment.python, environment.sites[0]
    for name in ("tiny", *(["pip"] if with_pip else [])):
        (packages / name).mkdir()
    (packages / "tiny" / "version.py").write_text("__version__ = '1.0'", encoding="utf-8")
    suite = suite_of(project="tiny", version_module="tiny/version.py")
    request = request_of(tmp_path, {"test_a.py": ""}, suite=suite, python=python)
    with pytest.raises(PrerequisiteError, match=r"lacks what the tests of tiny 1.0 need: pytest") as error:
        run.run_suite(request)
    pip = f"{python} -m pip install" if with_pip else f"uv pip install --python {python}"
    assert error.value.line == f"{pip} pytest"
