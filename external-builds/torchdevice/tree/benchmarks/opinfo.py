"""Every operation that PyTorch tests, on "cuda" by TorchDevice against the CPU: results and gradients.

    python benchmarks/opinfo.py [--strict] [PART OF]      e.g. 0 4: the first of four parts

All float32 samples of OpInfo are made and run twice, forward and backward: with device "cuda" while
torchdevice is enabled, and with "cpu" while it is off. Where OpInfo has others for CUDA, the second run takes
those. Samples that fail alike both times are equal, and counted. Prints each difference and the share
that is equal; exits with 1 below 99.5%.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

import torch
import torchdevice

warnings.simplefilter("ignore")
# OpInfo keeps the functions it tests under names of its own: it must find those that translate.
with torchdevice.redirected("cpu"):
    from torch.testing._internal.common_methods_invocations import op_db

# Their results are what was in memory before, or drawn anew.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
BAR = 0.995

Outcome = list[torch.Tensor] | str


def tensors(values: Any) -> list[torch.Tensor]:
    """All tensors in nested values."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def samples_for(op: Any, device: str) -> list[Any]:
    """The samples of an operation, the same each time."""
    torch.manual_seed(0)
    return list(op.sample_inputs(device, torch.float32, requires_grad=op.supports_autograd))


def run(op: Any, samples: list[Any]) -> list[Outcome]:
    """What each sample gives: results and gradients, or an error's type."""
    found: list[Outcome] = []
    for sample in samples:
        torch.manual_seed(1)
        try:
            result = op(sample.input, *sample.args, **sample.kwargs)
            found.append(outcome(op, sample, result))
        except Exception as error:  # noqa: BLE001 - operations may fail alike, in any way
            found.append(f"{type(error).__name__}: {error}")
    return found


def outcome(op: Any, sample: Any, result: Any) -> list[torch.Tensor]:
    """The results of one sample, then its gradients."""
    if not op.supports_autograd:
        return tensors(result)
    results = tensors(sample.output_process_fn_grad(result))
    leaves = [x for x in tensors((sample.input, sample.args, sample.kwargs)) if x.requires_grad and x.is_leaf]
    sums = [(x.abs() if x.is_complex() else x).sum() for x in results if x.requires_grad]
    gradients = torch.autograd.grad(sums, leaves, allow_unused=True) if sums and leaves else ()
    return [x.detach() for x in (*results, *gradients) if x is not None]


def difference(on_cuda: Outcome, on_cpu: Outcome) -> str:
    """What is different between two outcomes; nothing where they are equal."""
    if isinstance(on_cuda, str) or isinstance(on_cpu, str):
        kinds = [o.partition(":")[0] if isinstance(o, str) else "a result" for o in (on_cuda, on_cpu)]
        seen = on_cuda if isinstance(on_cuda, str) else kinds[0]
        return "" if kinds[0] == kinds[1] else f"{seen} instead of {kinds[1]}"
    try:
        torch.testing.assert_close(on_cuda, on_cpu, equal_nan=True)
    except (AssertionError, TypeError, ValueError) as error:
        return str(error).partition("\n")[0]
    return ""


def compare(ops: Iterable[Any], *, strict: bool) -> tuple[int, int, int]:
    """How many samples there were, how many differ, and how many fail alike."""
    compared = different = failing = 0
    for op in ops:
        with torchdevice.redirected("cpu", strict=strict):
            on_cuda = run(op, samples_for(op, "cuda"))
            again = samples_for(op, "cuda")
        samples = samples_for(op, "cpu")
        if len(samples) != len(again):
            samples = again
            for sample in samples:
                sample.kwargs.update({"device": "cpu"} if sample.kwargs.get("device") else {})
        compared += len(on_cuda)
        for index, pair in enumerate(zip(on_cuda, run(op, samples), strict=True)):
            what = "" if op.name in UNDEFINED else difference(*pair)
            failing += isinstance(pair[1], str) and not what
            if what:
                different += 1
                print(f"{op.full_name} {index}: {what[:200]}", flush=True)
    return compared, different, failing


def main() -> int:
    """Print the comparison; 1 where too much differs."""
    numbers = [int(text) for text in sys.argv[1:] if text.isdecimal()]
    part, parts = numbers or (0, 1)
    torch.set_num_threads(1)
    ops = [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")][part::parts]
    samples, different, failing = compare(ops, strict="--strict" in sys.argv)
    print(f"{len(ops)} of {len(op_db)} operations, {samples} samples")
    print(f"{different} different, {failing} fail alike")
    print(f"equal: {1 - different / samples:.2%}")
    return 0 if 1 - different / samples >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
