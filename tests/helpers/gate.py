"""Test records and sets for the gate, and a gate that is asked without promoting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn import datafile
from cairn.release.gate import gate
from cairn.release.gate.evidence import Bypass
from cairn.release.gate.gate import Case
from cairn.release.gate.judgement import GateReport
from cairn.release.index.snapshot import Index
from cairn.release.publish.wheel_set import index_set, promotion
from cairn.release.records import KeptRecord
from cairn.store.protocol import Store
from cairn.testing.record import Counts, TestedWheel, TestRecord
from cairn.wheels.wheelset import WheelSet


def record_of(made: WheelSet, **changes: Any) -> TestRecord:
    """A passed record of a set, with `changes` in place of some of its fields."""
    values: dict[str, Any] = {
        "set_id": made.set_id,
        "wheels": tuple(TestedWheel(file_name=w.file_name, sha256=w.sha256) for w in made.wheels),
        "kind": "smoke",
        "family": made.family,
        "targets": made.targets,
        "hardware": (),
        "counts": Counts(passed=5, device_passed=2 if changes.get("hardware") else 0),
        "junit_sha256": None,
        "started": "2025-01-02T03:04:05Z",
        "duration_seconds": 1.0,
        "verdict": "passed",
        "reason": "",
    }
    return TestRecord(**(values | changes))


def data_of(record: TestRecord) -> bytes:
    """A record as a test run writes it."""
    return datafile.dumps(record).encode()


def judge(
    store: Store, made: WheelSet, *, records: Sequence[TestRecord] = (), bypass: Bypass | None = None
) -> GateReport:
    """What the gate says of a set of staging that is to go into release, given only these records."""
    source, target = Index(store, "staging").load(), Index(store, "release").load()
    return gate.check(
        Case(
            source=source,
            target=target,
            after=target.with_change(promotion(source, target, made, entry=index_set(made))),
            wheel_set=made,
            records=[KeptRecord(digest=f"{n:064}", record=record) for n, record in enumerate(records)],
            bypass=bypass,
        )
    )
