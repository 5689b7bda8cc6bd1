"""Other libraries, where they ask for more than torch does: patched when imported, and as they were after."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchdevice
from torchdevice import matrix


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that asks as Lightning does, where the table looks for it."""
    (tmp_path / "pytorch_lightning/accelerators").mkdir(parents=True)
    for folder in ("pytorch_lightning", "pytorch_lightning/accelerators"):
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "pytorch_lightning/accelerators/cuda.py").write_text(
        "class CUDAAccelerator:\n"
        "    def setup_device(self, device):\n"
        "        if device.type != 'cuda': raise ValueError(f'Device should be GPU, got {device} instead.')\n"
        "        return device\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("pytorch_lightning")}
    yield "pytorch_lightning.accelerators.cuda"
    for name in [name for name in sys.modules if name.startswith("pytorch_lightning")]:
        del sys.modules[name]
    sys.modules.update(kept)


@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported while enabled"])
@pytest.mark.parametrize("strict", [False, True], ids=["redirect", "strict"])
def test_a_device_of_that_name(library: str, before: bool, strict: bool) -> None:
    finders, ours = list(sys.meta_path), None
    if before:
        ours = vars(matrix.find(f"{library}.CUDAAccelerator"))["setup_device"]
    with torchdevice.redirected("cpu", strict=strict):
        accelerator: Any = matrix.find(f"{library}.CUDAAccelerator")()
        assert accelerator.setup_device(torch.device("cuda", 0)) is not None
        if strict:
            with pytest.raises(ValueError, match="got cpu instead"):
                accelerator.setup_device(torch.device("cpu"))
    assert sys.meta_path == finders
    with pytest.raises(ValueError, match="got cpu instead"):
        accelerator.setup_device(torch.device("cpu"))
    assert ours is None or vars(type(accelerator))["setup_device"] is ours


def test_a_library_that_is_not_there() -> None:
    with torchdevice.redirected("cpu"), pytest.raises(ImportError):
        __import__("pytorch_lightning.accelerators.no_such_thing")


class Several:
    """As TensorDict: not a tensor, and it answers for torch's functions by a table of its own."""

    table: dict[Any, Any] = {}  # noqa: RUF012

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.table[func](*args, **(kwargs or {})) if func in cls.table else NotImplemented


def zeros_like(several: Several, **kwargs: Any) -> Several:
    return Several(*(torch.zeros_like(tensor, **kwargs) for tensor in several.tensors))


@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported while enabled"])
@pytest.mark.parametrize("strict", [False, True], ids=["redirect", "strict"])
def test_what_is_like_a_tensor_answers_for_torchs_functions(
    monkeypatch: pytest.MonkeyPatch, before: bool, strict: bool
) -> None:
    if before:
        monkeypatch.setitem(Several.table, torch.zeros_like, zeros_like)
    with torchdevice.redirected("cpu", strict=strict):
        if not before:
            monkeypatch.setitem(Several.table, torch.zeros_like, zeros_like)
        several = Several(torch.ones(2), torch.ones(3, device="cuda"))
        made = torch.zeros_like(several, device="cuda")
        assert [tensor.device.type for tensor in made.tensors] == ["cuda" if strict else "cpu"] * 2
        with pytest.raises(TypeError, match="__torch_function__ handlers returned NotImplemented"):
            torch.ones_like(several)
