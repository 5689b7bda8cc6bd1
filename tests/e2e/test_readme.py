"""What the README tells the reader to type is run here, as it stands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.release.serve import server as serve_server
from cairn.store.folder import LocalStore
from helpers.trail import ROOT, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("readme")]


def block_under(page: Path, heading: str) -> str:
    """The first bash block below a heading."""
    text = page.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    match = re.search(r"```bash\n(.*?)```", text, re.DOTALL)
    assert match is not None
    return match[1]


def copy_of_the_project(target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def free_port(folder: Path) -> int:
    with serve_server.serving(LocalStore(folder)) as server:
        return server.port


def test_step_by_step(tmp_path: Path) -> None:
    project = tmp_path / "project"
    copy_of_the_project(project)
    # As `dev.py` leaves it, without running a trail first.
    subprocess.run([sys.executable, "-c", "import dev; dev.install('')"], cwd=project, check=True)

    script = block_under(ROOT / "README.md", "The same, step by step")
    script = script.replace("8383", str(free_port(tmp_path)))
    script += block_under(ROOT / "README.md", "Wheels that are built already")
    script += '\nwork/user/bin/python -c "import torch; print(torch.__version__, torch.__file__)"\n'
    env = clean_environment(tmp_path / "cache") | {"PIP_CONFIG_FILE": os.devnull, "USER": "somebody"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=project, env=env, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    version, _, place = done.stdout.strip().splitlines()[-1].partition(" ")
    assert version == "2.9.0+rocm7.10.0"
    assert place.startswith(str(project / "work" / "user"))
    # What Cairn runs in stays as it was: a wheel that it built could hide one that it should have needed.
    own = subprocess.run(
        [project / ".venv" / "bin" / "python", "-m", "pip", "list", "--format=freeze"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {line.partition("==")[0] for line in own.stdout.splitlines()}
    assert not names & {"torch", "torchvision", "torchaudio", "triton", "rocm", "ziglang"}
