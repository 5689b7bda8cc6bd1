"""The wheel itself: its version and build settings, and what PyTorch's page on HIP semantics says of it."""

from __future__ import annotations

import re
import subprocess
import sys

import torch

from .harness import Answer, NotMeasurableError, require, runs

_ASSERT = """
import sys, torch
index = torch.tensor([int(sys.argv[1])], device="cuda")
torch.zeros(4, device="cuda")[index]
torch.cuda.synchronize()
"""
_PASSES = 120  # seconds until a kernel that hangs on its assert is ended


@runs("host")
def line(answer: Answer, release: str, kind: str) -> None:
    """This wheel is of a version that the page lists.

    Args:
        answer: what is found.
        release: the first two numbers, `2.9`.
        kind: `alpha` or `stable`.
    """
    version = str(torch.__version__)
    match = re.match(r"(?P<line>\d+\.\d+)(\.\d+)?(?P<alpha>a\d+|\.dev\d+)?", version)
    if match is None or match["line"] != release or bool(match["alpha"]) != (kind == "alpha"):
        raise NotMeasurableError(f"this wheel is {version}")
    project(answer)


@runs("host")
def built_with(answer: Answer, setting: str) -> None:
    """A build setting of this torch, such as USE_FBGEMM_GENAI, is on."""
    if torch.version.hip is None and torch.version.cuda is None:
        raise NotMeasurableError("this torch is built for the CPU")
    match = re.search(rf"\b{setting}=(\w+)", torch.__config__.show())
    if match is None:
        raise NotMeasurableError(f"this torch does not say what {setting} was")
    with answer.check(f"{setting} is on"):
        require(match[1].upper() in ("ON", "1", "TRUE"), f"it is {match[1]}")


@runs("host")
def project(answer: Answer) -> None:
    """The wheel of torch imports, and computes on the CPU."""
    with answer.check("torch imports and computes"):
        answer.fact(str(torch.__version__))
        require((torch.ones(2, 3) @ torch.ones(3, 2) == 3).all(), "a wrong product")


@runs("gpu")
def cuda_is_the_name(answer: Answer) -> None:
    """`cuda` names the current GPU, `cuda:0` the first."""
    with answer.check("tensors are there"):
        for tensor in (
            torch.tensor([1.0, 2.0], device=torch.device("cuda:0")),
            torch.tensor([1.0, 2.0]).cuda(),
        ):
            require(tensor.device == torch.device("cuda", 0), f"a tensor is on {tensor.device}")
        require(
            torch.zeros(1, device="cuda").device.index == torch.cuda.current_device(), "not the current one"
        )


@runs("host")
def hip_is_no_name(answer: Answer) -> None:
    """Neither `rocm` nor `hip` names a device that a tensor can be on."""
    for name in ("rocm", "hip"):
        with answer.check(f"{name} is refused"):
            try:
                torch.zeros(1, device=name)
            except (AssertionError, ImportError, RuntimeError):
                continue
            raise AssertionError("a tensor was made there")


@runs("gpu")
def transfers(answer: Answer) -> None:
    """`Tensor.to` and `Tensor.cuda` take a tensor to a GPU by its name or number."""
    x = torch.tensor([1.0, 2.0])
    with answer.check("to and cuda agree"):
        copies = (x.to(device="cuda"), x.to("cuda:0"), x.cuda(), x.cuda(0), x.cuda(torch.device("cuda:0")))
        require(all(t.device.index == 0 and torch.equal(t.cpu(), x) for t in copies), "they do not")


@runs("gpu")
def results_stay(answer: Answer) -> None:
    """A result is on the device of its operands, whatever device is current."""
    last = torch.cuda.device_count() - 1
    with answer.check("on the operands' device"):
        x = torch.ones(2, device="cuda:0")
        with torch.cuda.device(last):
            require((x + x).device.index == 0, "it is on the current one")


@runs("gpu")
def context_chooses(answer: Answer) -> None:
    """In `torch.cuda.device`, `cuda` is the one chosen, and a number still is what it says."""
    if torch.cuda.device_count() == 1:
        raise NotMeasurableError("one GPU")
    with answer.check("the chosen device"), torch.cuda.device(1):
        tensors = (torch.ones(1, device="cuda"), torch.ones(1).cuda(), torch.ones(1).to(device="cuda"))
        require(all(tensor.device.index == 1 for tensor in tensors), "a tensor is on a different one")
        require(torch.randn(2, device="cuda:0").device.index == 0, "cuda:0 is a different one")


@runs("host")
def availability(answer: Answer) -> None:
    """`is_available` holds for a build with a GPU in sight, and `torch.version` says of which kind."""
    with answer.check("one kind of build"):
        require(not (torch.version.hip and torch.version.cuda), "it says both HIP and CUDA")
    with answer.check("available where there are devices"):
        require(torch.cuda.is_available() == (torch.cuda.device_count() > 0), "it disagrees with the count")
        built = torch.version.hip is not None or torch.version.cuda is not None
        require(built or not torch.cuda.is_available(), "a build for the CPU says that a GPU is available")


@runs("host")
def extensions_know_rocm(answer: Answer) -> None:
    """Extensions are compiled with USE_ROCM defined, by which sources tell ROCm from CUDA."""
    if torch.version.hip is None:
        raise NotMeasurableError("this torch is not built for ROCm")
    from torch.utils import cpp_extension

    with answer.check("USE_ROCM is defined"):
        flags = [*cpp_extension.COMMON_HIP_FLAGS, *cpp_extension.COMMON_HIPCC_FLAGS]
        require(any(flag.startswith("-DUSE_ROCM") for flag in flags), "it is not")
    with answer.check("the version is HIP's"):
        require(re.match(r"\d+\.\d+", torch.version.hip), "torch.version.hip is no version")
        require(torch.version.cuda is None, "torch.version.cuda is set as well")


@runs("gpu")
def kernel_asserts(answer: Answer) -> None:
    """An index out of range is noticed by the kernel that uses it; the process that has it ends."""
    answer.used(torch.ones(1, device="cuda"))
    with answer.check("an index within range is taken"):
        completed = _indexed(3)
        require(
            not completed.returncode,
            f"the process ended with {completed.returncode}: {completed.stderr[-200:]}",
        )
    with answer.check("an index out of range is noticed"):
        completed = _indexed(9)
        require(completed.returncode, "the kernel read beyond the tensor, and nothing was said")
        # A read that leaves the GPU's memory ends the process as well, and is no assert.
        require(
            "assert" in completed.stderr.lower(), f"the process ended without one: {completed.stderr[-200:]}"
        )


def _indexed(index: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", _ASSERT, str(index)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_PASSES, check=False)
