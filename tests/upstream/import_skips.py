"""Write external-builds/pytorch/skip-tests from the names of upstream's lists, and count what became of them.

    python tests/upstream/import_skips.py --sources-dir pytorch-2.7

skip_names.toml has the names, skip_groups.toml why each is left out and where it is. For the version of torch
whose sources are there, the exact ids of each name are found in them; for all others, a pattern stands for
it, marked unresolved. Upstream joins the names to `pytest -k "not NAME and …"`, which leaves out each test
that has NAME anywhere in its id; what is meant is the test of that name, in the variants that PyTorch
generates of it for GPUs and dtypes, in the file that the name is filed under.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from cairn import files
from cairn.datafile import toml_text
from cairn.errors import CairnError, ProblemsError, UsageError
from cairn.testing.skips import conditions, ids, skip_files
from cairn.testing.skips.conditions import RunFacts, When
from cairn.testing.skips.skip_files import Entry, Listed
from cairn.testing.skips.sources import Sources

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SKIP_TESTS = ROOT / "external-builds/pytorch/skip-tests"
COMMITS = {"pytorch_2.7": "740ef9b"}
"""The commits at which lists were read, where that is not `COMMIT`."""
COMMIT = "89553ce"
OWNER, EXPIRES = "maintainers", date(2027, 6, 30)
READ, LATER = "2.7", ">=2.8"
_KNOWN_FILES = ("test_cuda.py", "test_nn.py", "test_torch.py", "inductor/test_torchinductor.py")
"""The line whose sources were read, and the versions that the lists for all versions are patterns for."""
_GPUS = ("dcgpu-all", "dgpu-all", "igpu-all")  # families that have every GPU between them
_FOLDER = "external-builds/pytorch"
_VARIANT = re.compile(r"_cuda(?:_(?:bool|[a-z]*(?:int|float|complex)\d+))*")


class Name(NamedTuple):
    """A name of a list: `generic windows cuda test_streams`."""

    list: str
    section: str
    module: str
    text: str

    def __str__(self) -> str:
        return " ".join(self)

    @property
    def is_file(self) -> bool:
        """Whether it is the name of a file of tests."""
        return self.list.startswith("run_")

    @property
    def source(self) -> str:
        """Repository, commit and file of its list."""
        folder = _FOLDER if self.is_file else f"{_FOLDER}/skip_tests"
        return f"ROCm/TheRock {COMMITS.get(self.list, COMMIT)}, {folder}/{self.list}.py"

    @property
    def torch(self) -> str:
        """The versions of torch that the list is for; empty for all."""
        line = self.list.partition("pytorch_")[2]
        return f"=={line}.*" if line[:1].isdigit() else ""

    @property
    def when(self) -> When:
        """The conditions of its list and section."""
        if self.section == "windows":
            return When(torch=self.torch, family=_GPUS, platform=("windows",))
        if self.section == "common":
            return When(torch=self.torch, family=_GPUS)
        return When(torch=self.torch, target=(self.section,))


class Meaning(NamedTuple):
    """The tests that a name means for a range of torch; exact ids, unless `unresolved`."""

    name: Name
    group: dict[str, Any]
    when: When
    tests: tuple[str, ...]
    unresolved: bool = False


@dataclass
class Lists:
    """Upstream's names, and their groups.

    Attributes:
        names: all of them.
        groups: of skip_groups.toml.
        not_taken: those that facts.toml explains, with the reason.
        problems: a sentence for each name without a group, and each pattern of a group without a name.
    """

    names: tuple[Name, ...]
    groups: dict[Name, dict[str, Any]] = field(default_factory=dict)
    not_taken: dict[Name, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read() -> Lists:
    """Read the names, and which group each belongs to."""
    data = tomllib.loads((HERE / "skip_names.toml").read_text(encoding="utf-8"))
    lists = Lists(
        names=tuple(
            Name(of, section, module, text)
            for of, sections in data.items()
            for section, modules in sections.items()
            for module, texts in modules.items()
            for text in texts
        )
    )
    groups = tomllib.loads((HERE / "skip_groups.toml").read_text(encoding="utf-8"))["groups"]
    unused = {pattern for group in groups for pattern in group["names"]}
    explained = tomllib.loads((HERE / "facts.toml").read_text(encoding="utf-8"))["differences"]
    for name in lists.names:
        reasons = [
            entry["reason"]
            for entry in explained
            if entry["category"] == "skip names"
            and any(fnmatch.fnmatchcase(f"{name}: there", pattern) for pattern in entry["names"])
        ]
        fitting = [
            (group, pattern)
            for group in groups
            for pattern in group["names"]
            if fnmatch.fnmatchcase(str(name), pattern)
        ]
        unused -= {pattern for _, pattern in fitting}
        if reasons:
            lists.not_taken[name] = reasons[0]
        elif fitting:
            lists.groups[name] = fitting[0][0]
        else:
            lists.problems.append(f"{name} has no group in skip_groups.toml")
    lists.problems += [f"skip_groups.toml: no name is called {pattern}" for pattern in sorted(unused)]
    return lists


def meanings(lists: Lists, sources: Sources) -> Iterator[Meaning]:
    """Yield what each name means for the sources' version of torch, and for the others of its list."""
    # What is left out as a whole comes first, then what is for all systems: names after them need no entry.
    for name, group in sorted(lists.groups.items(), key=lambda item: _order(item[0])):
        texts = _texts(name, group)
        found = tuple(dict.fromkeys(test for text in texts for test in _found(sources, text)))
        if "::" not in texts[0]:
            # The id of a file is exact; what a version lacks is passed over.
            torch = name.torch or ("" if found else LATER)
            yield Meaning(name, group, _when(name, group, torch), tuple(texts))
            continue
        patterns = tuple(dict.fromkeys(_patterns(name, group, found)))
        if name.torch in ("", f"=={READ}.*"):
            tests = patterns if group.get("computed") else found
            yield Meaning(name, group, _when(name, group, f"=={READ}.*"), tests)
        if name.torch != f"=={READ}.*":
            when = _when(name, group, name.torch or LATER)
            yield Meaning(name, group, when, patterns, unresolved=True)


