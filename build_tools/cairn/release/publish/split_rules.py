"""What must hold of a set whose device code is in wheels of its own: it is promoted whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cairn.errors import StoreError
from cairn.release.index.generation import project_of, version_of
from cairn.wheels.split import completeness
from cairn.wheels.wheelset import WheelSet

_ROCM = ("rocm-sdk-core", "rocm")  # the packages of the SDK whose version is that of its runtime


def refuse_incomplete(wheel_set: WheelSet, wheels: Sequence[Path]) -> None:
    """Refuse a set whose device wheels are not all that was split from its wheels.

    Raises:
        StoreError: something is wrong with them.
        WheelError: a wheel cannot be read.
    """
    if found := problems(wheel_set, wheels):
        raise StoreError(
            f"the device code of the set is not whole: {'; '.join(found)}",
            tip="split the whole wheels again, and give all that comes of it",
        )


def problems(
    wheel_set: WheelSet, wheels: Sequence[Path], *, floor: str | None = None, all_recorded: bool = False
) -> tuple[str, ...]:
    """What is wrong with the host and device wheels of a set, a sentence each.

    Every device wheel is there, with all the code of its targets as it was before the split; every extra asks
    for device wheels that are there, and each has its extras; the ROCm of the closure finds the code.

    Args:
        wheel_set: with its closure.
        wheels: its files.
        floor: the first release of ROCm whose runtime finds the code, as the stack has it; None to believe
            the host wheels.
        all_recorded: each host wheel must say what was split from it.

    Raises:
        WheelError: a wheel cannot be read.
    """
    versions = {project_of(file.file_name): version_of(file.file_name) for file in wheel_set.closure}
    rocm = next((versions[name] for name in _ROCM if name in versions), None)
    return tuple(completeness.problems(wheels, rocm=rocm, floor=floor, all_recorded=all_recorded))
