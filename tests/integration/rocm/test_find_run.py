"""`cairn rocm fetch --latest` and `--commit`, against GitHub's API and a store with several runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from helpers import artifacts as made
from helpers.github_api import GitHubApi
from helpers.program import Cairn, Shown

OLD, NEW, BUSY, RED, BARE = (f"{digit}" * 40 for digit in "abcde")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubApi]:
    """Runs of TheRock: from the newest on unfinished, failed, without artifacts, and two that are whole."""
    api = GitHubApi()
    # In no order.
    api.add(101, commit=OLD, created="2026-11-25T08:00:00Z")
    api.add(105, commit=BUSY, created="2026-11-28T08:00:00Z", status="in_progress", conclusion=None)
    api.add(102, commit=NEW, created="2026-11-26T08:00:00Z")
    api.add(104, commit=RED, created="2026-11-27T08:00:00Z", conclusion="failure")
    api.add(103, commit=BARE, created="2026-11-26T12:00:00Z")
    api.add(106, commit="f" * 40, created="2026-11-28T09:00:00Z", branch="users/someone/try")
    with api.serving():
        monkeypatch.setenv("GITHUB_API_URL", api.address)
        for name in ("GITHUB_TOKEN", "GH_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        yield api


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The outputs of the runs, as in TheRock's buckets: a folder for each."""
    for run in (101, 102, 104, 105):
        folder = tmp_path / f"store/{run}-linux"
        made.write(folder, "base_lib_generic.tar.zst", {"lib/x.so": b"%d" % run})
        if run != 104:
            made.write(folder, "blas_lib_gfx1100.tar.xz", {"lib/blas.so": b"%d" % run})
    made.write(tmp_path / "store/101-linux", "blas_lib_gfx906.tar.xz", {"lib/blas.so": b"906"})
    return tmp_path / "store"


Refused: TypeAlias = tuple[tuple[int, dict[str, str]], str, int, tuple[str, str]]


class Fetch(NamedTuple):
    """The command, with the store of the runs."""

    cairn: Cairn
    words: tuple[object, ...]

    def __call__(self, *words: object, code: int = 0) -> Shown:
        return self.cairn(*self.words, *words, code=code)

    def json(self, *words: object) -> Any:
        return self.cairn.json(*self.words, *words)


@pytest.fixture
def fetch(cairn: Cairn, store: Path, tmp_path: Path) -> Fetch:
    where = ("--store", store, "--platform", "linux", "--output-dir", tmp_path / "out")
    return Fetch(cairn, ("rocm", "fetch", *where))


@pytest.mark.usefixtures("api")
def test_the_latest_run_that_is_whole_is_fetched_and_named(fetch: Fetch, tmp_path: Path) -> None:
    out, err = fetch("--latest", "--families", "gfx110X-all")
    assert f"run 102 of ROCm/TheRock: commit {NEW}, 2026-11-26T08:00:00Z" in out
    assert "run 105 has not ended (in progress)" in err
    assert "run 104 ended with failure" in err
    assert "run 103 lacks what is wanted: there are no artifacts at" in err
    blas = tmp_path / "out/blas_lib_gfx1100/base/blas_lib_gfx1100/stage/lib/blas.so"
    assert blas.read_bytes() == b"102"


@pytest.mark.usefixtures("api")
def test_programs_are_told_what_was_chosen_and_nothing_is_written(
    fetch: Fetch, tmp_path: Path, store: Path
) -> None:
    found = fetch.json("--latest", "--targets", "gfx906", "--dry-run")
    assert found["run"] == {
        "id": "101", "repository": "ROCm/TheRock", "commit": OLD, "created": "2026-11-25T08:00:00Z",
        "url": "https://github.com/ROCm/TheRock/actions/runs/101",
    }  # fmt: skip
    assert found["store"] == str(store / "101-linux")
    assert [each["artifact"] for each in found["artifacts"]] == ["base_lib_generic", "blas_lib_gfx906"]
    assert len(found["passed_over"]) == 4
    assert "102-linux has nothing for gfx906" in found["passed_over"][3]
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("commit", [OLD, OLD[:9]])
def test_the_run_of_a_commit(fetch: Fetch, commit: str) -> None:
    found = fetch.json("--commit", commit)
    assert (found["run"]["id"], found["run"]["commit"]) == ("101", OLD)
    assert found["passed_over"] == []


@pytest.mark.parametrize(
    ("commit", "message", "tip"),
    [
        (BUSY, "run 105 has not ended (in progress)", "wait for its end, or take what that run has"),
        (RED, "run 104 ended with failure", "take what that run has, which may not be all: --run-id 104"),
        (BARE, "run 103 lacks what is wanted: there are no artifacts at", "may have been deleted"),
        ("0" * 40, "ROCm/TheRock has no commit 0000", "--latest"),
        ("9" * 40, "multi_arch_ci.yml of ROCm/TheRock has not run for commit 9999", "--latest"),
        ("main", "'main' is not a commit", "--latest"),
    ],
)
def test_a_commit_without_a_whole_run_says_why_and_what_to_type(
    fetch: Fetch,
    api: GitHubApi,
    tmp_path: Path,
    commit: str,
    message: str,
    tip: str,
) -> None:
    api.commits.append("9" * 40)
    _, err = fetch("--commit", commit, code=2)
    assert message in err
    assert tip in err
    assert not (tmp_path / "out").exists()
    if "--run-id 104" in tip:  # what the tip says can be typed
        assert "1 fetched" in fetch("--run-id", "104").err


