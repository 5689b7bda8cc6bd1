"""The test record: the tests that were run, the exact bytes and the hardware, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import structs

import cairn
from cairn import datafile
from cairn.errors import UsageError
from cairn.stack import Floor, RecordKind, Stack, recipe
from cairn.targets import CPU
from cairn.testing.gpus.gpu import Gpu, covers, is_amd

Verdict = Literal["passed", "failed", "invalid", "untested"]

FILE, JUNIT = "record.json", "junit.xml"
"""The record in a folder of results, and beside it what became of each test (`cairn.testing.junit`)."""

_EARLIER = "cairn.record/2"
_HEX_DIGITS = 64  # of a sha256
_SHOWN = 3  # files, where many are wrong
_TEXT = 40  # characters, likewise


class TestedWheel(datafile.Value):
    """A wheel that was installed for the tests, identified by its sha256."""

    __test__ = False  # pytest would collect the name

    file_name: str
    sha256: str


class Skip(datafile.Value):
    """A test that did not run, and why."""

    test: str
    reason: str


Origin: TypeAlias = Literal["ours", "tests", "command line", "elsewhere"]


class Deselected(datafile.Value):
    """Tests that pytest collected and did not run, because a plugin or an option deselected them.

    Attributes:
        by: the plugin or the option, such as `conftest.py` or `-k vision`; where it ends in "(files)",
            these are files that were not looked into.
        origin: `ours` is skip-tests; `tests` what came with the tests, a conftest.py or their pytest.ini;
            `command line` what the user gave to pytest; `elsewhere` anything else, which is a failure.
        tests: how many.
    """

    by: str
    origin: Origin
    tests: int


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
        """The number of tests that ran."""
        return self.passed + self.failed + self.errors

    @property
    def total(self) -> int:
        """The number of tests that were collected."""
        return self.executed + self.skipped


class HostTests(datafile.Value):
    """What ran of a smoke test that needs no GPU, counted.

    Attributes:
        python: the version of the interpreter that it ran in, such as `3.12`.
        platform: what wheels of that interpreter are for, such as `linux_x86_64`.
        imported: each wheel of the set to how many of its modules were imported; a device wheel has none.
        own_tests: how many tests of the stack passed.
    """

    python: str
    platform: str
    imported: Mapping[str, int]
    own_tests: int


class TestPolicy(datafile.Value):
    """The inputs that selected and judged the tests, so that a weaker list or floor is noticed later.

    Attributes:
        cairn: the version of Cairn that ran them.
        stack: its name; empty where none was named.
        line: its release line.
        stack_sha256: of all that the stack says; None where none was named.
        floor: what the verdict asked for; the gate asks for its own besides.
        skips_sha256: of skip-tests as it was read; None where nothing was to be left out.
        tests_sha256: of the test files as they ran, by their paths; None where there were none.
        builtin_sha256: of Cairn's own checks, likewise; None in a suite.
        lists: the lists of tests that the tests read (`lists` in suite.toml), by variable: sha256 of the
            bytes in the night, or in the sources.
    """

    __test__ = False  # pytest would collect the name
    cairn: str
    stack: str = ""
    line: str = ""
    stack_sha256: str | None = None
    floor: Floor = Floor(tests=1, device_tests=0)
    skips_sha256: str | None = None
    tests_sha256: str | None = None
    builtin_sha256: str | None = None
    lists: Mapping[str, str] = {}

    @classmethod
    def of(cls, stack: Stack | None, *, skips: Iterable[Path] = ()) -> TestPolicy:
        """Return the policy of a stack, or of none, before any test ran; `skips` are paths of skip-tests."""
        environment = cls(cairn=cairn.__version__, skips_sha256=recipe.skips_digest(skips))
        if stack is None:
            return environment
        return structs.replace(
            environment, stack=stack.name, line=stack.line, stack_sha256=recipe.digest_of(stack)
        )


class TestRecord(datafile.Value, tag_field="schema", tag="cairn.record/3"):
    """The result and verdict of tests on exact bytes and known hardware.

    Attributes:
        set_id: the sealed set that was tested; None for an open one, whose record promotes nothing.
        wheels: every distribution that was installed for the tests, by its bytes: the set's own, and those of
            its closure.
        kind: the smoke tests, a project's own suite, or what the compatibility pages claim.
        family: of the set.
        targets: of the set.
        hardware: one gfx name for each GPU that the tests could use; empty where there is none.
        gpus: what is known of each of these; empty in a record of `cairn.record/2`, which knew no more than
            their names: the gate does not count it for GPUs.
        covered: each target of a set for GPUs, to the tests that passed on a GPU of it; none has tested one
            that has 0.
        counts: of the tests.
        junit_sha256: of the JUnit XML; None where the run left none.
        started: RFC 3339, with its zone.
        duration_seconds: wall time of installing and testing.
        verdict: `invalid` is a run that proves nothing (wrong or uncertain hardware), `untested`
            one for GPUs in which nothing failed, and no test computed on one.
        reason: of the verdict, one sentence.
        skips: tests that did not run; a suite's are in its JUnit XML alone, since there are thousands.
        pytest_args: what the user gave to pytest, such as `-k vision`; with any of it, perhaps not every test
            was selected, and the gate does not count the record as passed.
        config: which configuration of a suite was run, such as `default`.
        flaky: tests that failed, and passed when they were tried again; they count as passed.
        translated: what stood in for a GPU, such as `torchdevice 0.1.0`; empty where nothing did. Such a run
            says nothing of a GPU and never passes.
        compat_sha256: digest of the compatibility report that the tests are the rows of; None for others.
        deselected: the tests that were collected and did not run; they are in none of the counts.
        policy: by what they were chosen and judged; None in a record of an older Cairn.
        hanging: GPUs of the machine that did not answer, before the tests or in them, and were left out.
        import_seconds: how long its modules took to import, in the checks of a smoke test; 0 where unknown.
        host: what of a smoke test needs no GPU and passed; None in records of other kinds.
        pytest: name and version of pytest and of the plugins that ran the tests, such as `pytest 8.4.2`.
        overruled: tests that raised an exception and that a conftest.py or a plugin called passed or skipped.
        hooks: what decided which tests ran and how they ended besides pytest and the plugins in `pytest`:
            hooks of the tests (`conftest.py: pytest_runtest_setup`), functions of pytest that something
            replaced (`conftest.py: _pytest.python.Function.runtest`), plugins of pytest that were off
            (`-p no:warnings`).
        confinement: what kept the tests from the machine that they ran on, and what was open to them; empty
            in a record of an older Cairn.
    """

    __test__ = False  # pytest would collect the name
    set_id: str | None
    wheels: tuple[TestedWheel, ...]
    kind: RecordKind
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
    config: str = ""
    flaky: tuple[str, ...] = ()
    compat_sha256: str | None = None
    translated: str = ""
    gpus: tuple[Gpu, ...] = ()
    covered: Mapping[str, int] = {}
    deselected: tuple[Deselected, ...] = ()
    policy: TestPolicy | None = None
    hanging: tuple[Gpu, ...] = ()
    import_seconds: float = 0.0
    host: HostTests | None = None
    pytest: tuple[str, ...] = ()
    overruled: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    confinement: str = ""

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The targets on which no test has passed."""
        return tuple(target for target, count in self.covered.items() if not count)

    @property
    def sha256s(self) -> frozenset[str]:
        """The sha256 of each file that the verdict is about."""
        return frozenset(wheel.sha256 for wheel in self.wheels)

    @property
    def failures(self) -> int:
        """The number of tests that failed or broke, whatever the verdict."""
        return self.counts.failed + self.counts.errors

    @property
    def is_bad(self) -> bool:
        """Whether the record counts against its set: the run failed, or it was invalid and had failures."""
        return self.verdict == "failed" or self.failures > 0

    @property
    def began(self) -> datetime:
        """When the run started."""
        return datetime.fromisoformat(self.started)

    @property
    def ended(self) -> datetime:
        """When the run ended."""
        return self.began + timedelta(seconds=self.duration_seconds)


