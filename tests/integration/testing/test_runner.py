import os
import sys
from pathlib import Path

from cairn.testing import pytest_runs
from cairn.testing.pytest_runs import Session
from helpers import pytests


def session(tmp_path: Path, text: str, *arguments: str, timeout: float = 120) -> Session:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(text, encoding="utf-8")
    return Session(
        folder=tmp_path / "run",
        tests={"tests": tmp_path / "tests"},
        arguments=arguments,
        variables=dict(os.environ),
        timeout=timeout,
        log=tmp_path / "log",
    )


def test_pytest_runs_from_a_folder_in_an_interpreter_that_lacks_it(tmp_path: Path) -> None:
    pytest_runs.copy_pytest(tmp_path / "tools")
    text = "import sys, pytest\ndef test_a():\n    assert pytest.__file__.startswith(sys.path[-1])\n"
    # -S: an interpreter without any site-packages
    (tmp_path / "bare").write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
    (tmp_path / "bare").chmod(0o755)
    ended = pytest_runs.run_inside(tmp_path / "bare", tmp_path / "tools", session(tmp_path, text))
    assert (ended.exit_code, ended.problem) == (0, ""), (tmp_path / "log").read_text(encoding="utf-8")


def test_tests_that_hang_are_killed(tmp_path: Path) -> None:
    text = "import time\ndef test_a():\n    time.sleep(3600)\n"
    ended = pytest_runs.run_beside(session(tmp_path, text, timeout=3))
    assert ended.exit_code != 0
    assert ended.problem == "the tests did not end within 3 seconds"
    assert not ended.junit.exists()


def test_results_of_an_earlier_run_do_not_count(tmp_path: Path) -> None:
    made = session(tmp_path, "import os\ndef test_a():\n    os._exit(0)\n")
    made.folder.mkdir()
    made.junit.write_text('<testsuite tests="1"><testcase name="old"/></testsuite>', encoding="utf-8")
    assert pytest_runs.run_beside(made).exit_code == 0
    assert not made.junit.exists()


def test_arguments_choose_tests_but_not_where_the_results_go(tmp_path: Path) -> None:
    text = "def test_a():\n    pass\ndef test_b():\n    assert False\n"
    made = session(tmp_path, text, "-k", "test_a", f"--junit-xml={tmp_path / 'elsewhere.xml'}")
    assert pytest_runs.run_beside(made).exit_code == 0
    assert made.junit.exists()
    assert not (tmp_path / "elsewhere.xml").exists()


def test_a_test_that_ends_the_run_is_no_success(tmp_path: Path) -> None:
    text = "import pytest\ndef test_a():\n    pass\ndef test_b():\n    pytest.exit('done', returncode=0)\n"
    ended = pytest_runs.run_beside(session(tmp_path, text + "def test_c():\n    assert False\n"))
    assert ended.exit_code == 2


def test_a_run_of_no_test_is_no_success(tmp_path: Path) -> None:
    made = session(tmp_path, "def test_a():\n    assert False\n", "--setup-plan")
    assert pytest_runs.run_beside(made).exit_code == 4
    assert "run no test" in made.log.read_text(encoding="utf-8")


def test_what_a_conftest_takes_away_or_passes_over_is_counted(tmp_path: Path) -> None:
    made = session(tmp_path, "def test_a():\n    pass\ndef test_b():\n    pass\n")
    (tmp_path / "tests" / "test_other.py").write_text("def test_c():\n    pass\n", encoding="utf-8")
    conftest = (
        "collect_ignore = ['test_other.py']\ndef pytest_collection_modifyitems(items):\n    del items[0]\n"
    )
    (tmp_path / "tests" / "conftest.py").write_text(conftest, encoding="utf-8")
    ended = pytest_runs.run_beside(made)
    assert ended.outcome is not None
    assert ended.outcome.counts.total == 1
    assert {(one.by, one.origin, one.tests) for one in ended.deselected} == {
        ("collect_ignore or norecursedirs (files)", "tests", 1),
        ("tests/conftest.py", "tests", 1),
    }


def test_a_test_that_is_run_until_it_passes_is_flaky(tmp_path: Path, base_of_workers: Path) -> None:
    # From 16.6.1, which needs a newer pytest, the plugin makes a case of each attempt.
    python = pytests.install(base_of_workers / "pytest-oldest", "pytest-oldest")
    text = "CALLS = []\ndef test_a():\n    CALLS.append(1)\n    assert len(CALLS) > 1\n"
    (tmp_path / "tools").mkdir()
    pytest_runs.copy_counter(tmp_path / "tools")
    made = session(tmp_path, text, "--reruns", "1", "-p", "no:flaky")  # only one of both runs a test again
    ended = pytest_runs.run_inside(python, tmp_path / "tools", made)
    assert ended.outcome is not None
    assert [(case.outcome, case.flaky) for case in ended.outcome.cases] == [("passed", True)]


def test_a_run_that_does_not_say_what_it_collected_has_no_results(tmp_path: Path) -> None:
    text = "import os\ndef test_a():\n    os.unlink(os.environ['CAIRN_COLLECTION'])\n"
    ended = pytest_runs.run_beside(session(tmp_path, text))
    assert ended.outcome is None
    assert "collection.json" in ended.problem
