"""The names of device wheels, and of the extras that require them."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.utils import canonicalize_name

EVERY = "device-all"
"""The extra that asks for all device wheels of a host wheel."""


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
