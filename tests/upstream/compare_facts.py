"""Compare every fact that was copied from upstream with a checkout of upstream as it is now.

    git clone --depth 1 https://github.com/ROCm/TheRock
    git clone --depth 1 https://github.com/pytorch/pytorch
    git clone --depth 1 --filter blob:none --sparse https://github.com/ROCm/rocm-libraries
    git -C rocm-libraries sparse-checkout set projects/hipblaslt/tools
    python tests/upstream/compare_facts.py --therock TheRock --pytorch pytorch --libraries rocm-libraries

It prints how many facts it compared in each category, and each one that is different. A difference is
repaired, with the commit in the marker of the place, or explained in facts.toml, with a date to look again.
The exit code is 1 if a difference has no explanation, if an explanation is out of date or explains nothing,
and if something could not be compared.

A marker is a comment beside a copied fact, `# ROCm/TheRock 89553ce, cmake/therock_amdgpu_targets.cmake`: the
repository, the commit at which the fact was read, and the file. Each marker is compared by a row of `ROWS`,
or by an entry of facts.toml with the digest of the functions whose rules are written anew in ours.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import our_facts as ours
import upstream_files as theirs
from upstream_files import SHAPE_ERRORS, Checkout, Facts, Unread, UpstreamError, describe_shape

ROOT = Path(__file__).parents[2]
EXPLAINED = Path(__file__).with_name("facts.toml")
THEROCK, PYTORCH, LIBRARIES = "ROCm/TheRock", "pytorch/pytorch", "ROCm/rocm-libraries"
_FOLDERS = ("build_tools", "external-builds", "tests", "patches-policy")
_SOURCE = r"[\w./-]+\.\w+"
_MARKER = re.compile(
    rf"\b({THEROCK}|{PYTORCH}|{LIBRARIES}) ([0-9a-f]{{7,40}}),\s+({_SOURCE}(?:(?:,| and|, and)\s+{_SOURCE})*)"
)
_UNDATED = re.compile(r"\b(?:TheRock|pytorch)(?:'s)?,\s+((?:[\w.-]+/)+[\w-]+\.\w+)")


class Row(NamedTuple):
    """A category of facts: where they are ours, where they were read, and how to read both."""

    category: str
    place: str
    repository: str
    sources: tuple[str, ...]
    read: Callable[[Checkout], Facts]
    ours: Callable[[Facts], Facts]
    copies: tuple[str, ...] = ()
    """Other places whose markers name these sources."""


_SCRIPTS = ours.scripts_with_flags()


def _flags(checkout: Checkout) -> Facts:
    """The flags of upstream's scripts; defaults and choices of those that ours take."""
    return {
        name: value
        for name, value in theirs.flags(checkout, _SCRIPTS).items()
        if value is True or isinstance(value, Unread) or ours.takes_flag(name.rpartition(" ")[0])
    }


def _files(checkout: Checkout) -> Facts:
    return theirs.files(checkout, ours.folders_of_scripts())


def _pytorch_files(checkout: Checkout) -> Facts:
    return theirs.pytorch_files(checkout, ours.test_files())


def _workflows(checkout: Checkout) -> Facts:
    return theirs.workflows(checkout, ours.workflow_names())


