"""Mistakes about devices that go unnoticed without a GPU: `strict` raises what PyTorch raises with one.

Each is a program's line that runs on the CPU as it stands there. The texts are PyTorch's, and their parts are
looked for in its libraries.
"""

from __future__ import annotations

import ast
import itertools
import mmap
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchdevice
from torch import nn
from torchdevice import errors

SAME = "Expected all tensors to be on the same device, but "
NUMPY = (
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
    "first."
)
TWO = SAME + "found at least two devices, cuda:0 and cpu!"


def got(name: str, at: str, others: str, method: str) -> str:
    return (
        f"{SAME}got {name} is on {at}, different from other tensors on {others} "
        f"(when checking argument in method wrapper_CUDA_{method})"
    )


def lost_buffer() -> torch.Tensor:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.ones(4)  # no buffer, so that `.cuda()` leaves it behind

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table

    return Positions().cuda()(torch.ones(4, device="cuda"))


def mask_made_in_forward() -> torch.Tensor:
    scores = torch.ones(4, 4, device="cuda")
    return scores.masked_fill(torch.triu(torch.ones(4, 4), 1).bool(), float("-inf"))


def loss_with_weights_left_behind() -> torch.Tensor:
    loss = nn.CrossEntropyLoss(weight=torch.ones(3))
    return loss(torch.ones(2, 3, device="cuda"), torch.tensor([0, 1], device="cuda"))


def gradient_of_another_device() -> None:
    weight = torch.ones(2, device="cuda", requires_grad=True)
    weight.grad = torch.ones(2)


def shuffled_under_a_default_device() -> list[int]:
    with torch.device("cuda"):
        return list(torch.utils.data.RandomSampler(range(4), generator=torch.Generator()))


def momentum_kept_on_the_cpu() -> None:
    weight = torch.ones(2)
    averages = weight.clone()
    weight = weight.cuda()
    averages.mul_(0.9).add_(weight, alpha=0.1)


def backward_of_a_function() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.ones(2)

    Scaled.apply(torch.ones(2, device="cuda", requires_grad=True)).sum().backward()


