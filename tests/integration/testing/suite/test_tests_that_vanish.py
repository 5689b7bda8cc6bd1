"""What takes tests away between pytest's finding them and their running: each is named, with its count."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from cairn.testing.record import Deselected
from cairn.testing.suite import merge
from cairn.testing.suite.merge import Merged
from cairn.testing.suite.run import SuiteRequest
from helpers.suites import by_test, request_of, run_and_judge, suite_of

TESTS = "def test_ok():\n    pass\n\n\ndef test_bad():\n    raise AssertionError\n"
TAKES = (
    "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if i.name != 'test_bad']\n"
)
EACH_TAKES = """
import pytest

def without(items, name):
    items[:] = [item for item in items if item.name != name]

class Takes:
    def pytest_collection_modifyitems(self, items):
        without(items, "test_taken")

class SaysSo:
    def pytest_collection_modifyitems(self, config, items):
        config.hook.pytest_deselected(items=[item for item in items if item.name == "test_said"])
        without(items, "test_said")

class Wraps:
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        without(items, "test_wrapped")
        return (yield)

def pytest_pycollect_makeitem(name):
    return [] if name == "test_read" else None

def pytest_configure(config):
    for plugin in (Takes(), SaysSo(), Wraps()):
        config.pluginmanager.register(plugin)
"""
AT_THE_END = """
def pytest_collection_finish(session):
    session.items[:] = [i for i in session.items if i.name != "test_bad"]
"""
SETS_THE_OPTION = "def pytest_configure(config):\n    config.option.keyword = 'ok'\n"


def with_variables(request: SuiteRequest, **variables: str) -> SuiteRequest:
    tested = request.tested
    return dataclasses.replace(
        request, tested=structs.replace(tested, variables={**tested.variables, **variables})
    )


def gone(merged: Merged) -> tuple[Deselected, ...]:
    return merged.results[0].modules[0].gone


@pytest.mark.every_pytest
def test_what_a_conftest_takes_is_in_the_verdict(tmp_path: Path, python: Path) -> None:
    names = ("ok", "taken", "said", "wrapped", "read")
    tests = {
        "test_a.py": "".join(f"def test_{name}():\n    assert {name == 'ok'}\n" for name in names),
        "conftest.py": EACH_TAKES,
    }
    hooks = ("conftest.py: pytest_collection_modifyitems", "conftest.py: pytest_pycollect_makeitem")
    merged = run_and_judge(request_of(tmp_path, python=python, tests=tests, suite=suite_of(hooks=hooks)))
    assert gone(merged) == (Deselected(by="conftest.py", origin="tests", tests=4),)
    assert merged.judgement.verdict == "passed"
    assert merged.judgement.reason == f"1 tests passed; left out: 4 by conftest.py; with {', '.join(hooks)}"
    results = tmp_path / "results"
    assert merge.merge([results], results, floor=2).judgement.verdict == "failed"


def test_what_goes_after_the_collection_has_failed_to_run(tmp_path: Path, python: Path) -> None:
    tests = {"test_a.py": TESTS, "conftest.py": AT_THE_END}
    suite = suite_of(hooks=("conftest.py: pytest_collection_finish",))
    merged = run_and_judge(request_of(tmp_path, python=python, tests=tests, suite=suite))
    assert merged.problems == ("test_a.py: 1 tests did not run: pytest ended with exit code 0",)
    assert merged.judgement.verdict == "failed"


THREE = TESTS + "\n\ndef test_2():\n    assert 0\n\n\ndef test_odd():\n    assert 0\n"


THREE_OPTIONS = "-k 'not bad' --deselect=test_a.py::test_2 -o 'python_functions=test_ok test_b* test_2'"


def test_what_the_ini_of_the_tests_takes_is_in_the_verdict(tmp_path: Path, python: Path) -> None:
    by = ("-k not bad", "--deselect test_a.py::test_2", "python_functions = test_ok* test_2 test_b*")
    ini = f"[pytest]\naddopts = -k 'not bad' {by[1]}\n{by[2]}\n"
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "pytest.ini").write_text(ini, encoding="utf-8")
    request = request_of(
        tmp_path, python=python, tests={"test_a.py": THREE}, suite=suite_of(config_file="pytest.ini")
    )
    merged = run_and_judge(request)
    assert {(one.by, one.origin, one.tests) for one in gone(merged)} == {(name, "tests", 1) for name in by}
    assert all(f"1 by {name}" in merged.judgement.reason for name in by)


def test_what_the_user_asked_for_is_named_and_no_whole_suite(tmp_path: Path, python: Path) -> None:
    merged = run_and_judge(
        request_of(tmp_path, python=python, tests={"test_a.py": TESTS}, pytest_args=("-k", "ok"))
    )
    assert gone(merged) == (Deselected(by="-k ok", origin="command line", tests=1),)
    assert merged.judgement.verdict == "passed"
    assert merged.results[0].pytest_args[:2] == ("-k", "ok")


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTEST_ADDOPTS": THREE_OPTIONS},
        {"PYTEST_ADDOPTS": "-p beside"},
        {"PYTEST_PLUGINS": "beside"},
        {"PYTEST_PLUGINS": "option"},
        {},  # a sitecustomize by itself
    ],
    ids=str,
)
def test_a_suite_from_which_somebody_else_took_tests_has_failed(
    tmp_path: Path, python: Path, variables: dict[str, str]
) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "beside.py").write_text(TAKES, encoding="utf-8")
    (beside / "option.py").write_text(SETS_THE_OPTION, encoding="utf-8")
    if not variables:
        text = "import sys\nif 'worker' in sys.argv:\n    sys.argv += ['-k', 'ok']\n"
        (beside / "sitecustomize.py").write_text(text, encoding="utf-8")
    tests = THREE if THREE_OPTIONS in variables.values() else TESTS
    request = request_of(tmp_path, python=python, tests={"test_a.py": tests})
    request = with_variables(request, PYTHONPATH=str(beside), **variables)
    merged = run_and_judge(request)
    assert merged.judgement.verdict == "failed", gone(merged)
    assert [one.origin for one in gone(merged)] == ["elsewhere"] * (3 if tests is THREE else 1)


def test_a_test_that_is_in_the_list_twice_is_no_better_than_its_worse_run(
    tmp_path: Path, python: Path
) -> None:
    tests = "CALLS = []\n\ndef test_a():\n    CALLS.append(1)\n    assert len(CALLS) == 2\n"
    doubles = "def pytest_collection_modifyitems(items):\n    items += items\n"
    merged = run_and_judge(
        request_of(tmp_path, python=python, tests={"test_a.py": tests, "conftest.py": doubles})
    )
    assert merged.judgement.verdict == "failed"
    assert by_test(merged)["test_a"].attempts == 2
