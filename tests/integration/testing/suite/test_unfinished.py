"""Modules and processes that did not come to their end: no number of passed tests makes up for them."""

from pathlib import Path

import pytest

from cairn.cli.test import suite_options
from cairn.testing.junit import TestOutcome
from cairn.testing.report import results
from cairn.testing.suite import merge
from cairn.testing.suite.merge import Merged
from cairn.testing.suite.suite_results import ModuleCount
from cairn.testing.testing_options import Limits
from helpers.suites import by_test, request_of, run_and_judge, shard_of, suite_of

GOOD = "def test_good():\n    pass\n"
SLEEPS = "import time\n\ntime.sleep(3600)\n\ndef test_never():\n    pass\n"
ENOUGH = Limits(test=60.0, collection=60.0, all=8.0)


def judged(tmp_path: Path, python: Path, tests: dict[str, str], **more: object) -> Merged:
    """Run a suite, and expect of its report and of a merge of it alone what the run says itself."""
    request = request_of(tmp_path, tests, python=python, **more)
    merged = run_and_judge(request)
    assert results.read(request.work_dir).verdict == merged.judgement.verdict
    assert merge.merge([request.work_dir], tmp_path / "again").judgement == merged.judgement
    assert (suite_options.answer(merged).error is None) == (merged.judgement.verdict == "passed")
    return merged


def test_a_module_that_the_time_found_before_its_tests_is_not_accounted_for(
    tmp_path: Path, python: Path
) -> None:
    merged = judged(tmp_path, python, {"test_a.py": GOOD, "test_b.py": SLEEPS}, limits=ENOUGH)
    assert merged.problems == ("test_b.py: the time was over before its tests were collected",)
    assert merged.judgement.verdict == "invalid"
    assert merged.judgement.reason == f"1 of 2 modules did not come to their end; {merged.problems[0]}"
    assert {count.module: count.finished for count in merged.results[0].modules} == {
        "test_a.py": True,
        "test_b.py": False,
    }


def test_modules_that_the_time_left_no_room_for_are_not_accounted_for(tmp_path: Path, python: Path) -> None:
    merged = judged(tmp_path, python, {"test_a.py": SLEEPS, "test_b.py": GOOD}, limits=ENOUGH)
    assert merged.problems[1] == "test_b.py did not run: the time was over"
    assert (merged.judgement.verdict, len(merged.results[0].modules)) == ("invalid", 2)


def test_a_process_that_the_time_found_behind_its_last_test_has_not_finished(
    tmp_path: Path, python: Path
) -> None:
    hangs = "import time\n\ndef pytest_sessionfinish(session):\n    time.sleep(3600)\n"
    merged = judged(tmp_path, python, {"conftest.py": hangs, "test_a.py": GOOD}, limits=ENOUGH)
    assert by_test(merged)["test_good"].outcome == "passed"
    assert merged.problems == ("test_a.py: the time was over outside of any test",)
    assert merged.judgement.verdict == "invalid"


def test_a_failure_in_a_run_without_an_end_stays_a_failure(tmp_path: Path, python: Path) -> None:
    bad = "def test_bad():\n    assert False\n"
    merged = judged(tmp_path, python, {"test_a.py": bad, "test_b.py": SLEEPS}, limits=ENOUGH)
    assert merged.judgement.verdict == "failed"
    assert merged.judgement.reason.startswith("1 of 1 tests failed; the first is test_a::test_bad")
    assert merged.judgement.reason.endswith("; test_b.py: the time was over before its tests were collected")


@pytest.mark.parametrize(
    "conftest",
    [
        pytest.param("import os\nos._exit(0)\n", id="while it is imported"),
        pytest.param("import os\ndef pytest_collection():\n    os._exit(0)\n", id="before the collection"),
        pytest.param("import os\ndef pytest_unconfigure():\n    os._exit(0)\n", id="at the end"),
        pytest.param(
            "import pytest\ndef pytest_collection():\n    pytest.exit('no', returncode=0)\n", id="by pytest"
        ),
        pytest.param(
            "import pytest\ndef pytest_sessionstart():\n    pytest.exit('no', returncode=0)\n", id="at once"
        ),
        pytest.param(
            "import os, signal\ndef pytest_sessionfinish():\n    os.kill(os.getpid(), signal.SIGKILL)\n",
            id="killed",
        ),
    ],
)
def test_a_conftest_that_ends_its_process_costs_its_module(
    tmp_path: Path, python: Path, conftest: str
) -> None:
    tests = {"test_a.py": GOOD, "sub/conftest.py": conftest, "sub/test_b.py": GOOD}
    merged = judged(tmp_path, python, tests)
    bad = {outcome.test for outcome in merged.outcomes if outcome.failed}
    if "unconfigure" in conftest:  # pytest has finished, with its results and its exit code
        assert (bad, merged.judgement.verdict) == (set(), "passed")
    else:
        assert (bad, merged.judgement.verdict) == ({"sub/test_b.py"}, "failed")


def test_a_test_that_was_run_again_when_the_time_was_over_did_not_pass(tmp_path: Path, python: Path) -> None:
    again = """
import time
import pytest

CALLS = []

@pytest.mark.flaky(reruns=2)
def test_again():
    CALLS.append(1)
    if len(CALLS) > 1:
        time.sleep(3600)
    assert False
"""
    suite = suite_of(requires=("pytest", "pytest-rerunfailures"))
    merged = judged(tmp_path, python, {"test_a.py": again}, suite=suite, limits=ENOUGH, retries=1)
    assert merged.judgement.verdict == "invalid"
    assert merged.problems == ("test_a.py: 1 tests did not run: the time was over",)


@pytest.mark.parametrize("modules", [(), ("test_a.py",), ("test_b.py",)])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_result_that_does_not_say_that_its_modules_finished_is_unknown(
    tmp_path: Path, modules: tuple[str, ...], shards: int
) -> None:
    tests = [TestOutcome(test="test_a.py::test_a", outcome="passed")]
    counts = [ModuleCount(module=name, selected=1, whole=1, cut=False) for name in modules]
    folder = shard_of(tmp_path / "1", tests, of=shards, modules=tuple(counts))
    assert results.read(folder).verdict == "invalid"
    merged = merge.merge([folder], tmp_path / "whole", part=shards > 1)
    assert merged.judgement.verdict == "invalid"
    assert "modules did not come to their end" in merged.judgement.reason
