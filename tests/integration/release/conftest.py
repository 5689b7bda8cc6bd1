from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from uv import find_uv_bin

from cairn.store.folder import LocalStore

Install = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def isolated(tmp_path: Path) -> dict[str, str]:
    """An environment in which no user's settings reach pip or uv."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV"))}
    return kept | {
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
    }


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of our own: uv locks the environment of the one it is given."""
    venv = tmp_path_factory.mktemp("python") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    return venv / "bin" / "python"


@pytest.fixture
def install(tmp_path: Path, isolated: dict[str, str], python: Path) -> Install:
    """Install into a new folder with pip or uv, from one index alone."""

    def run(
        tool: str, index_url: str, *requirements: str, target: Path | None = None, options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        into = target or tmp_path / f"installed-{tool}"
        command = {
            "pip": [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"],
            "uv": [find_uv_bin(), "pip", "install", "--python", str(python)],
        }[tool]
        return subprocess.run(
            [*command, "--target", str(into), "--index-url", index_url, *options, *requirements],
            env=isolated,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
