"""A file of skips, as a user would write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cairn import datafile, files
from cairn.datafile import toml_text
from cairn.testing.skips.conditions import When
from cairn.testing.skips.importing.model import Imported


def write(imported: Imported, path: Path) -> None:
    """Write what a list meant, atomically; what it did not find stands at the end as comments."""
    lines = [
        f"# Out of {toml_text(imported.source.name)}, by `cairn test skips import`.",
        'schema = "cairn.skips/1"',
    ]
    for meaning in imported.meanings:
        if not meaning.tests:
            continue
        wanted = meaning.wanted
        lines += ["", "[[skips]]", "tests = ["]
        lines += [f"    {toml_text(test)}," for test in meaning.tests]
        lines += ["]", *_conditions(wanted.when), f"reason = {toml_text(wanted.reason)}"]
        lines += [f"issue = {toml_text(wanted.issue)}"] if wanted.issue else []
        lines += [f"owner = {toml_text(imported.owner)}", f"expires = {imported.expires}"]
    lost = [meaning for meaning in imported.meanings if not meaning.tests]
    lines += ["", "# Names that led to no test:"] if lost else []
    lines += [
        f"# {toml_text(meaning.wanted.text)} ({meaning.wanted.place}): {meaning.explained}"
        for meaning in lost
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
