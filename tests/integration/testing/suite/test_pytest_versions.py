"""Suites under each pytest that the shipped suite.toml allows, with the plugins of others as they are."""

import importlib.metadata
import subprocess
from pathlib import Path

import pytest

from cairn.errors import PrerequisiteError
from cairn.testing import junit
from cairn.testing.report import results
from cairn.testing.suite.merge import Merged
from cairn.testing.testing_options import Floors
from helpers import pytests
from helpers.suites import by_test, request_of, run_and_judge, suite_of

pytestmark = pytest.mark.every_pytest
TESTS = """
import time, unittest
import pytest
from flaky import flaky
from pytest_check import check

CALLS = []

def test_good():
    pass

@flaky(max_runs=3)
def test_flaky():
    CALLS.append(1)
    assert len(CALLS) > 2

@flaky(max_runs=2)
def test_flaky_and_bad():
    assert 0

def test_check():
    check.equal(1, 2)
    check.equal(1, 1)

@pytest.mark.timeout(0.5)
def test_timeout():
    time.sleep(60)

@pytest.mark.timeout(0.5, method="thread")
def test_timeout_by_a_thread():
    time.sleep(60)

class TestUnit(unittest.TestCase):
    def test_unit(self):
        for n in range(3):
            with self.subTest(n=n):
                assert n != 1

def test_subtests(subtests):
    for n in range(4):
        with subtests.test(n=n):
            assert n not in (1, 2)

def test_subtest_skipped(subtests):
    for n in range(2):
        with subtests.test(n=n):
            n or pytest.skip("not 0")
"""
RERUNS = """
import pytest

CALLS = []

def test_good():
    pass

def test_subtests(subtests):
    for n in range(3):
        with subtests.test(n=n):
            pass

@pytest.mark.flaky(reruns=2)
def test_flaky():
    CALLS.append(1)
    assert len(CALLS) > 2

@pytest.mark.flaky(reruns=1)
def test_flaky_and_bad():
    assert 0

@pytest.mark.flaky(reruns=1)
def test_skipped_again():
    CALLS.append("skipped")
    if CALLS.count("skipped") > 1:
        pytest.skip("not now")
    assert 0
"""

SKIPPED_AGAIN = "it failed, and was skipped when it was run again"
BY_FLAKY = """
from flaky import flaky

CALLS = []

def test_good():
    pass

def test_subtests(subtests):
    for n in range(3):
        with subtests.test(n=n):
            pass

@flaky(max_runs=3)
def test_flaky():
    CALLS.append(1)
    assert len(CALLS) > 2
"""


def judged(tmp_path: Path, python: Path, text: str, *, without: str) -> Merged:
    """Run a module with all of the plugins but one."""
    plugins = [name for name in pytests.PLUGINS if name != without]
    suite = suite_of(requires=("pytest>=8", *plugins))
    return run_and_judge(request_of(tmp_path, {"test_it.py": text}, python=python, suite=suite))


def test_plugins_that_fail_tests_and_try_them_again(tmp_path: Path, python: Path) -> None:
    merged = judged(tmp_path, python, TESTS, without="pytest-rerunfailures")
    assert merged.problems == ()
    found = by_test(merged)
    assert {name: (one.outcome, one.attempts, one.flaky) for name, one in found.items()} == {
        "test_good": ("passed", 1, False),
        "test_flaky": ("passed", 3, True),
        "test_flaky_and_bad": ("failed", 2, False),
        "test_check": ("failed", 1, False),
        "test_timeout": ("failed", 1, False),
        "test_timeout_by_a_thread": ("error", 1, False),
        "test_unit": ("failed", 1, False),
        "test_subtests": ("failed", 1, False),
        "test_subtest_skipped": ("skipped", 1, False),  # as pytest's own results have it
    }
    assert "Timeout" in found["test_timeout"].reason
    assert found["test_timeout_by_a_thread"].reason == "it ended its process: exit code 1"
    assert merged.judgement.reason.startswith("6 of 8 tests failed")
    # pytest 9 has subtests of its own, and does not load the plugin.
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    installed = {one.name: one.version for one in importlib.metadata.distributions(path=[str(site)])}
    loaded = ["pytest", *(name for name in pytests.PLUGINS if name != "pytest-rerunfailures")]
    if installed["pytest"] >= "9":
        loaded.remove("pytest-subtests")
    assert merged.results[0].pytest == tuple(f"{name} {installed[name]}" for name in loaded)


