"""Several processes, with gloo for NCCL; and several GPUs in one, of which there is one."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torchdevice import errors, translation
from torchdevice.translation import Function


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


def data_parallel_init(original: Function) -> Function:
    """`DataParallel(module)`: as torch does it without GPUs."""

    @functools.wraps(original)
    def wrapper(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        original(self, module, *args, **kwargs)
        if translation.route() is not None:
            self.device_ids = []

    return wrapper


def data_parallel(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    del device_ids, output_device, dim
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))