_WORKFLOWS = tuple(f"{theirs.WORKFLOWS}{name}" for name in ours.workflow_names())
_LISTS = (theirs.FULL, *(f"{theirs.SKIPS}/{name}.py" for name in ours.skip_lists()))
_TARGETS = "build_tools/cairn/targets.toml"
ROWS = (
    Row("targets and families", _TARGETS, THEROCK, (theirs.TARGETS,), theirs.targets, ours.gpu_targets),
    Row(
        "families of indexes", _TARGETS, THEROCK, (theirs.FAMILIES,),
        theirs.index_families, ours.index_families,
    ),
    Row(
        "index addresses", _TARGETS, THEROCK, (theirs.BUCKETS, theirs.OWNERSHIP),
        theirs.indexes, ours.indexes,
    ),
    Row("release lines", ours.MATRIX, THEROCK, (theirs.RELEASES,), theirs.lines, ours.lines),
    Row("matrix rows", ours.MATRIX, THEROCK, (theirs.FAMILIES,), theirs.matrix, ours.matrix),
    Row("preloads", ours.STACK, THEROCK, (theirs.BUILD,), theirs.preloads, ours.preloads),
    Row("libraries of the SDK", ours.SDK, THEROCK, (theirs.DIST_INFO,), theirs.libraries, ours.libraries),
    Row(
        "packages of the SDK", "build_tools/cairn/requirements.py", THEROCK, (theirs.DIST_INFO,),
        theirs.packages, ours.packages,
    ),
    Row(
        "console scripts", ours.SDK, THEROCK,
        (theirs.CORE_SETUP, theirs.CORE_CLI, theirs.PROFILER_SETUP, theirs.PROFILER_CLI),
        theirs.scripts, ours.scripts,
    ),
    Row("artifacts", ours.SDK, THEROCK, (theirs.PACKAGES,), theirs.artifacts, ours.artifacts),
    Row(
        "buckets of artifacts", "build_tools/cairn/rocm/fetch/choose.py", THEROCK, (theirs.BUCKETS,),
        theirs.buckets, ours.buckets,
    ),
    Row(
        "workflows", "build_tools/cairn/rocm/fetch/runs.py", THEROCK, _WORKFLOWS,
        _workflows, ours.workflows,
    ),
    Row("flags", ours.FLAGS, THEROCK, _SCRIPTS, _flags, ours.flags),
    Row("scripts", ours.FLAGS, THEROCK, _SCRIPTS, _files, ours.files),
    Row("skip names", ours.SKIPS, THEROCK, _LISTS, theirs.skips, ours.skips, ours.skip_tests()),
    Row("build variables", ours.STACK, THEROCK, (theirs.BUILD,), theirs.variables, ours.variables),
    Row("projects", ours.STACK, THEROCK, (theirs.BUILD, theirs.PIN), theirs.projects, ours.projects),
    Row("fat wheels", ours.FAT, PYTORCH, (theirs.FAT,), theirs.fat_libraries, ours.fat_libraries),
    Row(
        "files of PyTorch", ours.SUITE, PYTORCH, ("test/run_test.py",), _pytorch_files, ours.pytorch_files
    ),
    Row(
        "hooks of PyTorch's tests", ours.SUITE, PYTORCH,
        (*theirs.CONFTESTS, theirs.SHARDS, theirs.PYTEST_INI), theirs.hooks, ours.hooks,
    ),
)  # fmt: skip
"""Every category of facts but that of rules."""


class Difference(NamedTuple):
    """A fact that is not the same here and there."""

    category: str
    name: str
    here: str
    there: str

    @property
    def seen(self) -> str:
        """What an explanation has a pattern of: the name, and what upstream says."""
        return f"{self.name}: {self.there}"

    def __str__(self) -> str:
        return f"{self.category}: {self.name}: ours is {self.here}, upstream's {self.there}"


