"""Runs that are killed, run side by side, or lose their mirror."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import SourceError
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.sources.checkout.describe import Checkout, describe
from cairn.sources.checkout_stack import wanted
from cairn.sources.git.repository import commits_at, edits_at
from cairn.stack import Project
from helpers.sources import Bench, Upstream

# Runs a checkout in a process of its own, with a `git` in front of the real one that kills that process at
# its N-th call: before git has run, or leaving git to run on without a parent.
CHILD = """
import sys
from pathlib import Path
from cairn.sources.checkout.checkout import CheckoutRequest, checkout
from cairn.stack import Origin, Project
names = {"name": "torch", "distribution": "torch", "checkout_dir": "x", "hashtag": "x"}
project = Project(**names, origin=Origin(url="x"), hipify="build_amd")
origin, folder, hashtag, python = sys.argv[1:5]
checkout(CheckoutRequest(project=project, checkout_dir=Path(folder), origin=origin, hashtag=hashtag,
                         python=Path(python)))
"""
KILLER = """#!/bin/sh
# Each call gets a number of its own, also of those that run side by side: only one can make the file.
set -C
count=1
until true 2>/dev/null > "{state}/call $count"; do count=$((count + 1)); done
if [ $count -eq {at} ]; then
    kill -9 $PPID
    [ {orphan} -eq 1 ] || exit 1
