"""Read what every binary of a large wheel needs: Cairn beside `auditwheel show`.

    pip download torch==2.13.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_needed.py /tmp/subject/torch-*.whl

Both sides run in turn as child processes, three times each; the medians are told. CPU is user and system time
of the process and its children, the start of the interpreter included; memory is the peak of the largest one.
Both judge the platform tag from what they read.

The last line is the floor: what inflating alone costs of the one library whose dynamic section lies furthest
in. A deflate stream can only be read from its beginning, and the section stands behind the code; so no reader
of a compressed wheel gets below that, whatever it does otherwise.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from wheel_measure import Cost, measured, median, report

OURS = """
import pathlib, sys
from cairn.wheels import inspect, policy
from cairn.wheels.archive import Archive
with Archive.open(pathlib.Path(sys.argv[1])) as archive:
    found = inspect.read_libraries(archive, device_code=False, look_for=policy.watched_symbols())
print(len(found), policy.lowest(found, (), "x86_64"))
"""

# The largest library from its beginning to its dynamic section, and nothing else of the wheel.
FLOOR = """
import pathlib, struct, sys
from cairn.wheels.archive import Archive
with Archive.open(pathlib.Path(sys.argv[1])) as archive:
    member = max(archive.members, key=lambda member: member.size)
    end, done = 1 << 20, 0
    for piece in archive.stream_unchecked(member):
        if not done:
            at, size, count = *struct.unpack_from("<Q", piece, 32), *struct.unpack_from("<HH", piece, 54)
            segments = [struct.unpack_from("<IIQQQQ", piece, at + size * n) for n in range(count)]
            end = next(offset + length for kind, _, offset, _, _, length in segments if kind == 2)
        done += len(piece)
        if done >= end:
            break
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    wheel = str(options.wheel.absolute())
    results: dict[str, list[Cost]] = {"auditwheel show": [], "cairn": [], "floor": []}
    for _ in range(options.runs):
        results["auditwheel show"].append(measured([sys.executable, "-m", "auditwheel", "show", wheel]))
        results["cairn"].append(measured([sys.executable, "-c", OURS, wheel]))
        results["floor"].append(measured([sys.executable, "-c", FLOOR, wheel]))
    peer, ours, floor = (median(costs) for costs in results.values())
    report(peer, ours, peer_name="auditwheel show")
    print(f"{'inflating alone':28}{floor.cpu:10.2f}{floor.wall:10.2f}{floor.memory / 1e6:10.1f}")


if __name__ == "__main__":
    main()
