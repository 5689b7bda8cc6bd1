"""What tests do to the process that runs them, and what it costs: that test, and nothing else."""

import contextlib
import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from cairn.testing.gpus import hangs
from cairn.testing.suite import worker
from cairn.testing.testing_options import Limits
from helpers.hardware import MI300X, Machine
from helpers.suites import by_test, log_of, request_of, run_and_judge, suite_of

FOREIGN_DIRS = "notes"

GOOD = "def test_before():\n    pass\n\n\n{}\n\ndef test_behind():\n    pass\n"
HANGS_IN_C = """
import ctypes

def test_bad():
    ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the interpreter's lock: no other thread of Python's runs
"""
ENDS_ITS_PROCESS = """
import ctypes, os, signal, time
import pytest

PARENT = os.getppid()

def test_before():
    pass

def test_segfault():
    ctypes.string_at(0)

def test_kills_its_parent():
    os.kill(PARENT, signal.SIGKILL)
    while os.getppid() == PARENT:
        time.sleep(0.01)

def test_kills_its_group():
    os.killpg(0, signal.SIGKILL)

def test_exits():
    os._exit(0)

def test_ends_the_session():
    pytest.exit("enough", returncode=0)

def test_behind():
    pass
"""
ODD_BUT_HARMLESS = """
import os, time

def test_sets_the_clock(monkeypatch):
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: -1e12)
    assert time.time() < 0

def test_forks():
    os.fork()  # and never ends the child: a second pytest goes on from here

def test_behind():
    pass
"""


@pytest.mark.every_pytest
def test_a_test_that_ends_its_process_costs_itself(tmp_path: Path, python: Path) -> None:
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": ENDS_ITS_PROCESS}))
    assert {name: outcome.reason for name, outcome in by_test(merged).items() if outcome.failed} == {
        "test_segfault": "it ended its process: signal 11 (SIGSEGV)",
        "test_kills_its_parent": "it ended the process above it",
        "test_kills_its_group": "it ended its process: signal 9 (SIGKILL)",
        "test_exits": "it ended its process: exit code 0",
        "test_ends_the_session": "it ended its process: exit code 0",
    }
    assert [by_test(merged)[name].outcome for name in ("test_before", "test_behind")] == ["passed", "passed"]
    assert "Segmentation fault" in by_test(merged)["test_segfault"].detail
    assert merged.judgement.verdict == "failed"
    assert merged.judgement.reason.startswith("5 of 7 tests failed; the first is test_it::test_segfault")
    assert merged.problems == ()


def test_what_tests_do_to_clocks_and_children_moves_nothing(tmp_path: Path, python: Path) -> None:
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": ODD_BUT_HARMLESS}))
    assert len(merged.outcomes) == 3
    assert merged.judgement.verdict == "passed", merged.judgement.reason
    assert 0 <= merged.results[0].duration_seconds < 600
    assert all(0 <= outcome.seconds < 600 for outcome in merged.outcomes)


def test_a_test_that_hangs_in_c_is_ended_and_says_where_it_was(tmp_path: Path, python: Path) -> None:
    request = request_of(
        tmp_path,
        python=python,
        tests={"test_it.py": GOOD.format(HANGS_IN_C)},
        limits=Limits(test=2.0, collection=30.0),
    )
    merged = run_and_judge(request)
    found = by_test(merged)
    assert found["test_bad"].reason == "did not end within 2 seconds"
    assert "in test_bad" in found["test_bad"].detail
    assert [found[name].outcome for name in ("test_before", "test_behind")] == ["passed", "passed"]
    assert merged.judgement.verdict == "failed"


