"""The story of four nights, typed as its page has it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cairn import stack
from cairn.matrix import matrix_toml
from helpers.trail import ROOT, clean_environment

PAGE = (ROOT / "docs" / "tutorial" / "four-nights.md").read_text("utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def run(script: str, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    env = clean_environment(cache)
    env["PATH"] = f"{ROOT / '.venv' / 'bin'}:{env['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip


def test_its_stack_is_one(tmp_path: Path) -> None:
    done = run(BLOCKS[0], tmp_path, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    read = stack.load(tmp_path / "stack")
    assert matrix_toml.load_matrix_toml(tmp_path / "stack" / matrix_toml.FILE, read)
    assert Path(str(read.projects[0].origin.url)) == tmp_path / "kernels"


@pytest.mark.by_hand
def test_it_goes_as_it_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "story"
    folder.mkdir()
    done = run("\n".join(BLOCKS), folder, tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exit code 10: a bad night" in done.stdout
    assert "13 is what publishing first gives" in done.stdout
    assert "exit code 10: refused" in done.stdout
    assert "Take SDK 7.11" in done.stdout + done.stderr
    assert "failed" in done.stdout
