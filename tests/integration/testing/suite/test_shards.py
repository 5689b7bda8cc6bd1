"""A suite in shards, by the script and by the commands, as users and workflows run them."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import datafile
from cairn.errors import UsageError
from cairn.testing.suite import merge, run, shards, suite_results
from helpers.suites import outcomes_of, request_of, write_tests

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = ROOT / "external-builds" / "pytorch" / "run_pytorch_tests.py"
# Not the shipped suite: its tests are written here, and need no torch.
SUITE = """
schema = "cairn.suite/1"
project = "pytest"
tests = "test"
version_module = "_pytest/_version.py"
version_file = "version.txt"

[environment]
GREETING = "from {scratch}"

[configs.default]
shards = 2

[[configs.default.groups]]
modules = ["test_*"]

[[configs.default.groups]]
modules = ["deep/test_*"]
environment = { DEEP = "1" }
"""
SKIPS = """
schema = "cairn.skips/1"

[[skips]]
tests = ["test_a.py::TestA::test_bad", "test_closed.py"]
reason = "it cannot work here"
owner = "somebody"
expires = 2020-01-01

[[skips]]
tests = ["test_a.py::TestA::test_gone"]
reason = "it did not work"
owner = "somebody"
expires = 2099-01-01
"""
TEST_A = """
import os, unittest
import sibling

class TestA(unittest.TestCase):
    def test_bad(self):
        self.fail("skip-tests name it")

    def test_bad_too_long_for_a_substring(self):
        self.assertEqual(os.environ["GREETING"].rpartition("/")[2], "scratch")
        self.assertNotIn("DEEP", os.environ)

    def test_copied(self):
        self.assertNotIn("checkout", __file__)
"""
TESTS = {
    "sibling.py": "",
    "test_a.py": TEST_A,
    "test_closed.py": "raise SystemExit('not to be imported')\n",
    "deep/test_b.py": "import os\n\ndef test_b():\n    assert os.environ['DEEP'] == '1'\n",
}


def cairn(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)], check=False, capture_output=True, text=True, encoding="utf-8"
    )


def test_the_script_runs_what_the_suite_says_without_what_skips_name(tmp_path: Path) -> None:
    checkout = write_tests(tmp_path / "checkout", TESTS)
    (tmp_path / "suite.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "skips.toml").write_text(SKIPS, encoding="utf-8")
    output = tmp_path / "output"
    common = (SCRIPT, "--pytorch-dir", checkout, "--suite", tmp_path, "--skip-tests", tmp_path / "skips.toml")
    refused = cairn(*common, "--output-dir", output)
    assert refused.returncode == 2
    assert "pass --allow-version-mismatch" in refused.stderr
    done = cairn(*common, "--output-dir", output, "--allow-version-mismatch", "--test-timeout", 60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed: 3 tests passed; 2 left out by skip-tests" in done.stdout
    assert (
        "skips.toml, entry 1 (test_a.py::TestA::test_bad and 1 more) has expired: 2020-01-01" in done.stderr
    )
    assert "entry 2 (test_a.py::TestA::test_gone) matches no test" in done.stderr
    assert set(outcomes_of(output)) == {
        "deep/test_b.py::test_b",
        "test_a.py::TestA::test_bad_too_long_for_a_substring",
        "test_a.py::TestA::test_copied",
    }
    # Upstream's --debug turns the selection round.
    only = cairn(
        *common, "--output-dir", output, "--allow-version-mismatch", "--debug", "--include", "test_a"
    )
    assert only.returncode == 8, only.stdout + only.stderr
    assert "FAILED test_a.py::TestA::test_bad: AssertionError: skip-tests name it" in only.stdout
    assert list(outcomes_of(output)) == ["test_a.py::TestA::test_bad"]


def test_shards_by_recorded_times_run_each_test_once(tmp_path: Path) -> None:
    many = "import pytest\n\n@pytest.mark.parametrize('n', range({}))\ndef test_one(n):\n    pass\n"
    checkout = write_tests(
        tmp_path / "checkout", {"test_long.py": many.format(40), "test_short.py": many.format(2)}
    )
    (tmp_path / "suite.toml").write_text(
        SUITE.partition('[[configs.default.groups]]\nmodules = ["deep')[0], "utf-8"
    )
    # The longest module takes three quarters: it is cut, of known tests and of two that nobody has timed.
    tests = {f"test_one[{n}]": 20.0 for n in range(38)}
    known = shards.Times(tests={"test_long.py": tests}, modules={"test_short.py": 250.0})
    datafile.write(tmp_path / "times.json", known)
    planned = cairn(
        *("-m", "cairn", "test", "shards", "--suite", tmp_path, "--sources-dir", checkout, "--json"),
        *("--times", tmp_path / "times.json"),
    )
    assert planned.returncode == 0, planned.stderr
    include = json.loads(planned.stdout)["include"]
    assert [(leg["shard"], leg["num_shards"]) for leg in include] == [(1, 2), (2, 2)]
    assert abs(include[0]["minutes"] - include[1]["minutes"]) < 0.5
    folders = []
    for number in (1, 2):
        request = request_of(
            tmp_path, {}, shard=number, shards=2, times=known, work_dir=tmp_path / str(number)
        )
        folders.append(run.run_suite(request))
    merged = merge.merge(folders, tmp_path / "whole", floor=42)
    assert (merged.judgement.verdict, merged.problems) == ("passed", ())
    assert len(merged.outcomes) == 42
    assert min(len(suite_results.read_outcomes(folder / suite_results.OUTCOMES)) for folder in folders) > 10
    stranger = dataclasses.replace(request, retries=7, work_dir=tmp_path / "3", run="17123441166")
    with pytest.raises(UsageError, match=r"of one run: settings, run \(no run / 17123441166\) differ"):
        merge.merge([folders[0], run.run_suite(stranger)], tmp_path / "mixed")
    missing = cairn("-m", "cairn", "test", "merge", "--output-dir", tmp_path / "half", folders[1])
    assert missing.returncode == 8
    assert "failed: of 2 shards, 1 left no result" in missing.stdout
