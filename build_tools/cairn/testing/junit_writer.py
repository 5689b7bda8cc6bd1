"""Write JUnit XML as pytest does, and put several files together."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from cairn import files
from cairn.testing import junit
from cairn.testing.junit import DEVICE_PROPERTY, FLAKY_PROPERTY, OUTCOMES, OVERRULED_PROPERTY, TestOutcome

_TAGS = {outcome: tag for tag, outcome in OUTCOMES.items()}
# What XML 1.0 has no way to write ("Characters").
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def merge(results: Iterable[bytes], target: Path) -> None:
    """Write the suites of several JUnit files as one, of which one at a time is held as a tree.

    Raises:
        TestsFailedError: one of them is not XML, or has a document type.
    """
    with files.writing_beside(target) as part, part.open("wb") as out:
        out.write(b'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="cairn">')
        for data in results:
            tree = ET.TreeBuilder()
            junit.parse(io.BytesIO(data), tree, name=target.name)
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
        class_name, title = junit.class_and_name(_printable(test.test))
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


def _printable(text: str) -> str:
    return _NOT_XML.sub(lambda character: f"\\x{ord(character[0]):02x}", text)
