"""What the options of `cairn test suite` put in place of the stack's own suite and skip-tests."""

from pathlib import Path
from typing import Any

import pytest

from cairn.cli import binder, main
from cairn.cli.test.suite import RunSuite
from cairn.stack import load, recipe

# Not the shipped files: which of two files an option prefers is seen by their content.
SKIPS = """\
schema = "cairn.skips/1"
[[skips]]
tests = ["test_a.py::test_bad"]
reason = "it hangs"
owner = "me"
expires = 2099-01-01
"""

STACK = """\
schema = "cairn.stack/1"
name = "mine"
line = "1"
targets = ["cpu"]
[[projects]]
name = "a"
distribution = "a"
checkout_dir = "a"
hashtag = "main"
origin = { url = "https://example.org/nothing.git" }
"""


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    folder = tmp_path / "stack"
    (folder / "skip-tests").mkdir(parents=True)
    (folder / "skip-tests" / "generic.toml").write_text(SKIPS, encoding="utf-8")
    (folder / "stack.toml").write_text(STACK, encoding="utf-8")
    (folder / "suite.toml").touch()
    return folder


def values_of(stack: Path, *words: str) -> dict[str, Any]:
    command = ["test", "suite", "--sources-dir", str(stack), "--stack", str(stack / "stack.toml"), *words]
    return binder.make(RunSuite, main.make_parser().parse_args(command)).request_values(stack)


def values(stack: Path, *words: str) -> tuple[int, tuple[str, ...]]:
    """How many entries leave tests out, and what the record says that was put in place of the stack's."""
    found = values_of(stack, *words)
    return len(found["skips"]), found["instead"]


def test_the_stacks_own_are_used_and_need_no_word(stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert values(stack) == (1, ())
    assert values(stack, "-k", "bad") == (0, ())
    monkeypatch.chdir(stack)
    for own in ("skip-tests", f"{stack}/skip-tests/generic.toml"):
        assert values(stack, "--skip-tests", own) == (1, ())
    for own in (".", "suite.toml"):
        assert values(stack, "--suite", own) == (1, ())


def test_others_are_named(stack: Path, tmp_path: Path) -> None:
    other = tmp_path / "mine.toml"
    other.write_text(SKIPS, encoding="utf-8")
    assert values(stack, "--skip-tests", str(other)) == (1, (f"--skip-tests={other}",))
    suite = tmp_path / "suite.toml"
    suite.touch()
    assert values(stack, "--suite", str(suite)) == (0, (f"--suite={suite}",))


def test_the_record_will_say_which_stack_and_list_there_were(stack: Path, tmp_path: Path) -> None:
    ran = values_of(stack)["policy"]
    assert (ran.stack, ran.stack_sha256) == ("mine", recipe.digest_of(load(stack)))
    assert ran.skips_sha256 == recipe.skips_digest([stack / "skip-tests"])
    assert values_of(stack, "-k", "bad")["policy"].skips_sha256 is None
    other = tmp_path / "mine.toml"
    other.write_text(SKIPS.replace("hangs", "fails"), encoding="utf-8")
    assert values_of(stack, "--skip-tests", str(other))["policy"].skips_sha256 != ran.skips_sha256
