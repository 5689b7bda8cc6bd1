"""Files of skips out of upstream's lists, which name tests by parts of their names.

`therock` and `disabled_tests` read the lists into what `model` has; `meaning` finds the tests that they meant
among those of a collection; `write` makes a file of skips of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from cairn.testing.skips import conditions
from cairn.testing.skips.collection import Collection
from cairn.testing.skips.conditions import When
from cairn.testing.skips.importing import disabled_tests, meaning, therock
from cairn.testing.skips.importing.model import Imported
from cairn.testing.skips.importing.write import write

__all__ = ["read", "write"]


def read(lists: Iterable[Path], collection: Collection, *, owner: str, expires: date) -> tuple[Imported, ...]:
    """Read upstream's lists, and find the tests that they meant.

    A test that several names mean under conditions that may hold at once belongs to the first of them.

    Raises:
        UsageError: a list is not what upstream's are.
    """
    tests = meaning.Tests(collection)
    taken: dict[str, list[When]] = {}
    found = []
    for source in lists:
        listed = disabled_tests.read(source) if source.suffix == ".json" else therock.read(source)
        meanings = []
        for one in tests.meant(listed.wanted):
            own = []
            for test in one.tests:
                earlier = taken.setdefault(test, [])
                if not any(conditions.may_coincide(when, one.wanted.when) for when in earlier):
                    earlier.append(one.wanted.when)
                    own.append(test)
            meanings.append(one.with_tests(own))
        found.append(
            Imported(
                source=source,
                owner=owner,
                expires=expires,
                meanings=tuple(meanings),
                remarks=(*listed.remarks, *tests.missing_gpu(listed.wanted)),
            )
        )
    return tuple(found)
