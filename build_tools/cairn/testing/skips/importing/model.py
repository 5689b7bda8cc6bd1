"""The names on upstream's lists, and the tests they mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from cairn.testing.skips.conditions import When

How = Literal["exact", "elsewhere", "family", "broad", "taken", "unknown", "not collected"]

_EXPLAINED: dict[How, str] = {
    "exact": "the tests of that name",
    "elsewhere": "only a different file has tests of that name",
    "family": "no test has the name itself; taken for those whose names go on with further words",
    "broad": "no test has the name itself; taken for all whose names begin so",
    "taken": "an earlier name means the same tests",
    "unknown": "no test of the collection",
    "not collected": "its file is not in the collection",
}


@dataclass(frozen=True, kw_only=True)
class UpstreamName:
    """A name on a list.

    Attributes:
        text: the name of a test, or the beginning or middle of one.
        filed: what upstream files it under: `cuda` for test_cuda.py, `inductor` for a folder; may be empty.
        class_name: of its class, where the list has it.
        when: the conditions.
        reason: as the list gives it.
        issue: an address that it names, or empty.
        place: where it stands: file and line, or name.
    """

    text: str
    filed: str = ""
    class_name: str = ""
    when: When
    reason: str
    issue: str
    place: str


@dataclass(frozen=True, kw_only=True)
class UpstreamList:
    """A list as it was read.

    Attributes:
        names: what it names.
        remarks: what is odd about it.
    """

    names: tuple[UpstreamName, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The tests that a name meant.

    Attributes:
        name: as the list has it.
        how: by what rule its tests were found.
        tests: their exact ids.
        accidents: the tests that upstream's way of matching hits as well, and that no name of the list means.
    """

    name: UpstreamName
    how: How
    tests: tuple[str, ...]
    accidents: tuple[str, ...]

    @property
    def explained(self) -> str:
        """The rule in words."""
        return _EXPLAINED[self.how]

    def with_tests(self, tests: Iterable[str]) -> Meaning:
        """The same with those of its tests that no earlier name has."""
        left = tuple(tests)
        return dataclasses.replace(self, tests=left, how="taken" if self.tests and not left else self.how)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A list, its names found in a collection.

    Attributes:
        source: the list.
        owner: who is asked about the skips.
        expires: their last day.
        meanings: its names.
        remarks: what is odd about it.
    """

    source: Path
    owner: str
    expires: date
    meanings: tuple[Meaning, ...]
    remarks: tuple[str, ...]
