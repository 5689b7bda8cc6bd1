"""Installing a set the way people will, into environments that are thrown away."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version
from uv import find_uv_bin

from cairn import process
from cairn.errors import ProcessError

Installer = Literal["pip", "uv"]

_TIMEOUT = 3600.0  # seconds; a torch wheel of gigabytes on a slow disk takes minutes
_OURS = ("PIP_", "UV_", "PYTHON", "VIRTUAL_ENV", "CONDA_")
_IGNORED_EXTRA = "does not provide the extra"  # pip and uv only warn, and install something incomplete


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How one installer did.

    Attributes:
        installer: which.
        problem: why the set cannot be installed, in one sentence; None if it can.
        installed: `name==version` of everything in the environment afterwards.
    """

    installer: Installer
    problem: str | None
    installed: tuple[str, ...] = ()

    @property
    def versions(self) -> frozenset[tuple[str, Version]]:
        """What is installed, by normalised name."""
        pairs = (line.split("==", 1) for line in self.installed)
        return frozenset((str(canonicalize_name(name)), Version(version)) for name, version in pairs)


def install(
    installer: Installer,
    requirements: Sequence[str],
    *,
    index_url: str,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Trial:
    """Install `requirements` from one index alone, untouched by the settings of whoever runs this.

    Args:
        installer: pip or uv.
        requirements: what to install.
        index_url: the only index.
        python: the interpreter to make the environment with; None is ours.
        environment: further variables for the installer.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-trial-") as folder:
        venv = Path(folder, "venv")
        env = clean_environment(Path(folder)) | dict(environment or {})
        base = python or Path(sys.executable)
        try:
            process.run([base, "-m", "venv", "--without-pip", venv], env=env, timeout=_TIMEOUT)
            inside = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
            done = process.run(
                [*_command(installer, inside, index_url, Path(folder)), *requirements],
                env=env,
                timeout=_TIMEOUT,
            )
            process.run([find_uv_bin(), "pip", "check", "--no-config", "--python", inside], env=env)
            frozen = process.run([find_uv_bin(), "pip", "freeze", "--no-config", "--python", inside], env=env)
        except ProcessError as error:
            return Trial(installer=installer, problem=_last_words(error))
    ignored = next((line.strip() for line in done.output.splitlines() if _IGNORED_EXTRA in line), None)
    names = tuple(line for line in frozen.output.splitlines() if "==" in line)
    return Trial(installer=installer, problem=ignored, installed=names)


def clean_environment(home: Path) -> dict[str, str]:
    """Our environment without what steers pip, uv or Python."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return env | {"PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(home / "uv")}


def _command(installer: Installer, python: Path, index_url: str, folder: Path) -> list[str | Path]:
    if installer == "pip":
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--isolated", "--python", python, "install"]
        return [
            *pip,
            "--disable-pip-version-check",
            "--no-input",
            "--cache-dir",
            folder / "pip",
            "--index-url",
            index_url,
        ]
    uv: list[str | Path] = [find_uv_bin(), "pip", "install", "--no-config", "--python", python]
    return [*uv, "--index-url", index_url]


def _last_words(error: ProcessError) -> str:
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "no matching" in line.lower()]
    chosen = errors or lines[-3:] or [str(error)]
    return " ".join(chosen[:4])[:600]
