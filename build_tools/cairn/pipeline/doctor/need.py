"""The requirements that a machine is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cairn.pipeline.doctor.findings import Purpose

HostCompiler = Literal["needed", "alone", "brought"]

_DISK = {"build": 40_000_000_000, "install": 15_000_000_000, "test": 15_000_000_000}
"""Bytes where no stack says how many: a torch tree with its build; torch for ROCm, packed and unpacked."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A wheel to be installed, as far as it must fit a machine.

    Attributes:
        name: of the wheel or the address of the index.
        targets: it has device code for; empty where it has none.
        pythons: `3.12` of each Python that it is for; empty for any.
        glibc: the oldest that it loads on, such as (2, 28), or None.
        system: it is for; None for any.
    """

    name: str
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    glibc: tuple[int, int] | None = None
    system: str | None = None


@dataclass(frozen=True, kw_only=True)
class Need:
    """The purpose of the machine, and its requirements.

    Attributes:
        purpose: build, installation or tests.
        targets: of the GPUs that must be in the machine; for tests on hardware.
        pythons: of the stack; empty for any.
        compiler: whether the machine's own compiler and Python's headers are `needed`, are all that builds
            (`alone`), or are `brought` by the ROCm SDK.
        disk: bytes that the work folder must have free; None where no stack says.
        offers: what is to be installed.
    """

    purpose: Purpose
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    compiler: HostCompiler = "needed"
    disk: int | None = None
    offers: tuple[Offer, ...] = ()

    @property
    def builds(self) -> bool:
        """Whether something is compiled."""
        return self.purpose == "build"

    @property
    def required_disk(self) -> int:
        """Bytes that the work folder should have free."""
        return self.disk or _DISK[self.purpose]
