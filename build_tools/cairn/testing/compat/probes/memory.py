"""The caching allocator of a GPU."""

from __future__ import annotations

import torch

from .answer import Answer, require, runs

_SIZE = 64 << 20  # bytes: a block of its own


@runs("gpu")
def management(answer: Answer) -> None:
    """Everything that can be asked and done about it."""
    for statement in (allocated, reserved, empty_cache, stats):
        statement(answer)


@runs("gpu")
def allocated(answer: Answer) -> None:
    """What tensors hold now, and held at most."""
    with answer.check("memory_allocated"):
        before = torch.cuda.memory_allocated()
        held = _block()
        require(torch.cuda.memory_allocated() - before >= _SIZE, "a tensor does not count")
        del held
        require(torch.cuda.memory_allocated() == before, "a tensor that is gone counts")
    with answer.check("max_memory_allocated"):
        require(torch.cuda.max_memory_allocated() >= before + _SIZE, "the most is less than there was")
        torch.cuda.reset_peak_memory_stats()
        require(torch.cuda.max_memory_allocated() < before + _SIZE, "it cannot be counted anew")


@runs("gpu")
def reserved(answer: Answer) -> None:
    """What the allocator holds."""
    with answer.check("memory_reserved"):
        held = _block()
        require(
            torch.cuda.memory_reserved() >= torch.cuda.memory_allocated() >= held.nbytes,
            "less than tensors hold",
        )
    with answer.check("max_memory_reserved"):
        require(torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved(), "the most is less than now")


@runs("gpu")
def empty_cache(answer: Answer) -> None:
    """Unused memory goes back to the driver, and none of what is used."""
    with answer.check("empty_cache"):
        in_use, unused = _block(), _block()
        del unused
        before = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        require(before - torch.cuda.memory_reserved() >= _SIZE, "nothing was given back")
        require((in_use == 1).all(), "a tensor lost its values")


@runs("gpu")
def stats(answer: Answer) -> None:
    """The figures of the allocator."""
    with answer.check("memory_stats"):
        held = _block()
        figures = torch.cuda.memory_stats()
        require(figures["allocated_bytes.all.current"] >= held.nbytes, "a tensor does not count")
        require(figures["num_ooms"] == 0, "it says that memory ran out")


@runs("gpu")
def snapshot(answer: Answer) -> None:
    """All of its state."""
    with answer.check("memory_snapshot"):
        held = _block()
        blocks = [block for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]
        inside = [block for block in blocks if block["state"] == "active_allocated"]
        require(any(block["size"] >= held.nbytes for block in inside), "a tensor is not in it")


@runs("gpu")
def uncached(answer: Answer) -> None:
    """With PYTORCH_NO_CUDA_MEMORY_CACHING set: the memory of a tensor that is gone is the driver's again."""
    with answer.check("memory is given back at once"):
        answer.used(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()
        before, _ = torch.cuda.mem_get_info()
        _block()
        torch.cuda.synchronize()
        after, _ = torch.cuda.mem_get_info()
        require(before - after < _SIZE, "the memory of a tensor that is gone is still held")


def _block() -> torch.Tensor:
    return torch.ones(_SIZE // 4, device="cuda")
