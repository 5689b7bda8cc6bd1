"""skip-tests/*.toml: the tests to exclude, under which conditions, why, and until when.

schema = "cairn.skips/1"

[[skips]]
tests = ["test_cuda.py::TestCuda::test_host_memory_stats"]
patterns = ["test_nn.py::TestNNDeviceTypeCUDA::test_cross_entropy_*"]
when = { family = ["gfx110X-all"], platform = ["linux"], torch = ">=2.12", python = ">=3.14" }
reason = "empty_stats() has no host allocations on ROCm"
issue = "https://github.com/ROCm/TheRock/issues/2985"
owner = "rocm-pytorch"
expires = 2027-06-30

[[skips]]
patterns = ["test_cuda.py::*::test_mempool_expandable"]
when = { torch = ">=2.12" }
unresolved = true
reason = "it builds an extension that includes hipblas/hipblas.h"
source = "example/lists 89553ce, lists/generic.py"
owner = "rocm-pytorch"
expires = 2027-06-30
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile
from cairn.errors import CairnError, ProblemsError, UsageError
from cairn.output import wording
from cairn.testing.skips import conditions, ids
from cairn.testing.skips.conditions import RunFacts, When
from cairn.testing.skips.ids import Collected
from cairn.testing.skips.sources import Sources

_SOURCE = re.compile(r"([\w.-]+/[\w.-]+ [0-9a-f]{7,40}, \S+)?")
_SAY_IT = "say it: others must be able to ask"
_RANGE = 'add `when = { torch = ">=2.8" }`'
_COMMIT = "it is written like example/lists 89553ce, lists/generic.py"
_KEEP_ONE = "keep one of them, or give them conditions that exclude each other"

Kind = Literal["expired", "unmatched", "covered", "contradictory", "unresolved"]


class Entry(datafile.Value):
    """Tests that are excluded for one reason.

    Attributes:
        tests: their exact ids, or files that are not even imported (see `ids`).
        patterns: of ids, for families of tests.
        when: the conditions; without any, always.
        unresolved: the sources of those versions of torch could not be read, so that patterns stand for the
            ids; `skips lint --sources-dir` fails as soon as they are there.
        reason: why they are excluded.
        issue: the URL of the issue about it.
        source: the list that the names are from: repository, commit and file.
        owner: the person or team responsible for the entry.
        expires: the last day on which it is valid without a review. The tests stay excluded after it, since
            they may hang or end a machine; `lint` and every report name the entry.
    """

    tests: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    when: When = When()
    unresolved: bool = False
    reason: str
    issue: str = ""
    source: str = ""
    owner: str
    expires: date

    @property
    def names(self) -> tuple[str, ...]:
        """All ids and patterns of the entry."""
        return (*self.tests, *self.patterns)

    def has_expired(self, today: date) -> bool:
        """Whether its last day has passed."""
        return self.expires < today


class SkipFile(datafile.Value, tag_field="schema", tag="cairn.skips/1"):
    """One file of `skip-tests/`."""

    skips: tuple[Entry, ...] = ()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, and its location.

    Attributes:
        file: the file it is in.
        number: its position in the file, counted from 1.
        entry: what it says.
    """

    file: Path
    number: int
    entry: Entry

    def __str__(self) -> str:
        names = self.entry.names
        return f"{self.file.name}, entry {self.number} ({wording.some(names, shown=1)})"


def read(places: Iterable[Path]) -> tuple[Listed, ...]:
    """Read the entries of files, and of the `*.toml` in folders, in order.

    Raises:
        UsageError: a file is not what `SkipFile` says, or a folder has none.
        ProblemsError: invalid entries, all of them.
    """
    entries: list[Listed] = []
    for path in _files(places):
        content = datafile.read(path, SkipFile)
        entries += [Listed(file=path, number=n, entry=entry) for n, entry in enumerate(content.skips, 1)]
    problems = [*_malformed(entries)]
    # Conditions that cannot be read cannot be compared.
    problems = problems or [*_repeated(entries), *_hidden(entries)]
    if problems:
        raise ProblemsError(f"{wording.count(problems, 'mistake')} in skip-tests", problems=problems)
    return tuple(entries)


