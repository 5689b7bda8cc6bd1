"""Run one probe: what its process starts with."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from .answer import Answer, NotMeasurableError, reason


def main(answer_path: str, module: str, function: str, *arguments: str) -> None:
    """Run `module.function` of this folder, and write its answer."""
    with Path(answer_path).open("a", encoding="utf-8", errors="replace") as file:
        answer = Answer(file)
        try:
            probe = getattr(importlib.import_module(f"{__package__}.{module}"), function)
            missing = None
            if probe.where != "host":
                missing = why_no_gpu()
                answer.device = _torch().device("cpu" if missing else "cuda:0")
            if missing and probe.where == "gpu":
                answer.say(not_measurable=missing)
            else:
                if missing:
                    answer.say(no_gpu=missing)
                probe(answer, *arguments)
                answer.say(device=_used_gpu(answer))
        except NotMeasurableError as error:
            answer.say(not_measurable=str(error))
        except Exception as error:  # noqa: BLE001 - what is tested may raise anything
            answer.say(begin="the probe", essential=True)
            answer.say(end="failed", reason=reason(error))
        answer.say(complete=True)


def _torch() -> Any:
    return importlib.import_module("torch")


def why_no_gpu() -> str | None:
    """Why there is no GPU to compute on, where there is none."""
    torch = _torch()
    # A translation of torch.cuda to a different device says that it is available, with no ROCm behind it. It
    # is believed only where it was asked for, and the report says so.
    translated = "CAIRN_COMPAT_TRANSLATED" in os.environ
    if torch.version.hip is None and torch.version.cuda is None and not translated:
        return "this torch is built for the CPU"
    return None if torch.cuda.is_available() else "no GPU"


def _used_gpu(answer: Answer) -> str:
    """The GPU on which this process allocated memory, by its gfx name on ROCm; empty without one."""
    if "torch" not in sys.modules or why_no_gpu() or not _torch().cuda.is_initialized():
        return ""
    cuda = _torch().cuda
    everywhere = range(cuda.device_count())
    used = [i for i in everywhere if cuda.memory_stats(i).get("allocation.all.allocated", 0)]
    return gpu_name(used[0] if used else 0) if used or answer.on_gpu else ""


def gpu_name(index: int) -> str:
    """A GPU's gfx name on ROCm, else what its driver calls it."""
    torch = _torch()
    properties = torch.cuda.get_device_properties(index)
    name = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    return str(name or properties.name).partition(":")[0]  # without features, such as `:xnack-`
