"""What it takes to read a wheel: `verify`, `show` and `diff` beside inflating and hashing it once.

    python benchmarks/wheel_one_pass.py torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl

The peer inflates each member by the same library and hashes it (sha256), in one thread. Each is a process
of its own, start-up included, and they take turns; figures are medians. `diff` reads two wheels, so its
ratio is that of one, without Python names. Fails where `verify` takes more than 1.5 times the CPU of the
peer (1.65 times above 10,000 members), `show` more than the peer, or `diff` more than 1.3 times.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

from wheel_measure import Cost, measured, median

_PEER = """
import hashlib, sys
from pathlib import Path
from cairn.formats.zip.reader import Archive
with Archive.open(Path(sys.argv[1])) as archive:
    for member in archive.members:
        digest = hashlib.sha256()
        for piece in archive.stream(member):
            digest.update(piece)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(options.wheel, folder))
        wheel, cairn = str(options.wheel), [sys.executable, "-m", "cairn"]
        commands = {
            "inflate + sha256": ([sys.executable, "-c", _PEER, wheel], 1),
            "verify": ([*cairn, "wheel", "verify", wheel], 1),
            "show": ([*cairn, "wheel", "show", wheel], 1),
            "diff, each": ([*cairn, "diff", "--no-python", wheel, str(copy)], 2),
        }
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(options.times):
            for name, (command, _) in commands.items():
                costs[name].append(measured(command, any_status=True))
    figures = {name: median(those) for name, those in costs.items()}
    peer = figures["inflate + sha256"].cpu
    ratios = {name: figures[name].cpu / count / peer for name, (_, count) in commands.items()}
    print(f"{'':18}{'CPU s':>8}{'wall s':>8}{'peak MB':>9}{'ratio':>8}")
    for name, cost in figures.items():
        print(f"{name:18}{cost.cpu:8.2f}{cost.wall:8.2f}{cost.memory / 1e6:9.1f}{ratios[name]:7.2f}x")
    members = len(zipfile.ZipFile(options.wheel).namelist())
    bars = {"verify": 1.65 if members > 10_000 else 1.5, "show": 1.0, "diff, each": 1.3}
    if over := [f"{name} {bar}x" for name, bar in bars.items() if ratios[name] > bar]:
        raise SystemExit(f"more CPU than they may take: {', '.join(over)}")


if __name__ == "__main__":
    main()
