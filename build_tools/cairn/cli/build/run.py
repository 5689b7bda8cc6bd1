"""`cairn build run`, which is `cairn build` too: build the wheels, and print what was built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import fields
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


def run(request: Run) -> int:
    """Run the command; returns the exit code."""
    from cairn.build import job, variants

    jobs = options.jobs_of(request)
    if request.develop:
        return options.develop(request, jobs)
    built = job.run_all(jobs)
    labels = variants.labels(jobs)
    return show_wheels(
        [wheel for wheels in built for wheel in wheels],
        variants=[label for label, wheels in zip(labels, built, strict=True) for _ in wheels],
        as_json=request.json,
    )


def show_wheels(wheels: Sequence[BuiltWheel], *, variants: Sequence[str] = (), as_json: bool = False) -> int:
    """Print what was built.

    Args:
        wheels: of all variants.
        variants: what tells them from each other, one for each wheel; none where there is one variant.
        as_json: print it as JSON.
    """
    from cairn import files
    from cairn.wheels.contents import binaries

    several = any(variants)
    if as_json:
        console.current().json(
            [
                {
                    "project": w.project,
                    "file": str(w.wheel),
                    **({"devices": [str(path) for path in w.devices]} if w.devices else {}),
                    "version": w.version,
                    "sha256": w.sha256,
                    "targets": list(w.targets),
                    "seconds": round(w.seconds, 2),
                    "cached": w.cached,
                }
                | ({"variant": variants[number]} if several else {})
                for number, w in enumerate(wheels)
            ]
        )
        return 0
    rows: list[tuple[str, ...]] = []
    for number, w in enumerate(wheels):
        label = (variants[number],) if several else ()
        took = "cached" if w.cached else console.clock(w.seconds)
        size = console.size(w.wheel.stat().st_size)
        targets = "-" if w.devices else " ".join(w.targets) or "-"
        rows.append((*label, w.wheel.name, size, targets, w.sha256[:16], took))
        for device in w.devices:
            own = " ".join(binaries.targets_of(device))
            size = console.size(device.stat().st_size)
            rows.append((*label, device.name, size, own, files.sha256_of(device)[:16], ""))
    head: tuple[str, ...] = ("wheel", "size", "targets", "sha256", "time")
    head = ("variant", *head) if several else head
    console.current().table(head, rows)
    return 0


COMMANDS = {"run": command(Run, run)}
