"""Plugins of pytest that are installed and not loaded: a test that needs one has not passed."""

import dataclasses
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("name", "text"),
    [pytest.param("check", CHECKS, id="import"), pytest.param("timeout", TIMEOUT, id="mark")],
)
def test_tests_that_use_a_plugin_that_is_off_have_not_passed(
    tmp_path: Path, python: Path, name: str, text: str
) -> None:
    tests = {"test_it.py": text + MARKED}
    remarks: list[str] = []
    request = request_of(tmp_path / "off", tests, python=python)
    merged = merge.merge([run.run_suite(request, say=remarks.append)], request.work_dir)
    assert any("are installed and off" in remark and name in remark for remark in remarks)
    assert merged.judgement.verdict == "failed"
    assert merged.problems == (
        f"test_it.py: its tests use pytest's plugin {name}, which `plugins` of suite.toml lacks",
    )
    loaded = run_and_judge(request_of(tmp_path / "on", tests, python=python, suite=suite_of(plugins=(name,))))
    assert (loaded.judgement.verdict, loaded.problems) == ("failed", ())
    assert by_test(loaded)[f"test_{name}"].failed
    suite = suite_of(plugins_off=(name,))
    refused = run_and_judge(request_of(tmp_path / "refused", tests, python=python, suite=suite))
    assert refused.judgement.verdict == "passed"


def test_a_plugin_that_a_requirement_brought_is_decided(tmp_path: Path, python: Path) -> None:
    folder = tmp_path / "tools" / "bringer-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: bringer\nVersion: 1.0\nRequires-Dist: Pytest_Timeout\n")
    tests = {"test_it.py": "def test_it():\n    pass\n"}
    request = request_of(tmp_path, tests, python=python, suite=suite_of(requires=("pytest", "bringer")))
    request = dataclasses.replace(request, tested=dataclasses.replace(request.tested, tools=(folder.parent,)))
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
