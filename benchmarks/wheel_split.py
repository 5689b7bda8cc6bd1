"""Split a large wheel: Cairn beside reading, hashing and packing its libraries alone.

    pip download jax-rocm60-pjrt==0.5.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_split.py /tmp/subject/jax_rocm60_pjrt-*.whl

That wheel has one library of 560 MB. It is split first. Then one program inflates the libraries whose code
was taken, hashes them, unpacks the bundles that are compressed, hashes each code object and compresses it
with zstd, as archives hold it, and packs the libraries without code and the archives into wheels, with
their hashes, as every tool must: all of that once, and nothing else. Both sides use the same compressors.
Every side is a child process; they run in turn, and the least of each counts. CPU is user and system time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from wheel_measure import Cost, measured, report

from cairn import datafile
from cairn.formats.kpack import SUFFIX, Archive
from cairn.formats.offload import detach
from cairn.formats.offload.record import Record
from cairn.formats.view import FileView

OURS = """
import pathlib, sys
from cairn.wheels.split.split import split
split(*map(pathlib.Path, sys.argv[1:3]))
"""

ALONE = """
import hashlib, pathlib, sys
import zstandard
from cairn.formats.zip import reader, writer
wheel, folder = map(pathlib.Path, sys.argv[1:3])
libraries, parts = folder / "libraries.txt", folder / "parts"
with reader.Archive.open(wheel) as archive:
    for name in libraries.read_text().splitlines():
        digest = hashlib.sha256()
        with (folder / "library").open("wb") as out:
            for piece in archive.stream(archive.member(name)):
                digest.update(piece)
                out.write(piece)
for path in sorted((folder / "bundles").iterdir()):
    with path.open("rb") as packed, (folder / "bundle").open("wb") as out:
        zstandard.ZstdDecompressor(max_window_size=1 << 27).copy_stream(packed, out)
with (folder / "packed").open("wb") as out:
    for path in sorted((folder / "codes").iterdir()):
        code = path.read_bytes()
        hashlib.sha256(code)
        out.write(zstandard.ZstdCompressor(level=3).compress(code))
for path in sorted(parts.iterdir()):
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    writer.write(folder / "a.zip", [writer.New(name=path.name, content=path)])
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    wheel, python = options.wheel.absolute(), sys.executable
    with tempfile.TemporaryDirectory(dir=wheel.parent) as text:
        folder = Path(text)
        ours = [python, "-c", OURS, str(wheel), str(folder / "split")]
        measured(ours)
        # In a process of its own: children begin with the peak of their parent's memory.
        apart = multiprocessing.get_context("spawn").Process(target=take_apart, args=(wheel, folder))
        apart.start()
        apart.join()
        costs: dict[str, list[Cost]] = {"alone": [], "cairn": []}
        for _ in range(options.rounds):
            costs["alone"].append(measured([python, "-c", ALONE, str(wheel), str(folder)]))
            costs["cairn"].append(measured(ours))
        alone, cairn = (min(found, key=lambda cost: cost.cpu) for found in costs.values())
        report(alone, cairn, peer_name="read, hash and pack")
        print(f"the split takes {cairn.cpu / alone.cpu:.2f} times the CPU of reading, hashing and packing")


def take_apart(wheel: Path, folder: Path) -> None:
    """Write what was split into files: the names of libraries, code objects, and what device wheels hold."""
    codes, parts, bundles = folder / "codes", folder / "parts", folder / "bundles"
    for new in (codes, parts, bundles):
        new.mkdir()
    host, *devices = sorted((folder / "split").glob("*.whl"), key=lambda path: path.name != wheel.name)
    sizes: list[int] = []
    for device in devices:
        with zipfile.ZipFile(device) as archive:
            for name in archive.namelist():
                if name.endswith(SUFFIX):
                    part = parts / Path(name).name
                    part.write_bytes(archive.read(name))
                    sizes += write_codes(part, codes)
    with zipfile.ZipFile(host) as archive, zipfile.ZipFile(wheel) as whole:
        record = next(name for name in archive.namelist() if name.endswith("/cairn-split.json"))
        names = [x.path for x in datafile.loads(archive.read(record), Record, name=record).libraries]
        for number, name in enumerate(names):
            (parts / f"library-{number}").write_bytes(archive.read(name))
            with (folder / "library").open("w+b") as file, whole.open(name) as content:
                shutil.copyfileobj(content, file)
                write_packed(file, bundles / str(number))
        large = sum(whole.getinfo(name).file_size for name in names)
    (folder / "libraries.txt").write_text("\n".join(names))
    code = f"{len(sizes)} code objects of {sum(sizes) / 1e6:.0f} MB"
    print(f"{len(names)} libraries of {large / 1e6:.0f} MB, {code}", flush=True)


def write_codes(archive: Path, folder: Path) -> Iterator[int]:
    """Write each code object of a kpack archive into a file; yields its size."""
    with archive.open("rb") as file:
        opened = Archive.open(FileView(file), archive.name)
        for ordinal, entry in {entry.ordinal: entry for entry in opened.entries.values()}.items():
            (folder / f"{archive.stem}-{ordinal}").write_bytes(opened.read(entry))
            yield entry.original_size


def write_packed(library: IO[bytes], start: Path) -> None:
    """Write the compressed bundles of a library without their headers, into files whose names begin so."""
    found = detach.read(FileView(library))
    for bundle in found.bundles if found else ():
        if bundle.packing:  # by zstd, as clang has done since 2023
            library.seek(bundle.at + bundle.packing.header_size)
            data = library.read(bundle.size - bundle.packing.header_size)
            start.with_name(f"{start.name}-{bundle.at}").write_bytes(data)


if __name__ == "__main__":
    main()
