"""Several processes, with gloo for NCCL; and several GPUs in one."""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torchdevice import errors, translation
from torchdevice.emulation import devices, streams
from torchdevice.translation import Function

# torch's own words.
_SCALARS = (
    "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and "
    "return a vector."
)


def gloo_for_nccl(original: Function) -> Function:
    """A function of torch.distributed that takes the name of a backend, and may take a GPU for it."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if translation.route() is not None:
            bound = signature.bind(*args, **kwargs)
            if bound.arguments.get("backend") is not None:
                bound.arguments["backend"] = _backend(bound.arguments["backend"])
            for name in ("device_id", "pg_options"):  # only NCCL takes them
                if name in bound.arguments:
                    bound.arguments[name] = None
            args, kwargs = bound.args, bound.kwargs
        return original(*args, **kwargs)

    return wrapper


def _backend(asked: Any) -> Any:
    """`nccl` is gloo; so is `cpu:gloo,cuda:nccl`, since all tensors are on the CPU."""
    parts = {part.partition(":")[2] or part for part in str(asked).lower().split(",")}
    return "gloo" if "nccl" in parts and parts <= {"nccl", "gloo"} else asked


def is_nccl_available() -> bool:
    return True


class ProcessGroupNCCL:
    """What no process group is here."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise errors.refusal("torch.distributed.ProcessGroupNCCL", "use torch.distributed.new_group.")

    class Options:
        """As the group."""

        def __init__(self, *_args: Any, **_kwargs: Any) -> None:
            raise errors.refusal("ProcessGroupNCCL.Options", "leave them out: gloo takes none.")


def barrier(original: Function) -> Function:
    """`barrier(device_ids=[…])`, which gloo does not take."""
    return _dropping(original, {"device_ids": None})


def ddp_init(original: Function) -> Function:
    """`DistributedDataParallel(module, device_ids=[rank])`."""
    return _dropping(original, {"device_ids": None, "output_device": None})


def _dropping(original: Function, replaced: dict[str, Any]) -> Function:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if translation.route() is not None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments.update(
                {name: value for name, value in replaced.items() if name in bound.arguments}
            )
            args, kwargs = bound.args, bound.kwargs
        return original(*args, **kwargs)

    return wrapper


def _copies(tensors: Sequence[Any], asked: Iterable[Any]) -> list[list[Any]]:
    """The tensors on each device: as they are on the first, where they are there already, else copies."""
    made: list[list[Any]] = []
    for index in map(devices.ordinal, asked):
        there = [tensor.to(translation.shown(index)) for tensor in tensors]
        made.append(
            [
                t if t is not tensor else t.clone() if made else t.view_as(t)
                for t, tensor in zip(there, tensors, strict=True)
            ]
        )
    return made


def _destination(asked: Any) -> torch.device:
    is_cpu = asked == -1 or (isinstance(asked, str | torch.device) and str(asked) == "cpu")
    return torch.device("cpu") if is_cpu else translation.shown(devices.ordinal(asked))


def broadcast(tensor: Any, devices: Any = None, *, out: Any = None) -> tuple[Any, ...]:
    if out is not None:
        return tuple(there.copy_(tensor) for there in out)
    return tuple(copies[0] for copies in _copies([tensor], devices))


def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int = 10485760) -> list[list[Any]]:
    del buffer_size
    with torch.no_grad():
        return _copies(tensors, devices)


def reduce_add(inputs: Any, destination: Any = None) -> Any:
    place = _destination(destination)
    return functools.reduce(torch.add, (tensor.to(place) for tensor in inputs))


def reduce_add_coalesced(inputs: Any, destination: Any = None, buffer_size: int = 10485760) -> Any:
    del buffer_size
    return tuple(reduce_add(group, destination) for group in zip(*inputs, strict=True))


def scatter(
    tensor: Any,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> tuple[Any, ...]:
    del streams
    if out is not None:
        parts = tensor.split([there.size(dim) for there in out], dim)
        return tuple(there.copy_(part) for there, part in zip(out, parts, strict=True))
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
    return tuple(part.to(_destination(device)) for part, device in zip(parts, devices, strict=False))


def gather(tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    place = _destination(destination) if out is None else out.device
    return torch.cat([tensor.to(place) for tensor in tensors], dim, out=out)


def _get_stream(device: torch.device) -> Any:
    """Where DDP copies its input, and nothing that is kept in torch afterwards."""
    return None if device.type == "cpu" else streams.Stream(device)


def apply_broadcast(_original: Function) -> Function:
    """`Broadcast.apply`, which DataParallel calls: moves that autograd knows."""

    def apply(target_gpus: Any, *inputs: Any) -> tuple[Any, ...]:
        return tuple(itertools.chain.from_iterable(_copies(inputs, target_gpus)))

    return apply


def apply_scatter(_original: Function) -> Function:
    """`Scatter.apply`."""

    def apply(target_gpus: Any, chunk_sizes: Any, dim: int, tensor: Any) -> tuple[Any, ...]:
        return scatter(tensor, target_gpus, chunk_sizes, dim)

    return apply


def apply_gather(_original: Function) -> Function:
    """`Gather.apply`: losses of no dimensions become a vector, with torch's warning."""

    def apply(target_device: Any, dim: int, *inputs: Any) -> Any:
        if dim == 0 and all(tensor.dim() == 0 for tensor in inputs):
            warnings.warn(_SCALARS, stacklevel=2)
            inputs = tuple(tensor.view(1) for tensor in inputs)
        return gather(inputs, dim, target_device)

    return apply
