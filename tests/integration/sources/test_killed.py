"""kill -9 at any step of a checkout leaves a state that the next run repairs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.sources import EVERY_MOMENT, Upstream, git

PROGRAM = Path(__file__).with_name("killing.py")


@pytest.fixture
def small(upstream: Upstream) -> Upstream:
    """A root with one submodule, a hipify that edits both, and two commits to go between."""
    work = upstream.work("torch")
    git(work, "rm", "--quiet", "-rf", "third_party/plain")
    upstream.commit("torch", {}, "Fewer submodules", branch="old")
    upstream.go_on({"gone.cpp": "", "src/new.cpp": "new"})
    return upstream


def kill(
    upstream: Upstream, folder: Path, *, start: str, first: int, stride: int, last: int
) -> dict[str, Any]:
    options = {
        "folder": str(folder), "origin": upstream.origin("torch"), "from": start, "to": "main",
        "first": first, "stride": stride, "last": last,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(options)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("start", ["", "old"])
def test_killed_at_its_first_steps(small: Upstream, tmp_path: Path, start: str) -> None:
    found = kill(small, tmp_path, start=start, first=1, stride=1, last=6)
    assert found["wrong"] == []
    assert found["killed"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("start", ["", "old"])
def test_killed_at_any_step(small: Upstream, tmp_path: Path, start: str) -> None:
    # From anywhere, so that in the course of time every step has its turn; two seconds each.
    stride = 1 if EVERY_MOMENT else 23
    first = random.randint(1, stride)  # noqa: S311
    found = kill(small, tmp_path, start=start, first=first, stride=stride, last=1000)
    assert found["wrong"] == [], f"from {first}"
    assert found["killed"] > 4
