"""Our own pip at work in another environment: that one needs none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_WHERE = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV")


def install(python: Path) -> tuple[str, ...]:
    """The command that installs for an interpreter, up to its own options; run it with `variables`."""
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
    return (*pip, "install", "--no-input", "--no-user")


def variables() -> dict[str, str]:
    """Ours, without a person's settings that would have pip install somewhere else."""
    return {name: value for name, value in os.environ.items() if name not in _WHERE}
