from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.sources.git.repository import Repository, root_at
from cairn.sources.worktree import journal


@pytest.fixture
def root(tmp_path: Path) -> Repository:
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    return root_at(tmp_path / "tree")


def killed_while_lending(root: Repository, *, at: str = "") -> Path:
    """A file lent by a run that was killed: in the block, or at an event of the file's."""
    ours = "str(args[0]).startswith(sys.argv[1])"
    hook = f"lambda event, args: event == {at!r} and {ours} and os.kill(os.getpid(), signal.SIGKILL)"
    code = (
        "import os, signal, pathlib, sys\n"
        f"sys.addaudithook({hook})\n"
        "from cairn.sources.worktree import journal\n"
        "from cairn.sources.git.repository import root_at\n"
        f"with journal.lend(root_at(pathlib.Path({str(root.work_tree)!r})), 'a/x.py', 'ours'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = root.work_tree / "a"
    words = [sys.executable, "-c", code, f"{folder}{os.sep}"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    return folder / "x.py"


def test_a_lent_file_is_there_for_the_block_alone(root: Repository) -> None:
    with journal.lend(root, "x.py", "ours"):
        assert (root.work_tree / "x.py").read_text() == "ours"
        assert journal.is_lent(root)
    assert os.listdir(root.work_tree) == [".git"]
    assert not journal.is_lent(root)


def test_it_is_taken_back_after_a_kill(root: Repository) -> None:
    path = killed_while_lending(root)
    assert path.read_text() == "ours"
    journal.take_back(root)
    assert not path.exists()
    assert not journal.is_lent(root)


@pytest.mark.parametrize("at", ["open", "os.rename", "os.remove"])
def test_nothing_of_it_is_left_by_a_kill_while_it_is_written(root: Repository, at: str) -> None:
    killed_while_lending(root, at=at)
    journal.take_back(root)
    assert list((root.work_tree / "a").iterdir()) == []
    assert not journal.is_lent(root)


def test_what_somebody_made_of_it_since_stays(root: Repository) -> None:
    path = killed_while_lending(root)
    path.write_text("mine now")
    journal.take_back(root)
    assert path.read_text() == "mine now"


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_what_is_there_is_not_replaced(root: Repository, kind: str) -> None:
    path = root.work_tree / "x.py"
    if kind == "file":
        path.write_text("mine")
    elif kind == "link":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
    with pytest.raises(SourceError, match="is there already"), journal.lend(root, "x.py", "ours"):
        pass
    assert os.path.lexists(path)
    assert not journal.is_lent(root)
