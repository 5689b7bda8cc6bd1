"""Plugins of pytest that are installed and not loaded: a test that needs one has not passed."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from cairn.errors import PrerequisiteError, UsageError
from cairn.testing.suite import merge, run
from helpers.suites import by_test, request_of, run_and_judge, suite_of

CHECKS = """
from pytest_check import check

def test_check():
    check.equal(1, 2)
"""
TIMEOUT = """
import time
import pytest

@pytest.mark.timeout(0.5)
def test_timeout():
    time.sleep(1)
"""
MARKED = "import pytest\n\n@pytest.mark.slow\ndef test_slow():\n    pass\n"


def test_tests_that_use_a_plugin_that_is_off_have_not_passed(tmp_path: Path, python: Path) -> None:
    tests = {"test_check.py": CHECKS + MARKED, "test_timeout.py": TIMEOUT}
    remarks: list[str] = []
    request = request_of(tmp_path, tests, python=python)
    merged = merge.merge([run.run_suite(request, say=remarks.append)], request.work_dir)
    assert any("check" in remark and "are installed and off" in remark for remark in remarks)
    assert merged.judgement.verdict == "failed"
    assert merged.problems == tuple(
        f"test_{name}.py: its tests use pytest's plugin {name}, which `plugins` of suite.toml lacks"
        for name in ("check", "timeout")
    )
    names = ("check", "timeout")
    loaded = run_and_judge(dataclasses.replace(request, suite=suite_of(plugins=names)))
    assert (loaded.judgement.verdict, loaded.problems) == ("failed", ())
    assert {test for test, outcome in by_test(loaded).items() if outcome.failed} == {
        "test_check",
        "test_timeout",
    }
    refused = run_and_judge(dataclasses.replace(request, suite=suite_of(plugins_off=names)))
    assert refused.judgement.verdict == "passed"


def test_a_plugin_that_a_requirement_brought_is_decided(tmp_path: Path, python: Path) -> None:
    folder = tmp_path / "tools" / "bringer-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: bringer\nVersion: 1.0\nRequires-Dist: Pytest_Timeout\n")
    tests = {"test_it.py": "def test_it():\n    pass\n"}
    request = request_of(tmp_path, tests, python=python, suite=suite_of(requires=("pytest", "bringer")))
    request = dataclasses.replace(request, tested=structs.replace(request.tested, tools=(folder.parent,)))
    with pytest.raises(UsageError, match=r"brought pytest's plugin timeout of pytest-timeout") as error:
        run.run_suite(request)
    assert '`plugins = ["timeout"]`' in str(error.value.tip)
    for number, choice in enumerate(({"plugins": ("timeout",)}, {"plugins_off": ("timeout",)})):
        suite = suite_of(requires=("pytest", "bringer"), **choice)
        work_dir = tmp_path / str(number)
        merged = run_and_judge(dataclasses.replace(request, suite=suite, work_dir=work_dir))
        assert merged.judgement.verdict == "passed"
        assert any("timeout" in name for name in merged.results[0].pytest) == ("plugins" in choice)


def test_a_plugin_that_is_not_installed_is_named_before_any_test(tmp_path: Path, python: Path) -> None:
    suite = suite_of(plugins=("nothing_like_this",))
    with pytest.raises(PrerequisiteError, match="plugin nothing_like_this"):
        run.run_suite(request_of(tmp_path, {"test_it.py": MARKED}, python=python, suite=suite))
