"""Checks of AMD's GPUs: every step that a program needs to reach a card."""

from __future__ import annotations

from collections.abc import Iterator

from cairn import targets
from cairn.pipeline.doctor.model import Finding, Machine, Need, as_root, missing, note, ok, warning
from cairn.testing.gpus.gpu import covers

_IN_CONTAINER = "--device=/dev/kfd --device=/dev/dri --group-add=video --group-add=render"


def shown(names: tuple[str, ...]) -> str:
    """Format GPUs with their numbers and products: `2x gfx942 (MI300A, MI300X, MI325X)`."""
    parts = []
    for name in dict.fromkeys(names):
        number = f"{names.count(name)}x " if names.count(name) > 1 else ""
        product = targets.product_of(name) if name in targets.known_targets() else "not one of ours"
        parts.append(f"{number}{name} ({product})")
    return ", ".join(parts)


def gpu(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check that programs can reach the GPUs, and report the first obstacle."""
    if need.builds:  # compilers need none
        names = shown(machine.gpu.targets) or "none that a driver describes"
        yield ok("GPU", f"{names}; a build needs none")
        return
    if machine.system != "linux":
        yield note("GPU", "Cairn finds GPUs on Linux alone: name yours with --gpu to `cairn install`")
        return
    blocked = _blocked(machine)
    if blocked is not None:
        yield blocked
        return
    facts = machine.gpu
    yield ok("GPU", f"{shown(facts.visible)}, driver amdgpu {facts.driver or ''}".strip())
    closed = [one for one in facts.render if not one.usable]
    if closed:
        names = " and ".join(one.path for one in closed)
        yield warning(
            "GPU",
            f"{len(closed)} of {len(facts.render)} may not be opened, {names}: programs have the others",
            fix=_join(machine, closed[0].group),
        )
    if facts.visible != facts.targets:
        yield note(
            "GPU",
            f"{' and '.join(facts.hidden_by)} hides some: the machine has {shown(facts.targets)}",
            fix=f"unset {' '.join(facts.hidden_by)}",
        )


def _blocked(machine: Machine) -> Finding | None:
    """Return why programs cannot use a GPU here, checked from the card upwards; None if they can."""
    facts = machine.gpu
    if not facts.targets:
        return _without_driver(machine)
    if facts.kfd is None or not facts.render:
        device = "/dev/kfd" if facts.kfd is None else "/dev/dri/renderD*"
        if machine.container:
            return missing(
                "GPU",
                f"{shown(facts.targets)} in the machine, and this container has no {device}",
                fix=f"start the container with {_IN_CONTAINER}",
            )
        return missing(
            "GPU",
            f"{shown(facts.targets)}, and there is no {device}",
            fix=as_root(machine, "modprobe -r amdgpu && ") + as_root(machine, "modprobe amdgpu"),
        )
    # A container may be given some of the GPUs: ROCm's runtime passes over those that it cannot open.
    if not (facts.kfd.usable and any(one.usable for one in facts.render)):
        closed = facts.render[0] if facts.kfd.usable else facts.kfd
        return missing(
            "GPU",
            f"{shown(facts.targets)}, and {closed.path} may not be opened: its group is {closed.group}",
            fix=_join(machine, closed.group),
        )
    if not facts.visible:
        return warning(
            "GPU",
            f"{' and '.join(facts.hidden_by)} hides every GPU: the machine has {shown(facts.targets)}",
            fix=f"unset {' '.join(facts.hidden_by)}",
        )
    return None


def _join(machine: Machine, group: str) -> str:
    if machine.container:
        return f"start the container with {_IN_CONTAINER if machine.root else f'--group-add={group}'}"
    if group in machine.groups:  # of the user, as it will be, and not yet of this session
        return "log out and in again: your session began before you joined the group"
    names = ",".join(dict.fromkeys((group, "video", "render"))) if not group.isdecimal() else group
    return f"sudo usermod -aG {names} $USER, then log out and in again"


def _without_driver(machine: Machine) -> Finding:
    facts = machine.gpu
    if machine.wsl:
        return warning(
            "GPU",
            "under WSL no GPU is described to Linux, whatever the machine has",
            fix="name it: cairn install --gpu 'RX 7900 XTX' --index-url URL",
        )
    if facts.cards and facts.driver is None:
        where = "on the machine that the container is on: " if machine.container else ""
        return missing(
            "GPU",
            f"{facts.cards} of AMD's on the PCI bus, and the driver amdgpu is not loaded",
            fix=where + as_root(machine, "modprobe amdgpu"),
        )
    if facts.cards:
        return missing(
            "GPU",
            f"{facts.cards} of AMD's on the PCI bus, and amdgpu ({facts.driver}) computes on none",
            fix="update the kernel or the driver amdgpu: https://rocm.docs.amd.com/projects/install-on-linux/",
        )
    return warning("GPU", "none of AMD's here: wheels for the CPU can be installed and tested")


def requested_targets(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check that the machine has the requested GPUs."""
    if not need.targets or need.builds:
        return
    here = machine.gpu.visible
    absent = [name for name in need.targets if name != targets.CPU and not covers(here, name)]
    if absent:
        yield missing(
            "targets",
            f"no {' and no '.join(absent)} here, as was asked for: {shown(here) or 'no GPU'}",
            fix="run this on a machine that has it",
        )
    else:
        yield ok("targets", f"{', '.join(need.targets)} as asked for")
