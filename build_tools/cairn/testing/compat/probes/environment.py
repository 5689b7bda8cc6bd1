"""What is tested: the interpreter, torch, its ROCm, and the GPUs as torch sees them."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from importlib import metadata

import torch

from .answer import Answer, runs
from .run import gpu_name, why_no_gpu


@runs("host")
def describe(answer: Answer, *probes: str) -> None:
    """Tell it, as JSON; and which of the probes, such as `devices.graph`, need a GPU where there is none."""
    missing = why_no_gpu()
    facts = {
        "no_gpu": missing or "",
        "gpu_only": [probe for probe in probes if missing and _where(probe) == "gpu"],
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "torch": torch.__version__,
        "commit": torch.version.git_version or "",
        "hip": torch.version.hip or "",
        "cuda": torch.version.cuda or "",
        "rocm": _installed("rocm"),
        "gpus": [] if missing else [gpu_name(index) for index in range(torch.cuda.device_count())],
    }
    with answer.check("import torch"):
        answer.fact(json.dumps(facts))


def _where(probe: str) -> str:
    module, _, function = probe.partition(".")
    try:
        return str(getattr(importlib.import_module(f"{__package__}.{module}"), function).where)
    except Exception:  # noqa: BLE001 - its own process will say why
        return ""


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
