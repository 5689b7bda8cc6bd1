"""What the plugin left out of a run, and which entries did nothing there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import datafile
from cairn.errors import TestsFailedError, UsageError
from cairn.testing.skips import ids
from cairn.testing.skips.skip_files import Listed


class _Match(datafile.Value):
    """A test, or a file that was not imported; its entry, and which of the entry's patterns took it."""

    test: str
    entry: int
    pattern: int | None


class _Collected(datafile.Value):
    """A line of the journal: what one process of pytest did.

    Attributes:
        modules: files that it collected as a whole.
        matched: what the entries name of them.
    """

    modules: tuple[str, ...]
    matched: tuple[_Match, ...]


@dataclass(frozen=True, kw_only=True)
class Unmatched:
    """What of an entry matched nothing.

    Attributes:
        listed: the entry.
        names: its ids and patterns that named no test of a file that was collected.
    """

    listed: Listed
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """What a run left out.

    Attributes:
        tests: each test, or file, and its entry.
        unmatched: what is out of date.
    """

    tests: tuple[tuple[str, Listed], ...]
    unmatched: tuple[Unmatched, ...]


def read(journals: Iterable[Path], entries: Sequence[Listed], *, tests: Path | None = None) -> Excluded:
    """Read what the plugin wrote, perhaps on several shards, about the entries that it was given.

    Of a file of tests that no process collected as a whole, nothing is said: it was not part of the run, its
    tests were chosen by their ids, or it could not be imported. But one that `tests`, their folder, does not
    have can never match.

    Raises:
        TestsFailedError: a journal is missing, cut short, or of other entries.
    """
    collected: set[str] = set()
    found: dict[str, int] = {}
    named: set[tuple[int, str]] = set()
    for line in _lines(journals):
        collected.update(line.modules)
        for match in line.matched:
            if not 0 <= match.entry < len(entries):
                raise TestsFailedError(
                    f"the list of exclusions names entry {match.entry}, and the run had {len(entries)}",
                    tip="it is of a different run; run the tests again",
                )
            found[match.test] = match.entry
            patterns = entries[match.entry].entry.patterns
            name = match.test if match.pattern is None else patterns[match.pattern]
            # In a run of nothing but the entries, the tests of a whole file come one by one.
            named |= {(match.entry, name), (match.entry, _module(name))}
    modules = {_module(name) for listed in entries for name in listed.entry.names}
    collected |= {module for module in modules if tests and not (tests / module).exists()}
    unmatched = []
    for number, listed in enumerate(entries):
        of_run = [name for name in listed.entry.names if _module(name) in collected]
        if missing := tuple(name for name in of_run if (number, name) not in named):
            unmatched.append(Unmatched(listed=listed, names=missing))
    return Excluded(
        tests=tuple((test, entries[number]) for test, number in sorted(found.items())),
        unmatched=tuple(unmatched),
    )


def _module(name: str) -> str:
    return ids.take_apart(name).module


def _lines(journals: Iterable[Path]) -> Iterable[_Collected]:
    for journal in journals:
        try:
            lines = journal.read_bytes().splitlines()
        except OSError as error:
            raise TestsFailedError(
                f"the run left no list of its exclusions: {journal}: {error.strerror}",
                tip="pytest stopped before it had collected the tests; read its log",
            ) from error
        for number, line in enumerate(lines, 1):
            try:
                yield datafile.loads(line, _Collected, name=f"{journal}, line {number}")
            except UsageError as error:
                raise TestsFailedError(str(error), tip="the run was cut short; run it again") from error
