"""What a history.toml means, and what is wrong with a bad one."""

from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.sources.origins import history_toml
from cairn.sources.origins.history_toml import EXECUTABLE, FILE, GITLINK, NewEntry, NewRepository

HEAD = """\
schema = "cairn.history/1"
author = "A <a@example.invalid>"
default_branch = "main"
branches = {{ main = "{newest}" }}
"""
FIRST = """
[[commits]]
name = "first"
message = "Begin"
date = "2025-01-01T00:00:00+01:00"
"""
SECOND = """
[[commits]]
name = "second"
message = "Go on"
date = "2025-01-02T00:00:00+00:00"
"""


def described(folder: Path, text: str, **files: str) -> Path:
    (folder / "history.toml").write_text(text, encoding="utf-8")
    for name, content in files.items():
        path = folder / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def repository(folder: Path, commits: dict[str, str] | None = None) -> NewRepository:
    history = history_toml.load(folder)
    tree = history_toml.read_tree(folder, history.executable)
    known = commits or {}
    return history_toml.to_repository(history, tree, lambda name, ref: known[f"{name}:{ref}"])


def test_a_commit_takes_its_parents_files_and_its_own(tmp_path: Path) -> None:
    first = FIRST + 'tree = ["a"]\nwrite = { "version.txt" = "1\\n" }\n'
    second = SECOND + 'tree = ["d/*"]\nremove = ["a"]\nwrite = { "version.txt" = "2\\n" }\n'
    folder = described(tmp_path, HEAD.format(newest="second") + first + second, a="A", **{"d/e/f": "F"})
    made = repository(folder)
    assert [dict(c.files) for c in made.commits] == [
        {"a": NewEntry(mode=FILE, data=b"A"), "version.txt": NewEntry(mode=FILE, data=b"1\n")},
        {"d/e/f": NewEntry(mode=FILE, data=b"F"), "version.txt": NewEntry(mode=FILE, data=b"2\n")},
    ]
    assert [c.parent for c in made.commits] == [None, 0]
    assert made.branches == {"main": 1}
    assert made.commits[0].date.isoformat() == "2025-01-01T00:00:00+01:00"


def test_a_branch_leaves_from_the_named_parent(tmp_path: Path) -> None:
    third = SECOND.replace("second", "third") + 'parent = "first"\n'
    folder = described(tmp_path, HEAD.format(newest="third") + FIRST + SECOND + third)
    assert [c.parent for c in repository(folder).commits] == [None, 0, 0]


def test_commits_of_neighbours_are_filled_in(tmp_path: Path) -> None:
    text = FIRST + 'write = { pin = "{commit:kit:release/1}\\n" }\nsubmodules = { s = "{commit:other:v1}" }\n'
    folder = described(tmp_path, HEAD.format(newest="first") + text)
    assert history_toml.load(folder).neighbours() == ("kit", "other")
    files = repository(folder, {"kit:release/1": "1" * 40, "other:v1": "2" * 40}).commits[0].files
    assert files["pin"].data == b"1" * 40 + b"\n"
    assert files["s"] == NewEntry(mode=GITLINK, data=b"2" * 40)


def test_the_executable_bit_is_declared_not_found(tmp_path: Path) -> None:
    text = HEAD.format(newest="first") + 'executable = ["run"]\n' + FIRST + 'tree = ["*"]\n'
    folder = described(tmp_path, text, run="", other="")
    (folder / "tree" / "other").chmod(0o755)
    files = repository(folder).commits[0].files
    assert (files["run"].mode, files["other"].mode) == (EXECUTABLE, FILE)


def test_what_tools_leave_behind_is_no_part_of_it(tmp_path: Path) -> None:
    folder = described(tmp_path, "", **{"__pycache__/x.pyc": "", "d/.ruff_cache/y": "", "d/z": ""})
    assert list(history_toml.read_tree(folder, ())) == ["d/z"]


def test_a_link_is_refused(tmp_path: Path) -> None:
    folder = described(tmp_path, "", a="A")
    (folder / "tree" / "b").symlink_to("a")
    with pytest.raises(UsageError, match="b is not a plain file"):
        history_toml.read_tree(folder, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = ", "is not TOML"),
        (HEAD.format(newest="first").replace("history/1", "history/9") + FIRST, "expected 'cairn.history/1'"),
        (HEAD.format(newest="gone") + FIRST, "the branch main names the unknown commit 'gone'"),
        (HEAD.format(newest="first").replace('"main"', '"trunk"') + FIRST, "the default branch 'trunk'"),
        (
            HEAD.format(newest="first") + 'tags = { v1 = "gone" }\n' + FIRST,
            "the tag v1 names the unknown commit",
        ),
        (HEAD.format(newest="first") + FIRST + FIRST, "is described twice"),
        (HEAD.format(newest="first") + FIRST + 'parent = "later"\n', "names the parent 'later'"),
        (HEAD.format(newest="first") + FIRST.replace("2025-01-01T", "noon"), "is not ISO 8601"),
        (HEAD.format(newest="first") + FIRST.replace("+01:00", ""), "has no time zone"),
        (HEAD.format(newest="first") + FIRST + 'write = { "../x" = "" }\n', "outside the repository"),
        (HEAD.format(newest="first") + FIRST + 'write = { "/x" = "" }\n', "outside the repository"),
        (HEAD.format(newest="first") + FIRST + 'submodules = { ".git/x" = "" }\n', "outside the repository"),
        (HEAD.format(newest="first") + FIRST + "colour = 1\n", "colour"),
    ],
)
def test_a_malformed_description_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        history_toml.load(described(tmp_path, text))


def test_a_missing_description_says_what_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*history\.toml") as caught:
        history_toml.load(tmp_path)
    assert "tree/" in str(caught.value.tip)


@pytest.mark.parametrize("key", ["tree", "remove"])
def test_a_pattern_must_match_something(tmp_path: Path, key: str) -> None:
    folder = described(tmp_path, HEAD.format(newest="first") + FIRST + f'{key} = ["gone/*"]\n', a="A")
    with pytest.raises(UsageError, match="no file matches 'gone/\\*'"):
        repository(folder)
