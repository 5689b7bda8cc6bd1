"""Run all checks of a machine, and compare it with an index or with wheels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from packaging.utils import parse_wheel_filename

from cairn import targets
from cairn.errors import PrerequisiteError
from cairn.pipeline import install
from cairn.pipeline.doctor import gpu_checks, system_checks, tool_checks
from cairn.pipeline.doctor.gpu_checks import shown
from cairn.pipeline.doctor.model import Finding, Machine, Need, Offer, missing, ok, warning
from cairn.release.pages import targets_file
from cairn.testing.gpus.gpu import covers
from cairn.wheels.contents import summary
from cairn.wheels.metadata.variants import split_label

_SYSTEMS = {
    "linux": "linux",
    "manylinux": "linux",
    "musllinux": "linux",
    "win": "windows",
    "macosx": "darwin",
}

Check = Callable[[Machine, Need], Iterator[Finding]]


def index(url: str, machine: Machine, *, line: str | None = None) -> Iterator[Finding]:
    """Yield what `cairn install` would choose from an index for the machine, or why it has nothing.

    Raises:
        NetworkError: it cannot be reached.
        StoreError: it has no valid list of its sets.
    """
    kind = {"windows": "win"}.get(machine.system, machine.system)
    own_machine = targets_file.Machine(
        gpus=machine.gpu.visible,
        python=".".join(machine.python.version.split(".")[:2]),
        platform=f"{kind}_{machine.architecture}",
    )
    try:
        prepared = install.prepare(url, own_machine, line=line)
    except PrerequisiteError as error:
        yield missing("index", str(error), fix=error.tip)
        return
    for text in prepared.choice.warnings:
        yield warning("index", text)
    for pick in prepared.choice.picks:
        text = f"{' and '.join(pick.targets)}: {', '.join(pick.offer.packages)} of {pick.offer.index}"
        if pick.untested:
            text += f", {pick.untested}"
        level = "warning" if pick.untested else "ok"
        yield Finding(check="index", level=level, text=text, fix=prepared.line("pip", pick))  # type: ignore[arg-type]


def wheel(path: Path) -> Offer:
    """Return what a wheel requires of a machine.

    Raises:
        WheelError: it is not a wheel.
    """
    contents = summary.summarise(path)
    tags = parse_wheel_filename(split_label(contents.file_name)[0])[3]
    # A wheel for the stable ABI, or without extension modules, is for later Pythons too (PEP 384, PEP 425).
    exact = {tag.interpreter for tag in tags if tag.abi.startswith(tag.interpreter)}
    glibcs = [
        (int(words[1]), int(words[2]))
        for tag in tags
        if (words := tag.platform.split("_"))[0] == "manylinux" and len(words) > 2  # noqa: PLR2004 - and a version
    ]
    systems = {_SYSTEMS.get(tag.platform.partition("_")[0].rstrip("0123456789")) for tag in tags}
    return Offer(
        name=path.name,
        targets=contents.targets,
        pythons=tuple(sorted(f"{name[2]}.{name[3:]}" for name in exact)),
        glibc=min(glibcs, default=None),
        system=next(iter(systems)) if len(systems) == 1 else None,
    )


def offered_wheels(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check each wheel's Python, system and device code against the machine."""
    for offer in need.offers:
        findings = list(_offer(machine, offer))
        yield from findings or [ok("wheel", f"{offer.name} is for this machine")]


def _offer(machine: Machine, offer: Offer) -> Iterator[Finding]:
    short = ".".join(machine.python.version.split(".")[:2])
    if offer.pythons and short not in offer.pythons:
        yield missing(
            "wheel",
            f"{offer.name} is for Python {', '.join(offer.pythons)}, and this is {short}",
            fix=f"uv venv --python {offer.pythons[0]}",
        )
    if offer.system not in (None, machine.system):
        yield missing("wheel", f"{offer.name} is for {offer.system}")
    here = system_checks.glibc(machine)
    if offer.glibc and here and here < offer.glibc:
        yield missing(
            "wheel",
            f"{offer.name} needs glibc {_dotted(offer.glibc)}, and this is {_dotted(here)}",
            fix="use a newer system, or an image: cairn image run no_rocm_image_ubuntu24_04",
        )
    if offer.targets and machine.gpu.visible:
        yield from _device_code(machine, offer)


def _device_code(machine: Machine, offer: Offer) -> Iterator[Finding]:
    served = {name for target in offer.targets for name in targets.that_run(target)}
    uncovered = tuple(name for name in machine.gpu.visible if not covers(served, name))
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
        else f"cairn install --gpu {uncovered[0]} --index-url URL",
    )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


_CHECKS: tuple[Check, ...] = (
    system_checks.system,
    system_checks.windows,
    system_checks.encoding,
    tool_checks.python,
    tool_checks.extras,
    tool_checks.git,
    tool_checks.compiler,
    tool_checks.build_tools,
    system_checks.disks,
    system_checks.memory,
    system_checks.open_files,
    system_checks.proxy,
    gpu_checks.gpu,
    gpu_checks.requested_targets,
    offered_wheels,
)


def diagnose(machine: Machine, need: Need) -> tuple[Finding, ...]:
    """Return all findings about a machine."""
    return tuple(finding for check in _CHECKS for finding in check(machine, need))
