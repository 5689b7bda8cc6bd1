"""Select the entries that apply to a run, write the plugin's plan, and read which tests it excluded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
from packaging.version import Version

from cairn import datafile, files
from cairn.errors import TestsFailedError, UsageError
from cairn.testing.skips import conditions, ids
from cairn.testing.skips.conditions import RunFacts
from cairn.testing.skips.skip_files import Listed

PLUGIN = "cairn_skips"
"""The plugin's name where it is copied to: `pytest -p cairn_skips`."""

VARIABLE = "CAIRN_SKIPS"
"""The environment variable that names the plan to the plugin (its own `VARIABLE`)."""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that apply to a run.

    Attributes:
        entries: those, in the order of their files.
        expired: those of them that have expired; they still apply.
        remarks: possible mistakes, a sentence each.
    """

    entries: tuple[Listed, ...]
    expired: tuple[Listed, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The test files that are excluded as a whole and not imported: a runner need not start them."""
        return tuple(test for skip in self.entries for test in skip.entry.tests if "::" not in test)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of exact ids, of patterns, and of patterns whose ids could not be read."""
        entries = [skip.entry for skip in self.entries]
        return {
            "ids": sum(len(entry.tests) for entry in entries),
            "patterns": sum(len(entry.patterns) for entry in entries if not entry.unresolved),
            "unresolved patterns": sum(len(entry.patterns) for entry in entries if entry.unresolved),
        }


class _Match(datafile.Value):
    """A test, or a file that was not imported, with its entry and the pattern that matched."""

    test: str
    entry: int
    pattern: int | None


class _Collected(datafile.Value):
    """A line of the journal: what one pytest process collected.

    Attributes:
        modules: files that it collected as a whole.
        matched: what the entries name of them.
    """

    modules: tuple[str, ...]
    matched: tuple[_Match, ...]


def select(entries: Sequence[Listed], facts: RunFacts, *, today: date) -> Selection:
    """Select the entries that apply to a run, or may apply where its facts are unknown."""
    chosen = tuple(skip for skip in entries if conditions.applies(skip.entry.when, facts))
    return Selection(
        entries=chosen,
        expired=tuple(skip for skip in chosen if skip.entry.has_expired(today)),
        remarks=tuple(_remarks(entries, chosen, facts)),
    )


def write_plan(
    selection: Selection, path: Path, *, journal: Path, tests: Path | None = None, only: bool = False
) -> dict[str, str]:
    """Write the plugin's plan, copy the plugin beside it, and return the variables to run pytest with.

    Args:
        selection: the entries that apply.
        path: the JSON file; its folder goes on `PYTHONPATH` of a pytest that gets `-p cairn_skips`.
        journal: where each process of pytest appends what it left out; `read_excluded` reads it.
        tests: the folder that ids are relative to, where it is not pytest's rootdir.
        only: run the tests of the entries and nothing else.
    """
    plan = {
        "tests": str(tests.absolute()) if tests else None,
        "only": only,
        "journal": str(journal.absolute()),
        "entries": [plan_of(skip) for skip in selection.entries],
    }
    files.write_text(path, json.dumps(plan))
    shutil.copyfile(Path(__file__).with_name("plugin.py"), path.parent / f"{PLUGIN}.py")
    return {VARIABLE: str(path.absolute())}


def plan_of(skip: Listed) -> dict[str, Any]:
    """Convert an entry for the plugin and its `Matcher`."""
    tests, patterns = skip.entry.tests, map(ids.compile_pattern, skip.entry.patterns)
    return {
        "tests": [test for test in tests if "::" in test],
        "modules": [test for test in tests if "::" not in test],
        "patterns": [{"prefix": pattern.prefix, "regex": pattern.regex} for pattern in patterns],
    }


def read_excluded(
    journals: Iterable[Path], entries: Sequence[Listed], *, tests: Path | None = None
) -> tuple[tuple[tuple[str, Listed], ...], tuple[tuple[Listed, tuple[str, ...]], ...]]:
    """Read the plugin's journals of one or several shards.

    Names in a file that no process collected as a whole are not reported: it was not part of the run, its
    tests were selected by id, or it could not be imported; nor are those of a folder, of which no run knows
    that it had all files. But a file that is not in `tests`, their folder, can never match.

    Returns:
        Each excluded test, or file, with its entry; then entries with the names that matched no test.

    Raises:
        TestsFailedError: a journal is missing, cut short, or of other entries.
    """
    collected: set[str] = set()
    by_test: dict[str, int] = {}
    matched: set[tuple[int, str]] = set()
    for line in _lines(journals):
        collected.update(line.modules)
        for match in line.matched:
            if not 0 <= match.entry < len(entries):
                raise TestsFailedError(
                    f"the list of exclusions names entry {match.entry}, and the run had {len(entries)}",
                    tip="it is of a different run; run the tests again",
                )
            by_test[match.test] = match.entry
            patterns = entries[match.entry].entry.patterns
            name = match.test if match.pattern is None else patterns[match.pattern]
            # In a run of nothing but the entries, the tests of a whole file come one by one.
            matched |= {(match.entry, name), (match.entry, _module(name))}
    modules = {_module(name) for skip in entries for name in skip.entry.names}
    files = {module for module in modules if not module.endswith("*")}
    collected |= {module for module in files if tests and not (tests / module).exists()}
    unmatched = []
    for number, skip in enumerate(entries):
        of_run = [name for name in skip.entry.names if _module(name) in collected]
        if missing := tuple(name for name in of_run if (number, name) not in matched):
            unmatched.append((skip, missing))
    return tuple((test, entries[number]) for test, number in sorted(by_test.items())), tuple(unmatched)


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


def _remarks(entries: Sequence[Listed], chosen: Sequence[Listed], facts: RunFacts) -> Iterator[str]:
    if not chosen:
        none = f"none of the {len(entries)} entries applies to this run" if entries else "there is no entry"
        yield f"nothing is left out: {none}"
    # Where no entry is for this version of torch yet, its exclusions may be missing.
    ranges = dict.fromkeys(skip.entry.when.torch for skip in entries if skip.entry.when.torch)
    if facts.torch is None or not ranges:
        return
    if not any(conditions.applies(conditions.When(torch=text), facts) for text in ranges):
        line = ".".join(map(str, Version(conditions.release_of(facts.torch)).release[:2]))
        yield f"no entry is for torch {line}: the conditions on torch are {', '.join(ranges)}"
