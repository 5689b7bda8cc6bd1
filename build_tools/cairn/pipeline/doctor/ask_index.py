"""Whether an index, or a wheel, has something for the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from packaging.utils import parse_wheel_filename

from cairn.errors import PrerequisiteError
from cairn.pipeline import install
from cairn.pipeline.doctor.machine import Finding
from cairn.pipeline.doctor.machine import Machine as Described
from cairn.pipeline.doctor.need import Offer
from cairn.release.choose import Machine
from cairn.wheels.contents import summary
from cairn.wheels.metadata.variants import split_label

_SYSTEMS = {
    "linux": "linux",
    "manylinux": "linux",
    "musllinux": "linux",
    "win": "windows",
    "macosx": "darwin",
}


def index(url: str, machine: Described, *, line: str | None = None) -> Iterator[Finding]:
    """What `cairn install` would choose from an index for the machine, or why it has nothing.

    Raises:
        NetworkError: it cannot be reached.
        StoreError: it does not say what it has.
    """
    kind = {"windows": "win"}.get(machine.system, machine.system)
    own_machine = Machine(
        gpus=machine.gpu.visible,
        python=".".join(machine.python.version.split(".")[:2]),
        platform=f"{kind}_{machine.architecture}",
    )
    try:
        prepared = install.prepare(url, own_machine, line=line)
    except PrerequisiteError as error:
        yield Finding(check="index", level="missing", text=str(error), fix=error.tip)
        return
    for text in prepared.choice.warnings:
        yield Finding(check="index", level="warning", text=text)
    for pick in prepared.choice.picks:
        text = f"{' and '.join(pick.targets)}: {', '.join(pick.offer.packages)} of {pick.offer.index}"
        if pick.untested:
            text += f", {pick.untested}"
        level = "warning" if pick.untested else "ok"
        yield Finding(check="index", level=level, text=text, fix=prepared.line("pip", pick))  # type: ignore[arg-type]


def wheel(path: Path) -> Offer:
    """What a wheel is for.

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