def test_a_gpu_that_hangs_in_a_test_is_named_and_the_next_tests_run_on_the_other(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hangs, "LIMIT", 2.0)
    machine, dead = Machine(tmp_path), tmp_path / "dead"
    machine.node(1, MI300X, place=1 << 8)
    machine.node(2, MI300X, place=2 << 8)
    first = f'[ -e {dead} ] && [ "$ROCR_VISIBLE_DEVICES" = 0 ]'
    machine.program("rocminfo", "", then=f"{first} && exec /bin/sleep 60")
    shown = "os.environ.get('ROCR_VISIBLE_DEVICES'), os.environ['HIP_VISIBLE_DEVICES']"
    tests = {
        "test_a.py": f"""
import os, pathlib, time
def test_bad():
    assert ({shown}) == (None, "0")
    pathlib.Path({str(dead)!r}).touch()
    time.sleep(3600)
""",
        "test_b.py": f"import os\ndef test_behind():\n    assert ({shown}) == ('1', '0')\n",
    }
    request = request_of(
        tmp_path, python=python, tests=tests, nodes=machine.nodes, limits=Limits(test=2.0, collection=30.0)
    )
    tested = structs.replace(
        request.tested, variables={**request.tested.variables, "PATH": str(machine.programs)}
    )
    merged = run_and_judge(dataclasses.replace(request, tested=tested))
    found = by_test(merged)
    assert found["test_bad"].reason == "did not end within 2 seconds"
    assert found["test_behind"].outcome == "passed", found["test_behind"].reason
    assert [gpu.pci for gpu in merged.results[0].hanging] == ["0000:01:00.0"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_test_that_has_left_our_process_group_is_ended_too(tmp_path: Path, python: Path) -> None:
    hangs = """
import os, time

def test_bad():
    os.setsid()
    time.sleep(3600)
"""
    request = request_of(
        tmp_path, python=python, tests={"test_it.py": hangs}, limits=Limits(test=1.0, collection=30.0)
    )
    assert by_test(run_and_judge(request))["test_bad"].reason == "did not end within 1 seconds"
    running = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # empty where nobody has waited for it yet
            running += [command] if str(request.work_dir).encode() in command.read_bytes() else []
    assert running == []


def test_a_test_that_names_another_process_has_only_itself_ended(tmp_path: Path, python: Path) -> None:
    """What writes into the journal are tests, so the id in it may be that of Cairn, or of the runner."""
    with subprocess.Popen(["sleep", "60"]) as victim:
        hangs = f"""
import json, os, time

def test_bad():
    with open(os.environ["{worker.VARIABLE}"]) as file, open(json.load(file)["journal"], "a") as journal:
        print(json.dumps({{"event": "start", "pid": {victim.pid}}}), file=journal, flush=True)
    time.sleep(3600)
"""
        request = request_of(
            tmp_path, python=python, tests={"test_it.py": hangs}, limits=Limits(test=1.0, collection=30.0)
        )
        try:
            assert by_test(run_and_judge(request))["test_bad"].reason == "did not end within 1 seconds"
            assert victim.poll() is None
        finally:
            victim.kill()


def test_pytest_that_is_told_to_run_no_test_has_passed_none(tmp_path: Path, python: Path) -> None:
    tests = {"test_it.py": "def test_a():\n    pass\n"}
    merged = run_and_judge(request_of(tmp_path, python=python, tests=tests, pytest_args=("--setup-plan",)))
    assert merged.judgement.verdict == "failed"
    assert "run no test" in merged.outcomes[0].detail


def test_the_time_of_the_whole_run_ends_it(tmp_path: Path, python: Path) -> None:
    slow = "import time\n\ndef test_slow():\n    time.sleep(3600)\n\ndef test_behind():\n    pass\n"
    request = request_of(
        tmp_path,
        python=python,
        tests={"test_a.py": slow, "test_b.py": slow},
        limits=Limits(test=3600.0, collection=60.0, all=4.0),
    )
    began = time.monotonic()
    merged = run_and_judge(request)
    assert time.monotonic() - began < 30
    assert merged.outcomes == ()
    assert merged.problems == (
        "test_a.py: 2 tests did not run: the time was over",
        "test_b.py did not run: the time was over",
    )
    assert merged.judgement.verdict == "invalid"


def test_texts_that_are_no_unicode_are_spelled_out(tmp_path: Path, python: Path) -> None:
    odd = r"""
import pytest

def test_bad():
    assert False, "\udcff"

def test_skipped():
    pytest.skip("no \udcff")

@pytest.mark.parametrize("x", ["\udcff", "a::b", "[x]", "new\nline"])
def test_id(x):
    pass
"""
    # Half of a surrogate pair is what Python makes of a byte that is not UTF-8, as in the name of a file.
    raw = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support=true"
    merged = run_and_judge(
        request_of(
            tmp_path,
            python=python,
            tests={"test_it.py": odd},
            pytest_args=("-p", "no:cacheprovider", "-o", raw),
        )
    )
    assert merged.problems == ()
    assert {outcome.test.partition("::")[2]: outcome.outcome for outcome in merged.outcomes} == {
        "test_bad": "failed",
        "test_skipped": "skipped",
        r"test_id[\udcff]": "passed",
        "test_id[a::b]": "passed",
        "test_id[[x]]": "passed",
        "test_id[new\nline]": "passed",
    }
    assert by_test(merged)["test_skipped"].reason == r"no \udcff"


def test_a_test_that_clears_our_folder_takes_no_result_with_it(tmp_path: Path, python: Path) -> None:
    clears = """
import pathlib

def test_clears():
    for path in pathlib.Path.cwd().parents[1].glob("*.jsonl"):
        path.write_bytes(b"")
"""
    tests = {"test_a.py": "def test_bad():\n    assert False\n", "test_b.py": clears}
    merged = run_and_judge(request_of(tmp_path, python=python, tests=tests))
    assert by_test(merged).keys() == {"test_bad", "test_clears"}
    assert merged.judgement.verdict == "failed"


def test_a_lying_junit_is_found_out(tmp_path: Path) -> None:
    conftest = """
import pathlib

def pytest_unconfigure(config):
    path = pathlib.Path(config.option.xmlpath)
    cases = '<testcase classname="test_it" name="test_a"/><testcase classname="test_it" name="test_b"/>'
    path.write_text(f'<testsuite tests="2">{cases}</testsuite>', encoding="utf-8")
"""
    tests = {
        "conftest.py": conftest,
        "test_it.py": "def test_a():\n    assert False\n\ndef test_b():\n    pass\n",
    }
    merged = run_and_judge(request_of(tmp_path, tests))
    assert merged.problems == ("test_it.py: its JUnit XML has 2 passed, and 1 passed, 1 failed were seen",)
    assert merged.judgement.verdict == "failed"


def test_an_exit_code_that_lies_is_found_out(tmp_path: Path, python: Path) -> None:
    conftest = "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"
    merged = run_and_judge(
        request_of(
            tmp_path,
            python=python,
            tests={"conftest.py": conftest, "test_it.py": "def test_a():\n    assert False\n"},
            suite=suite_of(hooks=("conftest.py: pytest_sessionfinish",)),
        )
    )
    assert merged.problems == ("test_it.py: pytest ended with exit code 0, and 1 of its tests failed",)
    assert merged.judgement.verdict == "failed"


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        pytest.param({"test_it.py": "x = 1\n"}, "no test was collected", id="zero collected"),
        pytest.param(
            {
                "test_it.py": "import pytest\n\n@pytest.mark.skip('why not')\ndef test_a():\n    pass\n",
                "test_other.py": "import pytest\n\npytest.importorskip('nothing_like_this')\n",
            },
            "all 2 tests were skipped",
            id="all skipped",
        ),
    ],
)
def test_nothing_that_ran_is_not_passed(
    tmp_path: Path, python: Path, tests: dict[str, str], reason: str
) -> None:
    merged = run_and_judge(request_of(tmp_path, python=python, tests=tests))
    assert (merged.judgement.verdict, merged.judgement.reason) == ("failed", reason)


