"""The test record: what was run on which exact bytes, on which hardware, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name

from cairn import datafile
from cairn.errors import UsageError

Kind = Literal["smoke", "suite"]
Verdict = Literal["passed", "failed", "invalid", "untested"]

_HEX_DIGITS = 64  # of a sha256


class TestedWheel(datafile.Value):
    """One file that was installed for the tests, named by its bytes."""

    __test__ = False  # pytest would collect the name

    file_name: str
    sha256: str


class Skip(datafile.Value):
    """A test that did not run, and why."""

    test: str
    reason: str


class Counts(datafile.Value):
    """Tests by outcome.

    Attributes:
        passed: all that passed, those on a GPU among them.
        failed: an assertion did not hold.
        errors: something broke before or after the test itself.
        skipped: did not run.
        device_passed: of the passed ones, those that computed on a GPU.
    """

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    device_passed: int = 0

    @property
    def executed(self) -> int:
        """Tests that ran."""
        return self.passed + self.failed + self.errors

    @property
    def total(self) -> int:
        """Tests that were collected."""
        return self.executed + self.skipped


class TestRecord(datafile.Value, tag_field="schema", tag="cairn.record/2"):
    """What was run on which exact bytes on which hardware, and the verdict.

    Attributes:
        set_id: the sealed set that was tested; None for an open one, whose record promotes nothing.
        wheels: every distribution that was installed for the tests, by its bytes: the set's own, and those of
            its closure.
        kind: the smoke tests, or a project's own suite.
        family: of the set.
        targets: of the set.
        hardware: one gfx name for each GPU of the machine; empty where there is none.
        counts: of the tests.
        junit_sha256: of the JUnit XML; None where the run left none.
        started: ISO 8601, UTC.
        duration_seconds: wall time of installing and testing.
        verdict: `invalid` is a run that proves nothing (wrong hardware), `untested` one that did not
            take place.
        reason: of the verdict, one sentence.
        skips: tests that did not run.
        pytest_args: what the user gave to pytest, such as `-k vision`; with any of it, perhaps not every test
            was selected, and the gate does not count the record as passed.
    """

    __test__ = False  # pytest would collect the name
    set_id: str | None
    wheels: tuple[TestedWheel, ...]
    kind: Kind
    family: str
    targets: tuple[str, ...]
    hardware: tuple[str, ...]
    counts: Counts
    junit_sha256: str | None
    started: str
    duration_seconds: float
    verdict: Verdict
    reason: str
    skips: tuple[Skip, ...] = ()
    pytest_args: tuple[str, ...] = ()

    @property
    def sha256s(self) -> frozenset[str]:
        """The bytes that the verdict is about."""
        return frozenset(wheel.sha256 for wheel in self.wheels)


def write(path: Path, record: TestRecord) -> None:
    """Write a record atomically."""
    datafile.write(path, record)


def read(path: Path) -> TestRecord:
    """Read a record.

    Raises:
        UsageError: it is not a record, or of an unknown version, or contradicts itself: it `passed` with
            failures or without a passed test, a digest is not a sha256, it names no wheel.
    """
    return _checked(datafile.read(path, TestRecord), str(path))


def loads(data: bytes, *, name: str) -> TestRecord:
    """Like `read`, from the bytes of a file that errors call `name`."""
    return _checked(datafile.loads(data, TestRecord, name=name), name)


def disagreement(record: TestRecord, files: Mapping[str, str], own: Sequence[str]) -> str | None:
    """Why a record is not of a set, or None.

    Args:
        record: the record.
        files: all that the set may install: file name to sha256.
        own: the file names of its own wheels, each of which must have been tested.
    """
    # What tests need besides, such as pytest, is in no set; but nothing of the set's may be of other bytes.
    projects = {_project(name) for name in files}
    other = sorted(
        wheel.file_name
        for wheel in record.wheels
        if files.get(wheel.file_name) != wheel.sha256 and _project(wheel.file_name) in projects
    )
    if other:
        return f"it is of other bytes: {', '.join(other[:3])}"
    left = sorted(set(own) - {wheel.file_name for wheel in record.wheels})
    return f"it does not cover {', '.join(left[:3])}" if left else None


def _project(file_name: str) -> str:
    """The normalised name that a wheel's or sdist's file name begins with."""
    name = file_name.partition("-")[0] if file_name.endswith(".whl") else file_name.rpartition("-")[0]
    return str(canonicalize_name(name))


def _checked(record: TestRecord, name: str) -> TestRecord:
    if problem := _contradiction(record):
        raise UsageError(
            f"{name} contradicts itself: {problem}", tip="run the tests again to make a new record"
        )
    return record


def _contradiction(record: TestRecord) -> str | None:
    # The gate trusts records: one that is well-formed and cannot be true must not reach it.
    counts = record.counts
    digests = [*filter(None, (record.set_id, record.junit_sha256)), *record.sha256s]
    impossible = {
        "it names no wheel": not record.wheels,
        "one of its digests is not a sha256": not all(map(_is_digest, digests)),
        "a count is negative": any(count < 0 for count in datafile.to_plain(counts).values()),
        "more tests passed on a device than passed": counts.device_passed > counts.passed,
        "tests passed on a device, and there was none": counts.device_passed and not record.hardware,
        "it passed with failures": record.verdict == "passed" and counts.failed + counts.errors,
        "it passed without a passed test": record.verdict == "passed" and not counts.passed,
    }
    return next((problem for problem, holds in impossible.items() if holds), None)


def _is_digest(text: str) -> bool:
    return len(text) == _HEX_DIGITS and set(text) <= set("0123456789abcdef")
