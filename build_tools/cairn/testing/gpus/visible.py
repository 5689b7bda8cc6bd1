"""Choose the GPUs that tests see, before any test imports torch, which enumerates them only once.

Three variables hide GPUs (ROCm documentation, "GPU isolation techniques"). ROCR_VISIBLE_DEVICES hides them
from the runtime, and what is left is numbered anew from 0; of that, HIP_VISIBLE_DEVICES (or, where that is
not set, CUDA_VISIBLE_DEVICES) hides from HIP, and GPU_DEVICE_ORDINAL from OpenCL and HIP. HIP ends the
process if the last two disagree, so all of them are combined into one list here.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from cairn.errors import UsageError
from cairn.testing.gpus import kernel
from cairn.testing.gpus.gpu import matches

T = TypeVar("T")

GpuChoice = Literal["one", "one-of-each", "all"]
"""One GPU, one of each kind, or all, of those that fit."""
_RUNTIME, _HIP, _ORDINAL = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"
OF_HIP = (_HIP, "CUDA_VISIBLE_DEVICES", _ORDINAL)
"""The variables that hide GPUs from HIP; the first that is set counts."""
GPU_VARIABLES = (_RUNTIME, *OF_HIP)
"""The variables that hide GPUs."""


class VisibleGpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that the tests will see.

    Attributes:
        hardware: one gfx name for each GPU, as HIP numbers them.
        variables: the variables to set.
        unset: the variables to remove.
        notes: what was changed in the caller's own choice, a sentence each.
    """

    hardware: tuple[str, ...]
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def applied_to(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return an environment in which only these GPUs are visible."""
        return {name: value for name, value in environ.items() if name not in self.unset} | dict(
            self.variables
        )


def choose_gpus(
    environ: Mapping[str, str],
    *,
    targets: tuple[str, ...],
    how_many: GpuChoice,
    nodes: Path = kernel.KFD_NODES,
) -> VisibleGpus:
    """Choose from the GPUs that the environment leaves visible.

    Args:
        environ: the environment's variables.
        targets: the wheels' targets; if empty, any GPU will do.
        how_many: one GPU, one of each kind, or all that fit.
        nodes: the folder in which the kernel describes the GPUs.

    Raises:
        UsageError: GPUs of several kinds are named by UUIDs, which say nothing of the kind.
    """
    present = visible_gpus(kernel.gpu_names(nodes), environ.get(_RUNTIME))
    if not present:
        return VisibleGpus(hardware=())
    hiding = [name for name in OF_HIP if name in environ]
    words = [word.strip() for word in environ[hiding[0]].split(",")] if hiding else []
    if all(word.lstrip("-").isdecimal() for word in words if word):
        numbered = [(str(number), name) for number, name in enumerate(present)]
        candidates = visible_gpus(numbered, ",".join(words) if hiding else None)
    elif len(set(present)) > 1:
        raise UsageError(
            f"{hiding[0]} is {environ[hiding[0]]}, which does not say what kind of GPU that is",
            tip=f"name the GPUs by their numbers: this machine has {', '.join(present)}",
        )
    else:
        candidates = tuple((word, present[0]) for word in words if word)
    fitting = [(word, name) for word, name in candidates if not targets or matches([name], targets)]
    if how_many == "one-of-each":
        kinds = [name for _, name in fitting]
        fitting = [gpu for number, gpu in enumerate(fitting) if gpu[1] not in kinds[:number]]
    chosen = fitting[:1] if how_many == "one" else fitting
    numbers_text = ",".join(word for word, _ in chosen)
    return VisibleGpus(
        hardware=tuple(name for _, name in chosen),
        variables={_HIP: numbers_text or "-1"},
        unset=tuple(name for name in hiding if name != _HIP),
        notes=tuple(
            f"{name}={environ[name]} is replaced by {_HIP}={numbers_text or '-1'}"
            for name in hiding
            if environ[name] != numbers_text
        ),
    )


def gpus_here(topology: Path | None = None) -> tuple[str, ...]:
    """Return the GPUs of this machine that `ROCR_VISIBLE_DEVICES` leaves, or all of a copied topology.

    A copied description is of a different machine, of which our variables say nothing.
    """
    if topology is not None:
        return kernel.gpu_names(topology)
    return visible_gpus(kernel.gpu_names(), os.environ.get(_RUNTIME))


def visible_gpus(hardware: Sequence[T], chosen: str | None) -> tuple[T, ...]:
    """Return the GPUs that programs may use if `ROCR_VISIBLE_DEVICES` is `chosen`.

    Indices count the GPUs from 0; as in ROCr, the list ends at the first that does not exist. A list with
    UUIDs is ignored here, since the kernel's nodes do not carry them.
    """
    words = [word.strip() for word in chosen.split(",")] if chosen is not None else []
    if chosen is None or not all(word.lstrip("-").isdecimal() for word in words):
        return tuple(hardware)
    # "-1" hides everything, and so does any index that is out of range, for itself and for what follows it.
    indices = itertools.takewhile(lambda index: 0 <= index < len(hardware), map(int, words))
    return tuple(hardware[index] for index in indices)
