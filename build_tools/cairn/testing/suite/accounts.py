"""Two more accounts of what a shard ran, which its outcomes must agree with.

`journal.jsonl` is what our plugin wrote in each process, `pytest.xml` the JUnit XML that pytest itself wrote:
who edits the outcomes, and their digest, has changed one of three. Only a signature can tell that nobody has
changed all of them.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path

from cairn import files
from cairn.testing import junit
from cairn.testing.suite.journal import Journal
from cairn.testing.suite.outcomes import TestOutcome

JOURNAL, PYTEST = "journal.jsonl", "pytest.xml"
FILES = (JOURNAL, PYTEST)


def write(folder: Path, journals: Iterable[bytes], results: Iterable[bytes]) -> dict[str, str]:
    """Write what the processes of a shard left, one behind the other; gives the sha256 of each file."""
    files.write_bytes(folder / JOURNAL, b"".join(journals))
    root = ET.Element("testsuites", name="pytest")
    for data in results:
        top = ET.fromstring(data)  # noqa: S314 - `junit.read` has found it good, and without a document type
        root.extend([top] if top.tag == "testsuite" else top)
    files.write_bytes(folder / PYTEST, ET.tostring(root, encoding="utf-8", xml_declaration=True))
    return {name: files.sha256_of(folder / name) for name in FILES}


def disagreement(folder: Path, tests: Sequence[TestOutcome]) -> str | None:
    """Where the outcomes of a shard are not what the other two accounts say, in one sentence; or None.

    Raises:
        TestsFailedError: pytest's results cannot be read.
    """
    journal = Journal(folder / JOURNAL)
    journal.follow()
    by_name = {one.test: one for one in tests}
    for ended in journal.every:
        found = by_name.get(ended.test)
        if found is None:
            return f"{JOURNAL} has {ended.test}, and the outcomes have not"
        if ended.failed and not (found.failed or found.flaky):
            return f"the outcomes say that {ended.test} {found.outcome}, {JOURNAL} that it {ended.outcome}"
    good = {ended.test for ended in journal.every if ended.outcome == "passed"}
    for one in tests:
        if one.outcome == "passed" and one.test not in good:
            return f"the outcomes say that {one.test} passed, and {JOURNAL} does not"
    for case in junit.read(folder / PYTEST).cases:
        found = by_name.get(case.test)
        if case.outcome in ("failed", "error") and found and not (found.failed or found.flaky):
            return f"the outcomes say that {case.test} {found.outcome}, {PYTEST} that it {case.outcome}"
    return None
