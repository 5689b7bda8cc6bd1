"""The scripts of the actions for other repositories, run as a job runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.trail import ROOT
from helpers.wheels import build_wheel


def run(script: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CAIRN": str(ROOT), "RUNNER_TEMP": str(cwd), **variables}
    return subprocess.run(
        ["bash", ROOT / script], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=600
    )


def test_no_wheel_is_an_error_and_not_a_success(tmp_path: Path) -> None:
    result = run("actions/verify/verify.sh", tmp_path, WHEELS="dist/*.whl")
    assert (result.returncode, result.stderr) == (2, "::error::no wheel is at dist/*.whl\n")


@pytest.mark.by_hand
def test_the_judge_alone_finds_what_it_finds_here(tmp_path: Path) -> None:
    good = build_wheel(tmp_path / "good", requires=())
    assert run("actions/verify/verify.sh", tmp_path, WHEELS=str(good)).returncode == 0
    result = run("actions/verify/verify.sh", tmp_path, WHEELS="good/*.whl", TARGETS="gfx942")
    assert result.returncode == 7, result.stdout + result.stderr