def test_a_module_that_does_not_import_fails_as_a_module(tmp_path: Path, python: Path) -> None:
    tests = {"test_a.py": "import nothing_like_this\n", "test_b.py": "def test_b():\n    pass\n"}
    merged = run_and_judge(request_of(tmp_path, python=python, tests=tests))
    found = {outcome.test: outcome for outcome in merged.outcomes}
    assert found["test_a.py"].outcome == "error"
    assert "nothing_like_this" in found["test_a.py"].reason
    assert found["test_b.py::test_b"].outcome == "passed"
    assert merged.judgement.verdict == "failed"


def test_a_plugin_that_does_not_import_fails_the_run(tmp_path: Path, python: Path) -> None:
    request = request_of(
        tmp_path,
        python=python,
        tests={"test_it.py": "def test_a():\n    pass\n"},
        pytest_args=("-p", "nothing_like_this"),
    )
    merged = run_and_judge(request)
    (only,) = merged.outcomes
    assert (only.test, only.outcome) == ("test_it.py", "error")
    assert only.reason == "pytest ended with exit code 1 before its tests were collected"
    assert "nothing_like_this" in only.detail
    assert "nothing_like_this" in log_of(request)
    assert merged.judgement.verdict == "failed"


def test_a_module_that_hangs_while_it_is_imported_is_ended(tmp_path: Path, python: Path) -> None:
    tests = {"test_a.py": "import time\n\ntime.sleep(3600)\n", "test_b.py": "def test_b():\n    pass\n"}
    merged = run_and_judge(
        request_of(tmp_path, python=python, tests=tests, limits=Limits(test=30.0, collection=3.0))
    )
    found = {outcome.test: outcome for outcome in merged.outcomes}
    assert found["test_a.py"].reason == "did not end within 3 seconds, before its tests were collected"
    assert found["test_b.py::test_b"].outcome == "passed"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of files")
