"""The device router: where code that says "cuda" runs on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch

Target = Literal["cuda", "mps", "cpu"]


@dataclass(frozen=True, kw_only=True)
class Route:
    """Where "cuda" leads.

    Attributes:
        target: the type of the device that computes. "cuda" is the way of a machine that has it (ROCm
            calls itself so too): nothing is changed there.
        count: how many devices `torch.cuda.device_count()` tells of; all of them are the one target.
        strict: tensors say that they are on a GPU, and devices that are mixed are errors.
        features: what is switched off or on (see `features`); empty for what is usual.
    """

    target: Target
    count: int = 1
    strict: bool = False
    features: str = ""

    @property
    def native(self) -> bool:
        """Whether there is nothing to translate."""
        return self.target == "cuda"


def decide(target: str | None = None, count: int | None = None, *, strict: bool | None = None) -> Route:
    """The route for this machine: what was asked for, else TORCHDEVICE, else CUDA, then MPS, then the CPU.

    Args:
        target: forces the device type. "cpu" is translated to even where there is a GPU.
        count: forces the number of devices; else TORCHDEVICE_COUNT, else one for each local rank of torchrun.
        strict: whether to find mistakes about devices; else as TORCHDEVICE_STRICT says. It uses the CPU.

    Raises:
        ValueError: the target or the count makes no sense.
        RuntimeError: the target is not on this machine.
    """
    asked = target or os.environ.get("TORCHDEVICE") or "auto"
    if asked not in (*get_args(Target), "auto"):
        raise ValueError(f"torchdevice routes to auto, cuda, mps or cpu, not to {asked!r}")
    if strict is None:
        text = os.environ.get("TORCHDEVICE_STRICT") or "0"
        if text not in ("0", "1"):
            raise ValueError(f"TORCHDEVICE_STRICT is 0 or 1, not {text!r}")
        strict = text == "1"
    available = _available()
    if strict:
        available = tuple(name for name in available if name != "mps")
    chosen = available[0] if asked == "auto" else cast("Target", asked)
    if chosen not in available:
        raise RuntimeError(f"no {chosen} on this machine; torchdevice could route to {', '.join(available)}")
    return Route(target=chosen, count=_count(count), strict=strict and chosen != "cuda")


def _available() -> tuple[Target, ...]:
    found: list[Target] = []
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    return (*found, "cpu")


def _count(asked: int | None) -> int:
    text = str(asked) if asked is not None else os.environ.get("TORCHDEVICE_COUNT")
    text = text or os.environ.get("LOCAL_WORLD_SIZE") or "1"
    if not (text.isdecimal() and 1 <= int(text) <= 128):  # torch keeps an index in a signed byte
        raise ValueError(f"a machine has 1 to 128 devices, not {text!r}")
    return int(text)
