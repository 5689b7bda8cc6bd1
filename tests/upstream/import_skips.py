"""Convert upstream's skip lists, which name tests by substrings, to files of skip-tests.

Upstream excludes by `pytest -k "not NAME and …"`: NAME may be anywhere in the name of a test, of its class,
or of its file, in capital or small letters, so that `test_print` also excludes `test_print_all`. What
upstream means is the test of that name, in all variants that PyTorch generates of it for devices and dtypes:
those are looked up in a collection.

A program of the maintainers. A list is TheRock's skip_tests/*.py, which is read and not run, or PyTorch's
disabled-tests.json. The collection is what `pytest --collect-only -q` printed about all tests:

    python tests/upstream/import_skips.py skip_tests/generic.py skip_tests/pytorch_2.13.py
        --collection collection.txt --owner rocm-pytorch --expires 2027-06-30 --output-dir skip-tests
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path, PurePosixPath
from typing import Literal

import upstream_lists
from upstream_lists import UpstreamName

from cairn import datafile, files
from cairn.datafile import toml_text
from cairn.errors import CairnError, UsageError
from cairn.output import wording
from cairn.testing.skips import conditions, ids, skip_files
from cairn.testing.skips.conditions import When
from cairn.testing.skips.ids import Collected

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

# What `instantiate_device_type_tests` appends to the names of tests, and to those of their classes
# (torch/testing/_internal/common_device_type.py).
_DEVICES = "cpu|cuda|meta|mps|xpu|hpu|mtia|lazy|privateuse1"
_DTYPE = re.compile(
    r"(.+)_(?:bool|u?int(?:8|16|32|64)|q(?:u?int8|int32)|b?float(?:16|32|64)|float8_e\w+|complex(?:32|64|128))"
)
_ON_GPU = re.compile(r"_cuda(?:_|$)")
_DEVICE = re.compile(rf"(.+)_(?:{_DEVICES})")
_CLASS = re.compile(rf"(.+?)(?:{_DEVICES})", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The tests that a name of the list means.

    Attributes:
        name: as in the list.
        how: the rule that found its tests.
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
        """Return a copy with only the tests that no earlier name has."""
        left = tuple(tests)
        return dataclasses.replace(self, tests=left, how="taken" if self.tests and not left else self.how)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """An upstream list whose names were looked up in a collection.

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


class Tests:
    """The tests of a collection, indexed by the names that upstream's lists use."""

    __test__ = False  # pytest would collect the name

    def __init__(self, collection: Collected) -> None:
        self._modules = tuple(collection)
        tests = [test for of_module in collection.values() for test in of_module]
        self._named: dict[str, list[str]] = {}
        self._searched: list[tuple[str, str]] = []
        for test in tests:
            parts = ids.take_apart(test)
            for name in _without_suffixes(parts.name):
                self._named.setdefault(name, []).append(test)
            # The words that `-k` looks into; none of them has a line break.
            words = (PurePosixPath(parts.module).name, *parts.classes, parts.name + parts.arguments)
            self._searched.append((test, "\n".join(words).casefold()))
        self._names = {test: ids.take_apart(test) for test in tests}

    def meant(self, names: Sequence[UpstreamName]) -> Iterator[Meaning]:
        """Yield each name of a list with the tests that it means."""
        matches = [self._tests(name) for name in names]
        meant = {test for _, tests in matches for test in tests}
        for name, (how, tests) in zip(names, matches, strict=True):
            accidents = tuple(test for test in self._hit(name) if test not in meant)
            yield Meaning(name=name, how=how, tests=tuple(tests), accidents=accidents)

    def missing_gpu(self, names: Sequence[UpstreamName]) -> list[str]:
        """Return remarks on names of GPU tests if the machine of the collection had no GPU."""
        on_gpu = [name.text for name in names if _ON_GPU.search(name.text)]
        # A test may have the word in its name on any machine; its class has it only of a GPU.
        if not on_gpu or any(
            name.endswith("CUDA") for parts in self._names.values() for name in parts.classes
        ):
            return []
        return [
            f"{len(on_gpu)} names are of tests on a GPU; the collection has none: make it where there is one"
        ]

    def _tests(self, name: UpstreamName) -> tuple[How, list[str]]:
        named = self._named.get(name.text, [])
        if name.class_name:
            own = []
            for test in named:
                classes = self._names[test].classes[-1:]
                generic = _CLASS.fullmatch(classes[0]) if classes else None
                if classes == (name.class_name,) or (generic and generic[1] == name.class_name):
                    own.append(test)
            return ("exact", own) if own else ("unknown", [])
        files = [module for module in self._modules if _filed_under(module, name.filed)]
        if not files:
            return "not collected", []
        own = [test for test in named if self._names[test].module in files]
        if own:
            return "exact", own
        if named:
            return "elsewhere", named
        beginning = [
            test
            for test, parts in self._names.items()
            if parts.module in files and parts.name.startswith(name.text)
        ]
        family = [test for test in beginning if self._names[test].name.startswith(f"{name.text}_")]
        if family:
            return "family", family
        return ("broad", beginning) if beginning else ("unknown", [])

    def _hit(self, name: UpstreamName) -> Iterator[str]:
        if name.class_name:
            # torch's own rule for disabled tests: any class whose name begins so.
            for test in self._named.get(name.text, ()):
                classes = self._names[test].classes
                if classes and classes[-1].startswith(name.class_name):
                    yield test
            return
        text = name.text.casefold()
        yield from (test for test, searched in self._searched if text in searched)


def _filed_under(module: str, filed: str) -> bool:
    path = PurePosixPath(module)
    return path.stem in (f"test_{filed}", filed) or path.parts[0] == filed


