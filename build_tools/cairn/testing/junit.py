"""Read JUnit XML, which is not trusted and may be truncated.

The format is what pytest writes with `--junit-xml` (its `xunit1` family, the one in which tests may record
properties): `testsuites`, `testsuite`, `testcase`, and in a case `failure`, `error`, `skipped` and
`properties`. Other writers add elements and states, of which the known ones are listed; a case with another
one is an error, since nothing shows that it passed. A file with a document type is refused, which rules out
entity bombs and external entities; JUnit needs none.
"""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal
from xml.etree.ElementTree import TreeBuilder
from xml.parsers import expat

from msgspec import structs

from cairn import datafile
from cairn.errors import TestsFailedError
from cairn.testing.record import Counts, Skip

Outcome = Literal["passed", "failed", "error", "skipped"]

DEVICE_PROPERTY = "device"
"""What a test records (pytest's `record_property`) when it really computed on a GPU: the GPU's gfx name."""

OVERRULED_PROPERTY = "overruled"
"""The property of a test that raised, and that a conftest.py called passed or skipped: the exception."""

FLAKY_PROPERTY = "flaky"
"""What a suite notes of a test that failed, and passed when it was tried again: why it failed."""

LONGEST = 1e9
"""Seconds, 30 years: a test that claims to have taken longer was timed by a clock that jumped."""

_MAX_SIZE = 256 << 20  # bytes; 43,000 tests of torch's write about 10 MB, and all there are ten times that
_MAX_TESTS = 1_000_000  # in a file, and as many suites
_MAX_TOKEN = 16 << 20  # bytes of a tag, all of which are held
_CHUNK = 1 << 16  # bytes
_MAX_DEPTH = 32
_SUITES = ("testsuites", "testsuite")
_KEPT_TEXT = 4000  # characters of a failure
_KEPT_REASON = 300  # characters of the line that says why
# A test's outcome is the worst of its phases.
OUTCOMES: dict[str, Outcome] = {"error": "error", "failure": "failed", "skipped": "skipped"}
_NOTES = (
    "properties",
    "property",
    "system-out",
    "system-err",
)  # elements of suites and cases that decide nothing
# Of Maven Surefire (surefire-test-report-3.0.xsd) and cargo-nextest: attempts before the last one.
_FAILED_AGAIN: dict[str, Outcome] = {"rerunFailure": "failed", "rerunError": "error"}
_FAILED_BEFORE = ("flakyFailure", "flakyError")
_IN_CASES = (*OUTCOMES, *_NOTES, *_FAILED_AGAIN, *_FAILED_BEFORE)
_STATES: dict[str, Outcome] = {
    # googletest, docs/advanced.md "Generating an XML Report": status and result
    "run": "passed",
    "completed": "passed",
    "notrun": "skipped",
    "suppressed": "skipped",
    # CMake, Source/CTest/cmCTestTestHandler.cxx, WriteJUnitXML: status
    "fail": "failed",
    "disabled": "skipped",
    # what others write is what they mean
    "passed": "passed",
    "failed": "failed",
    "error": "error",
    "skipped": "skipped",
}
"""The values of the attributes `status`, `result` and `outcome` of a case; elements may say worse."""
# NUnit 2 (nunit-console's Results.xsd): two attributes that scripts which convert to JUnit leave in place.
_TRUTHS: dict[str, dict[str, Outcome]] = {
    "executed": {"true": "passed", "false": "skipped"},
    "success": {"true": "passed", "false": "failed"},
}
_STATE_ATTRIBUTES = dict.fromkeys(("status", "result", "outcome"), _STATES) | _TRUTHS
_ANNOUNCE_FAILED = ("failures", "errors", "failed", "timeouts")  # the last two: of a few writers
_RANK: dict[Outcome, int] = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


