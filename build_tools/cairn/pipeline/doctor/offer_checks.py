"""Whether what is to be installed fits the machine."""

from __future__ import annotations

from collections.abc import Iterator

from cairn import targets
from cairn.pipeline.doctor import system_checks
from cairn.pipeline.doctor.gpu_checks import shown
from cairn.pipeline.doctor.machine import Finding, Machine
from cairn.pipeline.doctor.need import Need, Offer
from cairn.testing import gpus


def offers(machine: Machine, need: Need) -> Iterator[Finding]:
    """Each wheel: its Python, its system, its device code."""
    for offer in need.offers:
        findings = list(_offer(machine, offer))
        yield from findings or [Finding(check="wheel", level="ok", text=f"{offer.name} is for this machine")]


def _offer(machine: Machine, offer: Offer) -> Iterator[Finding]:
    short = ".".join(machine.python.version.split(".")[:2])
    if offer.pythons and short not in offer.pythons:
        yield Finding(
            check="wheel",
            level="missing",
            text=f"{offer.name} is for Python {', '.join(offer.pythons)}, and this is {short}",
            fix=f"uv venv --python {offer.pythons[0]}",
        )
    if offer.system not in (None, machine.system):
        yield Finding(check="wheel", level="missing", text=f"{offer.name} is for {offer.system}")
    here = system_checks.glibc(machine)
    if offer.glibc and here and here < offer.glibc:
        yield Finding(
            check="wheel",
            level="missing",
            text=f"{offer.name} needs glibc {_dotted(offer.glibc)}, and this is {_dotted(here)}",
            fix="use a newer system, or an image: cairn image run no_rocm_image_ubuntu24_04",
        )
    if offer.targets and machine.gpu.visible:
        yield from _device_code(machine, offer)


def _device_code(machine: Machine, offer: Offer) -> Iterator[Finding]:
    served = {name for target in offer.targets for name in targets.that_run(target)}
    uncovered = tuple(name for name in machine.gpu.visible if not gpus.covers(served, name))
    if not uncovered:
        return
    whole = len(uncovered) == len(machine.gpu.visible)
    usable = [str(index) for index, name in enumerate(machine.gpu.visible) if name not in uncovered]
    yield Finding(
        check="wheel",
        level="missing" if whole else "warning",
        text=f"{offer.name} has no code for {shown(uncovered)}: it has {', '.join(offer.targets)}",
        fix=f"export ROCR_VISIBLE_DEVICES={','.join(usable)}"
        if usable
        else f"cairn install --target {uncovered[0]} --index-url URL",
    )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
