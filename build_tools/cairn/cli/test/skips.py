"""`cairn test skips lint`, `list` and `import`: the files of tests that a suite leaves out."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Table, Warn
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, option
from cairn.output import wording

if TYPE_CHECKING:
    from cairn.testing.skips.conditions import When
    from cairn.testing.skips.importing import Imported
    from cairn.testing.skips.select import Selection


def _version(of: str) -> Any:
    return option(f"version of {of} (default: any)", metavar="VERSION", convert=converters.nonempty)


@dataclass(frozen=True, kw_only=True)
class SkipsOfRun:
    """Files of skips, and what is known of the run; an entry whose conditions do not fit it is left aside."""

    files: tuple[Path, ...] = common.skip_files()
    targets: str | None = common.targets("any")
    platform: str | None = option("operating system (default: any)", choices=("linux", "windows"))
    pytorch_version: str | None = _version("torch, such as 2.13")
    python_version: str | None = _version("Python")

    def select(self, *, today: date) -> Selection:
        """Select the entries that apply."""
        from cairn.targets import parse_targets
        from cairn.testing.skips import select, skip_files
        from cairn.testing.skips.conditions import RunFacts, release_of

        facts = RunFacts(
            targets=parse_targets(self.targets, unbuilt=True) if self.targets else None,
            platform=self.platform,
            torch=release_of(self.pytorch_version) if self.pytorch_version else None,
            python=release_of(self.python_version) if self.python_version else None,
        )
        return select.select(skip_files.read(self.files), facts, today=today)


def today() -> date:
    """Return the date to compare expiry dates with."""
    return datetime.now(tz=UTC).date()


@dataclass(frozen=True, kw_only=True)
class Lint(SkipsOfRun):
    """Options of `cairn test skips lint`.

    Without --collection: keys, ids, conditions, duplicates, and what expired. With it, also what names no
    test; give the conditions of the run that it is from. Exits with 1 where it has found something.

        cairn test skips lint external-builds/pytorch/skip-tests --collection collection.txt --targets
        gfx942 --pytorch-version 2.13
    """

    collection: Path | None = option(
        "what `pytest --collect-only -q` printed about all tests", convert=converters.file
    )


def _lint(request: Lint) -> Answer:
    from cairn.testing.skips import ids, skip_files

    day = today()
    selection = request.select(today=day)
    collection = ids.read_collection(request.collection) if request.collection else None
    findings = list(skip_files.lint(selection.entries, today=day, collection=collection))
    rows = [
        {"kind": each.kind, "file": each.where.file, "number": each.where.number, "text": each.text}
        for each in findings
    ]
    text: tuple[Piece, ...] = (
        *(f"{each.kind}: {each.where}: {each.text}" for each in findings),
        *map(Warn, selection.remarks),
        Note(f"entries looked at: {len(selection.entries)}; findings: {len(findings)}"),
    )
    return Answer({"entries": len(selection.entries), "findings": rows}, text, exit_code=1 if findings else 0)


@dataclass(frozen=True, kw_only=True)
class ListSkips(SkipsOfRun):
    """Options of `cairn test skips list`.

    Without a condition, all that may be.

        cairn test skips list external-builds/pytorch/skip-tests --targets gfx942 --pytorch-version 2.13
    """


def _list(request: ListSkips) -> Answer:
    from cairn import datafile

    selection = request.select(today=today())
    plain = [
        {"file": item.file, "number": item.number, **datafile.to_plain(item.entry)}
        for item in selection.entries
    ]
    return Answer({"entries": plain, "remarks": selection.remarks}, _text(selection))


def _text(selection: Selection) -> Iterator[Piece]:
    rows = []
    for item in selection.entries:
        entry = item.entry
        expires = f"{entry.expires}{' (expired)' if item in selection.expired else ''}"
        why = f"{entry.reason} {entry.issue}".strip()
        rows += [(name, conditions_of(entry.when), entry.owner, expires, why) for name in entry.names]
    if rows:
        yield Table(("test", "when", "owner", "expires", "reason"), rows)
    yield from map(Warn, selection.remarks)


def conditions_of(when: When) -> str:
    """Describe conditions in a few words."""
    from cairn import datafile

    words = (
        f"{name} {value if isinstance(value, str) else ' '.join(value)}"
        for name, value in datafile.to_plain(when).items()
        if value
    )
    return ", ".join(words) or "always"


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text[:40]!r} is not a day, such as 2027-06-30") from error


@dataclass(frozen=True, kw_only=True)
class ImportSkips:
    """Options of `cairn test skips import`.

    A list is TheRock's skip_tests/*.py, which is read and not run, or PyTorch's disabled-tests.json. What
    its substrings name is looked up among the tests of a collection; what they hit besides is said, and
    stays in.

        cairn test skips import skip_tests/generic.py skip_tests/pytorch_2.13.py --collection
        collection.txt --owner rocm-pytorch --expires 2027-06-30 --output-dir skip-tests
    """

    lists: tuple[Path, ...] = argument("LIST", "a list of upstream's", nargs="+", convert=converters.file)
    collection: Path = option(
        "what `pytest --collect-only -q` printed about all tests", convert=converters.file, required=True
    )
    owner: str = option("who is asked about them", convert=converters.nonempty, required=True)
    expires: date = option("the last day they hold unseen", metavar="DAY", convert=_day, required=True)
    output_dir: Path = common.output_dir()
    dry_run: bool = common.dry_run()


def _import(request: ImportSkips) -> Answer:
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
        text += _import_text(each)
        if not request.dry_run:
            text.append(f"written: {targets[each.source]}")
    return Answer({"lists": [_import_plain(each, targets[each.source]) for each in imported]}, text)


def _targets(request: ImportSkips) -> dict[Path, Path]:
    """Return the file that each list is written to; an existing file is refused."""
    names = {path: path.stem.replace("_", "-").lstrip(".") for path in request.lists}
    if len(set(names.values())) < len(names):
        raise UsageError("two lists have one name", tip="import them one after the other, into two folders")
    targets = {path: request.output_dir / f"{name}.toml" for path, name in names.items()}
    existing = next((target for target in targets.values() if target.exists()), None)
    if existing and not request.dry_run:
        raise UsageError(f"{existing} is there already", tip="remove it, or give a different --output-dir")
    return targets


def _import_text(imported: Imported) -> Iterator[Piece]:
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


def _import_plain(imported: Imported, target: Path) -> dict[str, object]:
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


COMMANDS = {
    "lint": command(Lint, _lint),
    "list": command(ListSkips, _list),
    "import": command(ImportSkips, _import),
}
