"""What `--force` takes away is kept under a ref, and what no ref could keep is refused all the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from cairn.errors import SourceError
from helpers.sources import Bench, Upstream, dropped, git

MINE = "only a person has this\n"


def staged(bench: Bench, part: str = ".", name: str = "src/cuda/kernel.cu") -> None:
    """Staged, and then put back in the folder."""
    path = bench.path / part / name
    before = path.read_bytes()
    path.write_text(MINE)
    bench.git("-C", part, "add", name)
    path.write_bytes(before)


def staged_in_submodule(bench: Bench) -> None:
    staged(bench, "third_party/cudakit", "README")


def overlooked(bench: Bench) -> None:
    bench.git("update-index", "--assume-unchanged", "src/cuda/kernel.cu")
    (bench.path / "src/cuda/kernel.cu").write_text(MINE)


def skipped(bench: Bench) -> None:
    bench.git("-C", "third_party/plain", "update-index", "--skip-worktree", "plain.h")
    (bench.path / "third_party/plain/plain.h").write_text(MINE)


def overlooked_where_the_commit_differs(bench: Bench) -> None:
    bench.git("update-index", "--assume-unchanged", "version.txt")
    (bench.path / "version.txt").write_text(MINE)


def skipped_where_the_commit_differs(bench: Bench) -> None:
    for flag in ("--skip-worktree", "--assume-unchanged"):
        bench.git("-C", "third_party/cudakit", "update-index", flag, "fill.cu")
    (bench.path / "third_party/cudakit/fill.cu").write_text(MINE)


def merging(bench: Bench) -> None:
    """A merge under way, of a commit that no branch has and that changes nothing."""
    head = bench.git("rev-parse", "HEAD")
    other = bench.commit("mine.txt", MINE, "Merged in")
    bench.git("checkout", "--quiet", head)
    bench.git("merge", "--quiet", "--no-commit", "--no-ff", "-s", "ours", other)


def in_conflict(bench: Bench) -> None:
    head = bench.git("rev-parse", "HEAD")
    for number, text in enumerate(("left\n", "right\n")):
        bench.git("checkout", "--quiet", "-B", f"side{number}", head)
        bench.commit("src/cuda/kernel.cu", text, text)
    with pytest.raises(AssertionError):
        bench.git("merge", "--quiet", "side0")
    (bench.path / "src/cuda/kernel.cu").write_text(MINE)


def committed_in_removed_submodule(bench: Bench) -> None:
    bench.commit("mine.txt", MINE, "Mine", part="third_party/plain")
    shutil.rmtree(bench.path / "third_party/plain")


def untied_submodule(bench: Bench) -> None:
    (bench.path / "third_party/plain/.git").unlink()
    (bench.path / "third_party/plain/mine.txt").write_text(MINE)


ACTS: dict[str, tuple[Callable[[Bench], None], str]] = {
    "a staged change": (staged, ""),
    "a staged change in a submodule": (staged_in_submodule, "modules/third_party/cudakit"),
    "an edit that git overlooks": (overlooked, ""),
    "an edit in a submodule that git skips": (skipped, "modules/third_party/plain"),
    "an edit that git overlooks, of a file that changes": (overlooked_where_the_commit_differs, ""),
    "an edit that git skips, of a file that changes": (
        skipped_where_the_commit_differs,
        "modules/third_party/cudakit",
    ),
    "a merge under way": (merging, ""),
    "a merge in conflict": (in_conflict, ""),
    "a commit in a submodule that was removed": (committed_in_removed_submodule, "modules/third_party/plain"),
    "a file in a submodule without its .git": (untied_submodule, "modules/third_party/plain"),
}


@pytest.mark.parametrize("what", ACTS)
def test_work_of_every_kind_is_refused_and_kept_by_force(
    bench: Bench, upstream: Upstream, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    act, git_dir = ACTS[what]
    bench.begin()
    upstream.go_on()
    act(bench)
    with pytest.raises(SourceError, match="checking out would lose them"):
        bench()
    assert bench(force=True).version == "2.9.1"
    assert "kept as refs/cairn/dropped/" in capsys.readouterr().err
    assert MINE.strip() in dropped(bench.path / ".git" / git_dir)


def test_what_only_hipifys_moved_tag_has_is_refused_and_kept_by_force(
    bench: Bench, upstream: Upstream
) -> None:
    bench.begin()
    upstream.go_on()
    head = bench.git("rev-parse", "HEAD")
    bench.commit("mine.txt", MINE, "Mine")
    bench.git("tag", "--force", "THEROCK_HIPIFY_DIFFBASE")
    bench.git("checkout", "--quiet", head)
    bench.git("tag", "--force", "mine", head)
    with pytest.raises(SourceError, match=r"1 commit that no branch keeps \([0-9a-f]+ Mine\)"):
        bench()
    bench(force=True)
    assert MINE.strip() in dropped(bench.path / ".git")


def test_files_where_a_submodule_was_left_out_are_kept_by_force(bench: Bench, upstream: Upstream) -> None:
    bench.begin(submodules=False)
    (bench.path / "third_party/plain/mine.txt").write_text(MINE)
    upstream.go_on()
    with pytest.raises(SourceError, match=r"third_party/plain/mine\.txt"):
        bench()
    bench(force=True)
    assert MINE.strip() in dropped(bench.path / ".git/modules/third_party/plain")


@pytest.mark.parametrize("act", [overlooked, staged])
def test_an_uncommitted_hipify_hides_no_work(
    bench: Bench, upstream: Upstream, act: Callable[[Bench], None]
) -> None:
    bench.begin(commit_hipify=False)
    upstream.go_on()
    act(bench)
    with pytest.raises(SourceError, match=r"1 edited or new file \(src/cuda/kernel\.cu\)"):
        bench(commit_hipify=False)


def test_what_a_submodule_that_went_away_had_is_shown_by_plain_git(bench: Bench, upstream: Upstream) -> None:
    bench.begin()
    (bench.path / "third_party/plain/plain.h").write_text(MINE)
    upstream.commit("torch", {}, "Keep")
    git(upstream.work("torch"), "rm", "--quiet", "-f", "third_party/plain")
    upstream.commit("torch", {}, "Without plain")
    bench(force=True)
    assert MINE.strip() in dropped(bench.path / ".git/modules/third_party/plain")
    # And it comes back to its place when the checkout does.
    bench("v2.9.0")
    assert bench.git("-C", "third_party/plain", "status", "--porcelain") == ""


@pytest.mark.parametrize("where", ["local.ignored", "local.ignored/deep", "third_party/plain/build/x"])
def test_a_repository_that_git_ignores_survives_force(bench: Bench, upstream: Upstream, where: str) -> None:
    plain = upstream.commit("plain", {".gitignore": "build/\n"}, "Ignore")
    upstream.bump_submodule("torch", "third_party/plain", plain)
    upstream.commit("torch", {}, "Bump")
    bench()
    inner = bench.path / where
    inner.mkdir(parents=True)
    git(inner, "init", "--quiet")
    (inner / "mine.txt").write_text(MINE)
    git(inner, "add", "mine.txt")
    git(inner, "commit", "--quiet", "-m", "Mine")
    (inner / "mine.txt").unlink()
    if where.startswith("third_party"):
        git(upstream.work("torch"), "rm", "--quiet", "-f", "third_party/plain")
    upstream.commit("torch", {"local.ignored": "theirs\n"}, "Track it")
    for force in (False, True):
        with pytest.raises(SourceError, match="contains a repository that is not one of its submodules"):
            bench(force=force)
    assert git(inner, "show", "HEAD:mine.txt") == MINE.strip()
