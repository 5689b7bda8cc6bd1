"""The GPUs of this machine, as the kernel driver lists them; no ROCm is needed to ask."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from cairn import targets
from cairn.errors import UsageError

T = TypeVar("T")

KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
"""Where Linux's amdkfd driver describes the processors of the machine, one folder each."""


def seen(root: Path = KFD_NODES) -> tuple[str, ...]:
    """One gfx name for each GPU, in the order of the kernel's nodes; empty where there is none.

    Args:
        root: the folder of the nodes. A node's `gfx_target_version` (in its file `properties`) is
            major * 10000 + minor * 100 + step, and 0 for a CPU (Linux, `kfd_topology.c`).
    """
    versions = (properties(node).get("gfx_target_version", 0) for node in nodes(root))
    return tuple(gfx_name(version) for version in versions if version)


def nodes(root: Path = KFD_NODES) -> list[Path]:
    """The folders of the processors, CPUs among them, in the kernel's order."""
    try:
        return sorted((node for node in root.iterdir() if node.name.isdecimal()), key=lambda n: int(n.name))
    except OSError:
        return []


def properties(node: Path) -> dict[str, int]:
    """What a node's file `properties` says, a name and a number on each line; nothing where it is hidden.

    Older kernels have `gfx_target_version` in a file of its own.
    """
    numbers = {}
    for text in _lines(node / "properties"):
        name, _, value = text.partition(" ")
        if value.strip().isdecimal():
            numbers[name] = int(value)
    alone = line(node / "gfx_target_version")
    if "gfx_target_version" not in numbers and alone.isdecimal():
        numbers["gfx_target_version"] = int(alone)
    return numbers


def line(path: Path) -> str:
    """What a file of the kernel says in its first line; empty where there is none that we may read."""
    return next(iter(_lines(path)), "").strip()


def gfx_name(version: int) -> str:
    """The target of a `gfx_target_version`: 90402 is gfx942, 90010 is gfx90a, 110000 is gfx1100."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}"


def visible(hardware: Sequence[T], chosen: str | None) -> tuple[T, ...]:
    """The GPUs that programs may use where `ROCR_VISIBLE_DEVICES` is `chosen`.

    Indices count the GPUs from 0; the list ends at the first that does not exist, as ROCr has it. A list with
    UUIDs in it hides nothing from us: the kernel's nodes do not carry them.
    """
    words = [word.strip() for word in chosen.split(",")] if chosen is not None else []
    if chosen is None or not all(word.lstrip("-").isdecimal() for word in words):
        return tuple(hardware)
    # "-1" hides everything, and so does any index that is out of range, for itself and for what follows it.
    known = itertools.takewhile(lambda index: 0 <= index < len(hardware), map(int, words))
    return tuple(hardware[index] for index in known)


def is_amds(name: str) -> bool:
    """Whether that is what a GPU of AMD's is called."""
    try:
        targets.parse_target_id(name)
    except UsageError:
        return False
    return True


def matches(hardware: Iterable[str], built_for: Iterable[str]) -> bool:
    """Whether every GPU of the machine is one of the targets; features such as `:xnack+` are not compared."""
    processors = {targets.parse_target_id(name).processor for name in built_for if name != targets.CPU}
    return {targets.parse_target_id(name).processor for name in hardware} <= processors


def covers(hardware: Iterable[str], target: str) -> bool:
    """Whether one of the GPUs is of the target; features such as `:xnack+` are not compared."""
    processor = targets.parse_target_id(target).processor
    return any(targets.parse_target_id(name).processor == processor for name in hardware)


def _lines(path: Path) -> list[str]:
    # A node that the kernel hides from this container reads as a permission error: not ours to use.
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
