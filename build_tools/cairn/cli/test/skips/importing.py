"""`cairn test skips import`: make files of skips out of upstream's lists."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.test.skips import options as shared
from cairn.errors import UsageError
from cairn.output import console, wording

if TYPE_CHECKING:
    from cairn.testing.skips.importing.model import Imported


def add_to(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "import",
        _import,
        about="make files of skips, with exact ids, out of upstream's lists",
        more="A list is TheRock's skip_tests/*.py, which is read and not run, or PyTorch's "
        "disabled-tests.json. What its substrings name is looked up among the tests of a collection; what "
        "they hit besides is said, and stays in.",
        example="cairn test skips import skip_tests/generic.py skip_tests/pytorch_2.13.py "
        "--collection collection.txt --owner rocm-pytorch --expires 2027-06-30 --output-dir skip-tests",
    )
    parser.add_argument("lists", nargs="+", type=converters.file, metavar="LIST", help="a list of upstream's")
    parser.add_argument(
        "--collection",
        type=converters.file,
        required=True,
        metavar="FILE",
        help="what `pytest --collect-only -q` printed about all tests",
    )
    parser.add_argument("--owner", type=converters.nonempty, required=True, help="who is asked about them")
    parser.add_argument(
        "--expires", type=shared.day, required=True, metavar="DAY", help="the last day they hold unseen"
    )
    arguments.add_output_dir(parser)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _import(options: argparse.Namespace) -> int:
    from cairn.testing.skips import collection, importing, skip_files

    targets = _targets(options)
    imported = importing.read(
        options.lists, collection.read(options.collection), owner=options.owner, expires=options.expires
    )
    if not options.dry_run:
        for found in imported:
            importing.write(found, targets[found.source])
        skip_files.read(targets.values())  # what was written must be what a run accepts
    show = console.current()
    if options.json:
        show.json({"lists": [_plain(found, targets[found.source]) for found in imported]})
        return 0
    for found in imported:
        _show(found)
        if not options.dry_run:
            show.out(f"written: {targets[found.source]}")
    return 0


def _targets(options: argparse.Namespace) -> dict[Path, Path]:
    """The file that each list becomes; none of them may hold what somebody has written."""
    names = {path: path.stem.replace("_", "-").lstrip(".") for path in options.lists}
    if len(set(names.values())) < len(names):
        raise UsageError("two lists have one name", tip="import them one after the other, into two folders")
    targets = {path: options.output_dir / f"{name}.toml" for path, name in names.items()}
    there = next((target for target in targets.values() if target.exists()), None)
    if there and not options.dry_run:
        raise UsageError(f"{there} is there already", tip="remove it, or give a different --output-dir")
    return targets


def _show(found: Imported) -> None:
    show = console.current()
    tests = sum(len(meaning.tests) for meaning in found.meanings)
    show.out(f"{found.source.name}: {wording.count(found.meanings, 'name')}, {tests} tests")
    by_rule: dict[str, list[str]] = {}
    for meaning in found.meanings:
        if meaning.how != "exact":
            by_rule.setdefault(meaning.explained, []).append(
                f"{meaning.wanted.text} ({meaning.wanted.place})"
            )
    for rule, names in by_rule.items():
        show.out(f"  {rule}: {wording.some(names)}")
    for meaning in found.meanings:
        if meaning.accidents:
            hit = wording.some(meaning.accidents, shown=3)
            name = f"{meaning.wanted.text} ({meaning.wanted.place})"
            show.out(f"  {name} hits {wording.count(meaning.accidents, 'test')} by accident: {hit}")
    for remark in found.remarks:
        show.warn(remark)


def _plain(found: Imported, target: Path) -> dict[str, object]:
    names = [
        {
            "name": meaning.wanted.text,
            "place": meaning.wanted.place,
            "how": meaning.how,
            "tests": list(meaning.tests),
            "accidents": list(meaning.accidents),
        }
        for meaning in found.meanings
    ]
    return {"list": str(found.source), "file": str(target), "names": names, "remarks": list(found.remarks)}