class TestOutcome(datafile.Value):
    """The result of a test, or of a module that ended before its tests.

    Attributes:
        test: its node id; class name and name, joined by `::`, where JUnit XML does not name its file.
        outcome: the worst of its phases; in a suite that of its last attempt, unless an earlier one ended its
            process.
        reason: why it was skipped or what failed, in one line; empty when it passed at once.
        detail: the whole of what failed, shortened; in a suite with the end of what it wrote.
        device: the GPUs that it computed on, by their names, joined by commas; empty where it used none.
        seconds: of all attempts.
        attempts: how often it was run.
        flaky: it failed, and passed when it was tried again.
        overruled: it raised an exception, and a conftest.py or a plugin called it passed or skipped.
    """

    __test__ = False  # pytest would collect the name

    test: str
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    device: str = ""
    seconds: float = 0.0
    attempts: int = 1
    flaky: bool = False
    overruled: bool = False

    @property
    def module(self) -> str:
        """The file of the test, as in its node id."""
        return self.test.partition("::")[0]

    @property
    def name(self) -> str:
        """The name in records and messages: class name and name from the JUnit XML, joined by `::`."""
        return "::".join(filter(None, class_and_name(self.test)))

    @property
    def failed(self) -> bool:
        """Whether the test counts against the wheel."""
        return self.outcome in ("failed", "error")

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that the test reports it computed on."""
        return tuple(name.strip() for name in self.device.split(",") if name.strip())


@dataclass(frozen=True, kw_only=True)
class JUnit:
    """The tests of one JUnit file, in its order.

    Attributes:
        listed: its cases; some plugins write each attempt of a test as one.
        suites: the number of each case's suite: equal names in two suites are two tests. Empty for one suite.
        by_pytest: the suites that pytest has written, in which equal names are attempts of a test.
        objections: where a suite announces more tests, failures or skipped tests than it lists, a sentence
            each.
        remarks: likewise, where passed subtests explain it.
    """

    listed: tuple[TestOutcome, ...]
    suites: tuple[int, ...] = ()
    by_pytest: frozenset[int] = frozenset()
    objections: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, tests: Iterable[TestOutcome]) -> JUnit:
        """Wrap tests as a file that lists them all, to count or to judge them."""
        return cls(listed=tuple(tests))

    @functools.cached_property
    def cases(self) -> tuple[TestOutcome, ...]:
        """Each test once, however often it ran, in the order of the first attempts."""
        suites = self.suites or (0,) * len(self.listed)
        tests = [case.test for case in self.listed]
        if len(set(zip(suites, tests, strict=True))) == len(tests):  # without lists of a million tests
            return self.listed
        attempts: dict[tuple[int, str], list[TestOutcome]] = {}
        for suite, case in zip(suites, self.listed, strict=True):
            attempts.setdefault((suite, case.test), []).append(case)
        return tuple(
            cases[0] if len(cases) == 1 else _together(cases, by_pytest=suite in self.by_pytest)
            for (suite, _), cases in attempts.items()
        )

    @property
    def counts(self) -> Counts:
        """The tests by outcome."""
        outcomes = [case.outcome for case in self.cases]
        return Counts(
            passed=outcomes.count("passed"),
            failed=outcomes.count("failed"),
            errors=outcomes.count("error"),
            skipped=outcomes.count("skipped"),
            device_passed=sum(bool(case.device) and case.outcome == "passed" for case in self.cases),
        )

    @property
    def failures(self) -> int:
        """The number of tests that count against the wheel."""
        return sum(case.failed for case in self.cases)

    @property
    def skips(self) -> tuple[Skip, ...]:
        """The tests that did not run, and why."""
        return tuple(Skip(test=c.name, reason=c.reason) for c in self.cases if c.outcome == "skipped")

    @property
    def by_test(self) -> dict[str, Outcome]:
        """The worst outcome of each test, which may be listed twice since its teardown failed too."""
        worst: dict[str, Outcome] = {}
        for case in self.listed:
            worst[case.test] = max(worst.get(case.test, "passed"), case.outcome, key=_RANK.__getitem__)
        return worst


def read(path: Path) -> JUnit:
    """Read a JUnit XML file.

    Raises:
        TestsFailedError: it is missing, truncated, too large, not JUnit, or has a document type.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_SIZE:
            raise TestsFailedError(f"{path.name} has {size} bytes, more than the {_MAX_SIZE} that are read")
        with path.open("rb") as file:
            return _read(file, name=path.name)
    except OSError as error:
        raise TestsFailedError(
            f"the test run left no results: {path}: {error.strerror}",
            tip="the runner crashed or was killed; read its log",
        ) from error


