"""Read the GPUs of this machine from files that only the Linux kernel writes.

No ROCm is needed to read them.
"""

from __future__ import annotations

import platform
from pathlib import Path

from cairn.testing.gpus.gpu import Gpu, text

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where Linux's amdkfd driver describes the processors of the machine, one folder each."""
SYSFS = Path("/sys")

_GPU_HEAPS = (1, 2)  # public and private frame buffer: HSA_MEM_HEAP_TYPE of Linux's kfd_crat.h


def gpu_names(root: Path = KFD_NODES) -> tuple[str, ...]:
    """Return the gfx name of each GPU, in the order of the kernel's nodes.

    Args:
        root: the folder of the nodes. A node's `gfx_target_version` (in its file `properties`) is
            major * 10000 + minor * 100 + step, and 0 for a CPU (Linux, `kfd_topology.c`).
    """
    versions = (_properties(node).get("gfx_target_version", 0) for node in _nodes(root))
    return tuple(gfx_name(version) for version in versions if version)


def gfx_name(version: int) -> str:
    """Return the target of a `gfx_target_version`: 90402 is gfx942, 90010 is gfx90a, 110000 is gfx1100."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def read(nodes: Path = KFD_NODES, sysfs: Path = SYSFS) -> tuple[Gpu, ...]:
    """Return AMD's GPUs in the order of the driver's nodes; each partition of a card is a node."""
    driver = own_version(sysfs)
    machine = []
    for folder in _nodes(nodes):
        properties = _properties(folder)
        if (version := properties.get("gfx_target_version", 0)) == 0:
            continue  # a CPU
        place = properties.get("location_id", 0)  # 8 bits of bus, 5 of device, 3 of function
        card = f"{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}"
        # The function counts partitions, and only the card itself, function 0, is on the bus.
        device = sysfs / "bus/pci/devices" / f"{card}.0"
        unique = properties.get("unique_id", 0)
        banks = (_properties(bank) for bank in sorted(folder.glob("mem_banks/*")))
        machine.append(
            Gpu(
                target=gfx_name(version),
                name=_line(device / "product_name"),
                # A driver that came with the kernel has no version of its own.
                driver=driver or f"of Linux {platform.release()}",
                memory_bytes=sum(
                    bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in _GPU_HEAPS
                ),
                compute_partition=_line(device / "current_compute_partition"),
                memory_partition=_line(device / "current_memory_partition"),
                uuid=f"GPU-{unique:016x}" if unique else "",
                pci=f"{card}.{place & 7}" if place else "",
                node=int(folder.name),
                seen_by=("kernel",),
            )
        )
    return tuple(machine)


def own_version(sysfs: Path = SYSFS) -> str:
    """Return the version of a separately installed amdgpu driver; empty for the kernel's own."""
    return _line(sysfs / "module/amdgpu/version")


def is_wsl(nodes: Path, *, device: Path = Path("/dev/dxg"), release: str | None = None) -> bool:
    """Whether GPUs are reached through Windows' driver instead of amdkfd, as under WSL.

    In that case rocminfo alone is trusted, so a device file of that name must not be enough.
    """
    microsofts = "microsoft" in (release or platform.release()).lower()
    return nodes == KFD_NODES and microsofts and device.is_char_device()


def _nodes(root: Path) -> list[Path]:
    """Return the folders of the nodes, CPUs included, in the kernel's order."""
    try:
        return sorted((node for node in root.iterdir() if node.name.isdecimal()), key=lambda n: int(n.name))
    except OSError:
        return []


def _properties(node: Path) -> dict[str, int]:
    """Read a node's file `properties`, a name and a number on each line; empty if it is not readable.

    Older kernels have `gfx_target_version` in a separate file.
    """
    numbers = {}
    for name, _, value in (line.partition(" ") for line in _lines(node / "properties")):
        if value.strip().isdecimal():
            numbers[name] = int(value)
    alone = _line(node / "gfx_target_version")
    if "gfx_target_version" not in numbers and alone.isdecimal():
        numbers["gfx_target_version"] = int(alone)
    return numbers


def _line(path: Path) -> str:
    return text(next(iter(_lines(path)), ""))


def _lines(path: Path) -> list[str]:
    # A node that the kernel hides from this container reads as a permission error: not ours to use.
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