def test_a_full_disk_ends_the_run_and_is_not_passed(tmp_path: Path, python: Path) -> None:
    # To a process, files that may not grow are a disk that is full.
    full = """
import resource, signal

def test_bad():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": GOOD.format(full)}))
    found = by_test(merged)
    assert (found["test_before"].outcome, found["test_bad"].outcome) == ("passed", "error")
    assert found["test_behind"].outcome == "passed"  # in the next process, which has no such limit
    assert merged.judgement.verdict == "failed"


def test_a_process_that_crashes_after_its_last_test_is_not_passed(tmp_path: Path, python: Path) -> None:
    crash = f"import atexit, os\n\natexit.register(os.kill, os.getpid(), {int(signal.SIGSEGV)})\n"
    text = f"{crash}\ndef test_a():\n    pass\n"
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": text}))
    found = {outcome.test: outcome.reason for outcome in merged.outcomes if outcome.failed}
    assert found == {"test_it.py": "pytest ended with signal 11 (SIGSEGV) outside of any test"}
    assert merged.judgement.verdict == "failed"


def test_a_failure_that_passes_when_it_is_tried_again_is_flaky(tmp_path: Path, python: Path) -> None:
    text = f"""
import pathlib

mark = pathlib.Path({str(tmp_path / "mark")!r})

def test_flaky():
    seen = mark.exists()
    mark.touch()
    assert seen

def test_bad():
    assert False

def test_good():
    pass
"""
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": text}, retries=2))
    found = by_test(merged)
    assert {name: (o.outcome, o.attempts, o.flaky) for name, o in found.items()} == {
        "test_flaky": ("passed", 2, True),
        "test_bad": ("failed", 3, False),
        "test_good": ("passed", 1, False),
    }
    assert found["test_flaky"].reason == "assert False"
    assert [outcome.test for outcome in merged.flaky] == ["test_it.py::test_flaky"]
    assert merged.judgement.reason == "1 of 3 tests failed; the first is test_it::test_bad: assert False"


def test_a_test_that_ends_its_process_twice_is_no_flake(tmp_path: Path, python: Path) -> None:
    text = f"""
import os, pathlib, pytest

marks = pathlib.Path({str(tmp_path)!r})

@pytest.mark.parametrize("deaths", [1, 2])
def test_dies(deaths):
    for number in range(deaths):
        mark = marks / f"{{deaths}}-{{number}}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 11)
"""
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": text}, retries=4))
    found = {name: (one.outcome, one.attempts, one.flaky) for name, one in by_test(merged).items()}
    assert found == {"test_dies[1]": ("passed", 2, True), "test_dies[2]": ("error", 2, False)}
    assert by_test(merged)["test_dies[2]"].reason == "it ended its process: signal 11 (SIGSEGV)"


def test_tests_that_all_end_their_process_at_the_first_try_are_more_than_flaky(
    tmp_path: Path, python: Path
) -> None:
    text = f"""
import os, pathlib, pytest

marks = pathlib.Path({str(tmp_path)!r})

@pytest.mark.parametrize("number", range(4))
def test_dies_once(number):
    if not (marks / str(number)).exists():
        (marks / str(number)).touch()
        os.kill(os.getpid(), 11)
"""
    merged = run_and_judge(request_of(tmp_path, python=python, tests={"test_it.py": text}, retries=1))
    assert [outcome.flaky for outcome in merged.outcomes] == [True] * 4
    reason = "4 of 4 tests were flaky, more than the ceiling of 3"
    assert (merged.judgement.verdict, merged.judgement.reason) == ("failed", reason)


def test_a_test_that_is_no_longer_collected_behind_a_crash_is_missed(tmp_path: Path, python: Path) -> None:
    vanishing = f"""
import os, pathlib, pytest

mark = pathlib.Path({str(tmp_path / "mark")!r})

def test_crashes_once():
    if not mark.exists():
        mark.touch()
        os._exit(1)

@pytest.mark.parametrize("number", [1] if mark.exists() else [1, 2])
def test_vanishes(number):
    pass
"""
    absent = 'import pytest\npytest.skip("not here", allow_module_level=True)\n'
    merged = run_and_judge(
        request_of(
            tmp_path, python=python, tests={"test_it.py": vanishing, "test_absent.py": absent}, retries=1
        )
    )
    assert by_test(merged)["test_crashes_once"].flaky
    assert merged.judgement.verdict == "failed"
    assert "1 tests did not run" in merged.judgement.reason
