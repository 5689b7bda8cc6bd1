"""Which GPUs this machine has, by what the kernel driver says: no ROCm is needed to ask."""

from __future__ import annotations

import re
from pathlib import Path

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")


def found_targets(topology: Path = TOPOLOGY) -> list[str]:
    """Targets of the GPUs found, each once, in the kernel's order.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (`gfx_target_version`; 0 for a CPU).
    """
    # By length first, so that node 10 follows node 9.
    nodes = sorted(topology.glob("*/properties"), key=lambda path: (len(path.parent.name), path.parent.name))
    versions = (int(match[1]) for node in nodes if (match := _VERSION.search(_text(node))))
    return list(dict.fromkeys(target_of(version) for version in versions if version))


def target_of(version: int) -> str:
    """A `gfx_target_version` as a target: 90402 is gfx942, 90010 gfx90a, 110000 gfx1100."""
    # Decimal digits: two for the step, two for the minor version, the rest for the major one; in names hex.
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


_VERSION = re.compile(r"^gfx_target_version (\d+)$", re.MULTILINE)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
