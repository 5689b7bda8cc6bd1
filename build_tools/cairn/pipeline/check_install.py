"""The proof of the pudding: what a user types, run with pip and with uv."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from cairn import process
from cairn.build import environment
from cairn.errors import ProcessError, StoreError
from cairn.pipeline.request import TrailRequest
from cairn.wheels.wheelset import WheelSet

INSTALLERS = ("pip", "uv")


def install_from_release(request: TrailRequest, wheel_set: WheelSet) -> tuple[str, ...]:
    """Install the set's projects from the release channel alone, into an empty environment per program.

    Raises:
        StoreError: a program could not; its last lines are in the error.
    """
    url = (request.store_dir / "release" / "simple").absolute().as_uri() + "/"
    names = [f"{wheel.distribution}=={wheel.version}" for wheel in wheel_set.wheels]
    with tempfile.TemporaryDirectory(prefix="cairn-install-") as folder:
        for program in INSTALLERS:
            env = environment.create(Path(folder, program))
            _install(program, env, url, names)
    return INSTALLERS


def _install(program: str, env: environment.Environment, url: str, names: list[str]) -> None:
    head = {
        "pip": [sys.executable, "-m", "pip", "--isolated", "--python", str(env.python), "install"],
        "uv": [sys.executable, "-m", "uv", "pip", "install", "--no-config", "--python", str(env.python)],
    }[program]
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    variables["PIP_CONFIG_FILE"] = os.devnull
    try:
        process.run([*head, "--index-url", url, *names], env=variables)
    except ProcessError as error:
        raise StoreError(
            f"{program} cannot install the set from {url}: {'; '.join(process.tail(error.output, 3))}",
            tip="cairn index audit tells what is wrong with the index",
        ) from error
