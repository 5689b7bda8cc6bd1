"""What a mirror says of names, and what a run that was killed leaves of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.errors import SourceError
from cairn.sources import mirror
from cairn.sources.git import command
from cairn.sources.mirror import Mirror


@pytest.fixture
def source(tmp_path: Path) -> Mirror:
    """The mirror, yet to be made, of an origin with twelve commits and three branches."""
    origin = tmp_path / "origin"
    origin.mkdir()
    command.run(origin, "init", "--quiet", "--initial-branch=main")
    for number in range(12):
        command.run(origin, "commit", "--quiet", "--allow-empty", f"--message={number}")
    command.run(origin, "branch", "other", "HEAD~5")
    command.run(origin, "branch", "it's")
    return Mirror(origin=str(origin), path=tmp_path / "mirror.git")


def silent(_line: str) -> None:
    pass


def test_a_branch_with_a_quotation_mark_is_a_branch(source: Mirror) -> None:
    resolved = source.find("it's", say=silent)
    assert (resolved.kind, resolved.name) == ("branch", "it's")


def test_a_run_that_was_ended_as_it_forgot_pieces_leaves_a_mirror_that_goes_on(source: Mirror) -> None:
    source.path.mkdir()
    command.run(source.path, "init", "--quiet", "--bare", ".")
    mirror._fetch_piece(source, ("main",), 2)
    in_the_way = source.path / "refs/cairn/pieces/0.lock"
    in_the_way.touch()
    with pytest.raises(SourceError):
        source.find("other", say=silent)
    in_the_way.unlink()
    for name, count in (("other", "7"), ("main", "12")):
        commit = source.find(name, say=silent).commit
        assert command.line(source.path, "rev-list", "--count", commit) == count
