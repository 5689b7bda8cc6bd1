"""The GPUs as Linux's drivers describe them, in files that only the kernel writes."""

from __future__ import annotations

import platform
from pathlib import Path

from cairn.testing import gpus
from cairn.testing.hardware.gpu import Gpu, text

SYSFS = Path("/sys")

_GPU_HEAPS = ("1", "2")  # public and private frame buffer: HSA_MEM_HEAP_TYPE of Linux's kfd_crat.h


def read(nodes: Path = gpus.KFD_NODES, sysfs: Path = SYSFS) -> tuple[Gpu, ...]:
    """AMD's GPUs, in the order of the driver's nodes; each partition of a card is a node."""
    driver = own_version(sysfs)
    machine = []
    for folder in gpus.nodes(nodes):
        properties = gpus.properties(folder)
        if (version := properties.get("gfx_target_version", 0)) == 0:
            continue  # a CPU
        place = properties.get("location_id", 0)  # 8 bits of bus, 5 of device, 3 of function
        card = f"{properties.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}"
        # The function counts partitions, and only the card itself, function 0, is on the bus.
        device = sysfs / "bus/pci/devices" / f"{card}.0"
        unique = properties.get("unique_id", 0)
        machine.append(
            Gpu(
                target=gpus.gfx_name(version),
                name=text(gpus.line(device / "product_name")),
                # A driver that came with the kernel has no version of its own.
                driver=driver or f"of Linux {platform.release()}",
                memory_bytes=_memory(folder),
                compute_partition=text(gpus.line(device / "current_compute_partition")),
                memory_partition=text(gpus.line(device / "current_memory_partition")),
                uuid=f"GPU-{unique:016x}" if unique else "",
                pci=f"{card}.{place & 7}" if place else "",
                node=int(folder.name),
                seen_by=("kernel",),
            )
        )
    return tuple(machine)


def own_version(sysfs: Path = SYSFS) -> str:
    """The version of a driver amdgpu that was installed beside the kernel's; empty for the kernel's own."""
    return text(gpus.line(sysfs / "module/amdgpu/version"))


def is_wsl(nodes: Path, *, device: Path = Path("/dev/dxg"), release: str | None = None) -> bool:
    """Whether GPUs are reached without amdkfd: under WSL, through Windows' driver.

    There, rocminfo's word alone is taken for them: a file of that name must not be enough for it.
    """
    microsofts = "microsoft" in (release or platform.release()).lower()
    return nodes == gpus.KFD_NODES and microsofts and device.is_char_device()


def _memory(node: Path) -> int:
    banks = (gpus.properties(bank) for bank in sorted(node.glob("mem_banks/*")))
    return sum(bank.get("size_in_bytes", 0) for bank in banks if str(bank.get("heap_type", "")) in _GPU_HEAPS)