def _without_suffixes(name: str) -> list[str]:
    """Return the names for a test: its own, without the dtype, and without device and dtype."""
    names = [name]
    for suffix in (_DTYPE, _DEVICE):
        if match := suffix.fullmatch(names[-1]):
            names.append(match[1])
    return names


def read(lists: Iterable[Path], collection: Collected, *, owner: str, expires: date) -> tuple[Imported, ...]:
    """Read upstream's lists, and find the tests that they mean.

    If several names mean a test under conditions that may hold at once, it belongs to the first of them.

    Raises:
        UsageError: a list is not what upstream's are.
    """
    tests = Tests(collection)
    taken: dict[str, list[When]] = {}
    imported = []
    for source in lists:
        upstream_list = (
            upstream_lists.read_disabled_tests(source)
            if source.suffix == ".json"
            else upstream_lists.read_therock(source)
        )
        meanings = []
        for one in tests.meant(upstream_list.names):
            own = []
            for test in one.tests:
                earlier = taken.setdefault(test, [])
                if not any(conditions.may_coincide(when, one.name.when) for when in earlier):
                    earlier.append(one.name.when)
                    own.append(test)
            meanings.append(one.with_tests(own))
        imported.append(
            Imported(
                source=source,
                owner=owner,
                expires=expires,
                meanings=tuple(meanings),
                remarks=(*upstream_list.remarks, *tests.missing_gpu(upstream_list.names)),
            )
        )
    return tuple(imported)


def write(imported: Imported, path: Path) -> None:
    """Write the entries of a list atomically; names without a test follow at the end as comments."""
    lines = [
        f"# Out of {toml_text(imported.source.name)}, by tests/upstream/import_skips.py.",
        'schema = "cairn.skips/1"',
    ]
    for meaning in imported.meanings:
        if not meaning.tests:
            continue
        name = meaning.name
        lines += ["", "[[skips]]", "tests = ["]
        lines += [f"    {toml_text(test)}," for test in meaning.tests]
        lines += ["]", *_conditions(name.when), f"reason = {toml_text(name.reason)}"]
        lines += [f"issue = {toml_text(name.issue)}"] if name.issue else []
        lines += [f"owner = {toml_text(imported.owner)}", f"expires = {imported.expires}"]
    lost = [meaning for meaning in imported.meanings if not meaning.tests]
    lines += ["", "# Names that led to no test:"] if lost else []
    lines += [
        f"# {toml_text(meaning.name.text)} ({meaning.name.place}): {meaning.explained}" for meaning in lost
    ]
    files.write_text(path, "\n".join(lines) + "\n")


def _conditions(when: When) -> Iterator[str]:
    pairs = []
    for name, value in datafile.to_plain(when).items():
        if isinstance(value, str):
            pairs += [f"{name} = {toml_text(value)}"] if value else []
        elif value:
            pairs.append(f"{name} = [{', '.join(map(toml_text, value))}]")
    if pairs:
        yield f"when = {{ {', '.join(pairs)} }}"


def main(argv: Sequence[str] | None = None) -> None:
    """Write a file of skips for each list, and print what its substrings hit besides."""
    parser = argparse.ArgumentParser(description="Write files of skips with exact ids from upstream's lists.")
    parser.add_argument("lists", type=Path, nargs="+", metavar="LIST")
    parser.add_argument("--collection", type=Path, required=True)
    parser.add_argument("--owner", required=True, help="who is asked about the entries")
    parser.add_argument("--expires", type=date.fromisoformat, required=True, metavar="DAY")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true")
    request = parser.parse_intermixed_args(argv)
    try:
        targets = _targets(request.lists, request.output_dir, dry_run=request.dry_run)
        collection = ids.read_collection(request.collection)
        imported = read(request.lists, collection, owner=request.owner, expires=request.expires)
        for each in imported if not request.dry_run else ():
            write(each, targets[each.source])
        if not request.dry_run:
            skip_files.read(targets.values())  # what was written must be what a run accepts
    except CairnError as error:
        sys.exit(f"error: {error}")
    for each in imported:
        print(*_report(each), *each.remarks, sep="\n")
        if not request.dry_run:
            print(f"written: {targets[each.source]}")


def _targets(lists: Sequence[Path], output_dir: Path, *, dry_run: bool) -> dict[Path, Path]:
    """Return the file that each list is written to; an existing file is refused."""
    names = {path: path.stem.replace("_", "-").lstrip(".") for path in lists}
    if len(set(names.values())) < len(names):
        raise UsageError("two lists have one name: import them one after the other, into two folders")
    targets = {path: output_dir / f"{name}.toml" for path, name in names.items()}
    existing = next((target for target in targets.values() if target.exists()), None)
    if existing and not dry_run:
        raise UsageError(f"{existing} is there already: remove it, or give a different --output-dir")
    return targets


def _report(imported: Imported) -> Iterator[str]:
    tests = sum(len(meaning.tests) for meaning in imported.meanings)
    yield f"{imported.source.name}: {wording.count(imported.meanings, 'name')}, {tests} tests"
    by_rule: dict[str, list[str]] = {}
    for meaning in imported.meanings:
        if meaning.how != "exact":
            by_rule.setdefault(meaning.explained, []).append(f"{meaning.name.text} ({meaning.name.place})")
    for rule, names in by_rule.items():
        yield f"  {rule}: {wording.some(names)}"
    for meaning in imported.meanings:
        if meaning.accidents:
            hit = wording.some(meaning.accidents, shown=3)
            name = f"{meaning.name.text} ({meaning.name.place})"
            yield f"  {name} hits {wording.count(meaning.accidents, 'test')} by accident: {hit}"


if __name__ == "__main__":
    main()
