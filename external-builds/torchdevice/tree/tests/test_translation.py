"""What means CUDA is translated, and nothing else."""

from __future__ import annotations

import copy
import enum
import inspect
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
import torchdevice
from torch import nn
from torchdevice import matrix, translation

pytestmark = pytest.mark.usefixtures("enabled")


class Name(str):
    __slots__ = ()


class Named(enum.StrEnum):
    GPU = "cuda"


SPELLINGS = [
    "cuda",
    "cuda:0",
    "cuda:1",
    0,
    1,
    translation.RealDevice("cuda"),
    translation.RealDevice("cuda:1"),
    Name("cuda:1"),
    Named.GPU,
    np.int64(1),
]


@pytest.mark.parametrize("device", SPELLINGS, ids=repr)
def test_every_spelling(device: Any) -> None:
    assert torch.zeros(2, device=device).device == torch.device("cpu")
    assert torch.ones(2).to(device).device == torch.device(device)
    assert torch.ones(2).to(device=device, dtype=torch.float64).dtype == torch.float64
    assert torch.ones(2).cuda(device).device.type == "cpu"
    assert nn.Linear(2, 2).to(device).weight.device.type == "cpu"
    assert nn.Linear(2, 2).cuda(device).weight.device.type == "cpu"
    assert torch.Generator(device=device).device.type == "cpu"


@pytest.mark.parametrize("device", SPELLINGS, ids=repr)
def test_sequences_that_are_packed(device: Any) -> None:
    packed = nn.utils.rnn.pack_sequence([torch.ones(3)])
    for moved in (packed.to(device), packed.cuda(device), packed.to(device, torch.float64), packed.cuda()):
        assert moved.data.tolist() == [1, 1, 1]


@pytest.mark.parametrize("device", ["cpu", "meta", torch.device("meta"), None])
def test_other_devices_are_left(device: Any) -> None:
    assert torch.zeros(2, device=device).device.type == (torch.device(device).type if device else "cpu")


@pytest.mark.parametrize(
    ("device", "error"),
    [
        ("cuda:2", "ordinal"),
        (2, "ordinal"),
        ("cudo", "device type"),
        ("cuda:x", "device string"),
        (1.0, "device"),
    ],
)
def test_what_is_no_device_fails_as_torch_says(device: Any, error: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match=error):
        torch.zeros(1, device=device)


def test_strings_that_are_no_devices_are_not_touched() -> None:
    module = nn.ModuleDict({"cuda:0": nn.Linear(1, 1)})
    assert list(module.state_dict()) == ["cuda:0.weight", "cuda:0.bias"]
    assert torch.tensor([1]).to(torch.float64).dtype == torch.float64


@pytest.mark.filterwarnings("ignore:torch.range is deprecated", "ignore:Sparse")
def test_every_factory_of_the_matrix() -> None:
    """The functions that rules found take "cuda" as a device: none fails for want of CUDA."""
    block = ([0, 1], [0], [[[1.0]]], (1, 1))
    arguments: dict[str, tuple[Any, ...]] = {
        "arange": (3,), "eye": (3,), "full": ((2,), 1.0), "linspace": (0, 1, 3), "logspace": (0, 1, 3),
        "range": (0, 2), "randint": (3, (2,)), "randperm": (3,), "scalar_tensor": (1.0,), "tensor": ([1],),
        "as_tensor": ([1],), "tril_indices": (2, 2), "triu_indices": (2, 2), "normal": (0.0, 1.0, (2,)),
        "empty_strided": ((2,), (1,)), "empty_permuted": ((2, 3), (1, 0)), "full_like": (torch.ones(2), 1.0),
        "randint_like": (torch.ones(2), 3), "sparse_coo_tensor": ([[0]], [1.0], (2,)),
        "sparse_csr_tensor": ([0, 1], [0], [1.0], (1, 1)), "sparse_csc_tensor": ([0, 1], [0], [1.0], (1, 1)),
        "sparse_bsr_tensor": block, "sparse_bsc_tensor": block,
    }  # fmt: skip
    elsewhere = {
        "from_dlpack",
        "from_file",
        "empty_quantized",
        "set_default_device",
        "sparse_compressed_tensor",
    }
    tried = 0
    for entry in matrix.entries():
        if entry.owner == "torch" and entry.arguments == ("device",) and entry.name not in elsewhere:
            like = entry.name.endswith("_like")
            given = arguments.get(entry.name, (torch.ones(2),) if like else (3,))
            assert getattr(torch, entry.name)(*given, device="cuda").device.type == "cpu", entry.name
            tried += 1
    assert tried > 35
    compressed = torch.sparse_compressed_tensor(
        [0, 1], [0], [1.0], (1, 1), layout=torch.sparse_csr, device="cuda", check_invariants=False
    )
    assert compressed.device.type == "cpu"


