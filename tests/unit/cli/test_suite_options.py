"""What the options of `cairn test suite` put in place of the stack's own suite and skip-tests."""

from pathlib import Path

import pytest

from cairn.cli import main
from cairn.cli.test import suite_options

SKIPS = """\
schema = "cairn.skips/1"
[[skips]]
tests = ["test_a.py::test_bad"]
reason = "it hangs"
owner = "me"
expires = 2099-01-01
"""


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    folder = tmp_path / "stack"
    (folder / "skip-tests").mkdir(parents=True)
    (folder / "skip-tests" / "generic.toml").write_text(SKIPS, encoding="utf-8")
    (folder / "stack.toml").touch()
    (folder / "suite.toml").touch()
    return folder


def values(stack: Path, *words: str) -> tuple[int, tuple[str, ...]]:
    """How many entries leave tests out, and what the record says that was put in place of the stack's."""
    command = ["test", "suite", "--sources-dir", str(stack), "--stack", str(stack / "stack.toml"), *words]
    found = suite_options.request_values(main.make_parser().parse_args(command), stack)
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