def _files(places: Iterable[Path]) -> list[Path]:
    paths: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(path for path in place.glob("*.toml") if path.name[0] != ".")
            if not inside:
                raise UsageError(f"{place} has no *.toml", tip="name a folder of skips, such as skip-tests")
            paths += inside
        else:
            paths.append(place)
    return list(dict.fromkeys(paths))


def _malformed(entries: Sequence[Listed]) -> Iterable[CairnError]:
    for skip in entries:
        entry = skip.entry
        checks: list[Callable[[], object]] = [
            *(functools.partial(ids.check, test) for test in entry.tests),
            *(functools.partial(ids.compile_pattern, pattern) for pattern in entry.patterns),
            functools.partial(conditions.check, entry.when),
        ]
        for check in checks:
            try:
                check()
            except UsageError as error:
                yield UsageError(f"{skip}: {error}", tip=error.tip)
        rules = (
            (not entry.names, "names no test", "give `tests` or `patterns`, or remove it"),
            (not entry.reason.strip(), "has an empty reason", _SAY_IT),
            (not entry.owner.strip(), "has an empty owner", _SAY_IT),
            (entry.unresolved and bool(entry.tests), "is unresolved and has exact ids", "split it"),
            (entry.unresolved and not entry.when.torch, "is unresolved for every torch", _RANGE),
            (not _SOURCE.fullmatch(entry.source), "has a source without a commit", _COMMIT),
        )
        for is_broken, text, tip in rules:
            if is_broken:
                yield UsageError(f"{skip} {text}", tip=tip)


def _repeated(entries: Sequence[Listed]) -> Iterable[CairnError]:
    """Report names in two entries that may both apply: one would hide that the other is stale."""
    seen: dict[str, list[Listed]] = {}
    for skip in entries:
        for name in skip.entry.names:
            for earlier in seen.setdefault(name, []):
                if earlier is skip or conditions.may_coincide(earlier.entry.when, skip.entry.when):
                    # Folders that are given together may each have a generic.toml.
                    folder = "" if earlier.file == skip.file else f"{earlier.file.parent}/"
                    yield UsageError(f"{skip} names {name} again, after {folder}{earlier}", tip=_KEEP_ONE)
            seen[name].append(skip)


