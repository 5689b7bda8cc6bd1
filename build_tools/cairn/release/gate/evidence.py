"""Whether a set was tested: by a record for exactly its bytes, or by the word of a named user."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cairn import datafile
from cairn.errors import UsageError
from cairn.targets import CPU, in_order
from cairn.testing import gpus
from cairn.testing.record import TestRecord, disagreement
from cairn.wheels.wheelset import WheelSet


class Bypass(datafile.Value):
    """A user's word in place of a test record; the pages then show the set as untested.

    Attributes:
        who: whom to ask.
        reason: why it may be released all the same.

    Raises:
        UsageError: either is blank, or has what a page or a terminal would not show as it is.
    """

    who: str
    reason: str

    def __post_init__(self) -> None:
        if not all(text.strip() and text.isprintable() for text in (self.who, self.reason)):
            raise UsageError(
                "a bypass needs a name and a reason, each on one line without control characters",
                tip="--bypass WHO --reason WHY",
            )

    def __str__(self) -> str:
        return f"bypassed by {self.who}: {self.reason}"


def problems(wheel_set: WheelSet, records: Sequence[TestRecord]) -> tuple[str, ...]:
    """Why a set counts as untested; nothing where records of each of its targets have passed."""
    # Failures come first: a passed record beside a failed one of the same bytes proves nothing.
    if failed := failures(wheel_set, records):
        return failed
    missing = untested(wheel_set, records)
    if not missing:
        return ()
    if not records:
        return ("there is no test record",)
    found = ((record, _objection(wheel_set, record)) for record in records)
    objections = tuple(f"{record.kind} record: {objection}" for record, objection in found if objection)
    return objections or (f"no record is of {', '.join(missing)}",)


def failures(wheel_set: WheelSet, records: Sequence[TestRecord]) -> tuple[str, ...]:
    """What failed of these very bytes; no bypass overrides it."""
    about = (r for r in records if r.verdict == "failed" and _same_bytes(wheel_set, r))
    return tuple(f"{r.kind} record: failed: {r.reason}" for r in about)


def passing(wheel_set: WheelSet, records: Sequence[TestRecord]) -> tuple[TestRecord, ...]:
    """The records that prove the set tested on some hardware, provided that none says it failed."""
    if failures(wheel_set, records):
        return ()
    return tuple(record for record in records if _objection(wheel_set, record) is None)


def untested(wheel_set: WheelSet, records: Sequence[TestRecord]) -> tuple[str, ...]:
    """The targets that no record of the set has passed on, in order; `cpu` for a set without targets."""
    passed = passing(wheel_set, records)
    if wheel_set.targets in ((), (CPU,)):
        return () if passed else (CPU,)
    # Records add up: each target may have been tested on a different machine.
    seen = {name for record in passed for name in record.hardware}
    return in_order(target for target in wheel_set.targets if not gpus.covers(seen, target))


def why(wheel_set: WheelSet, records: Sequence[TestRecord]) -> str:
    """What was tested on what, as text for the user."""
    passed = passing(wheel_set, records)
    return "; ".join(f"{r.kind} passed on {', '.join(r.hardware) or 'a CPU'}" for r in passed)


def _objection(wheel_set: WheelSet, record: TestRecord) -> str | None:
    if not _same_bytes(wheel_set, record):
        return "it is of other wheels"
    if record.verdict != "passed":
        return f"{record.verdict}: {record.reason}" if record.reason else record.verdict
    if record.pytest_args:  # such as `-k one_test`: what was not selected is not even among the skips
        return f"perhaps not every test ran: pytest was given {shlex.join(record.pytest_args)}"
    if record.family != wheel_set.family:
        return f"it is of {record.family}, not of {wheel_set.family}"
    return None if wheel_set.targets in ((), (CPU,)) else _hardware_objection(wheel_set, record)


def _hardware_objection(wheel_set: WheelSet, record: TestRecord) -> str | None:
    if not record.hardware:
        return f"it was made without any hardware of {wheel_set.family}"
    if not gpus.matches(record.hardware, wheel_set.targets):
        return f"it was made on {', '.join(record.hardware)}, not on {wheel_set.family}"
    # A run that skips every test which needs the GPU passes, and proves nothing of it.
    if not record.counts.device_passed:
        return "none of its tests used the GPU"
    return None


def _same_bytes(wheel_set: WheelSet, record: TestRecord) -> bool:
    # All of the set: a record of a part says nothing of how the rest works with it.
    own = [wheel.file_name for wheel in wheel_set.wheels]
    return record.set_id == wheel_set.set_id and disagreement(record, wheel_set.sha256s, own) is None
