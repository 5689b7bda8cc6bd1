"""Find excluded tests that pass by now, and make the patch that removes them from skip-tests.

The tests of the entries, and nothing else, were run as a suite runs them (`only_skipped`), perhaps several
times. A test may be removed if it ran and passed at the first attempt each time. The proposal is valid
for the machine that it was tried on: a reviewer compares that with the conditions of the entry.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import datafile
from cairn.errors import UsageError
from cairn.testing.skips import ids
from cairn.testing.skips.skip_files import Entry, Listed, SkipFile

_HEADER = re.compile(r"\s*\[\[\s*skips\s*\]\]\s*(?:#.*)?")
_QUIET = re.compile(r"\s*(?:#.*)?")  # an empty line or a comment


@dataclass(frozen=True, kw_only=True)
class Solved:
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
    for listed in entries:
        names = tuple(
            name
            for name in listed.entry.names
            if (own := _named(name, listed.entry, tests)) and good.issuperset(own)
        )
        if names:
            removable.append(Solved(listed=listed, names=names))
    return tuple(removable)


def _named(name: str, entry: Entry, tests: Iterable[str]) -> set[str]:
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
    for one in removable:
        by_file.setdefault(one.listed.file, []).append(one)
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
    gone = {one.listed.number: one for one in removable}
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