def loads(data: bytes, *, name: str) -> JUnit:
    """Like `read`, from bytes; `name` is the file's name in error messages."""
    return _read(io.BytesIO(data), name=name)


def _read(file: BinaryIO, *, name: str) -> JUnit:
    reader = _Reader()
    parse(file, reader, name=name)
    return JUnit(
        listed=tuple(reader.cases),
        suites=tuple(reader.suites),
        by_pytest=frozenset(reader.by_pytest),
        objections=tuple(reader.objections),
        remarks=tuple(reader.remarks),
    )


def failed_before(test: TestOutcome) -> TestOutcome:
    """Return a test that failed and was skipped when it was run again: it has failed."""
    reason = f"it failed, and was skipped when it was run again: {test.reason}"
    return structs.replace(test, outcome="failed", flaky=False, reason=reason)


def _together(cases: Sequence[TestOutcome], *, by_pytest: bool) -> TestOutcome:
    """Return the outcome of the cases of one name in a suite: that of the worst, else that of the last."""
    failures, last = [case for case in cases if case.failed], cases[-1]
    # pytest-rerunfailures and flaky write an attempt that failed without saying so. Where a failure is
    # written, the others may be different tests: Jest, Gradle and go-junit-report repeat names.
    if failures:
        last = max(failures, key=lambda case: _RANK[case.outcome])
    elif last.outcome == "passed":
        last = structs.replace(last, flaky=True, reason=f"it was run {len(cases)} times")
    elif by_pytest and any(case.outcome == "passed" for case in cases):
        last = failed_before(last)
    seconds = sum(case.seconds for case in cases)
    return structs.replace(last, seconds=seconds, attempts=sum(case.attempts for case in cases))


def parse(file: BinaryIO, target: _Reader | TreeBuilder, *, name: str) -> None:
    """Parse a file into a reader, piece by piece; `name` is the file's name in error messages."""
    parser = expat.ParserCreate()
    parser.buffer_text = True  # one call for a text, not one for each of its lines
    # Called before the declaration's entities are read; without a document type there are none to expand.
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = target.start
    parser.EndElementHandler = target.end
    parser.CharacterDataHandler = target.data
    try:
        _feed(parser, file)
    except OverflowError as error:
        raise TestsFailedError(f"{name} {error}", tip="write a file for each part of the tests") from error
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last: an encoding of no name
        raise TestsFailedError(
            f"{name} is not complete JUnit XML: {error}", tip="the runner crashed while writing it"
        ) from error


def _feed(parser: expat.XMLParserType, file: BinaryIO) -> None:
    fed = 0
    while data := file.read(_CHUNK):
        parser.Parse(data, False)  # noqa: FBT003 - positional only
        fed += len(data)
        if fed - parser.CurrentByteIndex > _MAX_TOKEN:
            raise OverflowError(f"has a tag of more than the {_MAX_TOKEN} bytes that are read")
    parser.Parse(b"", True)  # noqa: FBT003


def _refuse_doctype(name: str, _system: str | None, _public: str | None, _subset: bool) -> None:  # noqa: FBT001
    raise ValueError(f"it has a document type, {name}")


