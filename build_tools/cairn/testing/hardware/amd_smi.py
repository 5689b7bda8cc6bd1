"""What `amd-smi static --json` prints: a list with an object for each GPU.

    [{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "target_graphics_version": "gfx942"},
      "bus": {"bdf": "0000:0c:00.0"}, "driver": {"name": "amdgpu", "version": "6.12.12"},
      "vram": {"size": {"value": 196592, "unit": "MB"}},
      "partition": {"accelerator_partition": "SPX", "memory_partition": "NPS1", "partition_id": 0}}]

Newer ones put the list into `gpu_data` of an object, and older ones call the first of the two partitions
`compute_partition`. What a GPU does not have is `N/A`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from cairn.testing.hardware.gpu import Answer, Gpu, text

_TARGET = re.compile(r"gfx[0-9a-f]+")
_PLACE = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def parse(output: str) -> Answer:
    """The GPUs of an output."""
    # Warnings may come before it.
    start = min((at for at in (output.find("["), output.find("{")) if at >= 0), default=-1)
    try:
        plain = json.JSONDecoder().raw_decode(output[start:])[0] if start >= 0 else None
    except (ValueError, RecursionError):
        plain = None
    listed = plain.get("gpu_data") if isinstance(plain, dict) else plain
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        return Answer(problem="amd-smi gives no list of GPUs")
    gpus = []
    for item in listed:
        asic, partition = _part(item, "asic"), _part(item, "partition")
        target = text(asic.get("target_graphics_version")).lower()
        place = text(_part(item, "bus").get("bdf")).lower()
        divided = partition.get("accelerator_partition", partition.get("compute_partition"))
        gpus.append(
            Gpu(
                target=target if _TARGET.fullmatch(target) else "",
                name=text(asic.get("market_name")),
                driver=text(_part(item, "driver").get("version")),
                memory_bytes=_megabytes(_part(item, "vram").get("size")) << 20,
                compute_partition=text(divided),
                memory_partition=text(partition.get("memory_partition")),
                pci=place if _PLACE.fullmatch(place) else "",
            )
        )
    return Answer(gpus=tuple(gpus))


def _part(item: dict[str, Any], name: str) -> dict[str, Any]:
    part = item.get(name)
    return part if isinstance(part, dict) else {}


def _megabytes(size: object) -> int:
    value = size.get("value") if isinstance(size, dict) else size
    return value if isinstance(value, int) and 0 <= value < 1 << 32 else 0
