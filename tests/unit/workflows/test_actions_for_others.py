"""The actions that other repositories use: they hand over every input, and their scripts pass shellcheck."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

from helpers.trail import ROOT

ACTIONS = sorted((ROOT / "actions").glob("*/action.yml"))


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_each_input_reaches_the_script_as_a_variable(path: Path) -> None:
    action = yaml.safe_load(path.read_text(encoding="utf-8"))
    (step,) = action["runs"]["steps"]
    env = step["env"]
    assert env.pop("CAIRN") == "${{ github.action_path }}/../.."
    assert env == {name.upper().replace("-", "_"): f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}
    assert "${{" not in step["run"]
    (script,) = re.findall(r'"\$CAIRN/(\S+)"', step["run"])
    text = (ROOT / script).read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{?([A-Z_]+)", text)) >= env.keys()
    assert all(one.get("required") or "default" in one for one in action["inputs"].values())


@pytest.mark.parametrize("path", sorted((ROOT / "actions").glob("*/*.sh")), ids=lambda path: path.name)
def test_scripts_pass_shellcheck(path: Path) -> None:
    program = Path(sysconfig.get_path("scripts"), "shellcheck")
    result = subprocess.run([program, path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("name", ["build-an-extension", "find-device-mistakes"])
def test_the_page_shows_inputs_that_there_are(name: str) -> None:
    page = (ROOT / f"docs/how-to/{name}.md").read_text(encoding="utf-8")
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        (step,) = yaml.safe_load(block)
        action = re.fullmatch(r"OWNER/cairn/(actions/[\w-]+)@COMMIT", step["uses"])
        assert action is not None
        inputs = yaml.safe_load((ROOT / action[1] / "action.yml").read_text(encoding="utf-8"))["inputs"]
        assert step["with"].keys() <= inputs.keys()
        assert {key for key, one in inputs.items() if one.get("required")} <= step["with"].keys()
