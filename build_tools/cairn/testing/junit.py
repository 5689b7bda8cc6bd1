"""JUnit XML, read as what it is: the output of a program that may have crashed, or lied.

The format is what pytest writes with `--junit-xml` (its `xunit1` family, the one in which tests may record
properties): `testsuites`, `testsuite`, `testcase`, and in a case `failure`, `error`, `skipped` and
`properties`. A document type is refused as a whole, which closes the door to entity bombs and external
entities; JUnit has no use for one.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.parsers import expat

from cairn import files
from cairn.errors import TestsFailedError
from cairn.testing.record import Counts

Outcome = Literal["passed", "failed", "error", "skipped"]

DEVICE_PROPERTY = "device"
"""What a test records (pytest's `record_property`) when it really computed on a GPU: the GPU's gfx name."""

FLAKY_PROPERTY = "flaky"
"""What a suite notes of a test that failed, and passed when it was tried again: why it failed."""

_MAX_SIZE = 256 << 20  # bytes; 43,000 tests of torch's write about 10 MB, and all there are ten times that
_MAX_DEPTH = 32
_SUITES = ("testsuites", "testsuite")
_LONGEST = 1e9  # seconds, 30 years
_KEPT_TEXT = 4000  # characters of a failure
_KEPT_REASON = 300  # characters of the line that says why
# A test's outcome is the worst of what its phases report.
_OUTCOMES: dict[str, Outcome] = {"error": "error", "failure": "failed", "skipped": "skipped"}
_RANK: dict[Outcome, int] = {"passed": 0, "skipped": 1, "failed": 2, "error": 3}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One test.

    Attributes:
        name: class name and name, joined by `::`.
        test: its node id, where the file says which module it is of; else empty.
        outcome: the worst of its phases.
        reason: why it was skipped or what failed, in one line; empty when it passed at once.
        detail: the whole of what failed, shortened.
        device: the GPU it computed on, by its gfx name; empty where it used none.
        seconds: its duration.
        flaky: it failed, and passed when it was tried again.
    """

    name: str
    test: str = ""
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    device: str = ""
    seconds: float = 0.0
    flaky: bool = False


@dataclass(frozen=True, kw_only=True)
class JUnit:
    """The tests of one file, in its order.

    Attributes:
        cases: what the file lists.
        announced: how many tests the suites say they have.
        announced_failures: how many of them, by their word, failed or broke.
    """

    cases: tuple[Case, ...]
    announced: int = 0
    announced_failures: int = 0

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
    """Like `read`, from the bytes of a file that errors call `name`."""
    reader = _ExpatReader()
    _parse(data, reader, name=name)
    return reader.result()


def outcomes_in(data: bytes, *, name: str) -> dict[str, Outcome]:
    """The outcome of each test, by its node id or name: in half the time that all of it takes."""
    reader = _OutcomesReader()
    _parse(data, reader, name=name)
    return reader.found


def _parse(data: bytes, reader: _ExpatReader | _OutcomesReader, *, name: str) -> None:
    parser = expat.ParserCreate()
    parser.buffer_text = True  # one call for a text, not one for each of its lines
    # Called before the declaration's entities are read; without a document type there are none to expand.
    parser.StartDoctypeDeclHandler = _refuse_doctype
    reader.listen_to(parser)
    try:
        parser.Parse(data, True)  # noqa: FBT003 - positional only
    except (expat.ExpatError, ValueError, LookupError) as error:  # the last: an encoding of no name
        raise TestsFailedError(
            f"{name} is not complete JUnit XML: {error}", tip="the runner crashed while writing it"
        ) from error


def merge(paths: Sequence[Path], target: Path) -> None:
    """Write the suites of several JUnit files, each read and found good, as one.

    Raises:
        TestsFailedError: one of them is not what `read` accepts.
    """
    root = ET.Element("testsuites", name="cairn")
    for path in paths:
        read(path)  # refuses what the next line must not see
        top = ET.fromstring(path.read_bytes())  # noqa: S314 - no document type: `read` saw to it
        root.extend([top] if top.tag == "testsuite" else top)
    files.write_bytes(target, ET.tostring(root, encoding="utf-8", xml_declaration=True))


@dataclass
class _Open:
    """The case that is being read."""

    name: str
    test: str
    seconds: float
    outcome: Outcome = "passed"
    reason: str = ""
    device: str = ""
    flaky: bool = False
    text: list[str] = field(default_factory=list)

    def close(self) -> Case:
        return Case(
            name=self.name,
            test=self.test,
            outcome=self.outcome,
            reason=self.reason,
            detail="".join(self.text)[:_KEPT_TEXT],
            device=self.device,
            seconds=self.seconds,
            flaky=self.flaky,
        )


@dataclass(frozen=True, kw_only=True)
class _Announced:
    """What a suite says it has."""

    tests: int = 0
    failures: int = 0


def _whole(own: _Announced, inside: Sequence[_Announced]) -> _Announced:
    """What a suite has with those inside it: some writers add these up in it, others do not."""
    return _Announced(
        tests=max(own.tests, sum(one.tests for one in inside)),
        failures=max(own.failures, sum(one.failures for one in inside)),
    )


def _count(attributes: dict[str, str], name: str) -> int:
    text = attributes.get(name, "").strip() or "0"
    if not text.isdecimal():
        raise ValueError(f"{name}={text!r} is not a count")
    return int(text)


class _ExpatReader:
    """Turns expat's events into cases."""

    def __init__(self) -> None:
        self._cases: list[Case] = []
        # What the open suites announce, and what those inside them do; the first is the whole file.
        self._suites: list[tuple[_Announced, list[_Announced]]] = [(_Announced(), [])]
        self._path: list[str] = []
        self._case: _Open | None = None

    def listen_to(self, parser: expat.XMLParserType) -> None:
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text

    def result(self) -> JUnit:
        whole = _whole(*self._suites[0])
        return JUnit(cases=tuple(self._cases), announced=whole.tests, announced_failures=whole.failures)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path and name not in _SUITES:
            raise ValueError(f"its top is <{name}>")
        if len(self._path) >= _MAX_DEPTH:
            raise ValueError("its elements are nested too deep")
        self._path.append(name)
        # What a suite says it has: a runner that died leaves fewer cases than it announced.
        if name in _SUITES:
            failures = _count(attributes, "failures") + _count(attributes, "errors")
            self._suites.append((_Announced(tests=_count(attributes, "tests"), failures=failures), []))
        elif name == "testcase":
            if self._case is not None:
                raise ValueError(f"the test case {self._case.name} has another in it")
            seconds = float(attributes.get("time", "0") or 0)
            # Of a clock that jumped. No verdict depends on it, but the sums on a page do.
            seconds = seconds if 0 <= seconds < _LONGEST else 0.0
            self._case = _Open(name=_case_name(attributes), test=_node_id(attributes), seconds=seconds)
        elif self._case is not None:  # a suite has properties too
            _note(self._case, name, attributes)
        elif name in ("failure", "error"):
            raise ValueError(f"there is an <{name}> outside of any test case")

    def _end(self, name: str) -> None:
        self._path.pop()
        if name in _SUITES:
            ended = _whole(*self._suites.pop())
            self._suites[-1][1].append(ended)
        elif name == "testcase" and self._case is not None:
            self._cases.append(self._case.close())
            self._case = None

    def _text(self, text: str) -> None:
        if self._case is not None and self._path[-1] in ("failure", "error"):
            self._case.text.append(text)


class _OutcomesReader:
    """Turns expat's events into the outcome of each case, and into nothing else."""

    def __init__(self) -> None:
        self.found: dict[str, Outcome] = {}
        self._case = ""

    def listen_to(self, parser: expat.XMLParserType) -> None:
        parser.StartElementHandler = self._start

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "testcase":
            self._case = _node_id(attributes) or _case_name(attributes)
            self.found.setdefault(self._case, "passed")
        elif (outcome := _OUTCOMES.get(name)) and _RANK[outcome] > _RANK[self.found.get(self._case, "error")]:
            self.found[self._case] = outcome


def _note(case: _Open, name: str, attributes: dict[str, str]) -> None:
    if name == "property" and attributes.get("name") == DEVICE_PROPERTY:
        case.device = attributes.get("value", "").strip() or "unnamed"
    elif name == "property" and attributes.get("name") == FLAKY_PROPERTY:
        case.flaky, case.reason = True, _one_line(attributes.get("value", ""))
    outcome = _OUTCOMES.get(name)
    if outcome is not None and _RANK[outcome] > _RANK[case.outcome]:
        case.outcome = outcome
        case.reason = _one_line(attributes.get("message", ""))


def _one_line(message: str) -> str:
    first = next(iter(message.strip().splitlines()), "")
    reason = " ".join(first.split()).removeprefix("Failed: ")
    return reason if len(reason) <= _KEPT_REASON else f"{reason[:_KEPT_REASON]}…"


def _case_name(attributes: dict[str, str]) -> str:
    name = attributes.get("name")
    if name is None:
        raise ValueError("a test case has no name")
    return "::".join(part for part in (attributes.get("classname", ""), name) if part)


def _node_id(attributes: dict[str, str]) -> str:
    """The node id of a case, such as `a/test_b.py::TestC::test_d`; empty where the file is not said."""
    # pytest's `xunit1` family names the file; the class name is the dotted path, then the classes.
    module, dotted = attributes.get("file", ""), attributes.get("classname", "")
    path = module.removesuffix(".py").replace("/", ".")
    if not module or not f"{dotted}.".startswith(f"{path}."):
        return ""
    classes = dotted[len(path) + 1 :]
    name = attributes["name"]
    return "::".join((module, *(classes.split(".") if classes else ()), *([name] if name != path else ())))


def _refuse_doctype(name: str, _system: str | None, _public: str | None, _subset: bool) -> None:  # noqa: FBT001
    raise ValueError(f"it has a document type, {name}")
