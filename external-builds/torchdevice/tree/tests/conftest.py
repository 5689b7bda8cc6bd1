"""torchdevice is off before each test, and torch is as it was after each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torchdevice

SOURCE = Path(__file__).parents[1] / "src"


@pytest.fixture
def enabled() -> Iterator[torchdevice.Route]:
    """torchdevice on, with two devices to tell apart."""
    with torchdevice.redirected("cpu", count=2) as route:
        yield route


@pytest.fixture(autouse=True)
def _off_again() -> Iterator[None]:
    yield
    left = torchdevice.status()
    while not torchdevice.disable():
        pass
    assert left is None
    assert torch.zeros is torch._C._VariableFunctions.zeros


Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program in a Python of its own; gives its output, and fails where the program does.

    `given` is its input; one that is to end with another `exit_code` gives its errors.
    """

    def run_program(
        code: str, *options: str, given: str | None = None, exit_code: int = 0, **variables: str
    ) -> str:
        script = tmp_path / "program.py"
        script.write_text(code, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
        for name in ("TORCHDEVICE_ANNOUNCED", "TORCHDEVICE"):
            environment.pop(name, None) if name not in variables else None
        command = [sys.executable, "-W", "ignore", *(options or (str(script),))]
        command = [str(script) if part == "SCRIPT" else part for part in command]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stderr if exit_code else done.stdout

    return run_program
