"""The outcomes of a suite's tests, as a file with one a line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.testing.junit import LONGEST, TestOutcome
from cairn.testing.suite import worker

FILE = "outcomes.jsonl"


def append(path: Path, outcomes: Iterable[TestOutcome]) -> None:
    """Add outcomes to a file, a JSON object a line."""
    with path.open("ab") as file:
        file.writelines(map(_line, outcomes))


def write(path: Path, outcomes: Iterable[TestOutcome]) -> None:
    """Write outcomes in place of what the file has."""
    files.write_bytes(path, b"".join(map(_line, outcomes)))


def _line(outcome: TestOutcome) -> bytes:
    return worker.json_line(datafile.to_plain(outcome))


def read(path: Path) -> tuple[TestOutcome, ...]:
    """The outcomes of a file.

    Raises:
        UsageError: it cannot be read, ends in the middle of a line, is not of outcomes, or has a test twice.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if data and not data.endswith(b"\n"):
        raise UsageError(f"{path} ends in the middle of a line", tip="copy it again, or run its shard again")
    try:
        outcomes = tuple(datafile.decode(line, TestOutcome) for line in data.splitlines())
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not of test outcomes: {error}") from error
    if len({outcome.test for outcome in outcomes}) != len(outcomes):
        raise UsageError(f"{path} has a test twice")
    if bad := [one.test for one in outcomes if not 0 <= one.seconds < LONGEST or one.attempts < 1]:
        raise UsageError(f"{path} does not say how often {bad[0]} ran, or for how long")
    return outcomes