def _order(name: Name) -> tuple[bool, bool]:
    return not name.is_file, name.section != "common"


def _when(name: Name, group: dict[str, Any], torch: str) -> When:
    if torch.startswith(">=") and "torch" in group:
        torch = f"{torch},{group['torch']}"
    when = name.when
    return When(
        torch=torch,
        family=when.family,
        target=when.target,
        platform=when.platform,
        python=group.get("python", ""),
    )


def _texts(name: Name, group: dict[str, Any]) -> list[str]:
    """Return the ids or patterns that a name may mean, the likelier first."""
    if name.is_file:
        return [f"{name.text}.py"]
    place = group.get("place", f"test_{name.module}.py")
    scope = place if "::" in place else f"{place}::*"
    return group.get("tests") or [f"{scope}::{name.text}"]


def _found(sources: Sources, text: str) -> tuple[str, ...]:
    """Return the tests of a name, or else what is generated of it for a GPU."""
    for variant in (text, f"{text}_cuda", f"{text}_cuda_*"):
        if tests := sources.find(variant)[0]:
            return tests
        scope, _, test = text.rpartition("::")
        if "*" in test or "_cuda" in test or scope.endswith("/*::*") or not scope:
            return ()
    return ()


def _patterns(name: Name, group: dict[str, Any], found: Sequence[str]) -> Iterator[str]:
    """Yield the patterns of a name for versions whose sources are not there."""
    for text in _texts(name, group):
        scope, _, test = text.rpartition("::")
        variants = {known.rpartition("::")[2].removeprefix(test) for known in found}
        is_generic = bool(variants) and all(_VARIANT.fullmatch(variant) for variant in variants)
        has_dtypes = any(variant.count("_") > 1 for variant in variants)
        # Releases have the test in different classes.
        scope = f"{scope.partition('::')[0]}::*" if "/*" not in scope else scope
        yield f"{scope}::{test}{'_cuda' if is_generic else ''}{'_*' if is_generic and has_dtypes else ''}"


def entries(found: Iterable[Meaning]) -> dict[str, list[str]]:
    """Return the text of the entries of each file: one for the names of a group with the same conditions.

    Raises:
        CairnError: two names mean the same test under conditions that neither has all of.
    """
    merged: dict[tuple[str, str, str, When, bool], list[str]] = {}
    issues: dict[str, str] = {}
    taken: dict[str, list[When]] = {}
    for meaning in found:
        for test in meaning.tests:
            earlier = taken.setdefault(test, [])
            if any(_implies(meaning.when, when) for when in earlier):
                continue  # an earlier name means the same test
            if any(conditions.may_coincide(when, meaning.when) for when in earlier):
                raise CairnError(f"{meaning.name}: {test} has an entry already: give its group `torch`")
            earlier.append(meaning.when)
            reason = meaning.group["reason"]
            issues[reason] = meaning.group.get("issue", "")
            key = (_file(meaning), reason, meaning.name.source, meaning.when, meaning.unresolved)
            merged.setdefault(key, []).append(test)
    texts: dict[str, list[str]] = {}
    for (file, reason, source, when, unresolved), tests in merged.items():
        lines = _entry(reason, issues[reason], source, when, tests, unresolved=unresolved)
        texts.setdefault(file, []).append("\n".join(lines))
    return texts


