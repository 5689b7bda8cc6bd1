"""CPU time, wall time and peak memory of a child process and all its children."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a command took.

    Attributes:
        cpu: seconds of user and system time, its children's included.
        wall: seconds.
        memory: bytes, the peak of its largest process.
    """

    cpu: float
    wall: float
    memory: int


def measured(command: Sequence[str], *, any_status: bool = False) -> Cost:
    """Run a command to its end and say what it took; with `any_status` findings are no failure.

    Raises:
        SystemExit: it failed.
    """
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode and not any_status:
        raise SystemExit(f"{command[:4]} failed with {child.returncode}")
    return Cost(
        cpu=usage.ru_utime + usage.ru_stime,
        wall=time.monotonic() - started,
        memory=usage.ru_maxrss * 1024,
    )


def median(costs: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(
        cpu=statistics.median(cost.cpu for cost in costs),
        wall=statistics.median(cost.wall for cost in costs),
        memory=round(statistics.median(cost.memory for cost in costs)),
    )


def report(peer: Cost, ours: Cost, *, peer_name: str) -> None:
    """Print both sides and the ratio."""
    print(f"{'':28}{'CPU s':>10}{'wall s':>10}{'peak MB':>10}")
    for name, cost in ((peer_name, peer), ("cairn", ours)):
        print(f"{name:28}{cost.cpu:10.2f}{cost.wall:10.2f}{cost.memory / 1e6:10.1f}")
    ratios = (peer.cpu / ours.cpu, peer.wall / ours.wall, peer.memory / ours.memory)
    print(f"{'ratio':28}" + "".join(f"{ratio:9.1f}x" for ratio in ratios))
