"""What pages tell the reader to type is run here, as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.release.serve import serving
from cairn.store.folder import LocalStore
from helpers.trail import ROOT, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]

_COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)\n", re.MULTILINE)
_FROM, _TO = "--- what the page shows", "--- ends"


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    return page.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].partition("\n## ")[0]


def script_of(text: str) -> str:
    """What a page has the reader type; what it shows beside an answer runs too, between two marks."""
    script = ""
    for kind, block in re.findall(r"```(bash|console)\n(.*?)```", text, re.DOTALL):
        commands = _COMMAND.findall(block) if kind == "console" else ()
        script += block if kind == "bash" else ""
        script += "".join(f"echo '{_FROM}'; {command} 2>&1 || true; echo '{_TO}'\n" for command in commands)
    return script


def compare_answers(text: str, output: str) -> None:
    """Hold what a page shows to what the program answered; `…` stands for any lines."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    expected = [answer for block in blocks for answer in _COMMAND.split(block)[2::2]]
    answers = re.findall(f"{_FROM}\n(.*?){_TO}\n", output, re.DOTALL)
    assert len(answers) == len(expected) > 0
    for shown, answer in zip(expected, answers, strict=True):
        lines = _without_measures(shown).splitlines(keepends=True)
        pattern = "".join("(.*\n)*" if line == "…\n" else re.escape(line) for line in lines)
        assert re.fullmatch(pattern, _without_measures(answer)), (
            f"{shown}\nis shown, and the answer is\n{answer}"
        )


def _without_measures(text: str) -> str:
    """A text without what differs between two runs and two Pythons, and without the width of columns."""
    varying = r"\d+(\.\d+)? ([kM]?B|s)\b|\b[0-9a-f]{12,}\b|(?<=\bcp)3\d+|(?<=\bcpython-)3\d+"
    return re.sub(" +", " ", re.sub(varying, "#", text))


def free_port(folder: Path) -> int:
    with serving(LocalStore(folder)) as server:
        return server.port


def test_step_by_step(project: Path, cache_of_pages: Path, tmp_path: Path) -> None:
    # As `dev.py` leaves it, without running a trail first.
    made = "import dev; dev.ready('release') or dev.install('release')"
    subprocess.run([sys.executable, "-c", made], cwd=project, check=True)

    headings = ("By hand", "Wheels that are built already")
    text = "".join(section(ROOT / "docs/tutorial/step-by-step.md", heading) for heading in headings)
    script = script_of(text).replace("8383", str(free_port(tmp_path)))
    script += '\nwork/user/bin/python -c "import torch; print(torch.__version__, torch.__file__)"\n'
    env = clean_environment(cache_of_pages) | {"PIP_CONFIG_FILE": os.devnull, "USER": "somebody"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=project, env=env, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    compare_answers(text, done.stdout)
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
