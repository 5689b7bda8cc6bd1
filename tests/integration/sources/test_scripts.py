"""Upstream's scripts: their names and flags, and a clear line where Cairn is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"


def run(
    script: str, *args: str, python: tuple[str, ...] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    command = [*python, str(SCRIPTS / f"pytorch_{script}_repo.py"), *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ.copy())


def test_the_documented_path(upstream: Any, run_git: Any, tmp_path: Path) -> None:
    upstream.create("torchvision", {"version.txt": "0.24.0\n"})
    pin = upstream.commit("torchvision", {"version.txt": "0.24.1\n"}, "Pinned")
    line = f"ubuntu|pytorch|torchvision|release/0.24|{pin}|../torchvision.git\n"
    upstream.commit("torch", {"related_commits": line}, "Pin", branch="release/2.9")
    torch = tmp_path / "src" / "pytorch"
    done = run(
        "torch", "checkout", "--gitrepo-origin", upstream.origin("torch"), "--repo-hashtag", "release/2.9",
        "--checkout-dir", str(torch), "--jobs", "2", "--submodules", "--no-hipify",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert run("torch", "hipify", "--checkout-dir", str(torch)).returncode == 0
    assert run_git(torch, "log", "-2", "--format=%s").splitlines() == ["DO NOT SUBMIT: HIPIFY", "Pin"]
    assert str(torch) in done.stdout
    vision = run(
        "vision", "checkout", "--torch-dir", str(torch), "--require-related-commit",
        "--checkout-dir", str(tmp_path / "src" / "vision"), "--depth", "1", "--commit-hipify",
    )  # fmt: skip
    assert vision.returncode == 0, vision.stderr
    assert (tmp_path / "src/vision/version.txt").read_text() == "0.24.1\n"


@pytest.mark.parametrize("script", ["torch", "audio", "vision", "triton"])
def test_every_documented_flag_is_there(script: str) -> None:
    shown = run(script, "checkout", "--help").stdout
    flags = "checkout-dir repo-name gitrepo-origin repo-hashtag depth jobs submodules no-submodules"
    extra = {"torch": "", "audio": "torch-dir require-related-commit", "triton": "torch-dir release"}
    wanted = f"{flags} hipify no-hipify commit-hipify no-commit-hipify {extra.get(script, extra['audio'])}"
    missing = [flag for flag in wanted.split() if f"--{flag}" not in shown]
    assert missing == []


def test_without_cairn_the_script_says_how_to_get_it(home: Path) -> None:
    # -S -E: an interpreter that sees nothing but the standard library.
    done = run("torch", "checkout", python=(sys.executable, "-S", "-E"))
    assert home.is_dir()
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert "pip install -e" in done.stderr
    assert "dev.py" in done.stderr
