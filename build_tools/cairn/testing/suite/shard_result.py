"""What one shard of a suite leaves: a folder with its result, and the outcome of every test beside it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from cairn import datafile, files
from cairn.errors import TestsFailedError, UsageError
from cairn.testing.hardware.gpu import Gpu
from cairn.testing.record import Deselected, TestedWheel, TestPolicy
from cairn.testing.suite import accounts, outcomes
from cairn.testing.suite.outcomes import TestOutcome

FILE = "shard.json"

FILES = (outcomes.FILE, *accounts.FILES, FILE)
"""What makes a result: this file last, so that what has one is whole."""


class ModuleCount(datafile.Value):
    """What of a module a shard ran.

    Attributes:
        module: its path below the folder of tests.
        selected: how many of its tests the shard had.
        whole: how many pytest collected, before anybody took any away.
        cut: other shards have the rest.
        gone: who took how many, the other shards aside.
    """

    module: str
    selected: int
    whole: int
    cut: bool
    gone: tuple[Deselected, ...] = ()

    @property
    def left(self) -> int:
        """How many there are for all shards together."""
        return self.whole - sum(one.tests for one in self.gone)


class ExcludedTest(datafile.Value):
    """A test, or a module, that skip-tests kept from running; see its entry there."""

    test: str
    reason: str
    owner: str
    issue: str


class ShardResult(datafile.Value, tag_field="schema", tag="cairn.suite-shard/3"):
    """One shard, run to its end or as far as it came.

    Attributes:
        config: the configuration of the suite.
        shard: which one, from 1.
        shards: of how many.
        plan: the digest of who runs what.
        set_id: the sealed set that is tested; None for an open one, or for what is installed somewhere.
        family: of the wheels; empty where nobody said.
        targets: of the wheels.
        wheels: every distribution that was installed for the tests; empty where that is not known.
        gpus: those that the tests could see.
        disagreements: where the sources of that contradict each other, a sentence each.
        sources: what the tests are of where that is not the wheel's own commit; empty where it is.
        modules: what was run of each module.
        problems: why the results cannot be believed as they are, a sentence each.
        excluded: what skip-tests kept from running.
        outdated: what of skip-tests matched no test that was collected, or has expired, a sentence each.
        started: RFC 3339, with its zone.
        duration_seconds: by a clock that does not jump.
        outcomes_sha256: of the outcomes beside this file.
        accounts: the sha256 of the other accounts of the run beside this file, by name.
        tested: version and commit of the wheel, as it says them itself.
        pytest_args: what the user gave to pytest, or chose other tests by than the configuration's.
        policy: by what the tests were chosen; None of a shard that an older Cairn ran.
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

    @property
    def hardware(self) -> tuple[str, ...]:
        """The gfx name of each GPU."""
        return tuple(gpu.target for gpu in self.gpus)

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"shard {self.shard} of {self.shards}"


def read(folder: Path) -> tuple[ShardResult, tuple[TestOutcome, ...]]:
    """The result in a folder, and the outcomes of its tests.

    Raises:
        UsageError: there is none, its outcomes are not those that it had when it was written, or it cannot be
            true.
    """
    tip = "the shard did not come to its end, or is not there yet"
    result = _checked(datafile.read(folder / FILE, ShardResult, tip=tip), name=str(folder / FILE))
    path = folder / outcomes.FILE
    digests = {outcomes.FILE: result.outcomes_sha256, **dict.fromkeys(accounts.FILES, ""), **result.accounts}
    for name, sha256 in digests.items():
        if not (folder / name).is_file() or files.sha256_of(folder / name) != sha256:
            raise UsageError(
                f"{folder / name} is not what {result.name} wrote", tip="copy the whole folder of the shard"
            )
    tests = outcomes.read(path)
    try:
        problem = accounts.disagreement(folder, tests)
    except TestsFailedError as error:
        problem = str(error)
    if problem is not None:
        raise UsageError(f"{folder} contradicts itself: {problem}", tip="run the shard again")
    # What was selected and has no outcome is a problem that the run has noted itself.
    selected = sum(count.selected for count in result.modules)
    if selected > len(tests) and not result.problems:
        raise UsageError(
            f"{result.name} was to run {selected} tests, and {path} has {len(tests)}",
            tip="run the shard again",
        )
    return result, tests


def loads(data: bytes, *, name: str) -> ShardResult:
    """The result in the bytes of a file that errors call `name`; its outcomes lie elsewhere.

    Raises:
        UsageError: it is none, or it cannot be true.
    """
    return _checked(datafile.loads(data, ShardResult, name=name), name=name)


def _checked(result: ShardResult, *, name: str) -> ShardResult:
    problem = None
    if not 1 <= result.shard <= result.shards:
        problem = f"there is no {result.name}"
    elif not 0 <= result.duration_seconds < outcomes.LONGEST:
        problem = f"it cannot have taken {result.duration_seconds:g} seconds"
    elif not _has_zone(result.started):
        problem = f"{result.started!r} is not a time with its zone"
    if problem is not None:
        raise UsageError(f"{name} contradicts itself: {problem}", tip="run the shard again")
    return result


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
