"""The id of a working tree is that of the tree which committing all of it would make."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.sources.checkout import describe
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.worktree import contents
from cairn.sources.worktree.contents import work_tree_id
from cairn.sources.worktree.parts import walk
from helpers.sources import git


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clone made by hand, whose submodule git has not been told to skip."""
    for name in ("kit", "root"):
        git(tmp_path, "init", "--quiet", name)
        (tmp_path / name / "file.txt").write_text("one\n")
        (tmp_path / name / ".gitignore").write_text("*.o\n")
        git(tmp_path / name, "add", "--all")
        git(tmp_path / name, "commit", "--quiet", "-m", "One")
    root = tmp_path / "root"
    git(root, "submodule", "--quiet", "add", str(tmp_path / "kit"), "kit")
    git(root, "commit", "--quiet", "-m", "Kit")
    return root


def move_kit(tree: Path) -> None:
    git(tree / "kit", "commit", "--quiet", "--allow-empty", "-m", "Two")


STATES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (lambda _tree: None, True),
    "a time": (lambda tree: (tree / "file.txt").write_text("one\n"), True),
    "an ignored file": (lambda tree: (tree / "made.o").write_text(""), True),
    "an edit in the submodule": (lambda tree: (tree / "kit/file.txt").write_text("two\n"), True),
    "an edit": (lambda tree: (tree / "file.txt").write_text("two\n"), False),
    "a new file": (lambda tree: (tree / "new.txt").write_text("new\n"), False),
    "a file that is gone": (lambda tree: (tree / "file.txt").unlink(), False),
    "a file that may run": (lambda tree: (tree / "file.txt").chmod(0o755), False),
    "a staged file that is gone": (lambda tree: git(tree, "rm", "--quiet", "--cached", "file.txt"), True),
    "another commit of the submodule": (move_kit, False),
}


@pytest.mark.parametrize("name", STATES)
def test_it_is_the_tree_of_a_commit_of_everything(tree: Path, name: str) -> None:
    change, is_heads = STATES[name]
    change(tree)
    before = git(tree, "status", "--porcelain")
    id_ = work_tree_id(root_at(tree))
    assert git(tree, "status", "--porcelain") == before  # nothing is staged by asking
    assert (id_ == git(tree, "rev-parse", "HEAD^{tree}")) == is_heads
    git(tree, "add", "--all")
    assert id_ == git(tree, "write-tree")


def replace_kit(tree: Path, replacement: Path | None = None) -> None:
    shutil.rmtree(tree / "kit")
    if replacement is None:
        (tree / "kit").mkdir()
    else:
        shutil.copytree(replacement, tree / "kit")


def add_uncommitted(tree: Path) -> None:
    git(tree, "submodule", "--quiet", "add", str(tree.parent / "kit"), "new kit")


def add_undeclared(tree: Path) -> None:
    git(tree, "clone", "--quiet", str(tree.parent / "kit"), "new kit")
    git(tree, "add", "new kit")
    git(tree, "commit", "--quiet", "-m", "No .gitmodules has it")


def leave_out(tree: Path) -> None:
    git(tree, "config", "--file", ".gitmodules", "submodule.kit.update", "none")
    git(tree, "commit", "--quiet", "--all", "-m", "None")


NESTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a plain folder in its place": (replace_kit, "kit/file.txt"),
    "a clone in its place": (lambda tree: replace_kit(tree, tree.parent / "kit"), "kit/file.txt"),
    "a file in its place": (lambda tree: shutil.rmtree(tree / "kit"), "kit"),
    "moved": (lambda tree: git(tree, "mv", "kit", "moved"), "moved/file.txt"),
    "not committed yet": (add_uncommitted, "new kit/file.txt"),
    "in no .gitmodules": (add_undeclared, "new kit/file.txt"),
    "update = none": (leave_out, "kit/file.txt"),
}


@pytest.mark.parametrize("is_skipped", [False, True])
@pytest.mark.parametrize("name", NESTED)
def test_an_edit_is_seen_in_a_submodule_that_is_no_part(tree: Path, name: str, *, is_skipped: bool) -> None:
    change, file = NESTED[name]
    if is_skipped and name != "moved":  # as a checkout leaves it
        git(tree, "update-index", "--skip-worktree", "kit")
    change(tree)

    def digest(text: str) -> str:
        (tree / file).write_text(text)
        parts = walk(root_at(tree))
        seen = contents.digest(contents.ignored(parts) | contents.hidden(parts))
        return f"{contents.tree_state(tree)} {seen}"

    before = digest("before")
    assert digest("after") != before
    assert digest("before") == before


def test_what_a_person_commits_after_git_looked_at_the_files_is_seen(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Repository.status

    def status(repository: Repository, **settings: Any) -> Any:
        seen = look(repository, **settings)
        (tree / "file.txt").write_text("mine\n")
        git(tree, "commit", "--quiet", "-am", "Mine")
        return seen

    monkeypatch.setattr(Repository, "status", status)
    for tree_id in (lambda: work_tree_id(root_at(tree)), lambda: describe._look(root_at(tree), ())[2]):
        (tree / "file.txt").write_text("one\n")
        git(tree, "commit", "--quiet", "--allow-empty", "-am", "One again")
        assert tree_id() == git(tree, "rev-parse", "HEAD^{tree}")