def _hidden(entries: Sequence[Listed]) -> Iterable[CairnError]:
    """Report names of tests in a file that is excluded as a whole."""
    closed: dict[str, list[Listed]] = {}
    for skip in entries:
        for module in (test for test in skip.entry.tests if "::" not in test):
            closed.setdefault(module, []).append(skip)
    for skip in entries:
        for name in (name for name in skip.entry.names if "::" in name):
            for whole in closed.get(ids.take_apart(name).module, []):
                if conditions.may_coincide(whole.entry.when, skip.entry.when):
                    yield UsageError(f"{skip} names {name}, and {whole} its whole file", tip=_KEEP_ONE)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the owner of an entry should look at.

    Attributes:
        kind: `expired`, `unmatched`, `covered` (an entry of which a different one takes every test),
            `contradictory` (no GPU meets its conditions), or `unresolved` (the sources are there).
        where: the entry.
        text: what is wrong with it, and what may have been meant.
        tests: of an unresolved pattern: the ids that the sources have of it.
    """

    kind: Kind
    where: Listed
    text: str
    tests: tuple[str, ...] = ()


def lint(
    entries: Sequence[Listed],
    *,
    today: date,
    collection: Collected | None = None,
    sources: Sources | None = None,
) -> Iterator[Finding]:
    """Look for flaws that do not stop a run, but that the owner of an entry should look at.

    Args:
        entries: those that apply to a run.
        today: the date to compare expiry dates with.
        collection: the tests that there are; nothing is said of a file of tests that it does not have.
        sources: those of one version of torch, for which no entry may stay unresolved.
    """
    for skip in entries:
        entry = skip.entry
        if entry.has_expired(today):
            text = f"it expired on {entry.expires}: ask {entry.owner} whether {entry.issue or 'it'} is solved"
            yield Finding(kind="expired", where=skip, text=text)
    for skip in entries:
        when = skip.entry.when
        if conditions.excludes_itself(when):
            text = f"none of {', '.join(when.target)} is of {', '.join(when.family)}"
            yield Finding(kind="contradictory", where=skip, text=text)
    if collection is not None:
        yield from _against(entries, collection)
    if sources is not None:
        yield from _resolve(entries, sources)


def _resolve(entries: Sequence[Listed], sources: Sources) -> Iterator[Finding]:
    """Report the patterns of unresolved entries for the version of the sources, with their ids."""
    facts = RunFacts(torch=sources.version)
    for skip in entries:
        if not (skip.entry.unresolved and conditions.applies(skip.entry.when, facts)):
            continue
        for pattern in skip.entry.patterns:
            tests, of_computed = sources.find(pattern)
            if tests:
                text = f"{pattern} is {wording.some(tests, shown=1)}: name the ids"
            elif of_computed:
                computed = wording.some(of_computed)
                text = f"{pattern} is of {computed}, whose names are computed: collect them"
            else:
                text = f"no test is called {pattern}: end its range before torch {sources.version}"
            yield Finding(kind="unresolved", where=skip, text=text, tests=tests)


def _against(entries: Sequence[Listed], collection: Collected) -> Iterator[Finding]:
    """Report entries that match no collected test, or only tests that other entries name already."""
    collected = {module: frozenset(tests) for module, tests in collection.items()}
    exact = {test for skip in entries for test in skip.entry.tests}
    for skip in entries:
        for test in skip.entry.tests:
            tests = collected.get(ids.take_apart(test).module)
            if tests is not None and "::" in test and test not in tests:
                similar = ids.similar(test, collection)
                text = f"no test is called {test}{f'; {similar}' if similar else ''}"
                yield Finding(kind="unmatched", where=skip, text=text)
        for pattern in skip.entry.patterns:
            modules = [module for module in collected if ids.is_of(pattern, module)]
            if not modules:
                continue
            regex = re.compile(ids.compile_pattern(pattern).regex)
            matched = {test for module in modules for test in collected[module] if regex.fullmatch(test)}
            if not matched:
                yield Finding(kind="unmatched", where=skip, text=f"no test is called {pattern}")
            elif exact.issuperset(matched):
                text = f"all {len(matched)} tests of the pattern {pattern} are named by themselves"
                yield Finding(kind="covered", where=skip, text=text)


_HEADER = re.compile(r"\s*\[\[\s*skips\s*\]\]\s*(?:#.*)?")
_QUIET = re.compile(r"\s*(?:#.*)?")  # an empty line or a comment


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """The names of an entry that may be removed.

    Attributes:
        listed: the entry.
        names: its ids and patterns all of whose tests passed.
    """

    listed: Listed
    names: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the whole entry may be removed."""
        return set(self.names) == set(self.listed.entry.names)


def solved(entries: Sequence[Listed], runs: Sequence[Mapping[str, bool]]) -> tuple[Solved, ...]:
    """Return the names of each entry that may be removed, since all their tests passed.

    Args:
        entries: those that applied to the runs.
        runs: of each run, whether each test passed at once, by its id.
    """
    tests = set().union(*runs)
    good = {test for test in tests if all(run.get(test, False) for run in runs)}
    removable = []
    for skip in entries:
        names = tuple(
            name
            for name in skip.entry.names
            if (named_tests := _tests_of(name, skip.entry, tests)) and good.issuperset(named_tests)
        )
        if names:
            removable.append(Solved(listed=skip, names=names))
    return tuple(removable)


