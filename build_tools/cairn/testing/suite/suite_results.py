"""The files of a suite's results: the result of a shard or of all, and the outcome of every test.

A shard's outcomes must agree with two more accounts beside them: `journal.jsonl`, which our plugin wrote in
each process, and `pytest.xml`, the JUnit XML that pytest itself wrote. Editing the outcomes and their digest
changes only one of the three. Only a signature can show that nobody has changed all of them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from cairn import datafile, files
from cairn.errors import TestsFailedError, UsageError
from cairn.testing import junit, junit_writer
from cairn.testing.gpus.gpu import Gpu
from cairn.testing.junit import LONGEST, TestOutcome
from cairn.testing.record import Deselected, TestedWheel, TestPolicy
from cairn.testing.suite import worker
from cairn.testing.suite.attempt import Journal

OUTCOMES = "outcomes.jsonl"

SHARD, SUITE = "shard.json", "suite-result.json"
JOURNAL, PYTEST = "journal.jsonl", "pytest.xml"
ACCOUNTS = (JOURNAL, PYTEST)
FILES = (OUTCOMES, *ACCOUNTS, SHARD)
"""The files of a shard's result, shard.json last: a folder that has it is complete."""
OF_ONE_RUN = (
    *("config", "shards", "plan", "set_id", "family", "targets", "wheels", "tested", "sources"),
    *("pytest_args", "policy", "flaky_ceiling", "settings", "run", "pytest"),
)
"""The fields of `ShardResult` that are the same in all shards of one run; `pytest` where it began."""


def append_outcomes(path: Path, outcomes: Iterable[TestOutcome]) -> None:
    """Append outcomes to a file, one JSON object per line."""
    with path.open("ab") as file:
        file.writelines(map(_line, outcomes))


def write_outcomes(path: Path, outcomes: Iterable[TestOutcome]) -> None:
    """Replace the outcomes in a file."""
    files.write_bytes(path, b"".join(map(_line, outcomes)))


def _line(outcome: TestOutcome) -> bytes:
    return worker.json_line(datafile.to_plain(outcome))


def read_outcomes(path: Path) -> tuple[TestOutcome, ...]:
    """Read the outcomes of a file.

    Raises:
        UsageError: it cannot be read, ends in the middle of a line, is not of outcomes, or has a test twice.
    """
    data = datafile.bytes_of(path)
    if data and not data.endswith(b"\n"):
        raise UsageError(f"{path} ends in the middle of a line", tip="copy it again, or run its shard again")
    try:
        outcomes = tuple(datafile.decode(line, TestOutcome) for line in data.splitlines())
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not of test outcomes: {error}") from error
    if len({outcome.test for outcome in outcomes}) != len(outcomes):
        raise UsageError(f"{path} has a test twice")
    if bad := [
        outcome.test for outcome in outcomes if not 0 <= outcome.seconds < LONGEST or outcome.attempts < 1
    ]:
        raise UsageError(f"{path} does not say how often {bad[0]} ran, or for how long")
    return outcomes


class ModuleCount(datafile.Value):
    """A module that a shard was to run, and how many of its tests it ran.

    Attributes:
        module: its path below the folder of tests.
        selected: how many of its tests the shard had.
        whole: how many pytest collected, before any was deselected.
        cut: other shards have the rest.
        finished: the shard came to the end of it: every process has said so, or a test or the module is
            blamed for how it ended. False where the shard does not say.
        gone: how many were deselected, and by what, the other shards aside.
    """

    module: str
    selected: int
    whole: int
    cut: bool
    finished: bool = False
    gone: tuple[Deselected, ...] = ()

    @property
    def left(self) -> int:
        """The number of tests for all shards together."""
        return self.whole - sum(part.tests for part in self.gone)

    @property
    def is_short(self) -> bool:
        """Whether the shard had all of a module, and tests of it are gone that nothing deselected."""
        return self.finished and not self.cut and self.selected < self.left


class ExcludedTest(datafile.Value):
    """A test, or a module, that skip-tests kept from running; see its entry there."""

    test: str
    reason: str
    owner: str
    issue: str


