"""Files of skips out of upstream's lists, which name tests by parts of their names.

`therock` and `disabled_tests` read the lists into what `model` has; `meaning` finds the tests that they meant
among those of a collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from cairn import datafile, files
from cairn.datafile import toml_text
from cairn.testing.skips import conditions
from cairn.testing.skips.conditions import When
from cairn.testing.skips.ids import Collected
from cairn.testing.skips.importing import disabled_tests, therock
from cairn.testing.skips.importing.meaning import Tests
from cairn.testing.skips.importing.model import Imported


def read(lists: Iterable[Path], collection: Collected, *, owner: str, expires: date) -> tuple[Imported, ...]:
    """Read upstream's lists, and find the tests that they meant.

    A test that several names mean under conditions that may hold at once belongs to the first of them.

    Raises:
        UsageError: a list is not what upstream's are.
    """
    tests = Tests(collection)
    taken: dict[str, list[When]] = {}
    imported = []
    for source in lists:
        upstream_list = disabled_tests.read(source) if source.suffix == ".json" else therock.read(source)
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
    """Write the entries of a list, atomically; names that led to no test stand at the end, as comments."""
    lines = [
        f"# Out of {toml_text(imported.source.name)}, by `cairn test skips import`.",
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
