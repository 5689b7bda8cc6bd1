"""Add ROCm's libraries to a large wheel: Cairn beside deflating the added bytes alone.

    pip download torch==2.13.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_fat.py /tmp/subject/torch-*.whl /usr

The second argument is a ROCm tree: `/usr` after `apt-get install hipcc libamdhip64-dev`, or `/opt/rocm`. What
the fat wheel gained is unpacked first; then two programs deflate those files into an archive and do nothing
else: one with Cairn's own compressor, one with the standard library, as `wheel pack` does. All sides run as
child processes, in turn, and the least of each is taken. CPU is user and system time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

from wheel_measure import Cost, measured, report

DEFLATE = """
import pathlib, sys
from cairn.wheels import deflate, writing
folder = pathlib.Path(sys.argv[1])
paths = [p for p in sorted(folder.rglob("*")) if p.is_file()]
new = [writing.New(name=str(p.relative_to(folder)), content=p) for p in paths]
writing.write(pathlib.Path(sys.argv[2]), new)
"""

PACK = """
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted(folder.rglob("*")):
        archive.write(path, path.relative_to(folder))
"""

OURS = """
import pathlib, sys
from cairn.wheels import fat, fat_targets
wheel, rocm, folder = map(pathlib.Path, sys.argv[1:4])
fat.make(fat.Request(wheel=wheel, rocm=rocm, output_dir=folder, targets=fat_targets.parse(sys.argv[4])))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("rocm", type=Path)
    parser.add_argument("--targets", default="gfx90a,gfx1030")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    wheel, python = options.wheel.absolute(), sys.executable
    with tempfile.TemporaryDirectory(dir=wheel.parent) as text:
        folder = Path(text)
        ours = [python, "-c", OURS, str(wheel), str(options.rocm), str(folder), options.targets]
        measured(ours)
        (fat,) = folder.glob("*.whl")
        count = unpack_added(wheel, fat, folder / "added")
        commands = {
            "deflate alone": [python, "-c", DEFLATE, str(folder / "added"), str(folder / "a.zip")],
            "deflate alone (zlib)": [python, "-c", PACK, str(folder / "added"), str(folder / "b.zip")],
            "cairn": ours,
        }
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                costs[name].append(measured(command))
    best = {name: min(found, key=lambda cost: cost.cpu) for name, found in costs.items()}
    print(f"{count / 1e6:.0f} MB were added to {wheel.name}")
    for name in ("deflate alone", "deflate alone (zlib)"):
        report(best[name], best["cairn"], peer_name=name)
    ratio = best["cairn"].cpu / best["deflate alone"].cpu
    print(f"the fat wheel takes {ratio:.2f} times the CPU of deflating alone")


def unpack_added(wheel: Path, fat: Path, folder: Path) -> int:
    """Write what `fat` has and `wheel` has not into a folder; returns its bytes."""
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(fat) as after:
        old = {entry.filename: (entry.CRC, entry.file_size) for entry in before.infolist()}
        new = [e for e in after.infolist() if old.get(e.filename) != (e.CRC, e.file_size)]
        for entry in new:
            after.extract(entry, folder)
        return sum(entry.file_size for entry in new)


if __name__ == "__main__":
    main()
