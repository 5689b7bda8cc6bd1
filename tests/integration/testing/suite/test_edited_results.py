"""A failure that somebody edits out of a shard's results is found, by the name of the test."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import files
from cairn.errors import TestsFailedError
from cairn.testing.suite import merge, run, suite_results
from helpers.suites import request_of

Edit = Callable[[Path], None]
TESTS = {"test_a.py": "def test_good():\n    pass\n\ndef test_bad():\n    raise AssertionError\n"}


def forge(folder: Path) -> None:
    """Make each digest that of its file."""
    path = folder / suite_results.SHARD
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain["outcomes_sha256"] = files.sha256_of(folder / suite_results.OUTCOMES)
    plain["accounts"] = {name: files.sha256_of(folder / name) for name in suite_results.ACCOUNTS}
    path.write_text(json.dumps(plain), encoding="utf-8")


def say_passed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert '"failed"' in text
    path.write_text(text.replace('"failed"', '"passed"'), encoding="utf-8")


def leave_out(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "test_bad" not in line), encoding="utf-8")


def nothing(_path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("outcome", "journal", "said"),
    [
        (
            say_passed,
            nothing,
            "the outcomes say that test_a.py::test_bad passed, journal.jsonl that it failed",
        ),
        (
            say_passed,
            leave_out,
            "the outcomes say that test_a.py::test_bad passed, and journal.jsonl does not",
        ),
        (
            say_passed,
            say_passed,
            "the outcomes say that test_a.py::test_bad passed, pytest.xml that it failed",
        ),
        (leave_out, nothing, "journal.jsonl has test_a.py::test_bad, and the outcomes have not"),
        (leave_out, leave_out, "was to run 2 tests"),
    ],
)
def test_an_edit_is_found_by_the_other_accounts(
    tmp_path: Path, python: Path, outcome: Edit, journal: Edit, said: str
) -> None:
    folder = run.run_suite(request_of(tmp_path, python=python, tests=TESTS))
    assert merge.merge([folder], folder).judgement.verdict == "failed"
    outcome(folder / suite_results.OUTCOMES)
    journal(folder / suite_results.JOURNAL)
    with pytest.raises(TestsFailedError, match=r"is not what shard 1 of 1 wrote"):
        merge.merge([folder], folder)
    forge(folder)
    with pytest.raises(TestsFailedError) as error:
        merge.merge([folder], folder)
    assert said in str(error.value)


def test_a_test_that_did_not_run_is_missed_where_its_problem_was_edited_out(tmp_path: Path) -> None:
    stops = "import pytest\n\ndef pytest_runtestloop(session):\n    session.shouldstop = 'no'\n"
    folder = run.run_suite(request_of(tmp_path, {"conftest.py": stops, "test_a.py": TESTS["test_a.py"]}))
    path = folder / suite_results.SHARD
    plain = json.loads(path.read_text(encoding="utf-8"))
    assert plain["problems"]
    module = {"module": "test_a.py", "selected": 0, "whole": 0, "cut": False, "finished": True, "gone": []}
    path.write_text(json.dumps(plain | {"problems": [], "modules": [module]}), encoding="utf-8")
    with pytest.raises(TestsFailedError, match="and no problem is named"):
        merge.merge([folder], tmp_path / "merged")
