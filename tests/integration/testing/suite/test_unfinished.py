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


def test_modules_that_the_time_found_before_their_tests_are_not_accounted_for(
    tmp_path: Path, python: Path
) -> None:
    tests = {"test_a.py": GOOD, "test_b.py": SLEEPS, "test_c.py": GOOD}
    merged = judged(tmp_path, python, tests, limits=ENOUGH)
    assert merged.problems == (
        "test_b.py: the time was over before its tests were collected",
        "test_c.py did not run: the time was over",
    )
    assert merged.judgement.verdict == "invalid"
    reason = f"2 of 3 modules did not come to their end; {'; '.join(merged.problems)}"
    assert merged.judgement.reason == reason
    assert [count.finished for count in merged.results[0].modules] == [True, False, False]


def test_a_process_that_the_time_found_behind_its_last_test_has_not_finished(
    tmp_path: Path, python: Path
) -> None:
    hangs = "import time\n\ndef pytest_sessionfinish(session):\n    time.sleep(3600)\n"
    suite = suite_of(hooks=("conftest.py: pytest_sessionfinish",))
    merged = judged(tmp_path, python, {"conftest.py": hangs, "test_a.py": GOOD}, suite=suite, limits=ENOUGH)
    assert by_test(merged)["test_good"].outcome == "passed"
    assert merged.problems == ("test_a.py: the time was over outside of any test",)
    assert merged.judgement.verdict == "invalid"


def test_a_failure_in_a_run_without_an_end_stays_a_failure(tmp_path: Path) -> None:
    tests = [TestOutcome(test="test_a.py::test_bad", outcome="failed", reason="no")]
    count = ModuleCount(module="test_a.py", selected=2, whole=2, cut=False)
    folder = shard_of(tmp_path / "1", tests, modules=(count,), problems=("1 tests did not run",))
    judgement = merge.merge([folder], tmp_path / "whole").judgement
    reason = "1 of 1 tests failed; the first is test_a::test_bad: no; 1 tests did not run"
    assert (judgement.verdict, judgement.reason) == ("failed", reason)


CONFTESTS = {
    "imported": "import os\nos._exit(0)\n",
    "collection": "import os\ndef pytest_collection():\n    os._exit(0)\n",
    "exit": "import pytest\ndef pytest_collection():\n    pytest.exit('no', returncode=0)\n",
    "start": "import pytest\ndef pytest_sessionstart():\n    pytest.exit('no', returncode=0)\n",
    "killed": "import os, signal\ndef pytest_sessionfinish():\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    # pytest has finished then, with its results and its exit code
    "end": "import os\ndef pytest_unconfigure():\n    os._exit(0)\n",
}


def test_a_conftest_that_ends_its_process_costs_its_module(tmp_path: Path, python: Path) -> None:
    tests = {f"{name}/conftest.py": text for name, text in CONFTESTS.items()}
    tests |= {f"{name}/test_{name}.py": GOOD for name in CONFTESTS}
    merged = judged(tmp_path, python, {"test_a.py": GOOD, **tests})
    bad = {outcome.module for outcome in merged.outcomes if outcome.failed}
    assert bad == {f"{name}/test_{name}.py" for name in CONFTESTS if name != "end"}
    assert merged.judgement.verdict == "failed"


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


def test_a_module_without_any_test_is_named(tmp_path: Path) -> None:
    tests = {"test_a.py": "def test_a(): pass\n", "test_b.py": "X = 1\n"}
    merged = run_and_judge(request_of(tmp_path, tests))
    assert (merged.judgement.verdict, merged.judgement.reason) == (
        "passed",
        "1 tests passed; no test in test_b.py",
    )