def _implies(narrow: When, wide: When) -> bool:
    """Whether a run that meets the first conditions always meets the second."""
    line = narrow.torch.removeprefix("==").removesuffix(".*")
    return (
        wide.torch in ("", narrow.torch)
        or (narrow.torch.startswith("==") and conditions.contains(wide.torch, line))
    ) and all(
        not getattr(wide, name) or getattr(wide, name) == getattr(narrow, name)
        for name in ("family", "target", "platform", "python")
    )


def _file(meaning: Meaning) -> str:
    line = re.fullmatch(r"==([0-9.]+)\.\*", meaning.when.torch)
    return f"torch-{line[1]}.toml" if line else "generic.toml"


def _entry(
    reason: str, issue: str, source: str, when: When, tests: Sequence[str], *, unresolved: bool
) -> Iterator[str]:
    yield "\n[[skips]]"
    yield "patterns = [" if any("*" in test for test in tests) else "tests = ["
    yield from (f"    {toml_text(test)}," for test in sorted(tests))
    yield "]"
    yield f"when = {{ {', '.join(_conditions(when))} }}"
    if unresolved:
        yield "unresolved = true"
    yield f"reason = {toml_text(reason)}"
    if issue:
        yield f"issue = {toml_text(issue)}"
    yield f"source = {toml_text(source)}"
    yield f"owner = {toml_text(OWNER)}"


def _conditions(when: When) -> Iterator[str]:
    for name in ("family", "target", "platform"):
        if values := getattr(when, name):
            yield f"{name} = [{', '.join(map(toml_text, values))}]"
    for name in ("torch", "python"):
        if value := getattr(when, name):
            yield f"{name} = {toml_text(value)}"


def write(folder: Path, lists: Lists, sources: Sources, expires: date) -> None:
    """Write the files of skip-tests."""
    for file, texts in entries(meanings(lists, sources)).items():
        head = [
            "# Tests that upstream leaves out on AMD's GPUs; docs/reference/skip-tests.md shows an entry.",
            "# Made by tests/upstream/import_skips.py: edit tests/upstream/skip_groups.toml, and run that.",
            'schema = "cairn.skips/1"',
        ]
        text = "\n".join([*head, *(f"{each}\nexpires = {expires}" for each in texts)])
        files.write_text(folder / file, text + "\n")


def entries_of(name: Name, lists: Lists, listed: Iterable[Listed]) -> list[Entry]:
    """Return the entries that leave out what a name means, in some of the runs that its list is for."""
    texts = _texts(name, lists.groups.get(name, {}))
    return [
        item.entry
        for item in listed
        if conditions.may_coincide(item.entry.when, name.when)
        if any(_is_variant(text, test) for text in texts for test in item.entry.names)
    ]


def _is_variant(text: str, test: str) -> bool:
    """Whether an id or a pattern is one of what a name means, in whichever class, or generated of it."""
    meant, listed = ids.take_apart(text), ids.take_apart(test)
    if meant.module != listed.module or meant.name == listed.name:
        return meant.module == listed.module
    rest = listed.name.removeprefix(meant.name)
    return rest != listed.name and bool(_VARIANT.fullmatch(rest.removesuffix("_*")))


LINES = {"2.7": "2.7", "2.8 to 2.11": "2.8", "2.12": "2.12", "2.13": "2.13", "2.14 and later": "2.14"}
RUNS = (("Linux", "linux", "gfx942"), ("Windows", "windows", "gfx1100"), ("Linux, gfx950", "linux", "gfx950"))


CONFIGS = ("default", "distributed", "inductor", "full")
_SUITE = tomllib.loads((ROOT / _FOLDER / "suite.toml").read_text(encoding="utf-8"))
KINDS = ("whole files", "exact ids", "patterns", "unresolved", "no such test", "not taken")


class Row(NamedTuple):
    """What became of the names that upstream leaves out in one kind of run: the names of each of `KINDS`."""

    line: str
    run: str
    names: dict[str, list[Name]]


