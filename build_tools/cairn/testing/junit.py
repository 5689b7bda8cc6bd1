"""Read JUnit XML, which is not trusted and may be truncated, and write it as pytest does.

The format is what pytest writes with `--junit-xml` (its `xunit1` family, the one in which tests may record
properties): `testsuites`, `testsuite`, `testcase`, and in a case `failure`, `error`, `skipped` and
`properties`. Other writers add elements and states, of which the known ones are listed; a case with another
one is an error, since nothing shows that it passed. A file with a document type is refused, which rules out
entity bombs and external entities; JUnit needs none.
"""

from __future__ import annotations

import functools
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

import msgspec

from cairn import datafile, files
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
_MAX_DEPTH = 32
_SUITES = ("testsuites", "testsuite")
_KEPT_TEXT = 4000  # characters of a failure
_KEPT_REASON = 300  # characters of the line that says why
# A test's outcome is the worst of its phases.
_OUTCOMES: dict[str, Outcome] = {"error": "error", "failure": "failed", "skipped": "skipped"}
_TAGS = {outcome: tag for tag, outcome in _OUTCOMES.items()}
_NOTES = (
    "properties",
    "property",
    "system-out",
    "system-err",
)  # elements of suites and cases that decide nothing
# Of Maven Surefire (surefire-test-report-3.0.xsd) and cargo-nextest: attempts before the last one.
_FAILED_AGAIN: dict[str, Outcome] = {"rerunFailure": "failed", "rerunError": "error"}
_FAILED_BEFORE = ("flakyFailure", "flakyError")
_IN_CASES = (*_OUTCOMES, *_NOTES, *_FAILED_AGAIN, *_FAILED_BEFORE)
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
# What XML 1.0 has no way to write ("Characters").
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
        return "::".join(filter(None, _class_and_name(self.test)))

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
        objections: where a suite announces more tests, failures or skipped tests than it lists, a sentence
            each.
    """

    listed: tuple[TestOutcome, ...]
    suites: tuple[int, ...] = ()
    objections: tuple[str, ...] = ()

    @classmethod
    def of(cls, tests: Iterable[TestOutcome]) -> JUnit:
        """Wrap tests as a file that lists them all, to count or to judge them."""
        return cls(listed=tuple(tests))

    @functools.cached_property
    def cases(self) -> tuple[TestOutcome, ...]:
        """Each test once, however often it ran, in the order of the first attempts."""
        attempts: dict[tuple[int, str], list[TestOutcome]] = {}
        for suite, case in zip(self.suites or (0,) * len(self.listed), self.listed, strict=True):
            attempts.setdefault((suite, case.test), []).append(case)
        return tuple(cases[0] if len(cases) == 1 else _together(cases) for cases in attempts.values())

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
        data = path.read_bytes()
    except OSError as error:
        raise TestsFailedError(
            f"the test run left no results: {path}: {error.strerror}",
            tip="the runner crashed or was killed; read its log",
        ) from error
    return loads(data, name=path.name)


def loads(data: bytes, *, name: str) -> JUnit:
    """Like `read`, from bytes; `name` is the file's name in error messages."""
    reader = _Reader()
    _parse(data, reader, name=name)
    return JUnit(listed=tuple(reader.cases), suites=tuple(reader.suites), objections=tuple(reader.objections))


def _together(cases: Sequence[TestOutcome]) -> TestOutcome:
    """Return the outcome of the cases of one name in a suite: that of the worst, else that of the last."""
    failures, last = [case for case in cases if case.failed], cases[-1]
    # pytest-rerunfailures and flaky write an attempt that failed without saying so. Where a failure is
    # written, the others may be different tests: Jest, Gradle and go-junit-report repeat names.
    if failures:
        last = max(failures, key=lambda case: _RANK[case.outcome])
    elif last.outcome == "passed":
        last = msgspec.structs.replace(last, flaky=True, reason=f"it was run {len(cases)} times")
    seconds = sum(case.seconds for case in cases)
    return msgspec.structs.replace(last, seconds=seconds, attempts=sum(case.attempts for case in cases))


