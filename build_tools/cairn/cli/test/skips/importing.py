"""`cairn test skips import`: make files of skips out of upstream's lists."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import fields
from cairn.cli.answer import Answer, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, option
from cairn.output import wording

if TYPE_CHECKING:
    from cairn.testing.skips.importing.model import Imported


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text[:40]!r} is not a day, such as 2027-06-30") from error


@dataclass(frozen=True, kw_only=True)
class ImportSkips:
    """What `cairn test skips import` is asked for.

    A list is TheRock's skip_tests/*.py, which is read and not run, or PyTorch's disabled-tests.json. What
    its substrings name is looked up among the tests of a collection; what they hit besides is said, and
    stays in.

        cairn test skips import skip_tests/generic.py skip_tests/pytorch_2.13.py --collection
        collection.txt --owner rocm-pytorch --expires 2027-06-30 --output-dir skip-tests
    """

    lists: tuple[Path, ...] = argument("LIST", "a list of upstream's", nargs="+", convert=converters.file)
    collection: Path = option(
        "what `pytest --collect-only -q` printed about all tests",
        metavar="FILE",
        convert=converters.file,
        required=True,
    )
    owner: str = option("who is asked about them", convert=converters.nonempty, required=True)
    expires: date = option("the last day they hold unseen", metavar="DAY", convert=_day, required=True)
    output_dir: Path = fields.output_dir()
    dry_run: bool = fields.dry_run()
    json: bool = fields.json()


def run(request: ImportSkips) -> Answer:
    """Run the command."""
    from cairn.testing.skips import ids, importing, skip_files

    targets = _targets(request)
    imported = importing.read(
        request.lists, ids.read_collection(request.collection), owner=request.owner, expires=request.expires
    )
    if not request.dry_run:
        for each in imported:
            importing.write(each, targets[each.source])
        skip_files.read(targets.values())  # what was written must be what a run accepts
    text: list[Piece] = []
    for each in imported:
        text += _text(each)
        if not request.dry_run:
            text.append(f"written: {targets[each.source]}")
    return Answer({"lists": [_plain(each, targets[each.source]) for each in imported]}, text)


def _targets(request: ImportSkips) -> dict[Path, Path]:
    """The file that each list becomes; none of them may hold what somebody has written."""
    names = {path: path.stem.replace("_", "-").lstrip(".") for path in request.lists}
    if len(set(names.values())) < len(names):
        raise UsageError("two lists have one name", tip="import them one after the other, into two folders")
    targets = {path: request.output_dir / f"{name}.toml" for path, name in names.items()}
    existing = next((target for target in targets.values() if target.exists()), None)
    if existing and not request.dry_run:
        raise UsageError(f"{existing} is there already", tip="remove it, or give a different --output-dir")
    return targets


def _text(imported: Imported) -> Iterator[Piece]:
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
    yield from map(Warn, imported.remarks)


def _plain(imported: Imported, target: Path) -> dict[str, object]:
    names = [
        {
            "name": meaning.name.text,
            "place": meaning.name.place,
            "how": meaning.how,
            "tests": meaning.tests,
            "accidents": meaning.accidents,
        }
        for meaning in imported.meanings
    ]
    return {
        "list": imported.source,
        "file": target,
        "names": names,
        "remarks": imported.remarks,
    }


COMMANDS = {"import": command(ImportSkips, run)}
