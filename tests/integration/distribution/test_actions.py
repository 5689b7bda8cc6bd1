"""The scripts of the actions for other repositories, run as a job runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.trail import ROOT


def run(script: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CAIRN": str(ROOT), "RUNNER_TEMP": str(cwd), **variables}
    return subprocess.run(
        ["bash", ROOT / script], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=600
    )


def test_no_wheel_is_an_error_and_not_a_success(tmp_path: Path) -> None:
    result = run("actions/verify/verify.sh", tmp_path, WHEELS="dist/*.whl")
    assert (result.returncode, result.stderr) == (2, "::error::no wheel is at dist/*.whl\n")


MODEL = "import torch\n\ndef layer(weight, data):\n    return data @ weight\n"
TESTS = """import model, torch

def test_layer():
    model.layer(torch.ones(2, 2, device="cuda"), torch.ones(2, 2))
"""


@pytest.mark.by_hand
def test_a_device_mistake_is_shown_beside_its_line_until_it_is_known(tmp_path: Path) -> None:
    """As its page says, in the Python that CAIRN_TEST_TORCH_PYTHON names."""
    page = (ROOT / "docs/how-to/find-device-mistakes.md").read_text(encoding="utf-8")
    (inputs,) = re.findall(r"device-mistakes@COMMIT\n +with:\n((?: +[\w-]+: .*\n)+)", page)
    baseline = re.search("baseline: (.*)", inputs)[1]
    project = tmp_path / "repository"
    (project / baseline).parent.mkdir(parents=True)
    (project / "model.py").write_text(MODEL)
    (project / "test_model.py").write_text(TESTS)
    variables = {
        "PYTHON": os.environ.get("CAIRN_TEST_TORCH_PYTHON", sys.executable),
        "TESTS": "-p no:cacheprovider test_model.py",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(project),
    }
    found = run("actions/device-mistakes/test.sh", project, BASELINE="", **variables)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "\n::error file=model.py,line=4,title=torchdevice different_argument::Expected all" in found.stdout
    (known,) = re.findall("^    (test_model.py::.*)$", found.stdout, re.MULTILINE)
    (project / baseline).write_text(f"# to be mended\n{known}\n")
    again = run("actions/device-mistakes/test.sh", project, BASELINE=baseline, **variables)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "0 new, 1 in the baseline, 0 fixed" in again.stdout
