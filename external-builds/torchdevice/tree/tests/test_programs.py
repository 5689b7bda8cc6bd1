"""Mistakes planted in whole programs: found under `strict`, at the line where a GPU would stop."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path

import pytest
import torchdevice

PROGRAMS = Path(__file__).parent / "programs"
# Lines of the program, what it says, what it says instead, and a part of the line that fails.
MISTAKES = (PROGRAMS / "mistakes.txt").read_text(encoding="utf-8").splitlines()


def run(program: Path) -> list[float]:
    values: list[float] = runpy.run_path(str(program))["values"]
    return values


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["tagger", "autoencoder"])
def test_a_program_gives_what_it_gives_on_the_cpu(name: str) -> None:
    expected = run(PROGRAMS / f"{name}.py")
    for strict in (False, True):
        with torchdevice.redirected("cpu", strict=strict):
            assert run(PROGRAMS / f"{name}.py") == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_program_is_found_at_its_line(mistake: str, tmp_path: Path) -> None:
    name, says, instead, fails = mistake.split(" | ")
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(says) == 1
    planted = tmp_path / f"{name}.py"
    planted.write_text(text.replace(says, instead), encoding="utf-8")
    run(planted)  # without TorchDevice nothing is wrong
    with torchdevice.redirected("cpu", strict=True), pytest.raises((RuntimeError, TypeError)) as caught:
        run(planted)
    lines = [
        f.line or "" for f in traceback.extract_tb(caught.value.__traceback__) if f.filename == str(planted)
    ]
    assert fails in lines[-1]
    assert torchdevice.errors.rule_of(caught.value)
