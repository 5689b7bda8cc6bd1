"""The journal of a checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.sources.git.repository import Repository
from cairn.sources.worktree import journal
from cairn.sources.worktree.journal import Journal, Move

COMMIT = "0" * 40
FIELDS = {"project": "torch", "origin": "u", "hashtag": "main", "commit": COMMIT}


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    moves = {".//.": Move(before=None, after=COMMIT)}
    written = Journal(**FIELDS, phase="moving", moves=moves)  # type: ignore[arg-type]
    journal.write(tmp_path, written)
    assert journal.read(tmp_path) == written
    assert not written.is_of_earlier_version
    assert [path.name for path in tmp_path.iterdir()] == ["cairn.json"]


def test_one_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    note = {"schema": "cairn.checkout/1", **FIELDS, "submodules": True, "hipify": True, "committed": True}
    for phase, unfinished in (("moving", True), ("hipifying", True), ("placed", False), ("ready", False)):
        more = {"phase": phase, "heads": {"": COMMIT}, "files": None}
        (tmp_path / "cairn.json").write_text(json.dumps(note | more))
        read = journal.read(tmp_path)
        assert read is not None
        assert (read.phase, read.is_of_earlier_version) == (phase, unfinished)


def test_a_clone_has_none(tmp_path: Path) -> None:
    assert journal.read(tmp_path) is None
    (tmp_path / "cairn.json").write_text("{}")
    assert journal.read(tmp_path) is None


def test_a_repository_is_told_by_its_place_and_by_its_git_directory(tmp_path: Path) -> None:
    root = Repository(work_tree=tmp_path, git_dir=tmp_path / ".git")
    modules = tmp_path / ".git/modules"
    parts = [
        Repository(work_tree=tmp_path / path, git_dir=modules / name) for path in "pq" for name in ("a", "b")
    ]
    assert journal.key(root, root) == ".//."
    assert len({journal.key(root, part) for part in (root, *parts)}) == 5


@pytest.mark.parametrize("schema", ["cairn.checkout/2", "cairn.checkout/10", "cairn.checkout/2.1"])
def test_one_of_a_newer_version_is_refused(tmp_path: Path, schema: str) -> None:
    (tmp_path / "cairn.json").write_text(json.dumps({"schema": schema, "state": "moving", **FIELDS}))
    with pytest.raises(SourceError, match=f"is of a newer Cairn .*{schema}") as error:
        journal.read(tmp_path)
    assert "\n" not in str(error.value)
    assert "use the newer Cairn" in str(error.value.tip)


@pytest.mark.parametrize("damaged", [b"[" * 200_000, b'{"schema":' * 100_000, b"\xff", b"[]", b"3", None])
def test_one_that_is_damaged_counts_as_none(tmp_path: Path, damaged: bytes | None) -> None:
    if damaged is None:
        (tmp_path / "cairn.json").mkdir()
    else:
        (tmp_path / "cairn.json").write_bytes(damaged)
    assert journal.read(tmp_path) is None