def rows(lists: Lists, listed: Sequence[Listed]) -> Iterator[Row]:
    """Yield a row for each line of torch, system and, where it has names of its own, family.

    Names that neither an entry nor facts.toml has are absent from the sources that were read, or a problem.
    """
    for line, version in LINES.items():
        for run, platform, target in RUNS:
            facts = RunFacts(targets=(target,), platform=platform, torch=version)
            of_run = [item for item in listed if conditions.applies(item.entry.when, facts)]
            row = Row(line, run, {kind: [] for kind in KINDS})
            for name in lists.names:
                if conditions.applies(name.when, facts):
                    row.names[_kind(name, lists, of_run)].append(name)
            yield row


def _kind(name: Name, lists: Lists, listed: Sequence[Listed]) -> str:
    fitting = entries_of(name, lists, listed)
    if name in lists.not_taken or not fitting:
        return "not taken" if name in lists.not_taken else "no such test"
    if "::" not in _texts(name, lists.groups.get(name, {}))[0]:
        return "whole files"
    if all(entry.unresolved for entry in fitting):
        return "unresolved"
    return "exact ids" if any(entry.tests for entry in fitting) else "patterns"


def table(lists: Lists, listed: Sequence[Listed]) -> Iterator[str]:
    """Yield the lines of the page's table: what became of the names of each run."""
    yield from _table(
        ("torch", "run", "upstream's names", *KINDS),
        (
            (row.line, row.run, sum(map(len, row.names.values())), *map(len, row.names.values()))
            for row in rows(lists, listed)
        ),
    )


def table_of_configurations(lists: Lists, listed: Sequence[Listed]) -> Iterator[str]:
    """Yield the lines of a table: names that are left out, of those of upstream, by configuration."""
    cells = []
    for row in rows(lists, listed):
        counts = {config: [0, 0] for config in CONFIGS}
        for kind, names in row.names.items():
            for name in names:
                of = counts[_config(name, lists)]
                of[0] += kind not in ("no such test", "not taken")
                of[1] += 1
        cells.append((row.line, row.run, *(f"{here} of {there}" for here, there in counts.values())))
    yield from _table(("torch", "run", *CONFIGS), cells)


def _config(name: Name, lists: Lists) -> str:
    """Return the first configuration of suite.toml that has the file of a name, or a folder of its name."""
    place = ids.take_apart(_texts(name, lists.groups.get(name, {}))[0]).module
    for config in CONFIGS[:-1]:
        groups = _SUITE["configs"][config]["groups"]
        modules = [f"{module}.py" for group in groups for module in group["modules"]]
        if place in modules or place.startswith(f"{config}/"):
            return config
    return CONFIGS[-1]


def _table(heads: Sequence[str], cells: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join(['---'] * len(heads))} |"
    yield from (f"| {' | '.join(map(str, row))} |" for row in cells)


def open_sources(root: Path) -> Sources:
    """Return the sources of the torch whose exact ids are written.

    Raises:
        UsageError: they are of a different version, or lack the files of tests that lists name: nearly every
            name would be "no such test", and its entry would go.
    """
    sources = Sources(root)
    if not f"{sources.version}.".startswith(f"{READ}."):
        raise UsageError(f"{root} is of torch {sources.version or 'no version'}, not of {READ}")
    if missing := [name for name in _KNOWN_FILES if not (root / "test" / name).is_file()]:
        raise UsageError(f"{root / 'test'} lacks {', '.join(missing)}: it is no whole checkout of PyTorch")
    return sources


def main(argv: Sequence[str] | None = None) -> None:
    """Write the files, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sources-dir", type=Path, help=f"a checkout of torch {READ}: write the files")
    parser.add_argument("--expires", type=date.fromisoformat, default=EXPIRES, metavar="DAY")
    parser.add_argument("--output-dir", type=Path, default=SKIP_TESTS)
    request = parser.parse_args(argv)
    lists = read()
    try:
        if request.sources_dir:
            write(request.output_dir, lists, open_sources(request.sources_dir), request.expires)
        listed = skip_files.read([request.output_dir])
    except ProblemsError as error:
        sys.exit("\n".join(map(str, (error, *error.problems))))
    except CairnError as error:
        sys.exit(f"{error}: {error.tip}" if error.tip else str(error))
    print(*table(lists, listed), "", *table_of_configurations(lists, listed), sep="\n")
    for row in rows(lists, listed):
        if row.line != READ:
            absent = row.names["no such test"]
            lists.problems += [f"{name} is left out by no entry of torch {row.line}" for name in absent]
    print(*lists.problems, sep="\n")
    sys.exit(1 if lists.problems else 0)


if __name__ == "__main__":
    main()