class _Reader:
    """Converts expat's events to tests.

    Attributes:
        cases: the tests of all suites.
        suites: see `JUnit.suites`.
        by_pytest: see `JUnit.by_pytest`.
        objections: see `JUnit.objections`.
        remarks: see `JUnit.remarks`.
    """

    def __init__(self) -> None:
        self.cases: list[TestOutcome] = []
        self.suites: list[int] = []
        self.by_pytest: set[int] = set()
        self.objections: list[str] = []
        self.remarks: list[str] = []
        self._top = ""  # the name of the whole
        self._begun = 0  # suites
        # name, what it announces, cases before it, number, and the elements of a kind before it
        self._suites: list[tuple[str, Counter[str], int, int, Counter[str]]] = []
        self._elements = Counter[str]()
        self._path: list[str] = []
        self._case: dict[str, Any] = {}  # the one that is read; empty outside of any
        self._states: list[tuple[str, str]] = []  # attributes of the case that say how it ended
        self._text: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name not in _SUITES:
            raise ValueError(f"its top is <{name}>")
        if len(self._path) >= _MAX_DEPTH:
            raise ValueError("its elements are nested too deep")
        parent = self._path[-1] if self._path else ""
        self._path.append(name)
        if name in _SUITES:
            self._begin_suite(attributes)
        elif name == "testcase":
            self._begin_case(attributes)
        elif self._case:
            self._begin_part(name, parent, attributes)
        elif parent in _SUITES and name not in _NOTES:
            raise ValueError(f"there is an <{name}> outside of any test case")

    def _begin_suite(self, attributes: dict[str, str]) -> None:
        announced = Counter(tests=_count(attributes, "tests"))
        announced["failed"] = sum(_count(attributes, name) for name in _ANNOUNCE_FAILED)
        # googletest and CTest count disabled tests apart; nose calls the skipped ones `skip`.
        announced["skipped"] = sum(_count(attributes, name) for name in ("skipped", "disabled", "skip"))
        self._refuse_too_many()
        self._begun += 1
        name = attributes.get("name", "the suite")
        self._top = self._top or name
        if name == "pytest" or self._top == "pytest tests":  # _pytest/junitxml.py, pytest_sessionfinish
            self.by_pytest.add(self._begun)
        before = self._elements.copy()
        self._suites.append((name, announced, len(self.cases), self._begun, before))

    def _begin_case(self, attributes: dict[str, str]) -> None:
        if self._case:
            raise ValueError(f"the test case {self._case['test']} has another in it")
        self._refuse_too_many()
        seconds = float(attributes.get("time", "0") or 0)
        # Of a clock that jumped. No verdict depends on it, but the sums on a page do.
        seconds = seconds if 0 <= seconds < LONGEST else 0.0
        self._case = {"test": _test(attributes), "outcome": "passed", "seconds": seconds}
        self._states = [(key, attributes[key]) for key in _STATE_ATTRIBUTES if key in attributes]

    def _begin_part(self, name: str, parent: str, attributes: dict[str, str]) -> None:
        if parent == "testcase" and name not in _IN_CASES:
            _make_worse(self._case, "error", f"it has an element that is not known: <{name}>")
        if parent == "testcase" and (kind := OUTCOMES.get(name)):
            self._elements["skipped" if kind == "skipped" else "failed"] += 1
        _note(self._case, name, attributes)

    def _refuse_too_many(self) -> None:
        if max(len(self.cases), self._begun) >= _MAX_TESTS:
            raise OverflowError(f"has more than the {_MAX_TESTS} tests and suites that are read")

    def end(self, name: str) -> None:
        self._path.pop()
        if name in _SUITES:
            self._end_suite()
        elif name == "testcase":
            self._end_case()

    def _end_suite(self) -> None:
        suite, announced, before, number, elements = self._suites.pop()
        counts = Counter[str]("failed" if case.failed else case.outcome for case in self.cases[before:])
        counts["tests"] = len(self.cases) - before
        if number in self.by_pytest:  # which counts each failure and each skip of a test's subtests
            counts |= self._elements - elements
        for kind, count in announced.items():
            if count > counts[kind]:
                tests = kind if kind == "tests" else f"{kind} tests"
                text = f"{suite} announces {count} {tests} and lists {counts[kind] or 'none'}"
                # Subtests that passed have no element, and are counted among the tests.
                if kind == "tests" and number in self.by_pytest and counts["tests"]:
                    self.remarks.append(f"{text}: it counts passed subtests")
                else:
                    self.objections.append(text)

    def _end_case(self) -> None:
        for key, value in self._states:
            outcome = _STATE_ATTRIBUTES[key].get(value.lower())
            reason = f'{key}="{value}"' if outcome else f'{key}="{value}" is not known'
            _make_worse(self._case, outcome or "error", reason)
        case = TestOutcome(**self._case, detail="".join(self._text)[:_KEPT_TEXT])
        again = case.flaky and case.outcome == "skipped"
        self.cases.append(failed_before(case) if again else case)
        self.suites.append(self._suites[-1][3])
        self._case, self._text = {}, []

    def data(self, text: str) -> None:
        if self._case and self._path[-1] in ("failure", "error") and len(self._text) < _KEPT_TEXT:
            self._text.append(text[:_KEPT_TEXT])


