"""What it takes to show a wheel where it lies: bytes, requests and seconds, beside fetching it.

    pip download --no-deps --dest /tmp/large torch==2.13.0 triton pyarrow scipy xgboost
    PYTHONPATH=tests python benchmarks/wheel_published.py /tmp/large/*.whl

A server on this machine offers each wheel in parts, and then as a whole; `cairn wheel show` is a process of
its own, start-up included. On a real network the bytes count: at 100 Mbit/s a MB takes 0.08 s. Fails where
the answer is not that of the file, but for what needs its libraries, or where it takes more than 5 MB or
3 s of CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import quote

from wheel_measure import Cost, measured

from helpers.range_server import RangeServer, serving_ranges

_CAIRN = (sys.executable, "-m", "cairn", "wheel", "show", "--json")
_MOST_BYTES, _MOST_CPU = 5_000_000, 3.0
_OF_LIBRARIES = ("targets", "libraries", "kind", "archives", "builds", "unread")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", type=Path, nargs="+")
    options = parser.parse_args()
    print(f"{'':28}{'':>8} | {'in parts':^33} | {'as a whole':^24}")
    columns = f"{'bytes':>10}{'requests':>9}{'CPU s':>7}{'wall s':>7}"
    print(f"{'wheel':28}{'MB':>8} | {columns} | {'bytes':>10}{'CPU s':>7}{'wall s':>7}")
    problems: list[str] = []
    for wheel in sorted(options.wheels, key=lambda path: path.stat().st_size):
        with serving_ranges(wheel.parent) as server:
            url = f"{server.url}/{quote(wheel.name)}"
            if not _same(_answer(url), _answer(str(wheel))):
                problems.append(f"{wheel.name}: not the answer of the file")
            parts, sent, requests = _show(server, url)
            server.ranges = False
            whole, all_sent, _ = _show(server, url)
        name = "-".join(wheel.name.split("-")[:2])
        print(
            f"{name:28}{wheel.stat().st_size / 1e6:8.1f} | {sent:10,}{requests:9}{parts.cpu:7.2f}"
            f"{parts.wall:7.2f} | {all_sent:10,}{whole.cpu:7.2f}{whole.wall:7.2f}"
        )
        if sent > _MOST_BYTES or parts.cpu > _MOST_CPU:
            problems.append(f"{wheel.name}: over {_MOST_BYTES / 1e6:.0f} MB or {_MOST_CPU:.0f} s of CPU")
    if problems:
        raise SystemExit("\n".join(problems))


def _show(server: RangeServer, url: str) -> tuple[Cost, int, int]:
    """What one run takes, the bytes that the server sent, and the requests it got."""
    server.sent = 0
    server.requests.clear()
    cost = measured([*_CAIRN, "-q", url])
    return cost, server.sent, len(server.requests)


def _answer(word: str) -> dict[str, object]:
    output = subprocess.run([*_CAIRN, "-q", word], check=True, capture_output=True, text=True).stdout
    answer: dict[str, object] = json.loads(output)[0]
    return answer


def _same(remote: dict[str, object], here: dict[str, object]) -> bool:
    unknown = {name for name, value in remote.items() if value is None and here[name] is not None}
    return unknown <= set(_OF_LIBRARIES) and all(
        remote[name] == here[name] for name in here if name not in _OF_LIBRARIES
    )


if __name__ == "__main__":
    main()
