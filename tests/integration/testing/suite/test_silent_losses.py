"""Tests that do not run, folders that go, and failures that are called passes: each is named."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from cairn.testing import record
from cairn.testing.report import results
from cairn.testing.suite.run import SuiteRequest
from helpers.suites import WHEEL, by_test, request_of, run_and_judge, suite_of

WITH_INIT = """
import unittest

class TestLost:
    def __init__(self):
        pass

    def test_a(self):
        pass

    def test_b(self):
        pass

class TestNew:
    def __new__(cls):
        return object.__new__(cls)

    def test_c(self):
        pass

class TestHelper:  # nothing of it is lost
    def __init__(self, value):
        self.value = value

class TestNone:
    __test__ = False

    def __init__(self):
        pass

    def test_d(self):
        pass

class TestUnit(unittest.TestCase):
    def __init__(self, *names):
        super().__init__(*names)

    def test_e(self):
        pass

class TestGood:
    def test_f(self):
        pass
"""


@pytest.mark.every_pytest
def test_tests_of_a_class_that_pytest_cannot_make_are_missed(tmp_path: Path, python: Path) -> None:
    quiet = ("-W", "ignore")  # pytest's own warning is no evidence
    merged = run_and_judge(request_of(tmp_path, {"test_it.py": WITH_INIT}, python=python, pytest_args=quiet))
    assert by_test(merged).keys() == {"test_e", "test_f"}
    assert merged.judgement.verdict == "failed"
    assert "2 by test_it.py::TestLost (it has an __init__" in merged.judgement.reason
    assert "1 by test_it.py::TestNew (it has an __init__" in merged.judgement.reason
    assert "TestHelper" not in merged.judgement.reason
    assert "TestNone" not in merged.judgement.reason


def test_classes_that_a_suite_lists_may_lose_their_tests(tmp_path: Path, python: Path) -> None:
    suite = suite_of(uncollected=("test_it.py::TestLost", "test_it.py::TestNew"))
    merged = run_and_judge(request_of(tmp_path, {"test_it.py": WITH_INIT}, python=python, suite=suite))
    assert merged.judgement.verdict == "passed"
    assert "left out: 2 by test_it.py::TestLost (" in merged.judgement.reason


FLIP = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call" and report.failed:
        report.outcome, report.longrepr = "passed", None
"""
SKIPS = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        report.outcome, report.longrepr = "skipped", ("f", 1, "Skipped: not here")
"""
LATER = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    if report.failed:
        report.outcome, report.longrepr = "passed", None
"""
RAISING = """
import unittest
import pytest

def test_bad():
    assert 0

class TestUnit(unittest.TestCase):
    def test_unit(self):
        raise ValueError("no")

    @unittest.expectedFailure
    def test_expected(self):
        assert 0

    def test_skip(self):
        raise unittest.SkipTest("why not")

@pytest.mark.xfail
def test_xfail():
    assert 0

def test_good():
    pytest.raises(ValueError, int, "x")
"""


def flipped(tmp_path: Path, python: Path, conftest: str, *, hook: str = "makereport") -> SuiteRequest:
    """A request to run these tests, where the suite accepts the hook of their conftest.py."""
    tests = {"conftest.py": conftest, "test_it.py": RAISING}
    suite = suite_of(hooks=(f"conftest.py: pytest_runtest_{hook}",))
    return request_of(tmp_path, tests, python=python, suite=suite)


@pytest.mark.every_pytest
def test_failures_that_a_conftest_calls_passes_are_named(tmp_path: Path, python: Path) -> None:
    request = flipped(tmp_path, python, FLIP)
    request = dataclasses.replace(request, tested=structs.replace(request.tested, wheels=(WHEEL,)))
    merged = run_and_judge(request)
    names = ("test_it.py::test_bad", "test_it.py::TestUnit::test_unit")
    assert tuple(outcome.test for outcome in merged.outcomes if outcome.overruled) == names
    assert by_test(merged)["test_unit"].reason == "it raised ValueError: no, and was called passed"
    assert "2 raised and were called passed: test_it::test_bad" in merged.judgement.reason
    assert record.read(request.work_dir / record.FILE).overruled == names
    (bad, unit) = (text for text in results.read(request.work_dir).remarks if "called passed" in text)
    assert bad.startswith("test_it.py::test_bad: it raised")
    assert unit.startswith("test_it.py::TestUnit::test_unit: it raised ValueError: no")


def test_failures_that_a_conftest_calls_skipped_are_named(tmp_path: Path, python: Path) -> None:
    merged = run_and_judge(flipped(tmp_path, python, SKIPS))
    names = [outcome.test for outcome in merged.outcomes if outcome.overruled]
    assert names == ["test_it.py::test_bad", "test_it.py::TestUnit::test_unit"]
    assert by_test(merged)["test_bad"].reason == "it raised AssertionError: assert 0, and was called skipped"
    assert "2 raised and were called skipped: test_it::test_bad" in merged.judgement.reason


def test_failures_that_are_called_passes_behind_the_count_of_pytest_fail(
    tmp_path: Path, python: Path
) -> None:
    merged = run_and_judge(flipped(tmp_path, python, LATER, hook="logreport"))
    assert [outcome.overruled for outcome in merged.outcomes].count(True) == 2
    assert merged.judgement.reason.endswith("pytest ended with exit code 1, and 0 of its tests failed")


@pytest.mark.parametrize("up", [0, 1])
def test_a_test_that_removes_the_folder_of_the_run_is_blamed(tmp_path: Path, python: Path, up: int) -> None:
    removes = f"""
import pathlib, shutil

def test_removes():
    shutil.rmtree((pathlib.Path.cwd() / "x").parents[{up}])

def test_more():
    pass
"""
    tests = {
        "test_a.py": "def test_a():\n    pass\n",
        "test_b.py": removes,
        "test_c.py": "def test_c(): pass\n",
    }
    request = request_of(tmp_path, tests, python=python)
    merged = run_and_judge(request)
    assert by_test(merged)["test_a"].outcome == "passed"
    assert merged.judgement.verdict in ("failed", "invalid")
    folder = request.work_dir / "tests" / "test"
    assert f"test_c.py did not run: a test of test_b.py or before removed {folder}" in merged.problems
    assert str(folder) in merged.judgement.reason


def test_a_test_that_changes_what_runs_later_is_a_problem(tmp_path: Path, python: Path) -> None:
    changes = """
import pathlib

def test_changes():
    folder = pathlib.Path(__file__).parent
    (folder / "test_b.py").write_text("def test_b(): pass")
    (folder / "conftest.py").write_text("def pytest_pyfunc_call(pyfuncitem): return True")
    plugin = folder / "../../plugins/worker.py"
    plugin.write_text(plugin.read_text() + "# changed")
"""
    tests = {"test_a.py": changes, "test_b.py": "def test_b(): assert 0\n"}
    merged = run_and_judge(request_of(tmp_path, tests, python=python))
    assert [outcome.outcome for outcome in merged.outcomes] == ["passed", "passed"]
    problem = "a test changed conftest.py, test_b.py, worker.py: the tests that ran are unknown"
    assert problem in merged.problems
    assert merged.judgement.verdict == "failed"


def test_a_test_may_write_what_decides_nothing(tmp_path: Path, python: Path) -> None:
    writes = "import pathlib\n\ndef test_it():\n    pathlib.Path('result.py').write_text('1')\n"
    merged = run_and_judge(request_of(tmp_path, {"test_a.py": writes}, python=python))
    assert (merged.judgement.verdict, merged.problems) == ("passed", ())