def _note(case: dict[str, Any], name: str, attributes: dict[str, str]) -> None:
    message = _one_line(attributes.get("message", ""))
    if name == "property" and attributes.get("name") == DEVICE_PROPERTY:
        case["device"] = attributes.get("value", "").strip() or "unnamed"
    elif name == "property" and attributes.get("name") == FLAKY_PROPERTY:
        case |= {"flaky": True, "reason": _one_line(attributes.get("value", ""))}
    elif name == "property" and attributes.get("name") == OVERRULED_PROPERTY and case["outcome"] == "passed":
        case |= {"overruled": True, "reason": _one_line(attributes.get("value", ""))}
    elif name in _FAILED_BEFORE:
        case |= {"flaky": True, "reason": message or "it failed before"}
    elif outcome := OUTCOMES.get(name) or _FAILED_AGAIN.get(name):
        _make_worse(case, outcome, message)


def _make_worse(case: dict[str, Any], outcome: Outcome, reason: str) -> None:
    if _RANK[outcome] > _RANK[case["outcome"]]:
        case |= {"outcome": outcome, "reason": reason}


def _count(attributes: dict[str, str], name: str) -> int:
    text = attributes.get(name, "").strip() or "0"
    if not text.isdecimal():
        raise ValueError(f"{name}={text!r} is not a count")
    return int(text)


def _one_line(message: str) -> str:
    first = next(iter(message.strip().splitlines()), "")
    reason = " ".join(first.split()).removeprefix("Failed: ")
    return reason if len(reason) <= _KEPT_REASON else f"{reason[:_KEPT_REASON]}…"


def _test(attributes: dict[str, str]) -> str:
    """Return the node id of a test case, such as `a/test_b.py::TestC::test_d`; see `TestOutcome.test`."""
    if (name := attributes.get("name")) is None:
        raise ValueError("a test case has no name")
    # pytest's `xunit1` family names the file; the class name is the dotted path, then the classes.
    module, dotted = attributes.get("file", ""), attributes.get("classname", "")
    path = module.removesuffix(".py").replace("/", ".")
    if not module or not f"{dotted}.".startswith(f"{path}."):
        return f"{dotted}::{name}" if dotted else name
    classes = dotted[len(path) + 1 :]
    return "::".join((module, *(classes.split(".") if classes else ()), *([name] if name != path else ())))


def class_and_name(test: str) -> tuple[str, str]:
    """Return the class name and the name that pytest writes for a test."""
    whole, bracket, parameters = test.partition("[")
    module, *names = whole.split("::")
    if not module.endswith(".py"):
        class_name, separator, name = test.partition("::")
        return (class_name, name) if separator else ("", test)
    title = names.pop() if names else ""
    dotted = module.removesuffix(".py").replace("/", ".")
    return ".".join((dotted, *names)), f"{title}{bracket}{parameters}" or dotted