fi
exec "{git}" "$@"
"""


def run_killed(
    bench: Bench, folder: Path, *, at: int, orphan: bool = False, python: str = sys.executable
) -> int:
    """The exit status of a checkout that is killed at the `at`-th call of git; 0 when it ended before."""
    folder.mkdir()
    shim = folder / "git"
    shim.write_text(KILLER.format(state=folder, at=at, orphan=int(orphan), git=shutil.which("git")))
    shim.chmod(0o755)
    env = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", CHILD, bench.request.origin, str(bench.path), "main", python]
    return subprocess.run(command, env=env, check=False, capture_output=True).returncode


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


@pytest.fixture
def reference(bench: Bench, tmp_path: Path) -> Checkout:
    """What an undisturbed checkout gives; its mirrors are removed again."""
    done = bench(checkout_dir=tmp_path / "reference")
    shutil.rmtree(Path(os.environ["CAIRN_CACHE_DIR"]) / "mirrors")
    return done


@pytest.mark.parametrize("at", [1, 3, 8, 14, 19, 24, 33, 47, 60, 75, 90, 105])
def test_the_next_run_repairs_a_killed_one(
    bench: Bench, reference: Checkout, tmp_path: Path, at: int
) -> None:
    status = run_killed(bench, tmp_path / "shim", at=at, orphan=at % 2 == 1)
    assert status in (-signal.SIGKILL, 0)
    assert_whole(bench, bench(), reference)


@pytest.mark.slow
def test_a_run_killed_at_any_call_of_git_is_repaired(
    bench: Bench, reference: Checkout, tmp_path: Path
) -> None:
    at, status = 1, -signal.SIGKILL
    while status:
        status = run_killed(bench, tmp_path / f"shim {at}", at=at, orphan=at % 2 == 0)
        assert_whole(bench, bench(), reference)
        shutil.rmtree(bench.path)
        at += 1
    assert at > 40


@pytest.mark.parametrize("at", [4, 12, 25, 40, 55])
def test_an_update_that_is_killed_is_repaired(
    bench: Bench, upstream: Upstream, tmp_path: Path, at: int
) -> None:
    bench()
    newer = upstream.commit("cudakit", {"fill.cu": '#include "driver_types.h"\nint newer;\n'}, "Newer kit")
    upstream.bump_submodule("torch", "third_party/cudakit", newer)
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    assert run_killed(bench, tmp_path / "shim", at=at) == -signal.SIGKILL
    assert_whole(bench, bench(), bench(checkout_dir=tmp_path / "reference"))


def test_a_killed_hipify_is_not_applied_on_top_of_itself(
    bench: Bench, reference: Checkout, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n"{sys.executable}" "$@"\nkill -9 $PPID\n')
    python.chmod(0o755)
    status = run_killed(bench, tmp_path / "shim", at=10_000, python=str(python))
    assert status == -signal.SIGKILL
    [hipified] = Path(os.environ["CAIRN_CACHE_DIR"]).glob("scratch/*/tree/src/device.cpp")
    assert "hip/driver_types.h" in hipified.read_text()
    assert "hip/" not in (bench.path / "src/device.cpp").read_text()
    assert_whole(bench, bench(), reference)


def test_edits_after_a_killed_move_do_not_stop_the_repair(
    bench: Bench, reference: Checkout, tmp_path: Path
) -> None:
    assert run_killed(bench, tmp_path / "shim", at=30) == -signal.SIGKILL
    assert_whole(bench, bench(), reference)


@pytest.mark.parametrize("name", ["third_party/cudakit/..git", "torch/._rocm_init.py"])
def test_a_file_that_a_killed_run_was_writing_is_not_the_users(
    bench: Bench, upstream: Upstream, name: str
) -> None:
    bench()
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
    mirrors = Path(os.environ["CAIRN_CACHE_DIR"]) / "mirrors"
    assert len(list(mirrors.glob("*.git"))) == 4


def test_two_runs_on_one_checkout(bench: Bench) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(bench, ["main", "main"])
    assert first == second


def test_a_checkout_survives_the_gc_of_its_mirror(bench: Bench, upstream: Upstream, run_git: Any) -> None:
    done = bench()
    run_git(upstream.work("torch"), "reset", "--quiet", "--hard", "HEAD~1")
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Other")
    bench(checkout_dir=bench.path.parent / "other")
    for mirror in (Path(os.environ["CAIRN_CACHE_DIR"]) / "mirrors").glob("*.git"):
        run_git(mirror, "reflog", "expire", "--expire=now", "--all")
        run_git(mirror, "gc", "--quiet", "--prune=now")
    bench.git("fsck", "--strict")
    assert bench.git("rev-parse", "HEAD") == done.hipify_commit


@pytest.mark.parametrize("move", [False, True])
def test_an_emptied_cache_is_filled_again(bench: Bench, upstream: Upstream, *, move: bool) -> None:
    before = bench()
    bench.git("commit", "--quiet", "--allow-empty", "-m", "Mine")
    bench.git("branch", "mine")
    shutil.rmtree(os.environ["CAIRN_CACHE_DIR"])
    if move:
        upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    done = bench()
    assert done.version == ("2.9.1" if move else before.version)
    bench.git("fsck", "--strict")
    assert bench.git("log", "-1", "--format=%s", "mine") == "Mine"


@pytest.mark.parametrize("hipify", [False, True])
def test_the_mirror_of_one_submodule_is_made_again(bench: Bench, *, hipify: bool) -> None:
    before = bench(hipify=hipify)
    lender = bench.path / ".git/modules/third_party/cudakit/objects/info/alternates"
    shutil.rmtree(Path(lender.read_text().splitlines()[0]).parent)
    assert bench(hipify=hipify) == before
    bench.git("-C", "third_party/cudakit", "fsck", "--strict")


def test_a_mirror_made_again_may_not_have_the_commit_of_a_submodule(bench: Bench, upstream: Upstream) -> None:
    before = bench(hipify=False, depth=1)
    kit = upstream.commit("cudakit", {"README": "newer\n"}, "Newer")
    upstream.bump_submodule("torch", "third_party/cudakit", kit)
    upstream.commit("torch", {}, "Newer cudakit")
    shutil.rmtree(os.environ["CAIRN_CACHE_DIR"])
    bench(hipify=False, depth=1, checkout_dir=bench.path.parent / "another")
    again = bench(before.commit, hipify=False, depth=1)
    assert (again.commit, again.submodules) == (before.commit, before.submodules)
    bench.git("-C", "third_party/cudakit", "fsck", "--strict", "--connectivity-only")


@pytest.mark.parametrize("git_dir", [".git", ".git/modules/third_party/cudakit"])
def test_settings_that_are_gone_are_made_again(bench: Bench, upstream: Upstream, git_dir: str) -> None:
    bench(hipify=False)
    config = bench.path / git_dir / "config"
    before = config.read_text()
    config.unlink()
    kit = upstream.commit("cudakit", {"README": "newer\n"}, "Newer")
    upstream.bump_submodule("torch", "third_party/cudakit", kit)
    upstream.commit("torch", {}, "Newer cudakit")
    bench(hipify=False)
    assert config.read_text() == before


def test_what_a_lost_mirror_took_away_is_no_checkout(bench: Bench, torch: Project) -> None:
    bench(hipify=False)
    shutil.rmtree(os.environ["CAIRN_CACHE_DIR"])
    assert (commits_at(bench.path), edits_at(bench.path)) == ((), ())
    with pytest.raises(SourceError, match="is not a git checkout") as error:
        hipify_checkout(torch, bench.path)
    assert error.value.tip == "run the `checkout` command first"


def test_a_second_checkout_of_a_commit_needs_no_origin(bench: Bench, upstream: Upstream) -> None:
    commit = bench().commit
    shutil.rmtree(upstream.folder)
    assert bench(commit).commit == commit
    assert bench(commit, checkout_dir=bench.path.parent / "another").commit == commit


def test_an_emptied_cache_is_said_to_be_the_reason(bench: Bench, torch: Project) -> None:
    done = bench()
    (bench.path / "related_commits").write_text(f"ubuntu|p|torchvision|main|{'1' * 40}|https://h/vision\n")
    shutil.rmtree(Path(os.environ["CAIRN_CACHE_DIR"]) / "mirrors")
    with pytest.raises(SourceError, match=r"the mirror that .* borrows from is gone"):
        describe(torch, bench.path)
    vision = msgspec.structs.replace(torch, name="vision", distribution="torchvision", pin="related_commits")
    found = wanted(vision, default_origin="/d", torch_dir=bench.path, require_related_commit=True)
    assert found.hashtag == "1" * 40
    (bench.path / "related_commits").unlink()
    assert bench() == done
    assert describe(torch, bench.path) == done
