"""What is wrong with the files of skip-tests, although they can be read.

A mistake that makes the meaning of an entry doubtful stops every run, when `skip_files` reads it. Here is
what a run goes on with, and what its owner should look at: an entry that matches nothing, or has expired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from cairn.testing.skips import conditions, ids
from cairn.testing.skips.ids import Collected
from cairn.testing.skips.skip_files import Listed

Kind = Literal["expired", "unmatched", "covered", "contradictory"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to look at.

    Attributes:
        kind: `expired`, `unmatched`, `covered` (an entry of which a different one takes every test), or
            `contradictory` (no GPU meets its conditions).
        where: the entry.
        text: what is wrong with it, and what may have been meant.
    """

    kind: Kind
    where: Listed
    text: str


def expired(entries: Iterable[Listed], *, today: date) -> Iterator[Finding]:
    """The entries whose day has passed."""
    for listed in entries:
        entry = listed.entry
        if entry.expires < today:
            text = f"it expired on {entry.expires}: ask {entry.owner} whether {entry.issue or 'it'} is solved"
            yield Finding(kind="expired", where=listed, text=text)


def contradictory(entries: Iterable[Listed]) -> Iterator[Finding]:
    """The entries that no GPU meets, since both conditions on it must hold."""
    for listed in entries:
        when = listed.entry.when
        if conditions.excludes_itself(when):
            text = f"none of {', '.join(when.target)} is of {', '.join(when.family)}"
            yield Finding(kind="contradictory", where=listed, text=text)


def against(entries: Sequence[Listed], collection: Collected) -> Iterator[Finding]:
    """The entries that match none of the collected tests, or only tests that are named already.

    Nothing is said of a file of tests that the collection does not have.
    """
    known = {module: frozenset(tests) for module, tests in collection.items()}
    exact = {test for listed in entries for test in listed.entry.tests}
    for listed in entries:
        for test in listed.entry.tests:
            tests = known.get(ids.take_apart(test).module)
            if tests is not None and "::" in test and test not in tests:
                similar = ids.similar(test, collection)
                text = f"no test is called {test}{f'; {similar}' if similar else ''}"
                yield Finding(kind="unmatched", where=listed, text=text)
        for pattern in listed.entry.patterns:
            tests = known.get(ids.take_apart(pattern).module)
            if tests is None:
                continue
            regex = re.compile(ids.compile_pattern(pattern).regex)
            matched = {test for test in tests if regex.fullmatch(test)}
            if not matched:
                yield Finding(kind="unmatched", where=listed, text=f"no test is called {pattern}")
            elif exact.issuperset(matched):
                text = f"all {len(matched)} tests of the pattern {pattern} are named by themselves"
                yield Finding(kind="covered", where=listed, text=text)