def _tests_of(name: str, entry: Entry, tests: Iterable[str]) -> set[str]:
    if name in entry.patterns:
        regex = re.compile(ids.compile_pattern(name).regex)
        return {test for test in tests if regex.fullmatch(test)}
    # A module that could not be imported has an outcome too, under its own name.
    return {
        test for test in tests if test == name or ("::" not in name and ids.take_apart(test).module == name)
    }


def patch(removable: Iterable[Solved], *, top: Path) -> str:
    """Return a patch that removes these names, for `git apply` or `patch -p1` in the folder `top`.

    Raises:
        UsageError: a file is written so that the names are not on lines of their own.
    """
    by_file: dict[Path, list[Solved]] = {}
    for entry in removable:
        by_file.setdefault(entry.listed.file, []).append(entry)
    lines: list[str] = []
    for path, those in by_file.items():
        old = path.read_bytes().decode()  # with the line ends that it has
        absolute = path.absolute()
        name = (
            (absolute.relative_to(top) if absolute.is_relative_to(top) else absolute).as_posix().lstrip("/")
        )
        new = without(old, those, name=str(path))
        lines += difflib.unified_diff(_lines_of(old), _lines_of(new), f"a/{name}", f"b/{name}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def without(text: str, removable: Iterable[Solved], *, name: str) -> str:
    """Return the text of a file without the names that may be removed; other lines are unchanged.

    Raises:
        UsageError: they cannot be removed line by line.
    """
    lines = _lines_of(text)
    starts = [number for number, line in enumerate(lines) if _HEADER.fullmatch(line.rstrip("\r\n"))]
    read = _parse(text, name)
    gone = {entry.listed.number: entry for entry in removable}
    if len(starts) == len(read.skips):
        for number in sorted(gone, reverse=True):
            start = starts[number - 1]
            end = starts[number] if number < len(starts) else len(lines)
            while end > start and _QUIET.fullmatch(lines[end - 1].rstrip("\r\n")):
                end -= 1  # what stands above the next entry is of that one
            if gone[number].whole:
                while start and lines[start - 1].lstrip().startswith("#"):
                    start -= 1
                while start and not lines[start - 1].strip():
                    start -= 1  # the empty lines between two entries go with the second
                lines[start:end] = []
            else:
                lines[start:end] = _without_names(lines[start:end], gone[number].names)
    new = "".join(lines)
    if _parse(new, name).skips != _expected(read, gone):
        raise UsageError(
            f"{name} is written in a way that entries cannot be taken out of it", tip="write an id a line"
        )
    return new


def _lines_of(text: str) -> list[str]:
    """Split a text into lines with their ends, as git does: `str.splitlines` also splits at U+2028."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _parse(text: str, name: str) -> SkipFile:
    return datafile.from_plain(datafile.parse_toml(text.encode(), name=name), SkipFile, name=name)


def _without_names(lines: Sequence[str], names: Iterable[str]) -> list[str]:
    block = "".join(lines)
    for name in names:
        quoted = "|".join(map(re.escape, (datafile.toml_text(name), f"'{name}'")))
        # With its comma, and with its line where it has one of its own.
        own_line = rf"(?m)^[ \t]*(?:{quoted})[ \t]*,?[ \t]*(?:#.*)?\r?\n"
        block, taken = re.subn(own_line, "", block, count=1)
        if not taken:
            block = re.sub(rf"(?:{quoted})[ \t]*(?:,[ \t]*)?", "", block, count=1)
    return _lines_of(block)


def _expected(read: SkipFile, gone: Mapping[int, Solved]) -> tuple[Entry, ...]:
    left = []
    for number, entry in enumerate(read.skips, 1):
        names = gone[number].names if number in gone else ()
        rest = {
            key: tuple(name for name in getattr(entry, key) if name not in names)
            for key in ("tests", "patterns")
        }
        if any(rest.values()):
            left.append(datafile.convert({**datafile.to_plain(entry), **rest}, Entry))
    return tuple(left)