class ShardResult(datafile.Value, tag_field="schema", tag="cairn.suite-shard/3"):
    """The result of one shard, complete or up to where it ended.

    Attributes:
        config: the configuration of the suite.
        shard: which one, from 1.
        shards: of how many.
        plan: the digest of the shard plan.
        set_id: the sealed set that is tested; None for an open one, or for what is installed somewhere.
        family: of the wheels; empty where it is not known.
        targets: of the wheels.
        wheels: every distribution that was installed for the tests; empty where that is not known.
        gpus: those that the tests could see.
        disagreements: where the sources of that contradict each other, a sentence each.
        sources: what the tests are of where that is not the wheel's own commit; empty where it is.
        modules: those that the shard was to run, also where it did not come to them.
        problems: why the results cannot be believed as they are, a sentence each.
        excluded: the tests that skip-tests leaves out.
        outdated: entries of skip-tests that match no collected test, or have expired, a sentence each.
        started: RFC 3339, with its zone.
        duration_seconds: by a clock that does not jump.
        outcomes_sha256: of the outcomes beside this file.
        accounts: the sha256 of the other accounts of the run beside this file, by name.
        tested: version and commit of the wheel, as it says them itself.
        pytest_args: what the user gave to pytest, or chose other tests by than the configuration's.
        policy: by what the tests were chosen; None of a shard that an older Cairn ran.
        hanging: GPUs of the machine that did not answer, before the tests or in them, and were left out.
        pytest: name and version of pytest and of the plugins that it loaded.
        flaky_ceiling: that of the configuration.
        hooks: what else decided which tests ran and how they ended; see `TestRecord.hooks`.
        settings: the digest of the suite.toml as it was read, and of what was set for the tests besides.
        run: the night, or GitHub's id of the run; empty where there is neither.
        confinement: see `TestRecord.confinement`.
    """

    config: str
    shard: int
    shards: int
    plan: str
    set_id: str | None
    family: str
    targets: tuple[str, ...]
    wheels: tuple[TestedWheel, ...]
    gpus: tuple[Gpu, ...]
    disagreements: tuple[str, ...]
    sources: str
    modules: tuple[ModuleCount, ...]
    problems: tuple[str, ...]
    excluded: tuple[ExcludedTest, ...]
    outdated: tuple[str, ...]
    started: str
    duration_seconds: float
    outcomes_sha256: str
    accounts: Mapping[str, str]
    tested: str = ""
    pytest_args: tuple[str, ...] = ()
    policy: TestPolicy | None = None
    hanging: tuple[Gpu, ...] = ()
    pytest: tuple[str, ...] = ()
    flaky_ceiling: int | None = None
    hooks: tuple[str, ...] = ()
    settings: str = ""
    run: str = ""
    confinement: str = ""

    @property
    def hardware(self) -> tuple[str, ...]:
        """The gfx name of each GPU."""
        return tuple(gpu.target for gpu in self.gpus)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The modules of which nothing shows that they came to their end."""
        return tuple(count.module for count in self.modules if not count.finished)

    def differences(self, second: ShardResult) -> tuple[str, ...]:
        """Return what shows that another shard is of another run: fields, and the values that people know."""
        differing = [name for name in OF_ONE_RUN if getattr(self, name) != getattr(second, name)]
        if not (self.pytest and second.pytest) and "pytest" in differing:
            differing.remove("pytest")
        values = {
            "run": (self.run or "no run", second.run or "no run"),
            "pytest": (", ".join(self.pytest), ", ".join(second.pytest)),
        }
        return tuple(f"{name} ({' / '.join(values[name])})" if name in values else name for name in differing)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"shard {self.shard} of {self.shards}"


class SuiteResult(datafile.Value, tag_field="schema", tag="cairn.suite-result/1"):
    """The shards of a suite, put together; the outcome of every test is in a file beside this one.

    Attributes:
        config: the configuration of the suite.
        shards: how many there were to be.
        missing: those that left no result, by their numbers.
        sources: what the tests are of where that is not the wheel's own commit; empty where it is.
        problems: why the results cannot be believed as they are, a sentence each.
        excluded: the tests that skip-tests leaves out.
        outdated: entries of skip-tests that match no collected test, or have expired, a sentence each.
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


def read_shard(folder: Path) -> tuple[ShardResult, tuple[TestOutcome, ...]]:
    """The result of a shard in a folder, and the outcomes of its tests.

    Raises:
        UsageError: there is none, its outcomes are not those that it had when it was written, or it cannot be
            true.
    """
    tip = "the shard did not come to its end, or is not there yet"
    result = _check(datafile.read(folder / SHARD, ShardResult, tip=tip), name=str(folder / SHARD))
    digests = {OUTCOMES: result.outcomes_sha256, **dict.fromkeys(ACCOUNTS, ""), **result.accounts}
    for name, sha256 in digests.items():
        if not (folder / name).is_file() or files.sha256_of(folder / name) != sha256:
            raise UsageError(
                f"{folder / name} is not what {result.name} wrote", tip="copy the whole folder of the shard"
            )
    tests = read_outcomes(folder / OUTCOMES)
    try:
        problem = _disagreement(folder, tests, is_whole=not result.problems)
    except TestsFailedError as error:
        problem = str(error)
    if problem is not None:
        raise UsageError(f"{folder} contradicts itself: {problem}", tip="run the shard again")
    # What was selected and has no outcome is a problem that the run has noted itself.
    ended = Counter(test.module for test in tests if "::" in test.test)  # the others are modules
    for count in result.modules:
        if count.finished and count.selected > ended[count.module] and not result.problems:
            raise UsageError(
                f"{result.name} was to run {count.selected} tests of {count.module}, and {folder / OUTCOMES} "
                f"has {ended[count.module]}",
                tip="run the shard again",
            )
    return result, tests