def test_a_test_that_pytest_rerunfailures_runs_until_it_passes_is_flaky(tmp_path: Path, python: Path) -> None:
    # Both plugins have a mark called `flaky`, and neither takes the other's arguments.
    merged = judged(tmp_path, python, RERUNS, without="flaky")
    assert merged.problems == ()
    found = by_test(merged)
    assert {name: (one.outcome, one.attempts, one.flaky) for name, one in found.items()} == {
        "test_good": ("passed", 1, False),
        "test_subtests": ("passed", 1, False),
        "test_flaky": ("passed", 3, True),
        "test_flaky_and_bad": ("failed", 2, False),
        "test_skipped_again": ("failed", 2, False),
    }
    assert "assert 1 > 2" in found["test_flaky"].reason
    assert found["test_skipped_again"].reason == f"{SKIPPED_AGAIN}: not now"


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        pytest.param("pytest_rerunfailures", RERUNS, id="rerunfailures"),
        pytest.param("flaky.flaky_pytest_plugin", BY_FLAKY, id="flaky"),
    ],
)
def test_attempts_in_the_results_of_pytest_count_as_one_test(
    tmp_path: Path, python: Path, plugin: str, text: str
) -> None:
    (tmp_path / "test_it.py").write_text(text, encoding="utf-8")
    xml = tmp_path / "results.xml"
    command = [python, "-m", "pytest", "-q", "-p", "subtests", "-p", plugin]
    command += ["--deselect=test_it.py::test_flaky_and_bad", "--deselect=test_it.py::test_skipped_again"]
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([*command, f"--junit-xml={xml}"], cwd=tmp_path, env=variables, check=True, timeout=60)
    listed = len(junit.read(xml).listed)
    is_told = listed == 5  # older versions of pytest-rerunfailures write the last attempt alone
    run = results.read(xml, Floors(tests=3))
    assert (run.verdict, run.counts.executed) == ("passed", 3)
    assert {test.test: test.flaky for test in run.tests} == {
        "test_it::test_good": False,
        "test_it::test_subtests": False,
        "test_it::test_flaky": is_told,
    }
    remark = f"pytest announces 6 tests and lists {listed}: it counts passed subtests"
    assert run.reason == f"3 tests passed;{' 1 flaky;' if is_told else ''} {remark}"
    assert results.read(xml, Floors(tests=4)).reason == "3 tests ran, fewer than the floor of 4"


def test_tests_that_an_ini_file_spreads_over_processes_do_not_run(tmp_path: Path, python: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "pytest.ini").write_text("[pytest]\naddopts = -n2\n", encoding="utf-8")
    suite = suite_of(requires=("pytest", "pytest-xdist"), config_file="pytest.ini")
    request = request_of(tmp_path, {"test_it.py": RERUNS}, python=python, suite=suite)
    merged = run_and_judge(request)
    assert merged.judgement.verdict == "failed"
    assert "processes that are not watched" in merged.outcomes[0].detail


def test_a_pytest_that_the_suite_excludes_is_named_before_any_test(tmp_path: Path, python: Path) -> None:
    suite = suite_of(requires=("pytest>=8",), requires_for={"<1000": ("pytest<7",)})
    with pytest.raises(PrerequisiteError, match=r"the tests of pytest \d.* need: 'pytest<7'") as error:
        run_and_judge(request_of(tmp_path, {"test_it.py": RERUNS}, python=python, suite=suite))
    assert error.value.line == f"uv pip install --python {python} 'pytest<7'"  # uv made it, without pip
