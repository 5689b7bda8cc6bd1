"""Runs that are killed, run side by side, or lose their mirror."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from cairn.errors import SourceError
from cairn.files import cache_dir
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.checkout.describe import Checkout, describe
from cairn.sources.git.repository import commits_at, edits_at
from cairn.sources.pins import choose_source
from cairn.stack import Project
from helpers.sources import EVERY_MOMENT, Bench, Upstream, When, git, killed


def assert_whole(bench: Bench, done: Checkout, reference: Checkout) -> None:
    assert (done.commit, done.hipify_commit, done.tree) == (
        reference.commit,
        reference.hipify_commit,
        reference.tree,
    )
    assert done.submodules == reference.submodules
    assert bench.git("status", "--porcelain") == ""
    bench.git("fsck", "--strict")
    assert list((bench.path / ".git").rglob("*.lock")) == []


@pytest.mark.slow
def test_a_run_killed_at_any_call_of_git_is_repaired(
    bench: Bench, reference: Checkout, tmp_path: Path
) -> None:
    # From anywhere, so that in the course of time every call has its turn; by an odd step, so do both kills.
    step = 1 if EVERY_MOMENT else 13
    first = at = random.randint(1, step)  # noqa: S311
    status = -signal.SIGKILL
    while status:
        when: When = "before" if at % 2 else "orphan"
        status = killed(bench, tmp_path / f"shim {at}", nth=at, when=when, jobs=0)
        assert status in (-signal.SIGKILL, 0), f"at {at}, from {first}"
        assert_whole(bench, bench(), reference)
        shutil.rmtree(bench.path)
        at += step
    assert at > 40


@pytest.mark.parametrize("at", [4, 12, 25, 40, 55])
def test_an_update_that_is_killed_is_repaired(
    bench: Bench, upstream: Upstream, tmp_path: Path, at: int
) -> None:
    bench.begin()
    upstream.go_on()
    assert killed(bench, tmp_path / "shim", nth=at, jobs=0) == -signal.SIGKILL
    assert_whole(bench, bench(), bench(checkout_dir=tmp_path / "reference"))


def test_a_killed_hipify_is_not_applied_on_top_of_itself(
    bench: Bench, reference: Checkout, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    marker = tmp_path / "shim" / "now"
    python.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\n: > "{marker}"\nsleep 60\n')
    python.chmod(0o755)
    status = killed(bench, tmp_path / "shim", nth=10_000, python=python, jobs=0)
    assert status == -signal.SIGKILL
    [hipified] = cache_dir().glob("scratch/*/tree/src/device.cpp")
    assert "hip/driver_types.h" in hipified.read_text()
    assert "hip/" not in (bench.path / "src/device.cpp").read_text()
    assert_whole(bench, bench(), reference)


@pytest.mark.parametrize("name", ["third_party/cudakit/..git", "torch/._rocm_init.py"])
def test_a_file_that_a_killed_run_was_writing_is_not_the_users(
    bench: Bench, upstream: Upstream, name: str
) -> None:
    bench.begin()
    left = bench.path / f"{name}.0123456789abcdef.part"
    left.parent.mkdir(exist_ok=True)
    left.touch()
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert bench().version == "2.9.1"
    assert not left.exists()


def test_two_lines_from_one_mirror_at_once(bench: Bench, upstream: Upstream, tmp_path: Path) -> None:
    other = upstream.commit("torch", {"version.txt": "3.0.0\n"}, "Three", branch="three")
    wanted = [("main", "a"), ("three", "b"), ("v2.9.0", "c"), ("three", "d")]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda pair: bench(pair[0], checkout_dir=tmp_path / pair[1]), wanted))
    assert [c.version for c in done] == ["2.9.0a0", "3.0.0", "2.9.0a0", "3.0.0"]
    assert done[1].commit == done[3].commit == other
    assert done[1].hipify_commit == done[3].hipify_commit
    mirrors = cache_dir() / "mirrors"
    assert len(list(mirrors.glob("*.git"))) == 4


def test_two_runs_on_one_checkout(bench: Bench) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(bench, ["main", "main"])
    assert first == second


def test_a_checkout_survives_the_gc_of_its_mirror(bench: Bench, upstream: Upstream) -> None:
    done = bench.begin()
    git(upstream.work("torch"), "reset", "--quiet", "--hard", "HEAD~1")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Other")
    bench(checkout_dir=bench.path.parent / "other")
    for mirror in (cache_dir() / "mirrors").glob("*.git"):
        git(mirror, "reflog", "expire", "--expire=now", "--all")
        git(mirror, "gc", "--quiet", "--prune=now")
    bench.git("fsck", "--strict")
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit


@pytest.mark.parametrize("move", [False, True])
def test_an_emptied_cache_is_filled_again(bench: Bench, upstream: Upstream, *, move: bool) -> None:
    before = bench.begin()
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    bench.git("branch", "mine")
    shutil.rmtree(cache_dir())
    if move:
        upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    done = bench()
    assert done.version == ("2.9.1" if move else before.version)
    bench.git("fsck", "--strict")
    assert bench.git("log", "-1", "--format=%s", "mine") == "Mine"


@pytest.mark.parametrize("hipify", [False, True])
def test_the_mirror_of_one_submodule_is_made_again(bench: Bench, *, hipify: bool) -> None:
    before = bench.begin(hipify=hipify)
    lender = bench.path / ".git/modules/third_party/cudakit/objects/info/alternates"
    shutil.rmtree(Path(lender.read_text().splitlines()[0]).parent)
    assert bench(hipify=hipify) == before
    bench.git("-C", "third_party/cudakit", "fsck", "--strict")


def test_a_mirror_made_again_may_not_have_the_commit_of_a_submodule(bench: Bench, upstream: Upstream) -> None:
    before = bench.begin(hipify=False, depth=1)
    upstream.go_on()
    shutil.rmtree(cache_dir())
    bench(hipify=False, depth=1, checkout_dir=bench.path.parent / "another")
    again = bench(before.commit, hipify=False, depth=1)
    assert (again.commit, again.submodules) == (before.commit, before.submodules)
    bench.git("-C", "third_party/cudakit", "fsck", "--strict", "--connectivity-only")


@pytest.mark.parametrize("git_dir", [".git", ".git/modules/third_party/cudakit"])
def test_settings_that_are_gone_are_made_again(bench: Bench, upstream: Upstream, git_dir: str) -> None:
    bench.begin(hipify=False)
    config = bench.path / git_dir / "config"
    before = config.read_text()
    config.unlink()
    upstream.go_on()
    bench(hipify=False)
    assert config.read_text() == before


def test_what_a_lost_mirror_took_away_is_no_checkout(bench: Bench, torch: Project) -> None:
    bench.begin(hipify=False)
    shutil.rmtree(cache_dir())
    assert (commits_at(bench.path), edits_at(bench.path)) == ((), ())
    with pytest.raises(SourceError, match="is not a git checkout") as error:
        hipify_checkout(torch, bench.path)
    assert error.value.tip == "run the `checkout` command first"


def test_a_second_checkout_of_a_commit_needs_no_origin(bench: Bench, upstream: Upstream) -> None:
    commit = bench.begin().commit
    shutil.rmtree(upstream.folder)
    assert bench(commit).commit == commit
    assert bench(commit, checkout_dir=bench.path.parent / "another").commit == commit


def test_an_emptied_cache_is_said_to_be_the_reason(bench: Bench, torch: Project) -> None:
    done = bench.begin()
    (bench.path / "related_commits").write_text(f"ubuntu|p|torchvision|main|{'1' * 40}|https://h/vision\n")
    shutil.rmtree(cache_dir() / "mirrors")
    with pytest.raises(SourceError, match=r"the mirror that .* borrows from is gone"):
        describe(torch, bench.path)
    vision = msgspec.structs.replace(torch, name="vision", distribution="torchvision", pin="related_commits")
    found = choose_source(vision, default_origin="/d", torch_dir=bench.path, require_related_commit=True)
    assert found.hashtag == "1" * 40
    (bench.path / "related_commits").unlink()
    assert bench() == done
    assert describe(torch, bench.path) == done