@pytest.mark.parametrize("method", ["new_empty", "new_zeros", "new_ones", "new_tensor", "new_full"])
def test_methods_that_make_tensors(method: str) -> None:
    given = ((2,), 1.0) if method == "new_full" else ((2,),)
    assert getattr(torch.ones(1), method)(*given, device="cuda").device.type == "cpu"


def test_factories_that_pin() -> None:
    assert not torch.empty(2, pin_memory=True).is_pinned()
    assert not torch.ones(2).pin_memory().is_pinned()


def test_default_devices() -> None:
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(1).device == torch.get_default_device() == torch.device("cuda")
    finally:
        torch.set_default_device(None)
    with torch.device("cuda:1"):
        assert nn.Linear(2, 2).weight.device.type == "cpu"


def test_the_class_of_devices_is_still_torchs() -> None:
    device = torch.device("cuda", 1)
    real = translation.RealDevice
    assert isinstance(device, torch.device)
    assert type(device) == torch.device  # noqa: E721 - what programs do
    assert issubclass(real, torch.device)
    assert {real: 1}[torch.device] == 1
    assert repr(torch.device) == repr(real)
    assert inspect.isclass(torch.device)
    for made in (
        torch.device(type="cuda", index=0),
        torch.device("cuda", index=1),
        torch.device(1),
        torch.device("cuda"),
    ):
        assert made == device == real("cpu")


def test_a_device_that_is_not_there_has_a_name_but_no_tensors() -> None:
    far = torch.device("cuda:7")
    assert far.index == 7
    with pytest.raises(RuntimeError, match="ordinal"):
        torch.zeros(1).to(far)


def test_generators_can_be_subclassed() -> None:
    class Counting(torch.Generator):
        pass

    assert isinstance(Counting(), torch.Generator)
    assert type(Counting()).__mro__[1] is translation.RealGenerator


@pytest.mark.parametrize(
    "value", [lambda: torch.device("cuda"), lambda: torch.ones(2).cuda(), lambda: nn.Linear(2, 2).cuda()]
)
def test_pickled_and_copied_without_torchdevice(value: Any) -> None:
    made = value()
    for clone in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(clone) is type(made)
    written = pickle.dumps(made)
    torchdevice.disable()
    try:
        assert type(pickle.loads(written)) is type(made)
    finally:
        torchdevice.enable("cpu", count=2)


def test_signatures_names_and_documentation_stay() -> None:
    with_signature = 0
    for entry in matrix.entries():
        if entry.status not in (matrix.Status.TRANSLATED, matrix.Status.EMULATED, matrix.Status.REFUSED):
            continue
        ours = getattr(matrix.find(entry.owner), entry.name, None)
        original = getattr(ours, "__wrapped__", None)
        if original is None:
            continue
        assert ours.__name__ == original.__name__
        assert ours.__doc__ == original.__doc__
        if inspect.isfunction(original):
            assert inspect.signature(ours) == inspect.signature(original)
            with_signature += 1
    assert with_signature > 80


def test_files_written_on_a_gpu(tmp_path: Any) -> None:
    """A storage tagged `cuda:1`, as one that was saved on the second GPU."""
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.arange(4.0)}, path)
    moved = _tagged(path.read_bytes(), b"cuda:1")
    for map_location in (None, "cuda", "cuda:0", "cpu", {"cuda:1": "cuda:0"}, lambda storage, where: None):
        loaded = torch.load(io.BytesIO(moved), map_location=map_location)
        assert loaded["weight"].tolist() == [0, 1, 2, 3]
    assert torch.load(path, map_location=torch.device("cuda"))["weight"].device.type == "cpu"


def _tagged(saved: bytes, location: bytes) -> bytes:
    """The file of `torch.save` with another location, written by torch's own tags."""
    buffer = io.BytesIO()
    registry = torch.serialization._package_registry
    ours = (1, lambda storage: location.decode(), lambda storage, where: None)
    registry.insert(0, ours)
    try:
        torch.save(torch.load(io.BytesIO(saved)), buffer)
    finally:
        registry.remove(ours)
    assert location in buffer.getvalue()
    return buffer.getvalue()


def test_old_tensor_types() -> None:
    assert torch.cuda.FloatTensor([1.0]).type() == "torch.FloatTensor"
    assert torch.ones(1).type("torch.cuda.DoubleTensor").dtype == torch.float64
    assert torch.ones(1).type(torch.cuda.HalfTensor).dtype == torch.float16
