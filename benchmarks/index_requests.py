"""How many requests one more wheel, and one more set, cost in an index in a bucket.

    PYTHONPATH=tests python benchmarks/index_requests.py [--wheels 2000]

The bucket is one of moto's, or of the server that CAIRN_TEST_S3_ENDPOINT names. What is counted is what is
sent, by the method and by what it is about. An index whose pages are made anew from a listing each time asks
for every file: two requests a wheel (its metadata, and its hash), beside which the figures are printed.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import urllib.parse
from pathlib import Path

from index_publish import filled, one_wheel

from cairn.release.index import keys
from cairn.release.index.snapshot import Index
from cairn.release.publish.files import publish
from cairn.store.opening import open_store
from helpers import buckets
from helpers.faults import Plan
from helpers.faulty_server import FaultyServer, faulty_server
from helpers.release import make_set, make_wheel, move, stage_set


class Counter:
    """Counts the requests that come over a line to a server of buckets."""

    def __init__(self, line: FaultyServer) -> None:
        self._line = line

    def taken(self) -> collections.Counter[str]:
        """What was sent since the last call."""
        requests, self._line.plan = self._line.plan.requests, Plan()
        sent = collections.Counter[str]()
        for method, path in requests:
            key = urllib.parse.unquote(path.partition("?")[0]).lstrip("/").partition("/")[2]
            sent[f"{method} {keys.kind_of(key) or ('listing' if method == 'GET' else 'other')}"] += 1
        return sent


def show(title: str, sent: collections.Counter[str], wheels: int) -> None:
    """One line in all, and one for each kind of request."""
    print(f"\n{title}: {sent.total()} requests; two a wheel would be {2 * wheels}")
    for what, count in sorted(sent.items()):
        print(f"  {count:4} {what}")


def main() -> int:
    """Fill an index, then count what more costs."""
    parser = argparse.ArgumentParser(description="Requests of one more wheel in a bucket.")
    parser.add_argument(
        "--wheels", type=int, default=2_000, help="in the index before (default: %(default)s)"
    )
    wheels = parser.parse_args().wheels
    with (
        buckets.serving() as server,
        faulty_server(server.endpoint) as line,
        tempfile.TemporaryDirectory(prefix="cairn-bench-") as name,
    ):
        os.environ |= server.environment
        folder = Path(name)
        for projects in (wheels // 20, 20):
            store = open_store(f"s3://{server.new_bucket()}", endpoint_url=line.endpoint)
            counter = Counter(line)
            filled(store, projects, wheels // projects)
            counter.taken()
            publish(store, "staging", [one_wheel(folder, "project7", f"2.{projects}.0")])
            show(f"one more wheel, {projects} projects of {wheels // projects}", counter.taken(), wheels)
        torch = [
            make_wheel(folder, "triton", "3.6.0"),
            make_wheel(folder, "torch", "2.10.0", requires=["triton==3.6.0"]),
            make_wheel(folder, "torchvision", "0.25.0", requires=["torch==2.10.0"]),
            make_wheel(folder, "torchaudio", "2.10.0", requires=["torch==2.10.0"]),
        ]
        counter.taken()
        sealed = stage_set(store, "staging", make_set(torch), torch)
        show("one more set of four wheels into staging", counter.taken(), wheels)
        move(store, sealed)
        show("the same into release, without the gate's own reading", counter.taken(), wheels)
        assert Index(store, "release").load().set_ids == (sealed.id,)  # noqa: S101 - it did happen
    return 0


if __name__ == "__main__":
    sys.exit(main())
