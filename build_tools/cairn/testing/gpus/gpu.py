"""A GPU as it is described in a record, and the comparison of GPUs with a wheel's targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cairn import datafile, targets
from cairn.errors import UsageError
from cairn.output import safe_text

Source = Literal["kernel", "rocminfo", "amd-smi", "nvidia-smi", "torch"]

_LONGEST = 100  # characters of a text that a program gave


class Gpu(datafile.Value):
    """A GPU that tests could use, or, where a card is partitioned, a partition of one.

    Attributes:
        target: its gfx name; of a GPU that is not AMD's, what its driver calls it.
        vendor: who made it.
        name: of the product; empty where no source says it.
        driver: version of the kernel's driver, likewise.
        memory_bytes: of its own; 0 where no source says it.
        compute_partition: how the card's compute units are divided, such as `SPX` or `CPX`; empty where they
            cannot be.
        memory_partition: likewise its memory, such as `NPS1`.
        uuid: what tells it from others of its kind; empty where it has none.
        pci: its place on the bus, `0000:0c:00.0`; the last digit counts the partitions.
        node: its number in the kernel's topology; None where that does not list it.
        seen_by: the sources that agree on it.
    """

    target: str
    vendor: Literal["amd", "nvidia"] = "amd"
    name: str = ""
    driver: str = ""
    memory_bytes: int = 0
    compute_partition: str = ""
    memory_partition: str = ""
    uuid: str = ""
    pci: str = ""
    node: int | None = None
    seen_by: tuple[Source, ...] = ()

    @property
    def card(self) -> str:
        """Its PCI address without the digit that counts partitions."""
        return self.pci.rpartition(".")[0]


def text(value: object) -> str:
    """Clean a text from a driver or program for records and terminals; empty for None and `N/A`."""
    if not isinstance(value, str) or value.strip() in ("N/A", "n/a", "[N/A]"):
        return ""
    return safe_text.visible(" ".join(value.split()))[:_LONGEST]


def is_amd(name: str) -> bool:
    """Whether a name is that of an AMD GPU."""
    try:
        targets.parse_target_id(name)
    except UsageError:
        return False
    return True


def matches(hardware: Iterable[str], built_for: Iterable[str]) -> bool:
    """Whether every GPU of the machine is one of the targets, ignoring features such as `:xnack+`."""
    processors = {targets.parse_target_id(name).processor for name in built_for if name != targets.CPU}
    return {targets.parse_target_id(name).processor for name in hardware} <= processors


def covers(hardware: Iterable[str], target: str) -> bool:
    """Whether one of the GPUs is of the target, ignoring features such as `:xnack+`."""
    processor = targets.parse_target_id(target).processor
    return any(targets.parse_target_id(name).processor == processor for name in hardware)
