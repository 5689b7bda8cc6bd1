"""What a branch was: by first parents and the time of the commit, never by when something was written."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from cairn import converters
from cairn.cli import main as program
from cairn.errors import SourceError
from cairn.files import cache_dir
from cairn.sources import mirror
from helpers import stacks
from helpers.sources import Bench, Upstream, git

At = Callable[..., str]


@pytest.fixture
def at(upstream: Upstream) -> At:
    """Commit to a repository as if it were another day; gives the commit."""
    upstream.create("nightly", {"version.txt": "0\n"})
    work = upstream.work("nightly")

    def commit(committed: str, *words: str, written: str | None = None) -> str:
        command = words or ("commit", "--quiet", "--allow-empty", "-m", committed)
        git(work, *command, GIT_COMMITTER_DATE=committed, GIT_AUTHOR_DATE=written or committed)
        git(work, "push", "--quiet", "--force", "origin", "HEAD:refs/heads/main")
        return git(work, "rev-parse", "HEAD")

    commit("2025-11-01T00:00:00+00:00", "commit", "--quiet", "--amend", "-m", "Begin")
    return commit


def as_of(upstream: Upstream, text: str, hashtag: str = "main") -> str:
    when = converters.moment(text)
    return mirror.as_of(mirror.of_commits(upstream.origin("nightly")), hashtag, when, say=print)


def test_the_newest_commit_that_was_there(at: At, upstream: Upstream) -> None:
    first = at("2025-11-10T12:00:00+00:00")
    second = at("2025-11-11T12:00:00+00:00")
    third = at("2025-11-12T12:00:00+00:00")
    assert as_of(upstream, "2025-11-10") == first
    assert as_of(upstream, "2025-11-11T11:59:59") == first
    assert as_of(upstream, "2025-11-11T12:00:00") == second
    assert as_of(upstream, "2025-11-11T13:00:00+02:00") == first
    assert as_of(upstream, "2030-01-01") == third


def test_a_merge_brings_commits_that_were_not_there_though_they_are_older(at: At, upstream: Upstream) -> None:
    main = at("2025-11-10T12:00:00+00:00")
    at("2025-11-10T12:00:01+00:00", "switch", "--quiet", "--create", "side")
    at("2025-11-11T00:00:00+00:00")
    at("2025-11-11T01:00:00+00:00", "switch", "--quiet", "main")
    merge = at("2025-11-20T12:00:00+00:00", "merge", "--quiet", "--no-ff", "-m", "Merge", "side")
    assert as_of(upstream, "2025-11-15") == main
    assert as_of(upstream, "2025-11-20") == merge


def test_the_time_of_the_commit_counts_not_that_of_writing(at: At, upstream: Upstream) -> None:
    before = at("2025-11-10T12:00:00+00:00")
    picked = at("2025-11-20T12:00:00+00:00", written="2025-10-01T00:00:00+00:00")
    assert as_of(upstream, "2025-11-15") == before
    assert as_of(upstream, "2025-11-21") == picked


def test_a_clock_that_was_wrong_once(at: At, upstream: Upstream) -> None:
    at("2025-11-10T12:00:00+00:00")
    at("2031-01-01T00:00:00+00:00")
    after = at("2025-11-12T12:00:00+00:00")
    assert as_of(upstream, "2025-11-13") == after


def test_tags_and_commits_are_what_they_are(at: At, upstream: Upstream) -> None:
    commit = at("2025-11-10T12:00:00+00:00")
    git(Path(upstream.origin("nightly")), "tag", "v1", commit)
    assert as_of(upstream, "2025-11-01", "v1") == "v1"
    assert as_of(upstream, "2025-11-01", commit) == commit
    assert as_of(upstream, "2025-11-01", commit[:9]) == commit[:9]


def test_before_the_beginning(at: At, upstream: Upstream) -> None:
    at("2025-11-10T12:00:00+00:00")
    with pytest.raises(SourceError, match="no commit as old as 2025-10-31"):
        as_of(upstream, "2025-10-31")


@pytest.mark.parametrize("depth", [None, 1])
def test_a_checkout_of_the_past(at: At, bench: Bench, upstream: Upstream, depth: int | None) -> None:
    then = at("2025-11-10T12:00:00+00:00")
    at("2025-11-11T12:00:00+00:00")
    when = converters.moment("2025-11-10")
    done = bench(origin=upstream.origin("nightly"), hipify=False, as_of=when, depth=depth)
    assert (done.commit, done.hashtag) == (then, "main")
    mirrors = {path.name for path in (cache_dir() / "mirrors").glob("*.git")}
    # Where the history is not wanted, its commits are fetched without their files.
    assert len(mirrors) == (1 if depth is None else 2), mirrors
    assert any(name.endswith(".commits.git") for name in mirrors) == (depth is not None)


def test_the_commands(at: At, upstream: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    then = at("2025-11-10T12:00:00+00:00")
    at("2025-11-11T12:00:00+00:00")
    torch = stacks.project("torch", upstream.origin("nightly"), folder="pytorch")
    (tmp_path / "stack.toml").write_text(stacks.stack(torch))
    stack = ["--stack", str(tmp_path), "--as-of", "2025-11-10"]
    assert program.main(["checkout", "all", *stack, "--root-checkout-dir", str(tmp_path / "a")]) == 0
    assert f"at {then[:12]} (main)" in capsys.readouterr().out
    make = ["manifest", "create", *stack, "--root-checkout-dir", str(tmp_path / "b")]
    assert program.main([*make, "--output", str(tmp_path / "m.json"), "--json"]) == 0
    assert then in capsys.readouterr().out
    with pytest.raises(SystemExit):
        program.main(["checkout", "all", "--stack", str(tmp_path), "--as-of", "yesterday"])
    assert "'yesterday' is not a valid date" in capsys.readouterr().err


def test_how_a_moment_is_written() -> None:
    assert converters.moment("2025-11-24") == datetime(2025, 11, 24, 23, 59, 59, 999999, tzinfo=UTC)
    assert converters.moment("20251124") == converters.moment("2025-11-24")
    assert converters.moment("2025-11-24T06:00") == datetime(2025, 11, 24, 6, tzinfo=UTC)
    zone = timezone(timedelta(hours=2))
    assert converters.moment("2025-11-24T06:00+02:00") == datetime(2025, 11, 24, 6, tzinfo=zone)


@pytest.mark.parametrize("text", ["", "today", "24.11.2025", "2025-13-01", "2025-11-24T99:00", "2025"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a valid date"):
        converters.moment(text)
