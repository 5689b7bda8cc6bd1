"""torch.cuda: devices, memory, streams, graphs, and compiling at run time."""

from __future__ import annotations

import importlib
from pathlib import Path

import torch

from .harness import Answer, NotMeasurableError, require, runs

_SIZE = 64 << 20  # bytes: a block of its own


@runs("gpu")
def management(answer: Answer) -> None:
    """The GPUs are counted, named and chosen."""
    with answer.check("count and current device"):
        require(
            0 <= torch.cuda.current_device() < torch.cuda.device_count(),
            "the current device is not one of them",
        )
    with answer.check("choosing a device"):
        last = torch.cuda.device_count() - 1
        torch.cuda.set_device(last)
        require(torch.ones(1, device="cuda").device.index == last, "a tensor went to a different one")
        with torch.cuda.device(0):
            require(torch.cuda.current_device() == 0, "a different one is current")
    with answer.check("name and properties"):
        properties = torch.cuda.get_device_properties(0)
        require(torch.cuda.get_device_name(0) and properties.total_memory > 0, "they are empty")
        answer.fact(properties.name)
    with answer.optional("capability and synchronising"):
        torch.cuda.get_device_capability(0)
        torch.cuda.synchronize()
    with answer.optional("free memory"):
        free, total = torch.cuda.mem_get_info()
        require(0 < free <= total, f"{free} of {total} bytes")


@runs("gpu")
def processes(answer: Answer) -> None:
    """The use of the memory, in words and in figures."""
    held = torch.ones(1 << 20, device="cuda")
    with answer.check("memory_stats"):
        require(
            torch.cuda.memory_stats()["allocated_bytes.all.current"] >= held.nbytes, "too little is allocated"
        )
    with answer.check("memory_summary"):
        require("Allocated memory" in torch.cuda.memory_summary(), "no summary")
    with answer.optional("list_gpu_processes"):
        listing = torch.cuda.list_gpu_processes()
        require(listing.startswith("GPU:"), listing)


@runs("gpu")
def streams(answer: Answer) -> None:
    """Work on a second stream, ordered and timed by events."""
    side, x = torch.cuda.Stream(), torch.arange(1 << 20, device="cuda", dtype=torch.float32)
    with answer.check("work on a second stream"):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
            event = side.record_event()
        torch.cuda.current_stream().wait_event(event)
        require(torch.equal(y + x, x * 3), "a wrong result")
    with answer.check("events measure time"):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        torch.mm(x.view(1024, 1024), x.view(1024, 1024))
        end.record()
        end.synchronize()
        require(end.query() and begin.elapsed_time(end) > 0, "no time passed")


@runs("gpu")
def stream_context(answer: Answer) -> None:
    """`torch.cuda.StreamContext` selects a stream, and gives the one before back."""
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    with answer.check("selecting a stream"):
        with torch.cuda.StreamContext(side):
            require(torch.cuda.current_stream() == side, "a different stream is current")
            result = torch.ones(8, device="cuda").sum()
        require(torch.cuda.current_stream() == before, "the stream before is not current again")
        side.synchronize()
        require(result.item() == 8, "a wrong result")