@dataclass
class Comparison:
    """What was compared, by category; differences; and what could not be compared or explained."""

    compared: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    explained: list[tuple[Difference, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all was compared, and each difference has a valid explanation."""
        return bool(self.compared) and not self.differences and not self.problems


def compare(
    rows: Sequence[Row], checkouts: dict[str, Checkout], notes: dict[str, Any], today: date
) -> Comparison:
    """Compare the rows of the repositories that there are checkouts of."""
    result = Comparison()
    found: list[Difference] = []
    unread: dict[str, Sequence[str]] = {}
    for row in rows:
        if row.repository not in checkouts:
            continue
        try:
            facts = row.read(checkouts[row.repository])
            reasons = {name: value.reason for name, value in facts.items() if isinstance(value, Unread)}
            read = {name: value for name, value in facts.items() if name not in reasons}
            here, there = (_without(each, reasons) for each in (row.ours(read), read))
        except UpstreamError as error:
            result.problems.append(f"{row.category}: {error}")
            unread[row.category] = ("*",)
            continue
        except SHAPE_ERRORS as error:
            shape = describe_shape(error)
            result.problems.append(f"{row.category}: {', '.join(row.sources)}: {shape}")
            unread[row.category] = ("*",)
            continue
        result.problems += (f"{row.category}: {reason}" for reason in dict.fromkeys(reasons.values()))
        unread[row.category] = tuple(reasons)
        result.compared[row.category] = len(here.keys() | there.keys())
        if not (here and there):
            result.problems.append(f"{row.category}: nothing was compared")
        found += (
            Difference(row.category, name, _shown(here.get(name)), _shown(there.get(name)))
            for name in sorted(here.keys() | there.keys())
            if here.get(name) != there.get(name)
        )
    rules, changed = _rules(notes["rules"], checkouts, result.problems)
    unread["rules"] = ()
    result.compared["rules"] = rules
    if not rules:
        result.problems.append("rules: nothing was compared")
    found += changed
    _explain(found, notes["differences"], unread, today, result)
    return result


def _without(facts: Facts, patterns: Collection[str]) -> Facts:
    """The facts whose names none of these patterns match."""
    return {
        name: value
        for name, value in facts.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def _shown(value: object) -> str:
    if value is None:
        return "absent"
    if value is True:
        return "there"
    return (
        " ".join(sorted(map(str, value))) or "none" if isinstance(value, frozenset) else str(value) or "empty"
    )


def _rules(
    entries: Sequence[dict[str, Any]], checkouts: dict[str, Checkout], problems: list[str]
) -> tuple[int, list[Difference]]:
    """Compare the digests of functions whose rules are written anew."""
    count, changed = 0, []
    for entry in entries:
        checkout = checkouts.get(entry.get("repository", THEROCK))
        if checkout is None:
            continue
        name = f"{entry['source']}: {', '.join(entry['names'])}"
        try:
            digest = checkout.digest(entry["source"], entry["names"])
        except UpstreamError as error:
            problems.append(f"rules: {error}")
            continue
        count += 1
        if digest != entry["digest"]:
            changed.append(Difference("rules", name, f"{entry['digest']} ({entry['place']})", digest))
    return count, changed


def _explain(
    found: Sequence[Difference],
    entries: Sequence[dict[str, Any]],
    unread: Mapping[str, Sequence[str]],
    today: date,
    result: Comparison,
) -> None:
    """Sort differences into those with a reason and those without; report reasons that are out of date.

    Args:
        unread: by category of which a checkout is there: patterns of the facts that could not be read.
    """
    for difference in found:
        reason = next((entry["reason"] for entry in entries if _is_of(difference, entry)), None)
        if reason is None:
            result.differences.append(difference)
        else:
            result.explained.append((difference, reason))
    for entry in entries:
        result.problems += _stale(entry, found, unread, today)


def _is_of(difference: Difference, entry: dict[str, Any]) -> bool:
    return entry["category"] == difference.category and any(
        fnmatch.fnmatchcase(difference.seen, pattern) for pattern in entry["names"]
    )


def _stale(
    entry: dict[str, Any], found: Sequence[Difference], unread: Mapping[str, Sequence[str]], today: date
) -> Iterator[str]:
    """Yield what is wrong with an explanation; of a category that was not compared, nothing but its name."""
    category, names = entry["category"], entry["names"]
    if category not in {"rules", *(row.category for row in ROWS)}:
        yield f"{EXPLAINED.name} names a category that does not exist: {category}"
    if category not in unread:
        return
    if entry["look_again"] < today:
        yield f"{category}: {', '.join(names)}: look again, {entry['look_again']} is past: {entry['reason']}"
    differences = [difference for difference in found if difference.category == category]
    for pattern in names:
        name = pattern.partition(": ")[0]
        if any(fnmatch.fnmatchcase(difference.seen, pattern) for difference in differences):
            continue
        if any(_may_overlap(name, part) for part in unread[category]):
            continue  # whether it still differs is unknown; what could not be read is a problem of its own
        if any(fnmatch.fnmatchcase(difference.name, name) for difference in differences):
            yield f"{category}: {pattern}: upstream has changed it: explain it anew in {EXPLAINED.name}"
        else:
            yield f"{category}: {pattern}: it does not differ any more: take it out of {EXPLAINED.name}"


def _may_overlap(*patterns: str) -> bool:
    """Whether two patterns may match the same name: by the text before their first wildcard."""
    first, second = (re.split(r"[*?[]", pattern)[0] for pattern in patterns)
    return first.startswith(second) or second.startswith(first)


class Marker(NamedTuple):
    """A comment that says where a fact comes from."""

    place: str
    line: int
    repository: str
    source: str


def markers(root: Path = ROOT) -> tuple[list[Marker], list[str]]:
    """The markers in our files; and the places that name a file of upstream's without a commit."""
    found: list[Marker] = []
    undated: list[str] = []
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".py", ".toml") or "/.cairn/" in path.as_posix() or path == Path(__file__):
                continue
            place = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            # A marker may go on in the next line of its comment.
            joined = re.sub(r"\n[ \t]*#[ \t]?", lambda match: "\n" + " " * (len(match[0]) - 1), text)
            for match in _MARKER.finditer(joined):
                line = _line(joined, match)
                sources = re.findall(_SOURCE, match[3])
                found += (Marker(place, line, match[1], source.rstrip(".")) for source in sources)
            undated += (f"{place}:{_line(joined, match)}: {match[1]}" for match in _UNDATED.finditer(joined))
    return found, undated


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def unmarked(rows: Sequence[Row], notes: dict[str, Any], root: Path = ROOT) -> Iterator[str]:
    """Yield each fact without a marker, and each marker whose fact nothing compares."""
    found, undated = markers(root)
    yield from (f"{text}: names no commit" for text in undated)
    marked = {(each.place, each.repository, each.source) for each in found}
    wanted = {(row.place, row.repository, source): row.category for row in rows for source in row.sources}
    for entry in notes["rules"]:
        wanted[entry["place"], entry.get("repository", THEROCK), entry["source"]] = "rules"
    for key, category in wanted.items():
        if key not in marked:
            yield f"{key[0]}: {category} have no marker that names {key[1]}, a commit, and {key[2]}"
    copied = {
        (place, row.repository, source) for row in rows for place in row.copies for source in row.sources
    }
    for each in found:
        if (each.place, each.repository, each.source) not in wanted.keys() | copied:
            yield f"{each.place}:{each.line}: nothing compares this fact with {each.source}"


def notes() -> dict[str, Any]:
    """The explained differences, and the digests of rules."""
    return tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))