def time_of(moment: datetime) -> str:
    """Format a time as records do: RFC 3339 in UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def with_origins(
    deselected: Sequence[Deselected], arguments: Sequence[str], uncollected: Sequence[str] = ()
) -> tuple[Deselected, ...]:
    """Return deselections; those by pytest options are the user's own only if the user gave any.

    Classes that are `uncollected` belong to the tests.
    """

    def origin(deselection: Deselected) -> Origin:
        if deselection.by.partition(" (")[0] in uncollected:
            return "tests"
        is_strange = deselection.origin == "command line" and not arguments
        return "elsewhere" if is_strange else deselection.origin

    return tuple(structs.replace(part, origin=origin(part)) for part in deselected)


def write(path: Path, record: TestRecord) -> None:
    """Write a record atomically."""
    datafile.write(path, record)


def read(path: Path) -> TestRecord:
    """Read a record, also one of the format `cairn.record/2`.

    Records are kept forever, and sets that were promoted by older ones must stay traceable to them; see
    `TestRecord.gpus` for what such a record lacks.

    Raises:
        UsageError: it is not a record, or of an unknown version, or contradicts itself: it `passed` with
            failures or without a passed test, a digest is not a sha256, it names no wheel.
    """
    return _read(datafile.read_json(path), str(path))


def loads(data: bytes, *, name: str) -> TestRecord:
    """Like `read`, from the bytes of a file that errors call `name`."""
    return _read(datafile.parse_json(data, name=name), name)


def disagreement(record: TestRecord, files: Mapping[str, str], distributions: Sequence[str]) -> str | None:
    """Return why a record does not belong to a set, or None if it does.

    Args:
        record: the record.
        files: all that the set may install: file name to sha256.
        distributions: the file names of its own wheels, each of which must have been tested.
    """
    tested = {wheel.file_name: wheel.sha256 for wheel in record.wheels}
    if differing := sorted(name for name, sha256 in tested.items() if files.get(name, sha256) != sha256):
        return f"it is of other bytes: {', '.join(differing[:_SHOWN])}"
    # A test says nothing of how the set works without what was beside it: tests get what they need, such as
    # pytest, from outside of the environment.
    if strange := sorted(set(tested) - set(files)):
        return f"it was made with what the set does not have: {', '.join(strange[:_SHOWN])}"
    left = sorted(set(distributions) - set(tested))
    return f"it does not cover {', '.join(left[:_SHOWN])}" if left else None


def _read(plain: object, name: str) -> TestRecord:
    if isinstance(plain, dict) and plain.get("schema") == _EARLIER and not plain.keys() & {"gpus", "covered"}:
        plain = {**plain, "schema": TestRecord.__struct_config__.tag}
        problem = _contradiction(record := datafile.from_plain(plain, TestRecord, name=name))
    else:
        record = datafile.from_plain(plain, TestRecord, name=name)
        problem = _contradiction(record) or _misattribution(record)
    if problem:
        raise UsageError(
            f"{name} contradicts itself: {problem}", tip="run the tests again to make a new record"
        )
    return record


def _contradiction(record: TestRecord) -> str | None:
    # The gate trusts records: one that is well-formed and cannot be true must not reach it.
    counts, names = record.counts, [wheel.file_name for wheel in record.wheels]
    digests = [*filter(None, (record.set_id, record.junit_sha256, record.compat_sha256)), *record.sha256s]
    if ran := record.policy:
        of_policy = (ran.stack_sha256, ran.skips_sha256, ran.tests_sha256, ran.builtin_sha256)
        digests += filter(None, (*of_policy, *ran.lists.values()))
    impossible = {
        "it names no wheel": not record.wheels,
        "it names a file twice": len(set(names)) != len(names),
        "one of its digests is not a sha256": not all(map(_is_digest, digests)),
        # A run on the wrong hardware names that, which need not be AMD's; to one for the CPU none is wrong.
        "its hardware is called what no GPU is": record.verdict != "invalid"
        and any(target != CPU for target in record.targets)
        and not all(map(is_amd, record.hardware)),
        "a count is negative": any(count < 0 for count in datafile.to_plain(counts).values())
        or any(part.tests < 0 for part in record.deselected),
        "more tests passed on a device than passed": counts.device_passed > counts.passed,
        # Tests that call a GPU what it is not make a run invalid.
        "tests passed on a device, and there was none": record.verdict != "invalid"
        and counts.device_passed
        and not record.hardware,
        "it was translated, and passed": record.translated and record.verdict == "passed",
        "it was translated, and tests computed on a device": record.translated and counts.device_passed,
        "it counts more of the stack's tests than passed": record.host
        and not 0 <= record.host.own_tests <= counts.passed,
        "it imported less than no module": record.host and any(n < 0 for n in record.host.imported.values()),
        "it passed with failures": record.verdict == "passed" and counts.failed + counts.errors,
        "it passed, and tests were deselected for no known reason": record.verdict == "passed"
        and any(part.origin == "elsewhere" for part in record.deselected),
        "it passed without a passed test": record.verdict == "passed" and not counts.passed,
    }
    problem = next((problem for problem, holds in impossible.items() if holds), None)
    return problem or _impossible_time(record)


def _misattribution(record: TestRecord) -> str | None:
    """Return the first statement about GPUs that cannot be true, or None."""
    counts = record.covered.values()
    impossible = {
        "its hardware is not that of its GPUs": record.hardware != tuple(gpu.target for gpu in record.gpus),
        "it covers what it is not for": record.verdict != "invalid"
        and set(record.covered) != {target for target in record.targets if target != CPU},
        "more tests passed on a target than on a device": any(
            not 0 <= count <= record.counts.device_passed for count in counts
        ),
        "it covers a target without a GPU of it": record.verdict != "invalid"
        and any(count and not covers(record.hardware, target) for target, count in record.covered.items()),
    }
    return next((problem for problem, holds in impossible.items() if holds), None)


def _impossible_time(record: TestRecord) -> str | None:
    if record.duration_seconds < 0:
        return "it took less than no time"
    try:
        _ = record.ended
    except (ValueError, OverflowError):
        return f"it does not say when it was made: {record.started[:_TEXT]!r}"
    return "the time when it was made has no zone" if record.began.tzinfo is None else None


def _is_digest(text: str) -> bool:
    return len(text) == _HEX_DIGITS and set(text) <= set("0123456789abcdef")
