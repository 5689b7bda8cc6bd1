"""Read what every binary of a large wheel needs: Cairn beside `auditwheel show`.

    pip download torch==2.13.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_needed.py /tmp/subject/torch-*.whl

Both sides run in turn as child processes, three times each; medians are printed. CPU is user and system time
of the process and its children, the start of the interpreter included; memory is the peak of the largest one.
Both judge the platform tag from what they read.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from wheel_measure import Cost, measured, median, report

OURS = """
import pathlib, sys
from cairn.wheels.contents import binaries, system_libraries
from cairn.formats.zip.reader import Archive
with Archive.open(pathlib.Path(sys.argv[1])) as archive:
    symbols = system_libraries.watched_symbols()
    found = binaries.read_archive(archive, only="elf", device_code=False, look_for=symbols)
print(len(found), system_libraries.lowest_policy(found, (), "x86_64"))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    wheel = str(options.wheel.absolute())
    results: dict[str, list[Cost]] = {"auditwheel show": [], "cairn": []}
    for _ in range(options.runs):
        results["auditwheel show"].append(measured([sys.executable, "-m", "auditwheel", "show", wheel]))
        results["cairn"].append(measured([sys.executable, "-c", OURS, wheel]))
    report(median(results["auditwheel show"]), median(results["cairn"]), peer_name="auditwheel show")


if __name__ == "__main__":
    main()
