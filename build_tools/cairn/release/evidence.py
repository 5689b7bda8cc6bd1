"""Whether a set was tested: by a record for exactly its bytes, or by a person's name and reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.errors import UsageError
from cairn.testing import hardware
from cairn.testing.record import TestRecord
from cairn.wheels.set import WheelSet


@dataclass(frozen=True, kw_only=True)
class Bypass:
    """A person's word in place of a test record; the pages then show the set as untested.

    Attributes:
        who: whom to ask.
        reason: why it may be released all the same.

    Raises:
        UsageError: either is blank.
    """

    who: str
    reason: str

    def __post_init__(self) -> None:
        if not self.who.strip() or not self.reason.strip():
            raise UsageError("a bypass needs a name and a reason", tip="--bypass WHO --reason WHY")

    def __str__(self) -> str:
        return f"bypassed by {self.who}: {self.reason}"


def problems(wheel_set: WheelSet, records: Sequence[TestRecord], bypass: Bypass | None) -> tuple[str, ...]:
    """Why a set counts as untested; nothing where a record or a bypass lets it through."""
    failed = [r for r in records if r.verdict == "failed" and _same_bytes(wheel_set, r)]
    if failed:
        # A bypass stands for tests that could not run, and the pages will say untested: not so here.
        return tuple(f"{r.kind} record: failed: {r.reason}" for r in failed)
    if bypass is not None or passing(wheel_set, records):
        return ()
    if not records:
        return ("there is no test record",)
    found = ((record, _objection(wheel_set, record)) for record in records)
    return tuple(f"{record.kind} record: {objection}" for record, objection in found if objection)


def passing(wheel_set: WheelSet, records: Sequence[TestRecord]) -> tuple[TestRecord, ...]:
    """The records that prove the set tested, provided that none says it failed."""
    about = [record for record in records if _same_bytes(wheel_set, record)]
    if any(record.verdict == "failed" for record in about):
        return ()
    return tuple(record for record in about if _objection(wheel_set, record) is None)


def why(wheel_set: WheelSet, records: Sequence[TestRecord], bypass: Bypass | None) -> str:
    """What lets a set through, for people to read."""
    passed = passing(wheel_set, records)
    if passed:
        return "; ".join(f"{r.kind} passed on {', '.join(r.hardware) or 'a CPU'}" for r in passed)
    return f"{bypass} (the pages say untested)"


def _objection(wheel_set: WheelSet, record: TestRecord) -> str | None:
    if not _same_bytes(wheel_set, record):
        return "it is of other wheels"
    if record.verdict != "passed":
        return f"{record.verdict}: {record.reason}" if record.reason else record.verdict
    if record.family != wheel_set.family:
        return f"it is of {record.family}, not of {wheel_set.family}"
    return None if wheel_set.targets in ((), ("cpu",)) else _hardware_objection(wheel_set, record)


def _hardware_objection(wheel_set: WheelSet, record: TestRecord) -> str | None:
    if not record.hardware:
        return f"it was made without any hardware of {wheel_set.family}"
    if not hardware.matches(record.hardware, wheel_set.targets):
        return f"it was made on {', '.join(record.hardware)}, not on {wheel_set.family}"
    if not record.counts.device_passed:
        return "none of its tests used the GPU"
    return None


def _same_bytes(wheel_set: WheelSet, record: TestRecord) -> bool:
    tested = {(wheel.file_name, wheel.sha256) for wheel in record.wheels}
    return tested == {(wheel.file_name, wheel.sha256) for wheel in wheel_set.wheels}
