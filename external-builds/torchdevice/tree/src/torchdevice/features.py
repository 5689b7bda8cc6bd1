"""Feature flags: parts of torchdevice that can be switched off, or on, one by one.

`TORCHDEVICE_FEATURES="-distributed,+monitor"`, or `enable(features=…)`. What is off is torch's own again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

# Those without a word of their own are named for the module of `emulation` that answers.
NAMES = {
    "signatures": "functions that take a device, found by their signatures",
    "tensors": "moves: `.to`, `.cuda`",
    "devices": "torch.device and torch.cuda as a machine",
    "accelerator": "torch.accelerator",
    "streams": "streams, events, ranges for profilers",
    "memory": "memory figures",
    "random": "random state",
    "amp": "autocast and gradient scaling",
    "data": "torch.load",
    "distributed": "process groups by gloo, DataParallel, DDP",
    "profiling": "profilers",
    "legacy": "tensor types as classes and as text",
    "refusals": "errors that say what to do instead",
    "fallback": "operations that the CPU lacks in half precision are computed in single",
    "optimizer": "pinned memory, and what orders streams, is left out",
    "monitor": "calls are counted, for `torchdevice report`",
}
_OFF = {"monitor"}


def chosen(asked: str | None = None) -> frozenset[str]:
    """The features that are on, by what is asked for, else by TORCHDEVICE_FEATURES.

    Raises:
        ValueError: a name that is none, or one without a sign.
    """
    text = os.environ.get("TORCHDEVICE_FEATURES", "") if asked is None else asked
    on = set(NAMES) - _OFF
    for sign, name in _parts(text):
        on = on | {name} if sign == "+" else on - {name}
    return frozenset(on)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        sign, name = part[0], part[1:]
        if sign not in "+-" or name not in NAMES:
            raise ValueError(f"features are +name or -name of {', '.join(NAMES)}, not {part!r}")
        yield sign, name