def gradient_made_on_the_cpu() -> None:
    class Forgotten(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return torch.ones(2)

    Forgotten.apply(torch.ones(2, device="cuda", requires_grad=True)).sum().backward()


def hook_that_gives_another_device() -> None:
    x = torch.ones(2, device="cuda", requires_grad=True) * 2
    x.register_hook(to_ones)
    x.sum().backward()


def to_ones(_gradient: torch.Tensor) -> torch.Tensor:
    return torch.ones(2)


def doubled() -> torch.Tensor:
    return torch.ones(2, device="cuda", requires_grad=True) * 2


def on_gpu(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda")


def linear() -> nn.Linear:
    return nn.Linear(4, 4).cuda()


BUGS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "input not moved": (
        lambda: linear()(torch.ones(2, 4)),
        RuntimeError,
        got("mat1", "cpu", "cuda:0", "addmm"),
    ),
    "model not moved": (
        lambda: nn.Linear(4, 4)(on_gpu(2, 4)),
        RuntimeError,
        got("mat1", "cuda:0", "cpu", "addmm"),
    ),
    "labels not moved": (
        lambda: nn.functional.cross_entropy(on_gpu(2, 3), torch.tensor([0, 1])),
        RuntimeError,
        got("target", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    "loss with weights left behind": (
        loss_with_weights_left_behind,
        RuntimeError,
        got("weight", "cpu", "cuda:0", "nll_loss_forward"),
    ),
    "tensor that is no buffer": (lost_buffer, RuntimeError, TWO),
    "mask made in forward": (
        mask_made_in_forward,
        RuntimeError,
        "expected self and mask to be on the same device, but got mask on cpu and self on cuda:0",
    ),
    "mask on the GPU": (
        lambda: torch.ones(4).masked_fill_(on_gpu(4) > 0, 0.0),
        RuntimeError,
        "expected self and mask to be on the same device, but got mask on cuda:0 and self on cpu",
    ),
    "grid not moved": (
        lambda: nn.functional.grid_sample(on_gpu(1, 1, 2, 2), torch.zeros(1, 2, 2, 2), align_corners=False),
        RuntimeError,
        (
            "grid_sampler(): expected input and grid to be on same device, but input is on cuda:0 and grid "
            "is on cpu"
        ),
    ),
    "window not moved": (
        lambda: torch.stft(on_gpu(16), 4, window=torch.ones(4), return_complex=True),
        RuntimeError,
        "stft input and window must be on the same device but got self on cuda:0 and window on cpu",
    ),
    "window of the way back not moved": (
        lambda: torch.istft(torch.ones(3, 4, dtype=torch.complex64, device="cuda"), 4, window=torch.ones(4)),
        RuntimeError,
        "istft input and window must be on the same device but got self on cuda:0 and window on cpu",
    ),
    "one axis of a grid": (
        lambda: torch.meshgrid(on_gpu(2), torch.ones(2), indexing="ij"),
        RuntimeError,
        "meshgrid expects all tensors to have the same device",
    ),
    "one block of a matrix": (
        lambda: torch.block_diag(on_gpu(2, 2), torch.ones(2, 2)),
        RuntimeError,
        "torch.block_diag: input tensors must all be on the same device.",
    ),
    "distances to points of the CPU": (
        lambda: torch.cdist(on_gpu(2, 2), torch.ones(3, 2)),
        RuntimeError,
        "X1 and X2 must have the same device type. X1: cuda X2: cpu",
    ),
    "one of three matrices": (
        lambda: torch.linalg.multi_dot([on_gpu(2, 2), on_gpu(2, 2), torch.ones(2, 2)]),
        RuntimeError,
        "multi_dot(): all tensors must be on the same device but tensor 0 is on cuda:0 and tensor 2 on cpu",
    ),
    "factor of a system": (
        lambda: torch.cholesky_solve(on_gpu(2, 1), torch.eye(2)),
        RuntimeError,
        "Expected b and A to be on the same device, but found b on cuda:0 and A on cpu instead.",
    ),
    "coordinates of a gradient": (
        lambda: torch.gradient(on_gpu(3), spacing=(torch.arange(3.0),)),
        RuntimeError,
        "torch.gradient expected each tensor to be on the same device, but got devices cuda:0 and cpu!",
    ),
    "weights normed by what is elsewhere": (
        lambda: torch._weight_norm(on_gpu(2, 2), torch.ones(2, 1), 0),
        RuntimeError,
        (
            "weight_norm: expected v_in and g_in to be on the same device, but v_in is on cuda:0 and g_in is "
            "on cpu"
        ),
    ),
    "polynomials of a degree elsewhere": (
        lambda: torch.special.hermite_polynomial_h(on_gpu(2), torch.ones(2)),
        RuntimeError,
        TWO,
    ),
    "tokens not moved": (
        lambda: nn.Embedding(4, 4).cuda()(torch.tensor([1])),
        RuntimeError,
        got("index", "cpu", "cuda:0", "_index_select"),
    ),
    "image not moved": (
        lambda: nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2)),
        RuntimeError,
        (
            "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or "
            "input should be a MKLDNN tensor and weight is a dense tensor"
        ),
    ),
    "convolution not moved": (
        lambda: nn.Conv2d(1, 1, 1)(on_gpu(1, 1, 2, 2)),
        RuntimeError,
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    "hidden state not moved": (
        lambda: nn.GRU(2, 2).cuda()(on_gpu(1, 1, 2), torch.zeros(1, 1, 2)),
        RuntimeError,
        (
            "Input and hidden tensors are not at the same device, found input tensor at cuda:0 and "
            "hidden tensor at cpu"
        ),
    ),
    "recurrent layer not moved": (
        lambda: nn.LSTM(2, 2)(on_gpu(1, 1, 2)),
        RuntimeError,
        (
            "Input and parameter tensors are not at the same device, found input tensor at cuda:0 "
            "and parameter tensor at cpu"
        ),
    ),
    "keys of attention not moved": (
        lambda: nn.functional.scaled_dot_product_attention(
            on_gpu(1, 2, 4), torch.ones(1, 2, 4), on_gpu(1, 2, 4)
        ),
        RuntimeError,
        (
            "Expected query, key, and value to have the same device type, but got query.device: cuda:0 "
            "key.device: cpu and value.device: cuda:0 instead."
        ),
    ),
    "lengths moved": (
        lambda: nn.utils.rnn.pack_padded_sequence(on_gpu(2, 1, 1), torch.tensor([2], device="cuda")),
        RuntimeError,
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor",
    ),
    "sections moved": (
        lambda: torch.tensor_split(on_gpu(4), torch.tensor(2, device="cuda")),
        RuntimeError,
        "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on cuda:0",
    ),
    "numpy of a result": (
        lambda: on_gpu(2).numpy(),
        TypeError,
        NUMPY,
    ),
    "a result in a function of NumPy": (
        lambda: np.sin(on_gpu(2)),
        TypeError,
        NUMPY,
    ),
    "a list of results as an array": (
        lambda: np.array([on_gpu(2), on_gpu(2)]),
        TypeError,
        NUMPY,
    ),
    "generator of the CPU": (
        lambda: torch.randn(2, device="cuda", generator=torch.Generator().manual_seed(0)),
        RuntimeError,
        "Expected a 'cuda' device type for generator but found 'cpu'",
    ),
    "generator of the GPU": (
        lambda: torch.ones(2).uniform_(generator=torch.Generator("cuda")),
        RuntimeError,
        "Expected a 'cpu' device type for generator but found 'cuda'",
    ),
    "sampler under a default device": (
        shuffled_under_a_default_device,
        RuntimeError,
        "Expected a 'cuda' device type for generator but found 'cpu'",
    ),
    "wrong index of a device": (
        lambda: torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1"),
        RuntimeError,
        SAME + "found at least two devices, cuda:0 and cuda:1!",
    ),
    "device that is not there": (
        lambda: on_gpu(2).to("cuda:2"),
        RuntimeError,
        "CUDA error: invalid device ordinal",
    ),
    "index on the GPU": (
        lambda: torch.ones(4)[torch.tensor([1], device="cuda")],
        RuntimeError,
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    "values put at indices": (
        lambda: on_gpu(4).index_put_((torch.tensor([1, 2]),), torch.ones(2)),
        RuntimeError,
        TWO,
    ),
    "gather by an index of the CPU": (
        lambda: on_gpu(2, 2).gather(1, torch.tensor([[0], [1]])),
        RuntimeError,
        got("index", "cpu", "cuda:0", "gather"),
    ),
    "concatenated with zeros": (
        lambda: torch.cat([on_gpu(2), torch.zeros(2)]),
        RuntimeError,
        got("tensors", "cpu", "cuda:0", "cat"),
    ),
    "numbers stacked": (
        lambda: torch.stack([on_gpu(()), torch.tensor(1.0)]),
        RuntimeError,
        got("tensors", "cpu", "cuda:0", "cat"),
    ),
    "average kept on the CPU": (
        momentum_kept_on_the_cpu,
        RuntimeError,
        TWO,
    ),
    "gradient of another device": (
        gradient_of_another_device,
        RuntimeError,
        (
            "attempting to assign a gradient with device type 'cpu' to a tensor with device type 'cuda'. "
            "Please ensure that the gradient and the tensor are on the same device"
        ),
    ),
    "quantiles not moved": (
        lambda: torch.quantile(on_gpu(4), torch.tensor([0.5])),
        RuntimeError,
        "quantile() q tensor must be on the same device as the input tensor",
    ),
    "order taken on the CPU": (
        lambda: torch.take_along_dim(on_gpu(2, 2), torch.tensor([[0], [1]]), 1),
        RuntimeError,
        (
            "Expected tensor to have cuda Device, but got tensor with cpu Device (while checking "
            "arguments for torch.take_along_dim())"
        ),
    ),
    "backward of a function": (backward_of_a_function, RuntimeError, TWO),
    "gradient for backward": (
        lambda: doubled().backward(torch.ones(2)),
        RuntimeError,
        "invalid gradient at index 0 - expected device cuda:0 but got cpu",
    ),
    "gradient for autograd.grad": (
        lambda: torch.autograd.grad((x := on_gpu(2).requires_grad_()) * 2, x, on_gpu(2).cpu()),
        RuntimeError,
        "invalid gradient at index 0 - expected device cuda:0 but got cpu",
    ),
    "gradient made by a function": (
        gradient_made_on_the_cpu,
        RuntimeError,
        (
            "Function ForgottenBackward returned an invalid gradient at index 0 - expected device cuda:0 "
            "but got cpu"
        ),
    ),
    "gradient made by a hook": (
        hook_that_gives_another_device,
        RuntimeError,
        "hook 'to_ones' has changed the type of value (was CUDAFloatType got CPUFloatType)",
    ),
    "model moved by keyword, input not": (
        lambda: nn.Linear(4, 4).to(device="cuda")(torch.ones(2, 4)),
        RuntimeError,
        got("mat1", "cpu", "cuda:0", "addmm"),
    ),
    "packed sequence not moved": (
        lambda: nn.LSTM(2, 2).cuda()(nn.utils.rnn.pack_sequence([torch.ones(3, 2)])),
        RuntimeError,
        (
            "Input and parameter tensors are not at the same device, found input tensor at cpu and "
            "parameter tensor at cuda:0"
        ),
    ),
    "mask of attention not moved": (
        lambda: nn.functional.scaled_dot_product_attention(*[on_gpu(1, 1, 2, 4)] * 3, torch.zeros(2, 2)),
        RuntimeError,
        got("attn_bias", "cpu", "cuda:0", "__scaled_dot_product_efficient_attention"),
    ),
    "made pinned on the GPU": (
        lambda: torch.ones(2, device="cuda", pin_memory=True),
        RuntimeError,
        "Only dense CPU tensors can be pinned",
    ),
    "sent to a GPU that is the CPU": (
        lambda: torch.ones(2).cuda("cpu"),
        RuntimeError,
        "Invalid device, must be cuda device",
    ),
    "batch pinned after it was moved": (
        lambda: on_gpu(2).pin_memory(),
        RuntimeError,
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
    ),
    "matrices of two devices": (
        lambda: on_gpu(2, 2) @ torch.ones(2, 2),
        RuntimeError,
        got("mat2", "cpu", "cuda:0", "mm"),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_error_is_pytorchs(name: str) -> None:
    bug, error, text = BUGS[name]
    with torchdevice.redirected("cpu", count=2, strict=True), pytest.raises(error) as caught:
        bug()
    assert str(caught.value).startswith(text)


# Where torch's own code puts two strings together.
_WRITTEN_APART = re.compile(r"(?<=either on )cpu|(?<=but got )1D |(?<=Tensor.cpu\(\) to )")


def test_the_texts_are_in_torchs_libraries() -> None:
    """Each fixed part of a text in `errors.py`, but for those that are not torch's."""
    parts = set()
    for node in ast.walk(ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name not in ("refusal", "invalid_ordinal"):
            strings = [n.values for n in ast.walk(node) if isinstance(n, ast.JoinedStr)]
            texts = [part.value for part in itertools.chain(*strings) if isinstance(part, ast.Constant)]
            parts |= {part for text in texts for part in _WRITTEN_APART.split(text)}
    for text in errors.COMPARED.values():
        parts |= set(re.split(r"\{.*?\}", text))
    long = sorted(part for part in {*parts, errors._SAME} if len(part) > 12)
    assert len(long) > 20
    missing = set(long)
    for name in ("cpu", "python"):
        path = Path(torch.__file__).parent / "lib" / f"libtorch_{name}.so"
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as library:
            missing -= {part for part in missing if library.find(part.encode()) >= 0}
    assert missing == set()


def test_fifty() -> None:
    assert len(BUGS) >= 50
