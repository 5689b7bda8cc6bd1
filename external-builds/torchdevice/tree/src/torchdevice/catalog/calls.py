"""How to call a function of which nothing is known: by PyTorch's own samples, else by its signature."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

Call = Callable[[], Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def tensor(device: str) -> torch.Tensor:
    """What a parameter is given that may be a tensor."""
    return torch.arange(1.0, 10.0, device=device).reshape(3, 3)


def calls(path: str, function: Any, names: tuple[str, ...], device: str) -> Iterator[Call]:
    """Ways to call a function, the likeliest first.

    Args:
        path: its dotted name.
        function: itself.
        names: of its parameters; those that end in `=…` may be left out.
        device: "cpu" or "cuda".
    """
    if path in _BY_HAND:
        yield lambda: _BY_HAND[path](function, device)
        return
    if path.startswith("torch.distributed."):
        _join_a_group()
    yield from _by_samples(path, function, device)
    required = [name for name in names if not name.endswith("=…") and name != "self"]
    optional = {name.removesuffix("=…") for name in names} - set(required)
    kinds = ("input", *required) if path.startswith("torch.Tensor.") else tuple(required)
    if "device" in optional:
        yield lambda: _guess(functools.partial(function, device=device), kinds, device)
    yield functools.partial(_guess, function, kinds, device)
    for extra in _GUESSES:
        yield functools.partial(_guess, function, extra, device)


def _guess(function: Any, kinds: tuple[str, ...], device: str) -> Any:
    """Call a function with what parameters of these names take."""
    return function(*(_value(kind, device) for kind in kinds))


# Kinds of arguments, by the names below; tried one after another.
_GUESSES: tuple[tuple[str, ...], ...] = (
    (),
    ("input",),
    ("input", "input"),
    ("input", "dim"),
    ("input", "input", "input"),
    ("fn",),
    ("module",),
    ("dim",),
    ("name",),
    ("tensors",),
    ("input", "dim", "index"),
    ("input", "size"),
    ("fn", "input"),
)


def _by_samples(path: str, function: Any, device: str) -> Iterator[Call]:
    """PyTorch's own samples of an operation, where its tests have any."""
    operation = _operations.get(path)
    if operation is None:
        return

    def of(index: int) -> Any:
        samples = list(operation.sample_inputs(device, _dtype(operation), requires_grad=False))
        sample = samples[index]
        return function(sample.input, *sample.args, **sample.kwargs)

    for index in (0, 1, -1):
        yield functools.partial(of, index)


def _dtype(operation: Any) -> torch.dtype:
    supported = operation.supported_dtypes("cpu")
    wanted = (torch.float32, torch.int64, torch.complex64, torch.bool)
    return next((dtype for dtype in wanted if dtype in supported), torch.float32)


_operations: dict[str, Any] = {}


def prepare() -> None:
    """Read PyTorch's samples, once, before processes are forked; there are none without what its tests need.

    It forbids torch's global flags, as its tests do: for a process that does nothing else.
    """
    with contextlib.suppress(ImportError):
        from torch.testing._internal.common_methods_invocations import op_db

        for operation in op_db:
            for name in (operation.name, *(alias.name for alias in operation.aliases)):
                for path in (f"torch.{name}", f"torch.Tensor.{name}", f"torch.Tensor.{name}_"):
                    _operations.setdefault(path.replace("torch.special_", "torch.special."), operation)
                _operations.setdefault(f"torch.functional.{name}", operation)


def _value(name: str, device: str) -> Any:
    """What a parameter of this name takes."""
    made = _VALUES.get(name.rstrip("_"))
    return tensor(device) if made is None else made(device)


def _double(value: Any) -> Any:
    return value * 2


def _linear(device: str) -> torch.nn.Module:
    return torch.nn.Linear(3, 3).to(device)


def _state(_device: str) -> torch.Tensor:
    return torch.get_rng_state()


def _lists(device: str) -> list[torch.Tensor]:
    return [tensor(device)]


def _graph(_device: str) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(torch.nn.Linear(3, 3))


