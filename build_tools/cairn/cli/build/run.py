"""`cairn build run`, which is `cairn build` too: build the wheels, and print what was built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import fields
from cairn.cli.answer import Answer, Table
from cairn.cli.binder import command
from cairn.cli.build import options
from cairn.cli.build.options import BuildOptions, DevelopOptions
from cairn.output import console

if TYPE_CHECKING:
    from cairn.build.model import BuiltWheel


@dataclass(frozen=True, kw_only=True)
class Run(BuildOptions, DevelopOptions):
    """What `cairn build run` is asked for.

    Of several lines, families or Pythons, each has a folder of its own below the output folder:
    LINE/FAMILY/PYTHON.

        cairn build run --stack external-builds/pytorch --install-rocm --index-url
        https://rocm.nightlies.amd.com/v2/gfx110X-all/ --targets gfx1100 --output-dir out
    """

    output_dir: Path = fields.output_dir()
    offline: bool = fields.offline()


def run(request: Run) -> Answer | None:
    """Run the command."""
    from cairn.build import job, variants

    jobs = options.jobs_of(request)
    if request.develop:
        options.develop(request, jobs)
        return None
    built = job.run_all(jobs)
    labels = variants.labels(jobs)
    return built_wheels(
        [wheel for wheels in built for wheel in wheels],
        [label for label, wheels in zip(labels, built, strict=True) for _ in wheels],
    )


def built_wheels(wheels: Sequence[BuiltWheel], variants: Sequence[str] = ()) -> Answer:
    """What was built.

    Args:
        wheels: of all variants.
        variants: what tells them from each other, one for each wheel; none where there is one variant.
    """
    labels = [(name,) for name in variants] if any(variants) else [()] * len(wheels)
    plain = [
        {
            "project": w.project,
            "file": w.wheel,
            **({"devices": w.devices} if w.devices else {}),
            "version": w.version,
            "sha256": w.sha256,
            "targets": w.targets,
            "seconds": round(w.seconds, 2),
            "cached": w.cached,
            **({"variant": label[0]} if label else {}),
        }
        for w, label in zip(wheels, labels, strict=True)
    ]
    head = (*(("variant",) if any(variants) else ()), "wheel", "size", "targets", "sha256", "time")
    return Answer(plain, [Table(head, _rows(zip(wheels, labels, strict=True)))])


def _rows(wheels: Iterable[tuple[BuiltWheel, tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
    from cairn import files
    from cairn.wheels.contents import binaries

    for w, label in wheels:
        took = "cached" if w.cached else console.clock(w.seconds)
        size = console.size(w.wheel.stat().st_size)
        targets = "-" if w.devices else " ".join(w.targets) or "-"
        yield (*label, w.wheel.name, size, targets, w.sha256[:16], took)
        for device in w.devices:
            own = " ".join(binaries.targets_of(device))
            size = console.size(device.stat().st_size)
            yield (*label, device.name, size, own, files.sha256_of(device)[:16], "")


COMMANDS = {"run": command(Run, run)}
