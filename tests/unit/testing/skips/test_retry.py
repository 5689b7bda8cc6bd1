"""Tests that pass by now leave skip-tests by a patch that changes nothing else."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.testing.skips import skip_files
from cairn.testing.skips.skip_files import Solved

WHY = 'reason = "x"\nowner = "me"\nexpires = 2030-01-01\n'
# Not the shipped skip list: what a patch takes out of it is compared to the letter.
FILE = f"""\
schema = "cairn.skips/1"

# The first entry hangs.
[[skips]]
tests = [
    "a.py::T::test_a",
    "a.py::T::test_b",  # since 2.12
    "a.py::T::test_c",
]
{WHY}
# What is said of the second
# goes with it.
[[skips]]
tests = ["b.py::test_a", 'b.py::test_b']
patterns = ["b.py::T::test_out_*"]
{WHY}
[[ skips ]] # odd, and valid
tests = ["nn/c.py"]
{WHY}
# Names that led to no test:
# "test_gone"
"""
GOOD, BAD = True, False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "skip-tests").mkdir()
    (tmp_path / "skip-tests" / "generic.toml").write_text(FILE, encoding="utf-8")
    return tmp_path / "skip-tests" / "generic.toml"


def found(path: Path, *runs: dict[str, bool]) -> tuple[Solved, ...]:
    return skip_files.solved(skip_files.read([path]), runs)


def test_a_test_may_go_where_it_passed_each_time_at_the_first_attempt(path: Path) -> None:
    first = {
        "a.py::T::test_a": GOOD,
        "a.py::T::test_b": GOOD,
        "a.py::T::test_c": BAD,
        "b.py::test_a": BAD,
        "b.py::T::test_out_x": GOOD,
        "b.py::T::test_out_y": GOOD,
        "nn/c.py::test_a": GOOD,
        "nn/c.py::test_b": BAD,
    }
    (one, two) = found(path, first)
    assert (one.listed.number, one.names) == (1, ("a.py::T::test_a", "a.py::T::test_b"))
    assert (two.listed.number, two.names) == (2, ("b.py::T::test_out_*",))
    second = {**first, "a.py::T::test_a": BAD, "b.py::T::test_out_y": BAD}
    assert [solved.names for solved in found(path, first, second)] == [("a.py::T::test_b",)]
    assert found(path, first, {}) == ()  # it did not run the second time
    (whole,) = found(path, {"nn/c.py::test_a": GOOD, "nn/c.py::test_b": GOOD})
    assert whole.whole
    assert found(path, {"nn/c.py": BAD}) == ()


@pytest.mark.skipif(shutil.which("git") is None, reason="applies a patch with git")
def test_the_patch_takes_out_what_may_go_and_nothing_else(path: Path, tmp_path: Path) -> None:
    passed = ("a.py::T::test_b", "b.py::test_a", "nn/c.py::test_a")
    patch = skip_files.patch(found(path, dict.fromkeys(passed, GOOD)), top=tmp_path)
    assert "\n--- a/skip-tests/generic.toml\n" in f"\n{patch}"
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    expected = FILE.replace('    "a.py::T::test_b",  # since 2.12\n', "").replace('"b.py::test_a", ', "")
    gone = f'\n[[ skips ]] # odd, and valid\ntests = ["nn/c.py"]\n{WHY}'
    assert path.read_text(encoding="utf-8") == expected.replace(gone, "")


@pytest.mark.skipif(shutil.which("git") is None, reason="applies a patch with git")
def test_the_ends_of_lines_stay_as_they_are(path: Path, tmp_path: Path) -> None:
    text = FILE.replace('"x"', '"x\u2028y"', 1).replace("\n", "\r\n")
    path.write_bytes(text.encode())
    patch = skip_files.patch(found(path, {"a.py::T::test_a": GOOD, "b.py::test_a": GOOD}), top=tmp_path)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    gone = '    "a.py::T::test_a",\r\n', '"b.py::test_a", '
    assert path.read_bytes().decode() == text.replace(gone[0], "").replace(gone[1], "")


def test_a_whole_entry_goes_with_its_comment(path: Path) -> None:
    passed = ("b.py::test_a", "b.py::test_b", "b.py::T::test_out_x")
    new = skip_files.without(FILE, found(path, dict.fromkeys(passed, GOOD)), name="generic.toml")
    assert "b.py" not in new
    assert "goes with it" not in new
    assert "The first entry hangs." in new
    assert "led to no test" in new


def test_an_argument_that_pytest_escapes_is_taken_out(path: Path) -> None:
    """It names what is not ASCII by escapes, whose backslashes are two in a basic string of TOML."""
    name = 'a.py::test_x[\\xfc-"q"]'
    for quoted in (r'"a.py::test_x[\\xfc-\"q\"]"', f"'{name}'"):
        text = FILE.replace('"a.py::T::test_a"', quoted)
        path.write_text(text, encoding="utf-8")
        new = skip_files.without(text, found(path, {name: GOOD}), name="generic.toml")
        assert new == text.replace(f"    {quoted},\n", "")


def test_what_cannot_be_taken_out_is_refused(path: Path) -> None:
    text = FILE.replace('"b.py::test_a"', '"b.py\\u003a:test_a"')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be taken out"):
        skip_files.without(text, found(path, {"b.py::test_a": GOOD}), name="generic.toml")
