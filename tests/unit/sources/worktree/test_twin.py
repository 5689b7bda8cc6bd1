"""Copies of checkouts to build in."""

import os
from pathlib import Path

import pytest

from cairn.build.inputs import source_tree
from cairn.errors import SourceError
from cairn.sources.git.repository import UPSTREAM_TAG, root_at
from cairn.sources.worktree import contents, twin
from cairn.sources.worktree.parts import CommittedPart, walk, walk_commit
from helpers.build import repository
from helpers.sources import git


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a submodule, edits of all kinds, and names that are no plain words."""
    inner = repository(tmp_path / "inner", {"inner.txt": "inner\n", "deep/er.txt": "deep\n"})
    tree = repository(
        tmp_path / "a tree",
        {
            "kept.txt": "kept\n",
            "edited.txt": "one\n",
            "gone.txt": "gone\n",
            "Ü b.txt": "ü\n",
            ".gitignore": "*.so\n",
        },
    )
    git(tree, "submodule", "--quiet", "add", str(inner), "third party/inner")
    (tree / "link").symlink_to("kept.txt")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "two")
    git(tree, "tag", UPSTREAM_TAG)
    (tree / "edited.txt").write_text("two\n")
    (tree / "gone.txt").unlink()
    (tree / "new.sh").write_text("#!/bin/sh\n")
    (tree / "new.sh").chmod(0o755)
    (tree / "by hand.so").write_bytes(b"\x7fELF")
    (tree / "third party/inner/inner.txt").write_text("edited\n")
    return tree


def seen(tree: Path) -> tuple[object, ...]:
    """All that the key of a build has of a tree, and what tells a later plan what was edited."""
    parts = walk(root_at(tree))
    foreign = contents.digest(contents.ignored(parts) | contents.hidden(parts))
    return contents.tree_state(tree), foreign, source_tree.upstream(tree), source_tree.edited_files(tree)


def test_a_copy_is_the_same_to_every_key_and_borrows_its_objects(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "tree"
    twin.follow(checkout, copy)
    assert seen(copy) == seen(checkout)
    assert source_tree.commit_time(copy) == source_tree.commit_time(checkout)
    assert git(copy, "status", "--porcelain") == git(checkout, "status", "--porcelain")
    assert git(copy / "third party/inner", "rev-parse", "HEAD") == git(
        checkout / "third party/inner", "rev-parse", "HEAD"
    )
    assert not [path for path in copy.rglob("objects/??/*") if path.is_file()]
    assert git(copy, "fsck") == ""
    assert twin.size_of(checkout) > 0


def test_what_changes_in_the_checkout_changes_in_the_copy_and_what_builds_left_there_stays(
    checkout: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    twin.follow(checkout, copy)
    (copy / "build").mkdir()
    (copy / "build" / "a.o").write_text("an hour's work")
    (copy / "kept.txt").write_text("a build wrote over it\n")
    times = {path: path.stat().st_mtime_ns for path in (copy / "Ü b.txt", copy / "build" / "a.o")}
    (checkout / "edited.txt").write_text("three\n")
    (checkout / "Ü b.txt").chmod(0o755)  # which keeps size and time
    (checkout / "new.sh").unlink()
    (checkout / "link").unlink()
    (checkout / "link").mkdir()
    (checkout / "link" / "file").write_text("a folder now")
    (checkout / "third party/inner/deep/er.txt").unlink()
    git(checkout, "commit", "-qam", "three")
    git(checkout, "tag", "-f", UPSTREAM_TAG)
    git(checkout, "pack-refs", "--all")
    twin.follow(checkout, copy)
    assert (copy / "build" / "a.o").read_text() == "an hour's work"
    assert {path: path.stat().st_mtime_ns for path in times} == times
    (copy / "build" / "a.o").unlink()
    assert seen(copy) == seen(checkout)
    assert not (copy / "third party/inner/deep").exists()


def test_what_is_to_stay_out_of_a_copy_is_not_there(checkout: Path, tmp_path: Path) -> None:
    twin.follow(checkout, tmp_path / "copy", without={"by hand.so"})
    assert not (tmp_path / "copy" / "by hand.so").exists()
    assert (checkout / "by hand.so").exists()


def test_a_copy_that_a_kill_left_half_done_is_completed(checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    twin.follow(checkout, copy)
    (copy / "kept.txt").write_text("ke")
    (copy / "edited.txt").unlink()
    (copy / ".git/index").write_bytes(b"DIRC")
    (copy / ".git/config").unlink()
    twin.follow(checkout, copy)
    assert seen(copy) == seen(checkout)


def test_a_linked_worktree_is_copied_as_a_repository_of_its_own(checkout: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(checkout, "worktree", "add", "--quiet", "--detach", str(linked), "HEAD~1")
    (linked / "edited.txt").write_text("in the worktree\n")
    twin.follow(linked, tmp_path / "copy")
    assert seen(tmp_path / "copy") == seen(linked)
    assert seen(tmp_path / "copy") != seen(checkout)


def test_a_name_that_is_not_utf_8_is_refused_rather_than_forgotten(checkout: Path, tmp_path: Path) -> None:
    with open(os.fsencode(checkout) + b"/\xff.txt", "w") as file:  # noqa: PTH123 - a name of bytes
        file.write("raw")
    with pytest.raises(SourceError, match="not UTF-8"):
        twin.follow(checkout, tmp_path / "copy")


def test_a_submodule_is_not_put_over_files_that_its_parent_has_there(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    root = root_at(checkout)
    submodule = walk_commit(root, "HEAD")[1]
    git(checkout, "rm", "--quiet", "--cached", "third party/inner", ".gitmodules")
    for path in ("third party/inner/.git", ".gitmodules"):
        (checkout / path).unlink()
    git(checkout, "add", "third party")
    git(checkout, "commit", "-qm", "files of our own")
    parent = CommittedPart(path="", repository=root, commit=root.head() or "")
    with (
        pytest.raises(SourceError, match="third party/inner is in no commit"),
        twin.copy((parent, submodule)),
    ):
        pass
