"""`cairn wheel fat`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.options import argument, flag, option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.wheels.fat.build import FatReport


@dataclass(frozen=True, kw_only=True)
class Fat:
    """What `cairn wheel fat` is asked for.

    It gets a version of its own, such as 2.9.0+fat.rocm7.10.0.

        cairn wheel fat --output-dir fat dist/torch-….whl /opt/rocm
    """

    wheel: Path = argument("WHEEL", "the linked wheel", convert=converters.file)
    rocm: Path = argument("ROCM_PATH", "the ROCm to take libraries from", convert=converters.folder)
    output_dir: Path = fields.output_dir()
    targets: str | None = fields.targets("those the wheel has code for")
    version: str | None = option("the whole new version")
    libraries: tuple[str, ...] = repeated("a further library to take", "--library", metavar="NAME")
    provided: tuple[str, ...] = fields.provided()
    strict: bool = flag("stop where ROCM_PATH lacks a library that ROCm's torch opens by name")
    json: bool = fields.json()


def run(request: Fat) -> Answer:
    """Run the command."""
    from cairn.wheels.fat import build
    from cairn.wheels.fat.recipe import parse_fat_targets

    with console.current().stage(f"putting ROCm into {request.wheel.name}"):
        report = build.make(
            build.FatRequest(
                wheel=request.wheel,
                rocm=request.rocm,
                output_dir=request.output_dir,
                targets=None if request.targets is None else parse_fat_targets(request.targets),
                version=request.version,
                libraries=request.libraries,
                provided=request.provided,
                strict=request.strict,
            )
        )
    return Answer(report, _text(report))


def _text(report: FatReport) -> Iterator[Piece]:
    rows = [(part.name, console.size(part.size), part.files, _by_target(part.sizes)) for part in report.parts]
    yield Table(("carries", "size", "files", "by target"), rows)
    yield Table(("target", "size"), [(name, console.size(count)) for name, count in report.sizes.items()])
    for name in report.dropped:
        yield f"requires no longer: {name}"
    for member in report.changed:
        yield f"run path changed: {member}"
    for reason in dict.fromkeys(item.reason for item in report.left_out):
        names = ", ".join(item.name for item in report.left_out if item.reason == reason)
        yield f"skipped {names}: {reason}"
    yield f"{report.wheel} ({console.size(report.size)})"


def _by_target(sizes: Mapping[str, int]) -> str:
    from cairn.targets import sort_key

    return ", ".join(f"{target} {console.size(sizes[target])}" for target in sorted(sizes, key=sort_key))


COMMANDS = {"fat": command(Fat, run)}
