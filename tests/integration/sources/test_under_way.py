"""What git has begun in a checkout, and would go on with from wherever HEAD is then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cairn import converters
from cairn.errors import SourceError
from cairn.sources.checkout.checkout import hipify_checkout
from cairn.stack import Project
from helpers.sources import Bench, Upstream


def rebase(bench: Bench, part: str) -> None:
    bench.git("-C", part, "switch", "--quiet", "-c", "mine")
    bench.commit("mine.txt", "mine\n", "Mine", part="" if part == "." else part)
    with pytest.raises(AssertionError):
        bench.git("-C", part, "rebase", "--quiet", "--force-rebase", "--exec", "false", "HEAD~1")


def am(bench: Bench, part: str) -> None:
    (bench.path / part / "x.patch.ignored").write_text(
        "From: A <a@example.invalid>\nSubject: x\n\n---\ndiff --git a/none b/none\n--- a/none\n+++ b/none\n"
        "@@ -1 +1 @@\n-a\n+b\n"
    )
    with pytest.raises(AssertionError):
        bench.git("-C", part, "am", "--quiet", "x.patch.ignored")
    (bench.path / part / "x.patch.ignored").unlink()


def bisect(bench: Bench, part: str) -> None:
    bench.git("-C", part, "bisect", "start")


ACTS = {"git rebase": rebase, "git am": am, "git bisect": bisect}


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("part", [".", "third_party/plain"])
def test_head_does_not_move_beneath_it(bench: Bench, upstream: Upstream, what: str, part: str) -> None:
    bench.begin()
    upstream.commit("torch", {"version.txt": "2.9.1\n"}, "Next")
    ACTS[what](bench, part)
    head = bench.git("-C", part, "rev-parse", "HEAD")
    for force in (False, True):
        with pytest.raises(SourceError, match=f"a `{what}` is under way") as refused:
            bench(force=force)
        assert what in str(refused.value.tip)
    assert bench.git("-C", part, "rev-parse", "HEAD") == head
    bench.git("-C", part, *("bisect reset" if what == "git bisect" else f"{what[4:]} --abort").split())
    assert bench().version == "2.9.1"


def test_nor_does_hipify_commit_in_the_middle_of_it(bench: Bench, torch: Project) -> None:
    bench.begin(hipify=False)
    rebase(bench, ".")
    with pytest.raises(SourceError, match="a `git rebase` is under way"):
        hipify_checkout(torch, bench.path)


def test_an_interpreter_may_be_named_from_the_current_folder(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    python = converters.program("./python")
    assert python == tmp_path / "python"
    assert bench(python=python).hipify_commit is not None
