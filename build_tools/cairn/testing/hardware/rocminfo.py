"""What `rocminfo` prints: the agents of ROCm's runtime, one after the other.

    Agent 2
      Name:                    gfx942
      Uuid:                    GPU-6f2a49b8c3d10e57
      Marketing Name:          AMD Instinct MI300X
      Device Type:             GPU
      Internal Node ID:        2

The same words come again below an agent, for its memory pools and instruction sets.
"""

from __future__ import annotations

import re

from cairn.testing.hardware.gpu import Answer, Gpu, text

_AGENT = re.compile(r"^Agent [0-9]+\s*$", re.MULTILINE)
_FIELD = re.compile(r"^\s*([^:]+?):\s*(.*?)\s*$")
_TARGET = re.compile(r"gfx[0-9a-f]+")
_KILOBYTES = re.compile(r"([0-9]{1,15})\(0x[0-9a-f]+\) KB")


def parse(output: str) -> Answer:
    """The GPUs of an output."""
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
