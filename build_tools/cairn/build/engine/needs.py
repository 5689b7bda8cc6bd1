"""What the steps of a graph need of the machine, looked at before the first one starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from cairn.build.engine.policy import Limits
from cairn.build.engine.step import Step
from cairn.errors import SystemFailureError
from cairn.output import console


def require(steps: Iterable[Step], limits: Limits, place: Path) -> None:
    """Refuse to begin where the disk is too small; say so where memory is.

    Args:
        steps: those that will run.
        limits: of the machine.
        place: a folder on the disk that they work on.

    Raises:
        SystemFailureError: they have needed more disk before than is free now.
    """
    waiting = tuple(steps)
    needed, free = sum(step.disk for step in waiting), shutil.disk_usage(place).free
    if needed > free:
        raise SystemFailureError(
            f"the build needs about {console.size(needed)} of disk; {console.size(free)} are free at {place}",
            tip="free some space there, or name folders on a different disk",
        )
    for step in waiting:
        if limits.memory is not None and step.memory > limits.memory:
            console.current().warn(
                f"{step.name} needs about {console.size(step.memory)} of memory for one compile job, and it "
                f"may have {console.size(limits.memory)}: it runs alone, with one job"
            )
