"""Describes AMD's GPUs of this machine, from the PCI bus up to the devices that programs open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cairn.pipeline.doctor.machine import Device, GpuFacts
from cairn.testing.gpus import kernel
from cairn.testing.gpus.visible import visible_gpus

_AMD = "0x1002"  # PCI vendor of AMD's graphics
_CLASSES = ("0x03", "0x12")  # PCI base classes: display controller, processing accelerator
# The runtime counts by the first of these; HIP counts what it leaves by the second, or by the third instead.
_HIDING = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def gpus(root: Path, variables: Mapping[str, str]) -> GpuFacts:
    """The GPUs; see `GpuFacts`."""
    nodes = kernel.KFD_NODES.relative_to("/")
    targets = kernel.seen(root / nodes)
    kfd = root / "dev/kfd"
    rocr, hip, cuda = _HIDING
    hidden_by = tuple(name for name in (rocr, hip if hip in variables else cuda) if name in variables)
    visible = targets
    for name in hidden_by:
        visible = visible_gpus(visible, variables[name])
    return GpuFacts(
        targets=targets,
        visible=visible,
        hidden_by=hidden_by if visible != targets else (),
        cards=sum(map(_is_card, root.glob("sys/bus/pci/devices/*"))),
        driver=_driver(root),
        kfd=_device(kfd, root) if kfd.exists() else None,
        render=tuple(_device(path, root) for path in _render(root)),
    )


def groups() -> tuple[str, ...]:
    """Names of our groups, also of those that we joined after this session began."""
    try:
        import grp  # noqa: PLC0415 - not on Windows
        import pwd  # noqa: PLC0415 - not on Windows
    except ImportError:
        return ()
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, a number without a name
        user = ""
    ours = set(os.getgroups())
    return tuple(sorted(one.gr_name for one in grp.getgrall() if one.gr_gid in ours or user in one.gr_mem))


def _render(root: Path) -> list[Path]:
    """The devices that AMD's GPUs compute through; where nothing says whose one is, it may be AMD's."""
    nodes = sorted(root.glob("dev/dri/renderD*"))
    vendors = (_line(root / "sys/class/drm" / path.name / "device/vendor") for path in nodes)
    return [path for path, vendor in zip(nodes, vendors, strict=True) if vendor in ("", _AMD)]


def _is_card(device: Path) -> bool:
    return _line(device / "vendor") == _AMD and _line(device / "class").startswith(_CLASSES)


def _driver(root: Path) -> str | None:
    module = root / "sys/module/amdgpu"
    # Only a driver that was installed beside the kernel's has a version of its own (DKMS).
    return (_line(module / "version") or "in-tree") if module.is_dir() else None


def _device(path: Path, root: Path) -> Device:
    return Device(path=f"/{path.relative_to(root).as_posix()}", usable=_opens(path), group=_group(path))


def _opens(path: Path) -> bool:
    # Permissions do not tell: a container may have the file and not be allowed the device (cgroups(7)).
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True


def _group(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError, NotImplementedError):  # a number without a name here
        return str(path.stat().st_gid)


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
