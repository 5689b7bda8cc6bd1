"""The frame of every probe: `main` starts one, its `Answer` takes the results, check by check.

They are written as they come, so that a crash loses none of the earlier ones: a JSON object a line,
`{"begin": …}` before a check, `{"end": …}` after it, and what is said of the probe as a whole (`no_gpu`,
`not_measurable`, `device`, `found`, `complete`). `cairn.testing.compat.measure` reads the file.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TextIO

Where = Literal["gpu", "gpu or cpu", "host"]
"""Where a probe means something: on a GPU only; on the CPU too, which says nothing of a GPU; anywhere."""

_KEPT = 300  # characters of a reason


class NotMeasurableError(Exception):
    """A row cannot be measured here; the message says why."""


class Answer:
    """The results of one probe.

    Attributes:
        device: where to compute: the first GPU, or the CPU.
        on_gpu: a tensor on a GPU was seen (`used`), where torch does not count what it allocates.
    """

    def __init__(self, file: TextIO) -> None:
        """`file` receives the lines."""
        self._file = file
        self.device: Any = None
        self.on_gpu = False

    def say(self, **facts: object) -> None:
        """Write a line; it is in the file when this returns."""
        self._file.write(json.dumps(facts, ensure_ascii=False) + "\n")
        self._file.flush()

    def fact(self, text: str) -> None:
        """Tell a version, or a similar fact, that belongs to the row."""
        self.say(found=text)

    def used(self, tensor: Any) -> None:
        """Note that the probe computed on a GPU, where the allocator's figures cannot tell."""
        self.on_gpu = self.on_gpu or bool(tensor.is_cuda)

    @contextlib.contextmanager
    def check(self, claim: str, *, essential: bool = True) -> Iterator[None]:
        """One thing that the row stands for: it holds unless the block raises.

        Args:
            claim: in a few words.
            essential: without it the feature is not there; without one that is not, it is there in part.
        """
        self.say(begin=claim, essential=essential)
        try:
            yield
        except NotMeasurableError as error:
            self.say(end="not measured", reason=str(error))
        except Exception as error:  # noqa: BLE001 - what is tested may raise anything
            self.say(end="failed", reason=reason(error))
        else:
            self.say(end="passed", reason="")

    def optional(self, claim: str) -> contextlib.AbstractContextManager[None]:
        """A check without which the feature is there in part."""
        return self.check(claim, essential=False)


def runs(where: Where) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a function as a probe."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        function.where = where  # type: ignore[attr-defined]
        return function

    return mark


def require(holds: object, message: str) -> None:
    """Fail the check with a message that a user can read."""
    if not holds:
        raise AssertionError(message)


def reason(error: BaseException) -> str:
    """An exception in one line."""
    name, text = type(error).__name__, " ".join(str(error).split())
    line = text if isinstance(error, AssertionError) and text else f"{name}: {text}".removesuffix(": ")
    return line if len(line) <= _KEPT else f"{line[:_KEPT]}…"


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


@runs("host")
def describe(answer: Answer, *probes: str) -> None:
    """Describe the interpreter, torch, ROCm and the GPUs, as JSON.

    Also names those of the probes, such as `devices.graph`, that need a GPU where there is none.
    """
    torch, missing = _torch(), why_no_gpu()
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
