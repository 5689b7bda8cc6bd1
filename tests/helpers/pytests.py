"""Environments with the versions of pytest that PyTorch's suite.toml names, and real plugins beside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

from cairn import files, venv
from cairn.testing.suite import suite_toml
from helpers.trail import ROOT

PLUGINS = (
    "flaky",
    "pytest-check",
    "pytest-rerunfailures",
    "pytest-subtests",
    "pytest-timeout",
    "pytest-xdist",
)
ALL = bool(os.environ.get("CAIRN_TEST_ALL"))  # else the newest below 9 for all, the rest for what is marked
VERSIONS = {
    "pytest-8": ("2.7", "highest"),  # the newest for the torch versions that need one below 9
    "pytest-oldest": ("2.7", "lowest-direct"),
    "pytest-newest": ("2.13", "highest"),
}
"""For each environment the version of torch that is to be tested, and uv's `--resolution`."""


def install(folder: Path, name: str) -> Path:
    """Make an environment, unless another worker has; return its interpreter."""
    with files.locked(folder.with_name(f"{folder.name}.lock")):
        python = folder / "bin" / "python"
        if not (folder / "made").exists():
            torch, resolution = VERSIONS[name]
            suite = suite_toml.load(ROOT / "external-builds" / "pytorch")
            shipped = [text for text in suite.requires_of(torch) if Requirement(text).name == "pytest"]
            _uv("venv", "--quiet", "--python", sys.executable, folder)
            _uv("pip", "install", "--quiet", "--python", python, "--resolution", resolution, *shipped)
            listing = json.loads(_uv("pip", "list", "--python", python, "--format", "json"))
            pins = [f"pytest=={item['version']}" for item in listing if item["name"] == "pytest"]
            # Tests have three seconds to be collected in; compiling takes one, or more on a busy machine.
            _uv("pip", "install", "--quiet", "--python", python, "--compile-bytecode", *pins, *PLUGINS)
            (folder / "made").touch()
    return python


def _uv(*words: object) -> str:
    command = [venv.uv_program(), *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
