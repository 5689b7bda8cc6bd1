"""Read what every binary of a large wheel needs: Cairn beside `auditwheel show`.

    pip download torch==2.13.0 --no-deps --dest /tmp/subject
    python benchmarks/wheel_needed.py /tmp/subject/torch-*.whl

Both sides run once each as child processes, one after the other; CPU is user and system time, memory the
peak of the largest process. Both judge the platform tag from what they read.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from wheel_measure import measured, report

OURS = """
import pathlib, sys
from cairn.wheels import inspect, policy
from cairn.wheels.archive import Archive
with Archive.open(pathlib.Path(sys.argv[1])) as archive:
    found = inspect.read_libraries(archive, device_code=False, look_for=policy.watched_symbols())
print(len(found), policy.lowest(found, (), "x86_64"))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("wheel", type=Path)
    options = parser.parse_args()
    wheel = str(options.wheel.absolute())
    peer = measured([sys.executable, "-m", "auditwheel", "show", wheel])
    ours = measured([sys.executable, "-c", OURS, wheel])
    report(peer, ours, peer_name="auditwheel show")


if __name__ == "__main__":
    main()
