"""Ask `rocminfo`, `amd-smi` and the tested torch for the machine's GPUs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cairn import process
from cairn.errors import CairnError
from cairn.testing.gpus.gpu import Gpu, Source, text

_ROCM = Path("/opt/rocm/bin")  # where AMD's own installation puts programs that may not be on the PATH
_TIMEOUT = 60.0  # seconds; a driver that hangs keeps its programs for ever
_TORCH_TIMEOUT = 300.0  # seconds: a torch from a slow disk, and a first call to its driver
_AGENT = re.compile(r"^Agent [0-9]+\s*$", re.MULTILINE)
_FIELD = re.compile(r"^\s*([^:]+?):\s*(.*?)\s*$")
_TARGET = re.compile(r"gfx[0-9a-f]+")
_KILOBYTES = re.compile(r"([0-9]{1,15})\(0x[0-9a-f]+\) KB")
_PCI = re.compile(r"0*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_MARK = "cairn-gpus:"
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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one source of GPUs.

    Attributes:
        gpus: those that it lists.
        problem: why it gave no answer although it is installed.
    """

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


def ask_rocminfo(variables: Mapping[str, str], log: Path) -> Answer:
    """Ask `rocminfo`, which lists the agents of ROCm's runtime one after the other.

        Agent 2
          Name:                    gfx942
          Uuid:                    GPU-6f2a49b8c3d10e57
          Marketing Name:          AMD Instinct MI300X
          Device Type:             GPU
          Internal Node ID:        2

    The same keys occur again below an agent, for its memory pools and instruction sets.
    """
    return _run("rocminfo", (), _rocminfo_gpus, variables, log)


def ask_amd_smi(variables: Mapping[str, str], log: Path) -> Answer:
    """Ask `amd-smi`, which prints a JSON list with an object for each GPU.

        [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
          "bus": {"bdf": "0000:0c:00.0"}, "driver": {"name": "amdgpu", "version": "6.12.12"},
          "vram": {"size": {"value": 196592, "unit": "MB"}},
          "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1", "partition_id": 0}}]

    Newer versions put the list into `gpu_data` of an object, and older ones call the first of the two
    partitions `compute_partition`. Values that a GPU does not have are `N/A`.
    """
    return _run("amd-smi", ("static", "--json"), _amd_smi_gpus, variables, log)


def ask_torch(python: Path, variables: Mapping[str, str], log: Path) -> Answer:
    """Ask the torch of an environment for the GPUs that it sees; none if it has no torch."""
    try:
        command: list[str | Path] = [python, "-I", "-c", _SCRIPT]
        completed = process.run(command, env=variables, log=log, timeout=_TORCH_TIMEOUT)
    except CairnError as error:
        return Answer(problem=f"torch does not say which GPUs it sees: {error}")
    lines = [line for line in completed.output.splitlines() if line.startswith(_MARK)]
    try:
        (line,) = lines
        plain = json.loads(line.removeprefix(_MARK))
        return Answer(gpus=tuple(_gpu(item, hip=plain["hip"]) for item in plain["gpus"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Answer(problem="torch does not say which GPUs it sees")


def program(name: str, variables: Mapping[str, str]) -> str | None:
    """Return the path of one of the makers' programs, if it is installed."""
    return shutil.which(name, path=variables.get("PATH")) or shutil.which(name, path=str(_ROCM))


def _run(
    name: Source,
    arguments: Sequence[str],
    parse: Callable[[str], Answer],
    variables: Mapping[str, str],
    log: Path,
) -> Answer:
    path = program(name, variables)
    if path is None:
        return Answer()
    try:
        completed = process.run(
            [path, *arguments], env=variables, log=log, timeout=_TIMEOUT, separate_stderr=True
        )
    except CairnError as error:
        return Answer(problem=str(error))
    return parse(completed.output)


def _rocminfo_gpus(output: str) -> Answer:
    agents = _AGENT.split(output)[1:]
    if not agents:
        return Answer(problem="rocminfo lists no agent")
    gpus = []
    for agent in agents:
        fields: dict[str, str] = {}
        pools = [0]
        for line in agent.splitlines():
            if (field := _FIELD.match(line)) is None:
                continue
            name, value = field.groups()
            fields.setdefault(name, value)
            if name == "Size" and (size := _KILOBYTES.fullmatch(value)):
                pools.append(int(size[1]) * 1024)
        if fields.get("Device Type") != "GPU":
            continue
        target = fields.get("Name", "")
        if not _TARGET.fullmatch(target):
            return Answer(problem=f"rocminfo calls a GPU {text(target)!r}")
        node = fields.get("Internal Node ID", "")
        uuid = fields.get("Uuid", "").lower()
        gpus.append(
            Gpu(
                target=target,
                name=text(fields.get("Marketing Name")),
                memory_bytes=max(pools),
                # `GPU-XX` is one that has none.
                uuid=f"GPU-{uuid[4:]}" if re.fullmatch(r"gpu-[0-9a-f]{4,32}", uuid) else "",
                node=int(node) if re.fullmatch(r"[0-9]{1,6}", node) else None,
            )
        )
    return Answer(gpus=tuple(gpus))


def _amd_smi_gpus(output: str) -> Answer:
    # Warnings may come before it.
    start = min((at for at in (output.find("["), output.find("{")) if at >= 0), default=-1)
    try:
        plain = json.JSONDecoder().raw_decode(output[start:])[0] if start >= 0 else None
    except (ValueError, RecursionError):
        plain = None
    items = plain.get("gpu_data") if isinstance(plain, dict) else plain
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return Answer(problem="amd-smi gives no list of GPUs")
    gpus = []
    for item in items:
        asic, partition = _part(item, "asic"), _part(item, "partition")
        target = text(asic.get("target_graphics_version")).lower()
        divided = partition.get("accelerator_partition", partition.get("compute_partition"))
        gpus.append(
            Gpu(
                target=target if _TARGET.fullmatch(target) else "",
                name=text(asic.get("market_name")),
                driver=text(_part(item, "driver").get("version")),
                memory_bytes=_megabytes(_part(item, "vram").get("size")) << 20,
                compute_partition=text(divided),
                memory_partition=text(partition.get("memory_partition")),
                pci=_pci(text(_part(item, "bus").get("bdf"))),
            )
        )
    return Answer(gpus=tuple(gpus))


def _pci(place: str) -> str:
    match = _PCI.fullmatch(place.lower())
    return match[1] if match else ""


def _part(item: dict[str, Any], name: str) -> dict[str, Any]:
    part = item.get(name)
    return part if isinstance(part, dict) else {}


def _megabytes(size: object) -> int:
    value = size.get("value") if isinstance(size, dict) else size
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0


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
    """Convert HIP's UUID to the kernel's: its 16 bytes are that number's hex digits in ASCII."""
    try:
        letters = bytes.fromhex(text_of_hip.replace("-", "")).decode("ascii")
        return f"GPU-{int(letters, 16):016x}"
    except ValueError:
        return f"GPU-{text_of_hip}" if text_of_hip else ""
