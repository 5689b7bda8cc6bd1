"""Which of docker, podman and buildah this machine has."""

from __future__ import annotations

import shutil
from typing import Literal, get_args

from cairn import process
from cairn.errors import PrerequisiteError, ProcessError

Engine = Literal["docker", "podman", "buildah"]

ENGINES: tuple[Engine, ...] = get_args(Engine)
_TIMEOUT = 20  # seconds that an engine may take to say its version; docker asks its daemon


def choose(named: Engine | None) -> Engine:
    """The engine to use: the one named, else the first on this machine that answers.

    Raises:
        PrerequisiteError: it is not here, or none of them is.
    """
    if named is not None:
        if shutil.which(named) is None:
            raise PrerequisiteError(f"{named} is not on this machine", tip=install_line(named))
        return named
    present = [name for name in ENGINES if shutil.which(name)]
    for name in present:
        if _answers(name):
            return name
    if present:
        raise PrerequisiteError(
            f"{present[0]} is here, but does not answer",
            tip="start its service and join its group (sudo usermod -aG docker $USER), or install podman",
        )
    raise PrerequisiteError(
        "none of docker, podman and buildah is on this machine", tip=install_line("podman")
    )


def likely(named: Engine | None) -> Engine:
    """The engine whose command lines to show: the one named, else the first that is here, else docker."""
    if named is not None:
        return named
    return next((name for name in ENGINES if shutil.which(name)), "docker")


def install_line(name: Engine) -> str:
    """What to do where an engine is missing."""
    package = {"docker": "docker.io"}.get(name, name)
    return f"install it, on Debian and Ubuntu: apt install {package}"


def _answers(name: Engine) -> bool:
    try:
        process.run([name, "version"], timeout=_TIMEOUT)
    except (PrerequisiteError, ProcessError):
        return False
    return True
