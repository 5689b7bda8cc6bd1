"""The last step of a stack's whole way: what a user types, run with pip and with uv."""

from __future__ import annotations

from typing import get_args

from cairn.errors import StoreError
from cairn.pipeline.request import TrailRequest
from cairn.release.gate import install_check
from cairn.release.gate.install_check import Installer
from cairn.wheels.wheelset import WheelSet

INSTALLERS: tuple[Installer, ...] = get_args(Installer)


def install_from_release(request: TrailRequest, wheel_set: WheelSet) -> tuple[str, ...]:
    """Install the set's projects from the release channel alone, into an empty environment per program.

    Raises:
        StoreError: a program could not; its reason is in the error.
    """
    url = (request.store_dir / "release" / "simple").absolute().as_uri() + "/"
    names = [f"{wheel.distribution}=={wheel.version}" for wheel in wheel_set.wheels]
    for program in INSTALLERS:
        done = install_check.install(program, names, index_url=url)
        if done.problem:
            raise StoreError(
                f"{program} cannot install the set from {url}: {done.problem}",
                tip="cairn index audit tells what is wrong with the index",
            )
    return INSTALLERS
