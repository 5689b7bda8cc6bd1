"""The id of a working tree is that of the tree which committing all of it would make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.sources.git.repository import root_at
from cairn.sources.worktree.contents import work_tree_id
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