def read_suite(folder: Path) -> tuple[SuiteResult, tuple[TestOutcome, ...]]:
    """The result of a whole suite in a folder, and the outcomes of its tests.

    Raises:
        UsageError: there is none, or its outcomes are not those that it had when it was written.
    """
    result = datafile.read(folder / SUITE, SuiteResult, tip="`cairn test merge` writes it")
    path = folder / OUTCOMES
    if not path.is_file() or files.sha256_of(path) != result.outcomes_sha256:
        raise UsageError(f"{path} is not what {SUITE} is of", tip="merge the shards again")
    return result, read_outcomes(path)


def loads_shard(data: bytes, *, name: str) -> ShardResult:
    """Read a shard's result from bytes, without its outcomes; `name` is the file's name in error messages.

    Raises:
        UsageError: it is none, or it cannot be true.
    """
    return _check(datafile.loads(data, ShardResult, name=name), name=name)


def write_accounts(folder: Path, journals: Iterable[bytes], results: Iterable[bytes]) -> dict[str, str]:
    """Write the journals and the JUnit XML of a shard's processes; return the sha256 of both files."""
    files.write_bytes(folder / JOURNAL, b"".join(journals))
    junit_writer.merge(results, folder / PYTEST)
    return {name: files.sha256_of(folder / name) for name in ACCOUNTS}


def _disagreement(folder: Path, tests: Sequence[TestOutcome], *, is_whole: bool) -> str | None:
    """Return how the outcomes of a shard contradict its other two accounts, or None if they agree.

    Args:
        folder: of the shard.
        tests: its outcomes.
        is_whole: the shard names no problem, so that each test that was selected has an outcome.

    Raises:
        TestsFailedError: pytest's results cannot be read.
    """
    journal = Journal(folder / JOURNAL)
    journal.follow()
    by_name = {test.test: test for test in tests}
    for ended in journal.every:
        case = by_name.get(ended.test)
        if case is None:
            return f"{JOURNAL} has {ended.test}, and the outcomes have not"
        if ended.failed and not (case.failed or case.flaky):
            return f"the outcomes say that {ended.test} {case.outcome}, {JOURNAL} that it {ended.outcome}"
    if is_whole and (left := [test for test in journal.ever_selected if test not in by_name]):
        return f"{JOURNAL} selects {left[0]}, the outcomes do not have it, and no problem is named"
    good = {ended.test for ended in journal.every if ended.outcome == "passed"}
    for outcome in tests:
        if outcome.outcome == "passed" and outcome.test not in good:
            return f"the outcomes say that {outcome.test} passed, and {JOURNAL} does not"
    return _disagreement_with_pytest(folder, by_name)


def _disagreement_with_pytest(folder: Path, by_name: Mapping[str, TestOutcome]) -> str | None:
    for case in junit.read(folder / PYTEST).listed:
        outcome = by_name.get(case.test)
        if case.failed and outcome and not (outcome.failed or outcome.flaky):
            return f"the outcomes say that {case.test} {outcome.outcome}, {PYTEST} that it {case.outcome}"
    return None


def _check(result: ShardResult, *, name: str) -> ShardResult:
    if not 1 <= result.shard <= result.shards:
        problem = f"there is no {result.name}"
    elif lost := [count for count in result.modules if count.is_short and not result.problems]:
        problem = f"{lost[0].module} has {lost[0].left} tests, and {lost[0].selected} of them were selected"
    elif not 0 <= result.duration_seconds < junit.LONGEST:
        problem = f"it cannot have taken {result.duration_seconds:g} seconds"
    else:
        with contextlib.suppress(ValueError, OverflowError):
            ended = datetime.fromisoformat(result.started) + timedelta(seconds=result.duration_seconds)
            if ended.tzinfo is not None:
                return result
        problem = f"{result.started!r} is not a time with its zone"
    raise UsageError(f"{name} contradicts itself: {problem}", tip="run the shard again")
