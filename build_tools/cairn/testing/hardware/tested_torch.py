"""The GPUs as the torch that is tested sees them: what its tests computed on, by its own word."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from cairn import isolation, process
from cairn.errors import CairnError
from cairn.testing.hardware.gpu import Answer, Gpu, text

_MARK = "cairn-gpus:"
_TIMEOUT = 300.0  # seconds: a torch from a slow disk, and a first call to its driver

# Isolated (`-I`), so that nothing beside the environment is imported.
_SCRIPT = f"""\
import importlib.util, json
gpus, problem, version = [], "", None
if importlib.util.find_spec("torch") is not None:
    import torch
    version = torch.version
    # A translation of torch.cuda to a different device has neither ROCm nor CUDA behind it.
    if (getattr(version, "hip", None) or getattr(version, "cuda", None)) and torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            seen = torch.cuda.get_device_properties(index)
            gpus.append({{
                "target": getattr(seen, "gcnArchName", "") if version.hip else "",
                "name": seen.name,
                "memory": seen.total_memory,
                "uuid": str(getattr(seen, "uuid", "")),
            }})
print({_MARK!r} + json.dumps({{"hip": bool(version and getattr(version, "hip", None)), "gpus": gpus}}))
"""


def ask(python: Path, variables: Mapping[str, str], log: Path) -> Answer:
    """The GPUs that a program of an environment sees; none where it has no torch."""
    try:
        command: list[str | Path] = [python, "-I", "-c", _SCRIPT]
        hidden = isolation.credential_files()
        completed = process.run(command, env=variables, log=log, timeout=_TIMEOUT, hidden=hidden)
    except CairnError as error:
        return Answer(problem=f"torch does not say which GPUs it sees: {error}")
    lines = [line for line in completed.output.splitlines() if line.startswith(_MARK)]
    try:
        (line,) = lines
        plain = json.loads(line.removeprefix(_MARK))
        return Answer(gpus=tuple(_gpu(item, hip=plain["hip"]) for item in plain["gpus"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Answer(problem="torch does not say which GPUs it sees")


def _gpu(item: dict[str, object], *, hip: bool) -> Gpu:
    name, memory = text(item["name"]), item["memory"]
    return Gpu(
        target=text(item["target"]).partition(":")[0] if hip else name,
        vendor="amd" if hip else "nvidia",
        name=name,
        memory_bytes=memory if isinstance(memory, int) and 0 <= memory <= sys.maxsize else 0,
        uuid=_uuid(text(item["uuid"])),
        seen_by=("torch",),
    )


def _uuid(text_of_hip: str) -> str:
    """HIP's UUID as the kernel has it: its 16 bytes are the letters of that number, written as hex again."""
    try:
        letters = bytes.fromhex(text_of_hip.replace("-", "")).decode("ascii")
        return f"GPU-{int(letters, 16):016x}"
    except ValueError:
        return f"GPU-{text_of_hip}" if text_of_hip else ""
