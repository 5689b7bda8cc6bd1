"""A folder for the wheels of a test."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from helpers.wheels import MakeWheel, build_wheel


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    return partial(build_wheel, tmp_path / "wheels")
