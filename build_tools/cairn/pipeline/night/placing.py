"""Which machines the steps of a night may run on: by platform, and by GPU.

On GitHub the labels of the matrix.toml say so. Here it is what the machines have: a leg that none of them can
test has no runner, which is known before anything is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from cairn.errors import PrerequisiteError
from cairn.matrix.legs import Leg
from cairn.pipeline.night import plan
from cairn.stack import Stack
from cairn.targets import CPU

_SEVERAL = "multi-gpu"  # the label of a runner with several


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, or the part of one that steps may use.

    Attributes:
        name: for people.
        platform: what it builds for and tests, such as `linux_x86_64`.
        cores: how many steps may use.
        gpus: how many of each target.
    """

    name: str
    platform: str
    cores: int
    gpus: Mapping[str, int] = msgspec.field(default_factory=dict)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What a step needs of the machine that it runs on.

    Attributes:
        platform: see `Machine`; empty for any.
        gpu: a target; empty where it needs none.
        gpus: how many of it.
    """

    platform: str = ""
    gpu: str = ""
    gpus: int = 0

    def is_met_by(self, machine: Machine) -> bool:
        """Whether a machine has all of it."""
        return self.platform in ("", machine.platform) and (
            not self.gpu or machine.gpus.get(self.gpu, 0) >= self.gpus
        )

    def __str__(self) -> str:
        return " ".join(filter(None, (self.platform, f"{self.gpu}: {self.gpus}" if self.gpu else "")))


def place(
    legs: Sequence[Leg], stack: Stack, machines: Sequence[Machine]
) -> tuple[tuple[Leg, ...], list[str]]:
    """Return the legs that the machines can build, with runners as they have them, and what is not tested.

    The runner of a test is the target of a GPU, or a platform where the stack's ROCm reaches none.

    Raises:
        PrerequisiteError: the machines can build none of them.
    """
    platforms = {machine.platform for machine in machines}
    remarks = [
        f"{leg.name} is left out: no machine here builds for {leg.platform}"
        for leg in legs
        if leg.platform not in platforms
    ]
    placed = []
    for leg in legs:
        if leg.platform not in platforms:
            continue
        single, several = (_runner(leg, stack, machines, count) for count in (1, 2))
        if not single:
            remarks.append(
                f"{leg.name} is tested without a GPU: no machine here has {leg.targets.replace(',', ' or ')}"
            )
        placed.append(
            structs.replace(
                leg,
                build_runs_on=(leg.platform,),
                test_runs_on=single,
                host_runs_on=() if single else (leg.platform,),
                multi_gpu_runs_on=several,
            )
        )
    if not placed:
        raise PrerequisiteError(
            f"the machines build for {', '.join(sorted(platforms))}, and no leg is for that",
            tip="choose others with --platforms, or add a machine that can build them",
        )
    return tuple(placed), remarks


def _runner(leg: Leg, stack: Stack, machines: Sequence[Machine], gpus: int) -> tuple[str, ...]:
    if plan.targets_of(leg) == (CPU,) or not stack.reaches_gpus:
        return (leg.platform,) if gpus == 1 else ()
    count = {
        target: sum(Demand(platform=leg.platform, gpu=target, gpus=gpus).is_met_by(m) for m in machines)
        for target in plan.targets_of(leg)
    }
    best = max(count, key=lambda target: count[target])
    if not count[best]:
        return ()
    return (best,) if gpus == 1 else (best, _SEVERAL)


def demand_of(leg: Leg, runs_on: Sequence[str]) -> Demand:
    """Return what a test with this runner needs; see `place`."""
    gpu = next((name for name in runs_on if name in plan.targets_of(leg) and name != CPU), "")
    return Demand(platform=leg.platform, gpu=gpu, gpus=(2 if _SEVERAL in runs_on else 1) if gpu else 0)
