"""How many git processes a checkout starts: each takes milliseconds, and a day of tests makes hundreds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest

from cairn import isolation

_COUNTING = """#!/bin/sh
printf '%s %s\\n' "$PWD" "$*" >> "{log}"
exec "{git}" "$@"
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What git was asked, a line a process, by checkouts of the sample's torch that follow one another."""
    folder = tmp_path_factory.mktemp("processes")
    log, shim = folder / "notes" / "log", folder / "bin" / "git"
    for path in (log, shim):
        path.parent.mkdir()
    shim.write_text(_COUNTING.format(log=log, git=shutil.which("git")))
    shim.chmod(0o755)
    search = f"{shim.parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": search, "HOME": str(folder), "CAIRN_CACHE_DIR": str(folder / "cache")}
    env[isolation.VARIABLE] = str(log.parent)  # where this git counts its calls

    def run(place: str, *words: str) -> str:
        log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "cairn", "checkout", "torch", "--stack", "sample"]
        subprocess.run([*command, "--checkout-dir", str(folder / place), *words], env=env, check=True)
        return log.read_text()

    return {
        "first": run("pytorch"),
        "again": run("pytorch"),
        "moved": run("pytorch", "--repo-hashtag", "main"),
        "another": run("other"),
    }


@pytest.mark.parametrize(
    ("which", "most"),
    [
        ("first", 53),  # the sample's repositories are written, and mirrored
        ("again", 10),
        ("moved", 55),
        ("another", 42),
    ],
)
def test_no_more_processes_than(calls: Mapping[str, str], which: str, most: int) -> None:
    lines = calls[which].splitlines()
    assert 0 < len(lines) <= most, calls[which]
