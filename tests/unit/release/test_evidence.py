from __future__ import annotations

from pathlib import Path

import msgspec

from cairn.release.gate import evidence
from cairn.testing.record import Counts, TestedWheel, TestRecord
from cairn.wheels import wheelset
from helpers.release import make_set, make_wheel


def test_a_record_of_selected_tests_proves_nothing_and_its_failures_count(tmp_path: Path) -> None:
    made = wheelset.seal(make_set([make_wheel(tmp_path, "torch", "2.9.0")]), [])
    whole = TestRecord(
        set_id=made.set_id,
        wheels=tuple(TestedWheel(file_name=w.file_name, sha256=w.sha256) for w in made.wheels),
        kind="smoke",
        family=made.family,
        targets=made.targets,
        hardware=(),
        counts=Counts(passed=5),
        junit_sha256=None,
        started="2025-01-02T03:04:05Z",
        duration_seconds=1.0,
        verdict="passed",
        reason="5 tests passed",
    )
    part = msgspec.structs.replace(whole, pytest_args=("-k", "one or two"))
    assert evidence.problems(made, [whole]) == ()
    assert evidence.problems(made, [part]) == (
        "smoke record: perhaps not every test ran: pytest was given -k 'one or two'",
    )
    assert evidence.untested(made, [part]) == ("cpu",)
    assert evidence.problems(made, [part, whole]) == ()
    failed = msgspec.structs.replace(part, verdict="failed", reason="one failed")
    assert evidence.failures(made, [whole, failed]) == ("smoke record: failed: one failed",)
