"""What autocast does to operations of a GPU and not to the CPU's: the rest of the list that CUDA's has.

Without it, code that is right on a GPU overflows here: `1 / x` is single there, and half in
the CPU's autocast. The lists are PyTorch's, `ATen/autocast_mode.h`; what the CPU has a rule for keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdevice import interceptor
from torchdevice.translation import Function

_SINGLE = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity dist pdist renorm logsumexp
upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
_upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa norm.Scalar
norm.ScalarOpt_dim softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList"""
_LOWER = "addmv addr einsum mv chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"
_WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot index_put tensordot scatter_add"

_CPU = "AutocastCPU"
_own_dtype = torch.get_autocast_dtype


def install(log: interceptor.UndoLog) -> None:
    """Give the CPU's autocast the rules that it lacks, whoever asks for it: checkpoints ask by its name."""
    library = torch.library.Library("aten", "IMPL", _CPU)
    log.at_the_end(library._destroy)
    for operators, dtype_for in ((_SINGLE, _single), (_LOWER, _lower), (_WIDEST, _widest)):
        for name in operators.split():
            packet, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), _CPU):
                library.impl(operator, _cast_first(operator, dtype_for))


def _single(_tensors: list[torch.Tensor]) -> torch.dtype:
    return torch.float32


def _lower(_tensors: list[torch.Tensor]) -> torch.dtype:
    return _own_dtype("cpu")


def _widest(tensors: list[torch.Tensor]) -> torch.dtype:
    single = any(tensor.dtype is torch.float32 for tensor in tensors)
    return torch.float32 if single else _own_dtype("cpu")


def _cast_first(operator: Any, dtype_for: Callable[[list[torch.Tensor]], torch.dtype]) -> Function:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        without = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))
        with without:
            given = (*args, *kwargs.values())
            # Who asks for a dtype gets it: `softmax(x, 0, dtype=…)`.
            if not any(isinstance(v, torch.dtype) for v in given):
                dtype = dtype_for(_eligible(given))
                args = tuple(_cast(value, dtype) for value in args)
                kwargs = {name: _cast(value, dtype) for name, value in kwargs.items()}
            return operator(*args, **kwargs)

    return uncompiled(kernel)


def uncompiled(function: Function) -> Function:
    """Have `torch.compile` not begin a graph in a function, where one broke inside autocast.

    Torch's own functions are left alone for the files they are in; `autocast.__init__` cannot be compiled.
    """
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    frames.set_code_exec_strategy(function.__code__, skip)
    return function


def _eligible(values: Any) -> list[torch.Tensor]:
    lists = [value if isinstance(value, list | tuple) else (value,) for value in values]
    return [value for part in lists for value in part if _is_eligible(value)]


def _is_eligible(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_cast(part, dtype) for part in value)
    if _is_eligible(value) and value.dtype is not dtype:
        return torch.ops.aten._to_copy.default(value, dtype=dtype)
    return value