@runs("gpu")
def graph(answer: Answer) -> None:
    """A graph of kernels is captured, and computes again on other values."""
    x = torch.zeros(1024, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with answer.check("capture"):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # warms up, as the documentation asks
            _ = (x + 1) * 2
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(captured):
            y = (x + 1) * 2
    with answer.check("replay"):
        x.fill_(4)
        captured.replay()
        require((y == 10).all(), "a wrong result")
    with answer.optional("a module made to graphs"):
        module = torch.nn.Linear(16, 16).cuda()
        sample = torch.randn(4, 16, device="cuda")
        expected = module(sample).detach()
        called = torch.cuda.make_graphed_callables(module, (sample.clone(),))
        torch.testing.assert_close(called(sample), expected)


@runs("gpu")
def collectives(answer: Answer) -> None:
    """Tensors are sent to all GPUs and summed over them."""
    from torch.cuda import comm

    count = torch.cuda.device_count()
    everywhere = tuple(range(count))
    x = torch.arange(64, device="cuda:0", dtype=torch.float32)
    with answer.check("broadcast and sum"):
        copies = comm.broadcast(x, everywhere)
        require([copy.device.index for copy in copies] == [*everywhere], "copies are elsewhere")
        require(torch.equal(comm.reduce_add(copies, 0), x * count), "a wrong sum")
    with answer.check("scatter and gather"):
        parts = comm.scatter(x, everywhere)
        require(torch.equal(comm.gather(parts, destination=0), x), "different values came back")
    with answer.check("between GPUs"):
        if count == 1:
            raise NotMeasurableError("one GPU")
        for device in everywhere[1:]:
            require(
                torch.equal(x.to(f"cuda:{device}").cpu(), x.cpu()), f"different values reached GPU {device}"
            )


@runs("gpu")
def tunable_op(answer: Answer) -> None:
    """Kernels of a product are timed, and the best is kept."""
    from torch.cuda import tunable

    with answer.check("switching it on"):
        tunable.enable(True)  # noqa: FBT003 - torch's
        tunable.tuning_enable(True)  # noqa: FBT003
        require(tunable.is_enabled() and tunable.tuning_is_enabled(), "it stays off")
    with answer.check("a product is tuned"):
        a = torch.randn(64, 96, device="cuda")
        torch.testing.assert_close((a @ a.t()).cpu(), a.cpu() @ a.cpu().t(), rtol=1e-3, atol=1e-3)
        require(tunable.get_results(), "no result was kept")


@runs("host")
def nvtx(answer: Answer) -> None:
    """Ranges and marks for a profiler: NVTX, on ROCm roctx."""
    if torch.version.hip is None and torch.version.cuda is None:
        raise NotMeasurableError("this torch is built for the CPU")
    with answer.check("ranges"):  # how deep they are is told only where a profiler looks
        torch.cuda.nvtx.range_push("cairn")
        torch.cuda.nvtx.range_pop()
    with answer.check("marks"):
        torch.cuda.nvtx.mark("cairn")


@runs("gpu")
def lazy_nvrtc(answer: Answer) -> None:
    """The compiler for run time is loaded when a kernel is first compiled, not before."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        raise NotMeasurableError("this system does not say what a process has loaded")
    compiler = "hiprtc" if torch.version.hip else "nvrtc"

    def loaded() -> bool:
        lines = maps.read_text(encoding="utf-8").splitlines()
        # torch's own libcaffe2_nvrtc is what opens the compiler.
        return any(compiler in Path(line.split()[-1]).name and "caffe2" not in line for line in lines)

    x = torch.ones(64, device="cuda")
    with answer.check(f"{compiler} is not loaded before"):
        require(not loaded(), "it is loaded when torch is imported, or with the first tensor")
    with answer.check(f"{compiler} is loaded when a kernel is compiled"):
        _jiterated(x)
        require(loaded(), "a kernel was compiled without it")


@runs("gpu")
def jiterator(answer: Answer) -> None:
    """A kernel out of a text."""
    with answer.check("a kernel of one's own"):
        x = torch.arange(64, device="cuda", dtype=torch.float32)
        require(torch.equal(_jiterated(x), x * 2 + 1), "a wrong result")


def _jiterated(x: torch.Tensor) -> torch.Tensor:
    source = "template <typename T> T twice_and_one(T x) { return x * T(2) + T(1); }"
    result: torch.Tensor = importlib.import_module("torch.cuda.jiterator")._create_jit_fn(source)(x)
    return result


@runs("gpu")
def memory(answer: Answer) -> None:
    """Everything that can be asked and done about it."""
    for statement in (allocated, reserved, empty_cache, stats):
        statement(answer)


@runs("gpu")
def allocated(answer: Answer) -> None:
    """The memory of all tensors, now and at most."""
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
    """The memory that the allocator holds."""
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