def main(argv: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Compare the facts copied from upstream with upstream's checkout."
    )
    parser.add_argument("--therock", type=Path, metavar="DIR", help="checkout of ROCm/TheRock")
    parser.add_argument("--pytorch", type=Path, metavar="DIR", help="checkout of pytorch/pytorch")
    parser.add_argument("--libraries", type=Path, metavar="DIR", help="checkout of ROCm/rocm-libraries")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    request = parser.parse_args(argv)
    given = {THEROCK: request.therock, PYTORCH: request.pytorch, LIBRARIES: request.libraries}
    checkouts = {name: Checkout(path) for name, path in given.items() if path is not None}
    if not checkouts:
        parser.error("name a checkout: --therock DIR, --pytorch DIR, --libraries DIR")
    for name, checkout in checkouts.items():
        if not checkout.root.is_dir():
            parser.error(f"{checkout.root} is not a folder: clone {name} there")
    result = compare(ROWS, checkouts, notes(), datetime.now(tz=UTC).date())
    result.problems += unmarked(ROWS, notes())
    if request.json:
        print(json.dumps(_plain(result), indent=2))
    else:
        print("\n".join(_report(result)))
    return 0 if result.is_good else 1


def _plain(result: Comparison) -> dict[str, Any]:
    return {
        "compared": result.compared,
        "differences": [each._asdict() for each in result.differences],
        "explained": [{**each._asdict(), "reason": reason} for each, reason in result.explained],
        "problems": result.problems,
    }


def _report(result: Comparison) -> Iterator[str]:
    for category, count in result.compared.items():
        explained = sum(each.category == category for each, _ in result.explained)
        different = sum(each.category == category for each in result.differences)
        yield f"{category}: {count} compared, {different} different, {explained} explained"
    yield from map(str, result.differences)
    yield from result.problems
    total = sum(result.compared.values())
    left = len(result.differences) + len(result.problems)
    yield f"{total} facts compared: {len(result.explained)} differences explained, {left} to repair"


if __name__ == "__main__":
    sys.exit(main())
