"""What became of each test of a suite: a value, and a file with one a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cairn import datafile, files
from cairn.errors import UsageError
from cairn.testing.junit import Case, JUnit, Outcome
from cairn.testing.suite import worker

FILE = "outcomes.jsonl"

LONGEST = 1e9
"""Seconds, 30 years: what claims to have taken longer is a number that somebody made up."""

# What XML 1.0 has no way to write ("Characters").
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class TestOutcome(datafile.Value):
    """One test, or a module that never came to its tests.

    Attributes:
        test: its node id.
        outcome: that of its last attempt, unless an earlier one ended its process.
        reason: why it was skipped or what failed, in one line; empty when it passed at once.
        detail: the whole of what failed, shortened, with the end of what it wrote.
        device: the GPUs that it used, by their names, joined by commas; empty where it used none.
        seconds: of all attempts.
        attempts: how often it was run.
        flaky: it failed, and passed when it was tried again.
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

    @property
    def module(self) -> str:
        """The file of the test, as node ids name it."""
        return self.test.partition("::")[0]

    @property
    def failed(self) -> bool:
        """Whether it stands against the wheel."""
        return self.outcome in ("failed", "error")


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
        found = tuple(datafile.decode(line, TestOutcome) for line in data.splitlines())
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not of test outcomes: {error}") from error
    if len({outcome.test for outcome in found}) != len(found):
        raise UsageError(f"{path} has a test twice")
    if bad := [one.test for one in found if not 0 <= one.seconds < LONGEST or one.attempts < 1]:
        raise UsageError(f"{path} does not say how often {bad[0]} ran, or for how long")
    return found


def worse(first: TestOutcome, second: TestOutcome) -> TestOutcome:
    """What became of a test that a plugin had run twice, as if it were two: the worse of both."""
    bad = second if second.failed and not first.failed else first
    return msgspec.structs.replace(
        bad, seconds=first.seconds + second.seconds, attempts=first.attempts + second.attempts
    )


def as_junit(outcomes: Iterable[TestOutcome]) -> JUnit:
    """Outcomes as the results of a test run, to judge them."""
    cases = tuple(_case(outcome) for outcome in outcomes)
    return JUnit(cases=cases, announced=len(cases))


def write_junit(path: Path, outcomes: Iterable[TestOutcome], *, name: str) -> None:
    """Write outcomes as JUnit XML, as pytest does in its `xunit1` family: a suite for each module."""
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - few commands need it

    from cairn.testing import junit  # noqa: PLC0415

    top = ET.Element("testsuites", name=name)
    suites: dict[str, ET.Element] = {}
    for outcome in outcomes:
        suite = suites.get(outcome.module)
        if suite is None:
            suite = suites[outcome.module] = ET.SubElement(top, "testsuite", name=_printable(outcome.module))
        class_name, title = junit_name(_printable(outcome.test))
        case = ET.SubElement(suite, "testcase", classname=class_name, name=title)
        case.set("file", _printable(outcome.module))
        case.set("time", f"{outcome.seconds:.3f}")
        noted = {
            junit.DEVICE_PROPERTY: outcome.device,
            junit.FLAKY_PROPERTY: (outcome.reason or "yes") if outcome.flaky else "",
        }
        if any(noted.values()):
            properties = ET.SubElement(case, "properties")
            for key, value in noted.items():
                if value:
                    ET.SubElement(properties, "property", name=key, value=_printable(value))
        if outcome.outcome != "passed":
            tag = {"failed": "failure", "error": "error", "skipped": "skipped"}[outcome.outcome]
            ET.SubElement(case, tag, message=_printable(outcome.reason)).text = _printable(outcome.detail)
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
    files.write_bytes(path, ET.tostring(top, encoding="utf-8", xml_declaration=True))


def junit_name(test: str) -> tuple[str, str]:
    """The class name and the name that pytest writes for a node id."""
    whole, bracket, parameters = test.partition("[")
    module, *names = whole.split("::")
    title = names.pop() if names else ""
    dotted = module.removesuffix(".py").replace("/", ".")
    return ".".join((dotted, *names)), f"{title}{bracket}{parameters}" or dotted


def _case(outcome: TestOutcome) -> Case:
    return Case(
        name="::".join(filter(None, junit_name(outcome.test))),
        test=outcome.test,
        outcome=outcome.outcome,
        reason=outcome.reason,
        detail=outcome.detail,
        device=outcome.device,
        seconds=outcome.seconds,
        flaky=outcome.flaky,
    )


def _printable(text: str) -> str:
    return _NOT_XML.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
