"""Test records and stacks for the gate, and a gate that is asked without promoting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cairn import datafile
from cairn.release import records as kept_records
from cairn.release.gate import gate
from cairn.release.gate.case import Case
from cairn.release.gate.judgement import Demand, GateReport
from cairn.release.index.snapshot import Index
from cairn.release.records import NewRecord
from cairn.release.weighing import SetRecords, StoredRecord
from cairn.stack import Gate, Origin, Project, Stack
from cairn.store.protocol import Store
from cairn.testing.gpus.gpu import Gpu, covers
from cairn.testing.record import Counts, HostTests, TestedWheel, TestRecord
from cairn.wheels.wheelset import WheelSet
from helpers.release import make_set, make_wheel, stage_set

AWAY: dict[str, Any] = {"python": "3.11", "platform": "win_amd64"}
"""Where no test runs: a set for this place is resolved, and not installed."""
ON_GPU: dict[str, Any] = {"family": "gfx94X-dcgpu", "targets": ("gfx942",)}
"""What a set for one kind of GPU is made for."""


def at(minutes: float) -> str:
    """The time so many minutes from now."""
    return f"{datetime.now(UTC) + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S.%fZ}"


def record_of(made: WheelSet, **changes: Any) -> TestRecord:
    """A passed record of a set that has just begun, with `changes` in place of some of its fields."""
    values: dict[str, Any] = {
        "set_id": made.set_id,
        "wheels": tuple(TestedWheel(file_name=f.file_name, sha256=f.sha256) for f in made.files),
        "kind": "smoke",
        "family": made.family,
        "targets": made.targets,
        "hardware": (),
        "counts": Counts(passed=5, device_passed=2 if changes.get("hardware") else 0),
        "junit_sha256": None,
        "started": at(0),
        "duration_seconds": 1.0,
        "verdict": "passed",
        "reason": "",
    }
    if changes.get("kind", "smoke") == "smoke":
        passed = changes.get("counts", values["counts"]).passed
        values["host"] = host_tests(made, own_tests=min(1, passed))
    return attested_record(**(values | changes))


def host_tests(made: WheelSet, **changes: Any) -> HostTests:
    """What a smoke test of a set counts without a GPU, with `changes` in place of some of its fields."""
    values: dict[str, Any] = {
        "python": made.python,
        "platform": made.platform,
        "imported": {wheel.distribution: 1 for wheel in made.wheels},
        "own_tests": 1,
    }
    return HostTests(**(values | changes))


def attested_record(**values: Any) -> TestRecord:
    """A record; as if every GPU there was attested, and tests had used one of each kind."""
    hardware, on_device = values["hardware"], values["counts"].device_passed
    attested = {
        "gpus": tuple(Gpu(target=name, seen_by=("kernel",)) for name in hardware),
        "covered": {t: on_device * covers(hardware, t) for t in values["targets"] if t != "cpu"},
    }
    return TestRecord(**(attested | values))


def data_of(record: TestRecord) -> bytes:
    """A record as a test run writes it."""
    return datafile.dumps(record).encode()


def failed_record(made: WheelSet, **changes: Any) -> TestRecord:
    """A record of a set of which a test has failed, with `changes` in place of some of its fields."""
    values = {"verdict": "failed", "reason": "boom", "counts": Counts(passed=1, failed=1)}
    return record_of(made, **(values | changes))


def given(record: TestRecord) -> NewRecord:
    """A record as it is handed over, without what it was judged by."""
    return NewRecord(data=data_of(record))


def kept(*records: TestRecord) -> SetRecords:
    """These records as if they lay in a store."""
    return SetRecords(
        records=tuple(StoredRecord(digest=f"{n:064}", record=record) for n, record in enumerate(records))
    )


def stack_of(made: WheelSet, *, device_code: Sequence[str] = (), **gate_fields: Any) -> Stack:
    """The stack that a set is all of; the distributions of `device_code` have some."""
    projects = tuple(
        Project(
            name=wheel.distribution,
            distribution=wheel.distribution,
            checkout_dir=wheel.distribution,
            origin=Origin(url="https://example.org/nothing.git"),
            hashtag="main",
            device_code=wheel.distribution in device_code,
        )
        for wheel in made.wheels
    )
    return Stack(
        name=made.stack, line=made.line, targets=made.targets, projects=projects, gate=Gate(**gate_fields)
    )


def write_stack(folder: Path, made: WheelSet, more: str = "") -> Path:
    """The `stack.toml` of `stack_of`, with `more` before its projects."""
    # Not a shipped stack: its projects are those of a set that a test made up.
    lines = ['schema = "cairn.stack/1"', f'name = "{made.stack}"', f'line = "{made.line}"']
    lines += [f"targets = {list(made.targets)}", more]
    for wheel in made.wheels:
        name = wheel.distribution
        lines += ["[[projects]]", f'name = "{name}"', f'distribution = "{name}"', f'checkout_dir = "{name}"']
        lines += ['hashtag = "main"', 'origin = { url = "https://example.org/nothing.git" }']
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "stack.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def stage_torch(
    store: Store, folder: Path, version: str = "2.9.0", *, content: str | None = None, **place: Any
) -> WheelSet:
    """Stage a set of torch alone, which is resolved and not installed, unless `place` names another place."""
    wheel = make_wheel(folder, "torch", version, content=content)
    return stage_set(store, "staging", make_set([wheel], **(AWAY | place)), [wheel])


def case_of(store: Store, made: WheelSet, *, target: str = "release", **changes: Any) -> Case:
    """The case of a set of staging, with `changes` in place of some of its fields."""
    source, there = Index(store, "staging").load(), Index(store, target).load()
    values: dict[str, Any] = {
        "source": source,
        "target": there,
        "wheel_set": made,
        "stack": stack_of(made),
        "set_records": kept_records.read(store, made.id),
    }
    return Case(**(values | changes))


def judge(store: Store, made: WheelSet, *, records: Sequence[TestRecord] = (), **changes: Any) -> GateReport:
    """What the gate says of a set of staging that is to go into release, given only these records."""
    given = {"set_records": kept(*records), **changes} if records else changes
    return gate.check(case_of(store, made, **given))


def demand(report: GateReport, number: int) -> Demand:
    """One of them."""
    return next(found for found in report.demands if found.number == number)
