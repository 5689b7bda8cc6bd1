"""A GPU as the sources describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cairn import datafile
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
        """Its place on the bus without the digit that counts partitions."""
        return self.pci.rpartition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of one source.

    Attributes:
        gpus: those that it lists.
        problem: why it has no answer, though it is there.
    """

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""


def text(value: object) -> str:
    """A text that a program gave, fit for a record and a terminal; empty for none, and for `N/A`."""
    if not isinstance(value, str) or value.strip() in ("N/A", "n/a", "[N/A]"):
        return ""
    return safe_text.visible(" ".join(value.split()))[:_LONGEST]
