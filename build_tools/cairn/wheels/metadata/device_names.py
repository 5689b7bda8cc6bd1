"""The names of device wheels, and of the extras that require them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from packaging.requirements import Requirement

EVERY = "device-all"
"""The extra that asks for all device wheels of a host wheel."""

_OF_GPUS = re.compile(r"-gfx\d")  # in the names of device wheels, and of the libraries of a family
_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']""")


def processor_of(project: str, host: str) -> str | None:
    """The processor that a device wheel's project name contains; None if it is not a device wheel of `host`.

    A name may have a prefix, as in amd-torch-device-gfx942.
    """
    name, _, processor = canonicalize_name(project).rpartition("-device-gfx")
    host_name = canonicalize_name(host)
    return f"gfx{processor}" if name == host_name or name.endswith(f"-{host_name}") else None


def extra_of(name: str) -> str:
    """The extra that asks for the device wheel of a processor, or for those of a family.

    gfx1250-strict has none of its own: that of gfx1250 has its code.

    It is in lower case, as installers compare extras (PEP 685).
    """
    from cairn import targets  # noqa: PLC0415 - a new version of a wheel needs no table of GPUs

    return f"device-{targets.package_owner(name)}".lower()


def lacking(
    requires: Iterable[Requirement], markers: Mapping[str, str], has: Callable[[Requirement], bool]
) -> Iterator[tuple[str, list[Requirement], bool]]:
    """Each extra that names wheels for GPUs, with those that are not there, and whether it is torn.

    An extra of AMD's torch may name two: the wheel of the target, and a family's (ROCm/TheRock#6223). It is
    torn where the first is there and the second is not. Where only a family's is there, it is for those of
    the family that have their own. An extra of a family, or of all, names what need not come together.

    Args:
        requires: what the wheel requires.
        markers: where it is installed; of what it leaves out, this machine's values count.
        has: whether what is there meets a requirement.
    """
    named: dict[str, list[Requirement]] = {}
    for requirement in requires:
        marker = requirement.marker
        if marker is not None and _OF_GPUS.search(canonicalize_name(requirement.name)):
            for extra in _EXTRA.findall(str(marker)):
                if marker.evaluate({**markers, "extra": extra}):
                    named.setdefault(canonicalize_name(extra), []).append(requirement)
    for extra, wheels in named.items():
        absent = [wheel for wheel in wheels if not has(wheel)]
        processor = extra.removeprefix("device-")
        names = (canonicalize_name(wheel.name) for wheel in wheels if wheel not in absent)
        own_is_there = processor != extra and any(name.endswith(f"-{processor}") for name in names)
        yield extra, absent, bool(absent) and own_is_there


def extras_of(processors: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The extras of a host wheel, each with the processors whose device wheels it asks for.

    There is one for each processor, one for each family of indexes that is there whole (who asks for a family
    has any GPU of it), and one for all.
    """
    from cairn import targets  # noqa: PLC0415 - a new version of a wheel needs no table of GPUs

    every = targets.in_order(processors)
    extras: dict[str, tuple[str, ...]] = {}
    for name in every:
        extras[extra_of(name)] = (*extras.get(extra_of(name), ()), name)
    families = targets.families()
    for family in targets.index_families():
        if set(families[family]) <= set(every):
            extras.setdefault(extra_of(family), targets.in_order(families[family]))
    return {**extras, EVERY: every}
