"""Parametrize the checks by the wheels of the set, or by its targets, as a test's arguments ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.targets import CPU
from cairn.testing.builtin_smoke.environment import facts


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the arguments `wheel` and `target`."""
    if "wheel" in metafunc.fixturenames:
        metafunc.parametrize("wheel", facts().wheels, ids=lambda wheel: wheel.distribution)
    if "target" in metafunc.fixturenames:
        metafunc.parametrize("target", facts().targets)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore the triton tests for a CPU set, which has no kernels to compile."""
    return True if collection_path.name == "test_triton.py" and CPU in facts().targets else None