_VALUES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("module", "model", "mod", "net", "modules", "m", "root"), _linear),
    **dict.fromkeys(
        ("f", "fn", "func", "function", "hook", "callback", "obj", "forward", "callable", "closure"),
        lambda _device: _double,
    ),
    **dict.fromkeys(("gm", "graph_module", "traced"), _graph),
    **dict.fromkeys(("dim", "axis", "diagonal", "n", "k", "index_dim", "start", "offset"), lambda _device: 0),
    **dict.fromkeys(
        ("seed", "num_threads", "repeats", "groups", "num_classes", "kernel_size"), lambda _device: 3
    ),
    **dict.fromkeys(("in_features", "out_features", "in_channels", "out_channels"), lambda _device: 3),
    **dict.fromkeys(("num_features", "input_size", "hidden_size", "num_channels"), lambda _device: 3),
    **dict.fromkeys(("embed_dim", "num_heads", "d_model", "nhead", "bits", "world_size"), lambda _device: 1),
    **dict.fromkeys(("rank", "src", "dst", "peer_device", "res", "debug_mode", "level"), lambda _device: 0),
    **dict.fromkeys(("size", "shape", "sizes", "normalized_shape", "output_size"), lambda _device: (3, 3)),
    **dict.fromkeys(("p", "fraction", "lr", "eps", "alpha", "scale", "value", "rate"), lambda _device: 0.5),
    **dict.fromkeys(
        ("enabled", "mode", "flag", "enable", "requires_grad", "upper", "training"), lambda _device: False
    ),
    **dict.fromkeys(
        ("name", "msg", "message", "key", "tag", "prefix", "text", "equation"), lambda _device: "x"
    ),
    **dict.fromkeys(("filename", "path", "file", "file_name", "dir", "folder"), lambda _device: "file.bin"),
    **dict.fromkeys(("dtype", "scalar_type", "dtype_"), lambda _device: torch.float32),
    **dict.fromkeys(("device", "device_type", "device_name", "backend_device"), lambda device: device),
    **dict.fromkeys(("tensors", "tensor_list", "inputs", "operands"), lambda device: [tensor(device)] * 2),
    **dict.fromkeys(("parameters", "params"), lambda device: list(_linear(device).parameters())),
    **dict.fromkeys(
        ("index", "indices", "target", "labels"), lambda device: torch.zeros(3, 3, device=device).long()
    ),
    **dict.fromkeys(("generator",), lambda device: torch.Generator(device=device)),
    **dict.fromkeys(("new_state", "state"), _state),
    **dict.fromkeys(("new_states",), lambda _device: [torch.get_rng_state()]),
    **dict.fromkeys(("stream", "external_stream"), lambda _device: torch.cuda.Stream()),
    **dict.fromkeys(("args", "example_inputs", "sample_args", "primals"), lambda device: (tensor(device),)),
    **dict.fromkeys(("dataset", "data_source", "iterable", "lst"), lambda _device: [1, 2, 3]),
    **dict.fromkeys(("optimizer",), lambda device: torch.optim.SGD(_linear(device).parameters(), lr=0.1)),
    **dict.fromkeys(("probs",), lambda device: torch.full((3,), 0.5, device=device)),
    **dict.fromkeys(("tensor_lists", "output_tensor_lists", "scatter_list", "gather_list"), _lists),
    **dict.fromkeys(("object_list", "obj_list"), lambda _device: [1]),
    **dict.fromkeys(("object_gather_list",), lambda _device: [None]),
    **dict.fromkeys(("backend", "backend_name"), lambda _device: "gloo"),
    **dict.fromkeys(("timeout",), lambda _device: dt.timedelta(seconds=5)),
    **dict.fromkeys(("mask",), lambda device: torch.ones(3, 3, device=device).bool()),
    **dict.fromkeys(("qconfig",), lambda _device: torch.ao.quantization.default_qconfig),
    **dict.fromkeys(("typ", "cls", "type", "target_type", "the_type"), lambda _device: int),
}


def _join_a_group() -> None:
    """A group of this process alone: most of torch.distributed asks for one."""
    store = torch.distributed.HashStore()
    with contextlib.suppress(RuntimeError, ValueError):
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


# What its signature does not tell.
_BY_HAND: dict[str, Callable[[Any, str], Any]] = {
    "torch.as_strided": lambda f, device: f(tensor(device), (2, 2), (1, 2)),
    "torch.einsum": lambda f, device: f("ij,jk", tensor(device), tensor(device)),
    "torch.device": lambda f, device: f(device),
    "torch.load": lambda f, device: (
        torch.save(tensor(device), "file.pt"),
        f("file.pt", map_location=device),
    )[1],
    "torch.Tensor.to": lambda f, device: f(tensor("cpu"), device),
    "torch.autograd.grad": lambda f, device: f((x := tensor(device).requires_grad_()).sum(), x),
    "torch.autograd.backward": lambda f, device: f(tensor(device).requires_grad_().sum()),
    "torch.func.grad": lambda f, device: f(torch.sum)(tensor(device)),
    "torch.func.vmap": lambda f, device: f(torch.sum)(tensor(device)),
    "torch.vmap": lambda f, device: f(torch.sum)(tensor(device)),
    "torch.compile": lambda f, device: f(_double, backend="eager")(tensor(device)),
    "torch.distributed.init_process_group": lambda f, _device: f(
        "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
    ),
    "torch.cuda.set_stream": lambda f, _device: f(torch.cuda.current_stream()),
}
