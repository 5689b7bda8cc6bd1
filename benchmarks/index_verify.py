"""What it takes to verify one signed wheel of an index of 100,000: requests, bytes fetched, and CPU time.

    PYTHONPATH=tests python benchmarks/index_verify.py [--wheels 100000]

The machine is new: it has the wheel and the fingerprint of the root, and nothing of the store. The time is
that of `cairn index verify` as it is typed, start-up included.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

from index_publish import filled
from wheel_measure import measured, median

from cairn.release.provenance import chain, evidence
from cairn.release.provenance.chain import Recorder
from cairn.release.trust import anchor, root
from cairn.release.trust.client import SignedStore
from cairn.store.memory import MemoryStore
from helpers.provenance import RELEASER, TESTER, released
from helpers.release import in_folder
from helpers.trust import key_file

RUNS = 5


def main() -> int:
    """Make the index, and verify a wheel of it."""
    parser = argparse.ArgumentParser(description="Verify one wheel of an index of many.")
    parser.add_argument("--wheels", type=int, default=100_000, help="in the index (default: %(default)s)")
    wheels = parser.parse_args().wheels
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        folder = Path(name)
        os.environ["CAIRN_CACHE_DIR"] = str(folder / "releaser")
        store = MemoryStore()
        filled(store, wheels // 20, 20, index="release")
        made = released(folder, store=store)
        evidence.sign_builder(store, made.made.id, evidence.of_builder(store, made.made), RELEASER)
        with anchor.acting(key=key_file(folder, RELEASER)):
            named = {"tester": [TESTER.public]}
            trusted = root.publish(store, root.first([RELEASER], named, 1))
            root.sign_all(store, trusted, {})
        os.environ["CAIRN_CACHE_DIR"] = str(folder / "new")
        recorder, wheel = Recorder(store), made.wheels[-1]
        with anchor.acting(root=trusted.fingerprint):
            known = anchor.anchor(recorder)
        if known is None:
            raise SystemExit("the store has no root")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        report = chain.check(
            SignedStore(recorder, known),
            "release",
            file_name=wheel.name,
            sha256=digest,
            trust=known.root.trust(),
        )
        if report.broken:
            raise SystemExit(str(report.broken))
        for key, data in recorder.objects.items():
            print(f"{len(data):8} {key}")
        print(f"{sum(map(len, recorder.objects.values())):8} bytes in {len(recorder.objects)} requests")
        lies = in_folder(store, folder / "store")
        costs = []
        for run in range(RUNS):
            os.environ["CAIRN_CACHE_DIR"] = str(folder / f"machine{run}")
            words = ["index", "verify", str(wheel), "--store", str(lies.path), "--root", trusted.fingerprint]
            costs.append(measured([sys.executable, "-m", "cairn", *words]))
        print(f"{median(costs).cpu:8.2f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main())
