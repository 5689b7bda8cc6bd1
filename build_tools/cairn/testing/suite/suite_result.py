"""What a whole suite leaves beside its record: what no JUnit XML has of its shards."""

from __future__ import annotations

from pathlib import Path

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.testing.suite import outcomes
from cairn.testing.suite.outcomes import TestOutcome
from cairn.testing.suite.shard_result import ExcludedTest

FILE = "suite-result.json"


class SuiteResult(datafile.Value, tag_field="schema", tag="cairn.suite-result/1"):
    """The shards of a suite, put together; the outcome of every test is in a file beside this one.

    Attributes:
        config: the configuration of the suite.
        shards: how many there were to be.
        missing: those that left no result, by their numbers.
        sources: what the tests are of where that is not the wheel's own commit; empty where it is.
        problems: why the results cannot be believed as they are, a sentence each.
        excluded: what skip-tests kept from running.
        outdated: what of skip-tests matched no test that was collected, or has expired, a sentence each.
        outcomes_sha256: of the outcomes beside this file.
    """

    config: str
    shards: int
    missing: tuple[int, ...]
    sources: str
    problems: tuple[str, ...]
    excluded: tuple[ExcludedTest, ...]
    outdated: tuple[str, ...]
    outcomes_sha256: str


def read(folder: Path) -> tuple[SuiteResult, tuple[TestOutcome, ...]]:
    """The result in a folder, and the outcomes of its tests.

    Raises:
        UsageError: there is none, or its outcomes are not those that it had when it was written.
    """
    result = datafile.read(folder / FILE, SuiteResult, tip="`cairn test merge` writes it")
    path = folder / outcomes.FILE
    if not path.is_file() or files.sha256_of(path) != result.outcomes_sha256:
        raise UsageError(f"{path} is not what {FILE} is of", tip="merge the shards again")
    return result, outcomes.read(path)