def merge(results: Iterable[bytes], target: Path) -> None:
    """Write the suites of several JUnit files as one, of which one at a time is held as a tree.

    Raises:
        TestsFailedError: one of them is not XML, or has a document type.
    """
    with files.writing_beside(target) as part, part.open("wb") as out:
        out.write(b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="cairn">')
        for data in results:
            tree = ET.TreeBuilder()
            _parse(data, tree, name=target.name)
            top = tree.close()
            for suite in [top] if top.tag == "testsuite" else top:
                out.write(ET.tostring(suite, encoding="utf-8"))
            del tree, top
        out.write(b"</testsuites>")


def write(path: Path, tests: Iterable[TestOutcome], *, name: str) -> None:
    """Write tests as pytest does in its `xunit1` family: a suite for each module."""
    top = ET.Element("testsuites", name=name)
    suites: dict[str, ET.Element] = {}
    for test in tests:
        module = _printable(test.module)
        if module not in suites:
            suites[module] = ET.SubElement(top, "testsuite", name=module)
        class_name, title = _class_and_name(_printable(test.test))
        case = ET.SubElement(suites[module], "testcase", classname=class_name, name=title)
        if module.endswith(".py"):
            case.set("file", module)
        case.set("time", f"{test.seconds:.3f}")
        noted_properties = [(DEVICE_PROPERTY, test.device)] if test.device else []
        noted_properties += [(FLAKY_PROPERTY, test.reason or "yes")] if test.flaky else []
        noted_properties += [(OVERRULED_PROPERTY, test.reason)] if test.overruled else []
        properties = ET.SubElement(case, "properties") if noted_properties else case
        for key, value in noted_properties:
            ET.SubElement(properties, "property", name=key, value=_printable(value))
        if test.outcome != "passed":
            why = ET.SubElement(case, _TAGS[test.outcome], message=_printable(test.reason))
            why.text = _printable(test.detail)
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
    files.write_bytes(path, ET.tostring(top, encoding="utf-8", xml_declaration=True))


def _parse(data: bytes, target: _Reader | ET.TreeBuilder, *, name: str) -> None:
    """Parse a file into a reader; `name` is the file's name in error messages."""
    parser = expat.ParserCreate()
    parser.buffer_text = True  # one call for a text, not one for each of its lines
    # Called before the declaration's entities are read; without a document type there are none to expand.
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler = target.start
    parser.EndElementHandler = target.end
    parser.CharacterDataHandler = target.data
    try:
        parser.Parse(data, True)  # noqa: FBT003 - positional only
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last: an encoding of no name
        raise TestsFailedError(
            f"{name} is not complete JUnit XML: {error}", tip="the runner crashed while writing it"
        ) from error


def _refuse_doctype(name: str, _system: str | None, _public: str | None, _subset: bool) -> None:  # noqa: FBT001
    raise ValueError(f"it has a document type, {name}")


class _Reader:
    """Converts expat's events to tests.

    Attributes:
        cases: the tests of all suites.
        suites: see `JUnit.suites`.
        objections: see `JUnit.objections`.
    """

    def __init__(self) -> None:
        self.cases: list[TestOutcome] = []
        self.suites: list[int] = []
        self.objections: list[str] = []
        self._begun = 0  # suites
        # name, what it announces, cases before it, number
        self._suites: list[tuple[str, Counter[str], int, int]] = []
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
            if parent == "testcase" and name not in _IN_CASES:
                _make_worse(self._case, "error", f"it has an element that is not known: <{name}>")
            _note(self._case, name, attributes)
        elif parent in _SUITES and name not in _NOTES:
            raise ValueError(f"there is an <{name}> outside of any test case")

    def _begin_suite(self, attributes: dict[str, str]) -> None:
        announced = Counter(tests=_count(attributes, "tests"))
        announced["failed"] = sum(_count(attributes, name) for name in _ANNOUNCE_FAILED)
        # googletest and CTest count disabled tests apart; nose calls the skipped ones `skip`.
        announced["skipped"] = sum(_count(attributes, name) for name in ("skipped", "disabled", "skip"))
        self._begun += 1
        self._suites.append((attributes.get("name", "the suite"), announced, len(self.cases), self._begun))

    def _begin_case(self, attributes: dict[str, str]) -> None:
        if self._case:
            raise ValueError(f"the test case {self._case['test']} has another in it")
        seconds = float(attributes.get("time", "0") or 0)
        # Of a clock that jumped. No verdict depends on it, but the sums on a page do.
        seconds = seconds if 0 <= seconds < LONGEST else 0.0
        self._case = {"test": _test(attributes), "outcome": "passed", "seconds": seconds}
        self._states = [(key, attributes[key]) for key in _STATE_ATTRIBUTES if key in attributes]

    def end(self, name: str) -> None:
        self._path.pop()
        if name in _SUITES:
            suite, announced, before, _number = self._suites.pop()
            counts = Counter[str]("failed" if case.failed else case.outcome for case in self.cases[before:])
            counts["tests"] = len(self.cases) - before
            for what, number in announced.items():
                if number > counts[what]:
                    tests = what if what == "tests" else f"{what} tests"
                    self.objections.append(
                        f"{suite} announces {number} {tests} and lists {counts[what] or 'none'}"
                    )
        elif name == "testcase":
            for key, value in self._states:
                outcome = _STATE_ATTRIBUTES[key].get(value.lower())
                reason = f'{key}="{value}"' if outcome else f'{key}="{value}" is not known'
                _make_worse(self._case, outcome or "error", reason)
            self.cases.append(TestOutcome(**self._case, detail="".join(self._text)[:_KEPT_TEXT]))
            self.suites.append(self._suites[-1][-1])
            self._case, self._text = {}, []

    def data(self, text: str) -> None:
        if self._case and self._path[-1] in ("failure", "error"):
            self._text.append(text)


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
    elif outcome := _OUTCOMES.get(name) or _FAILED_AGAIN.get(name):
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


def _class_and_name(test: str) -> tuple[str, str]:
    """Return the class name and the name that pytest writes for a test."""
    whole, bracket, parameters = test.partition("[")
    module, *names = whole.split("::")
    if not module.endswith(".py"):
        class_name, separator, name = test.partition("::")
        return (class_name, name) if separator else ("", test)
    title = names.pop() if names else ""
    dotted = module.removesuffix(".py").replace("/", ".")
    return ".".join((dotted, *names)), f"{title}{bracket}{parameters}" or dotted


def _printable(text: str) -> str:
    return _NOT_XML.sub(lambda character: f"\\x{ord(character[0]):02x}", text)
