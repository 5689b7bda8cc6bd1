"""The plugin that leaves tests out, in a pytest of its own, as a suite runs it."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from cairn.errors import TestsFailedError
from cairn.testing.skips import select
from cairn.testing.skips.select import Selection
from cairn.testing.skips.skip_files import Entry, Listed

SUITE = {
    "test_nn.py": (
        "import unittest, pytest\n"
        "class TestNN(unittest.TestCase):\n"
        "    def test_print(self): pass\n"
        "    def test_print_all(self): pass\n"
        "    def test_out_add_cuda(self): pass\n"
        "    def test_outer(self): pass\n"
        "@pytest.mark.parametrize('a', ['cpu', 'cuda'])\n"
        "def test_both(a): pass\n"
    ),
    "test_torch.py": "def test_print(): pass\n",
    "nn/test_hangs.py": "import os\nos._exit(3)\n",
    "deep/er/test_a.py": "class TestA:\n    def test_a(self): pass\n    def test_b(self): pass\n",
    "test_broken.py": "import no_such_module\ndef test_a(): pass\n",
}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name, text in SUITE.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "tests"


def listed(number: int, *tests: str, patterns: tuple[str, ...] = ()) -> Listed:
    entry = Entry(tests=tests, patterns=patterns, reason="it hangs", owner="me", expires=date(2030, 1, 1))
    return Listed(file=Path("generic.toml"), number=number, entry=entry)


def collect(
    tmp_path: Path, entries: tuple[Listed, ...], *arguments: str, only: bool = False, cwd: str = "tests"
) -> tuple[int, str, list[str]]:
    """The exit code and output of pytest, and the tests that it would run."""
    variables = select.write_plan(
        Selection(entries=entries),
        tmp_path / "plan" / "plan.json",
        journal=tmp_path / "journal",
        tests=tmp_path / "tests",
        only=only,
    )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", select.PLUGIN, "-p", "no:cacheprovider", "-q",
         "--collect-only", "--rootdir=.", "-c", os.devnull, *arguments],
        cwd=tmp_path / cwd,
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": str(tmp_path / "plan"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr, [x for x in ended.stdout.splitlines() if "::" in x]


@pytest.mark.usefixtures("suite")
def test_exact_ids_patterns_and_whole_files_are_left_out(tmp_path: Path) -> None:
    entries = (
        listed(1, "test_nn.py::TestNN::test_print", "nn/test_hangs.py"),
        listed(2, patterns=("test_nn.py::TestNN::test_out_*", "test_nn.py::test_both[*]")),
    )
    files = ("test_nn.py", "test_torch.py", "nn/test_hangs.py")
    code, said, tests = collect(tmp_path, entries, *files)
    assert code == 0, said
    assert tests == [
        "test_nn.py::TestNN::test_outer",
        "test_nn.py::TestNN::test_print_all",
        "test_torch.py::test_print",
    ]
    found = select.read_excluded([tmp_path / "journal"], entries)
    assert [(test, item.number) for test, item in found[0]] == [
        ("nn/test_hangs.py", 1),
        ("test_nn.py::TestNN::test_out_add_cuda", 2),
        ("test_nn.py::TestNN::test_print", 1),
        ("test_nn.py::test_both[cpu]", 2),
        ("test_nn.py::test_both[cuda]", 2),
    ]
    assert found[1] == ()


@pytest.mark.usefixtures("suite")
def test_only_runs_what_is_left_out_otherwise(tmp_path: Path) -> None:
    entries = (listed(1, "test_nn.py::TestNN::test_print", "test_torch.py"),)
    code, said, tests = collect(tmp_path, entries, "test_nn.py", "test_torch.py", only=True)
    assert code == 0, said
    assert tests == ["test_nn.py::TestNN::test_print", "test_torch.py::test_print"]
    assert select.read_excluded([tmp_path / "journal"], entries)[1] == ()


@pytest.mark.usefixtures("suite")
def test_ids_count_from_the_tests_wherever_pytest_starts(tmp_path: Path) -> None:
    entries = (listed(1, "test_torch.py::test_print"),)
    code, said, tests = collect(tmp_path, entries, "tests/test_torch.py", cwd=".")
    assert (code, tests) == (5, []), said  # 5: nothing was collected
    assert len(select.read_excluded([tmp_path / "journal"], entries)[0]) == 1


@pytest.mark.usefixtures("suite")
def test_a_pattern_of_a_folder_is_of_the_files_below_it_and_is_not_said_to_match_nothing(
    tmp_path: Path,
) -> None:
    entries = (listed(1, patterns=("deep/*::TestA::test_b", "deep/*::TestB::test_a")),)
    _, _, tests = collect(tmp_path, entries, "deep", "test_torch.py")
    assert tests == ["deep/er/test_a.py::TestA::test_a", "test_torch.py::test_print"]
    excluded = select.read_excluded([tmp_path / "journal"], entries, tests=tmp_path / "tests")
    assert [test for test, _ in excluded[0]] == ["deep/er/test_a.py::TestA::test_b"]
    assert excluded[1] == ()


def test_what_matched_nothing_is_named_where_its_file_was_collected_or_is_gone(
    tmp_path: Path, suite: Path
) -> None:
    entries = (
        listed(1, "test_nn.py::TestNN::test_print", "test_nn.py::TestNN::test_prin"),
        listed(2, "test_torch.py::test_gone"),  # not part of the run
        listed(3, "test_broken.py::test_a"),  # could not be imported
        listed(4, "test_gone.py::test_a", patterns=("test_nn.py::TestNN::test_prin_*",)),
    )
    code, _, _ = collect(tmp_path, entries, "test_nn.py", "test_broken.py", "--continue-on-collection-errors")
    assert code != 0
    found = select.read_excluded([tmp_path / "journal"], entries)
    named = [(listed.number, names) for listed, names in found[1]]
    assert named == [(1, ("test_nn.py::TestNN::test_prin",)), (4, ("test_nn.py::TestNN::test_prin_*",))]
    found = select.read_excluded([tmp_path / "journal"], entries, tests=suite)
    assert found[1][1][1] == ("test_gone.py::test_a", "test_nn.py::TestNN::test_prin_*")


@pytest.mark.usefixtures("suite")
def test_tests_that_were_chosen_by_their_ids_say_nothing_of_the_others(tmp_path: Path) -> None:
    entries = (listed(1, "test_nn.py::TestNN::test_prin"),)
    collect(tmp_path, entries, "test_nn.py::TestNN::test_outer")
    assert select.read_excluded([tmp_path / "journal"], entries)[1] == ()
    # Another shard collects the file as a whole, and appends.
    collect(tmp_path, entries, "test_nn.py", "-k", "outer")
    assert len(select.read_excluded([tmp_path / "journal"], entries)[1]) == 1


def test_a_journal_that_is_missing_or_cut_short_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TestsFailedError, match="no list of its exclusions"):
        select.read_excluded([tmp_path / "journal"], ())
    (tmp_path / "journal").write_text('{"modules": ["a.py"], "matc', encoding="utf-8")
    with pytest.raises(TestsFailedError, match="not JSON"):
        select.read_excluded([tmp_path / "journal"], ())
    line = '{"modules": [], "matched": [{"test": "a.py::b", "entry": 1, "pattern": null}]}'
    (tmp_path / "journal").write_text(line, encoding="utf-8")
    with pytest.raises(TestsFailedError, match="names entry 1, and the run had 1"):
        select.read_excluded([tmp_path / "journal"], (listed(1, "a.py::b"),))