def test_of_two_runs_of_a_commit_the_later_whole_one_is_taken(
    fetch: Fetch, api: GitHubApi, store: Path
) -> None:
    shutil.copytree(store / "101-linux", store / "110-linux")
    api.add(110, commit=OLD, created="2026-11-25T09:00:00Z")
    api.add(111, commit=OLD, created="2026-11-25T10:00:00Z", conclusion="cancelled")
    found = fetch.json("--commit", OLD, "--dry-run")
    assert found["run"]["id"] == "110"
    assert found["passed_over"] == ["run 111 ended with cancelled"]


def test_runs_of_a_different_commit_are_not_taken(fetch: Fetch, api: GitHubApi) -> None:
    """Such as of a server that does not know the parameter, or a script whose variable is empty."""
    for run in api.runs["ROCm/TheRock", "multi_arch_ci.yml"]:
        run["head_sha"] = NEW if run["head_sha"] == OLD else run["head_sha"]
    api.body = json.dumps(
        {"sha": OLD, "workflow_runs": api.runs["ROCm/TheRock", "multi_arch_ci.yml"]}
    ).encode()
    assert f"has not run for commit {OLD}" in fetch("--commit", OLD, code=2).err
    assert f"has no commit {NEW}" in fetch("--commit", NEW, code=2).err
    assert "argument --commit: it is empty" in fetch("--commit", "", code=2).err


@pytest.mark.usefixtures("api")
def test_artifacts_of_an_earlier_run_that_stay_beside_are_named(fetch: Fetch) -> None:
    assert "also has" not in fetch("--run-id", "101").err
    out, err = fetch("--latest", "--families", "gfx110X-all")
    assert "run 102 of" in out
    assert "out also has blas_lib_gfx906, of another run: name a folder for each" in err


def test_no_run_that_is_whole(fetch: Fetch, api: GitHubApi) -> None:
    _, err = fetch("--latest", "--targets", "gfx950", code=2)
    assert "no run is whole: run 105 has not ended" in err
    assert "--run-id 105" in err
    api.runs = {("ROCm/TheRock", "multi_arch_ci.yml"): []}
    assert "multi_arch_ci.yml of ROCm/TheRock has not run on main" in fetch("--latest", code=2).err


@pytest.mark.parametrize(
    "case",
    [
        ((403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795867200"}), "", 5,
         ("no more requests until 12:00 UTC: without a token it allows 60 an hour", "set GITHUB_TOKEN")),
        ((403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 30}), "x", 5,
         ("no more requests now",)),
        ((429, {"Retry-After": "60"}), "x", 5, ("answers no more requests now", "wait, or name the run")),
        ((401, {}), "x", 2, ("GitHub refuses the token in GITHUB_TOKEN (401)", "unset GITHUB_TOKEN")),
        ((403, {}), "", 5, ("it answers 403", "--run-id")),
        ((502, {}), "", 5, ("it answers 502", "--run-id")),
    ],
)  # fmt: skip
def test_a_refusal_of_github_is_told_as_what_it_is(
    fetch: Fetch, api: GitHubApi, monkeypatch: pytest.MonkeyPatch, case: Refused
) -> None:
    api.refusal, token, code, messages = case
    monkeypatch.setenv("GITHUB_TOKEN", token)
    _, err = fetch("--latest", code=code)
    assert all(message in err for message in messages), err


def test_a_token_is_sent_to_github_and_never_shown(
    fetch: Fetch, api: GitHubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_TOKEN", "secret-token")
    shown = fetch("--latest", "--dry-run")
    assert [headers["Authorization"] for _, headers in api.asked] == ["Bearer secret-token"] * 2
    assert "secret-token" not in shown.out + shown.err


@pytest.mark.parametrize("body", [b"<html>login</html>", b"[]", b'{"workflow_runs": [{"id": "x"}]}'])
def test_an_answer_that_is_not_githubs(fetch: Fetch, api: GitHubApi, body: bytes) -> None:
    api.body = body
    assert "does not answer as GitHub's API does" in fetch("--latest", code=5).err


@pytest.mark.parametrize("address", ["nonsense", "file:///etc", "http://[::1", "https://"])
def test_an_address_of_githubs_api_that_is_none(
    fetch: Fetch, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", address)
    assert f"GITHUB_API_URL is no address: {address!r}" in fetch("--latest", code=2).err


def test_nightly_builds_are_runs_of_the_repository_of_releases(fetch: Fetch, api: GitHubApi) -> None:
    place = ("ROCm/rockrel", "multi_arch_release.yml")
    api.add(102, commit=NEW, created="2026-11-26T08:00:00Z", place=place)
    found = fetch.json("--latest", "--release-type", "nightly", "--dry-run")
    assert found["run"]["repository"] == "ROCm/rockrel"
    _, err = fetch("--latest", "--run-github-repo", "ROCm/rocm-libraries", code=2)
    assert "GitHub has no repository ROCm/rocm-libraries" in err
    api.runs["ROCm/rocm-libraries", "ci.yml"] = []
    _, err = fetch("--latest", "--run-github-repo", "ROCm/rocm-libraries", code=2)
    assert "ROCm/rocm-libraries has no workflow therock-ci.yml" in err


def test_of_run_latest_and_commit_one_is_named(fetch: Fetch) -> None:
    assert "not allowed with" in fetch("--latest", "--run-id", "1", code=2).err
