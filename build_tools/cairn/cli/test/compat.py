"""`cairn test compat`: measure what PyTorch's compatibility pages claim, and compare two reports."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import TestsFailedError, UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.compat.diff import Change
    from cairn.testing.compat.report import CompatReport
    from cairn.testing.record import TestRecord
    from cairn.venv import VirtualEnvironment

_SHOWN = 3  # rows, in an error


def add_to(commands: Subparsers) -> None:
    """Add the group to `cairn test`."""
    about = "measure what PyTorch's compatibility pages for ROCm claim, row by row"
    group = add_commands(
        commands.add_parser("compat", help=about),
        description="Measure what PyTorch's compatibility pages for ROCm claim, row by row, and compare what "
        "was measured.",
        example="cairn test compat --smoke-dir smoke",
        default="run",
    )
    _add_run(group)
    _add_diff(group)
    _add_rows(group)


def _add_run(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "run",
        _run,
        about="probe every row in a process of its own, and write the tables with what was measured",
        more="Writes compat.json, .rst, .md and .html, junit.xml, and, on what a smoke test has installed, "
        "record.json. A row that needs a GPU is not measurable without one, whatever the CPU does. It fails "
        "where a page claims a feature that is not there.",
        example="cairn test compat run --smoke-dir smoke",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--smoke-dir",
        type=converters.folder,
        metavar="DIR",
        help="output folder of `cairn test smoke`: its environment is measured, for a record of its set",
    )
    where.add_argument(
        "--python",
        type=converters.program,
        metavar="FILE",
        help="measure the environment of this interpreter; no record is made, since nothing says which bytes "
        "are installed",
    )
    arguments.add_output_dir(parser, default=Path("compat"))
    parser.add_argument(
        "--baseline",
        type=converters.file_or_folder,
        metavar="REPORT",
        help="an earlier report: what was broken there already fails nothing; the gate counts no record "
        "that was made with one",
    )
    arguments.add_repeated(
        parser, "--only", "REGEX", "measure the rows alone whose TABLE/NAME has a match", kind=_regex
    )
    parser.add_argument(
        "--timeout", type=converters.seconds, default=600.0, metavar="SECONDS", help="for each probe"
    )
    arguments.add_translate(parser)
    arguments.add_jobs(parser, what="probes")
    arguments.add_json(parser)


def _add_diff(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "diff",
        _diff,
        about="show what changed between two reports, of two wheels or of two nights",
        example="cairn test compat diff yesterday/compat.json today/compat.json",
    )
    parser.add_argument(
        "first", type=converters.file_or_folder, metavar="FIRST", help="the older report, or its folder"
    )
    parser.add_argument(
        "second", type=converters.file_or_folder, metavar="SECOND", help="the newer report, or its folder"
    )
    arguments.add_json(parser)


def _add_rows(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "rows",
        _rows,
        about="count the rows of each table, and say how pages differ from them",
        more="A page is compared with the tables of its file's name.",
        example="cairn test compat rows --against pytorch-compatibility.rst",
    )
    arguments.add_repeated(
        parser, "--against", "PAGE", "a page of upstream's, to compare with", kind=converters.file
    )
    arguments.add_json(parser)


def _run(options: argparse.Namespace) -> int:
    """Measure, write, judge; the exit code is 0 only where nothing that a page claims is broken."""
    from cairn import datafile, isolation
    from cairn.testing import junit
    from cairn.testing import record as records
    from cairn.testing.compat import evidence, measure, report, rows, write
    from cairn.testing.hardware.attest import attest

    screen = console.current()
    installed = None
    if options.smoke_dir:
        with screen.stage("comparing the environment with what was tested there"):
            installed = _installed(options.smoke_dir)
    patterns = [re.compile(text) for text in options.only]
    request = measure.CompatRequest(
        # Not resolved: what makes an environment's interpreter one is where it is called from.
        python=(options.python or _environment(options.smoke_dir).python).absolute(),
        tables=rows.load(),
        work_dir=options.output_dir.absolute(),
        wanted=lambda table, row: not patterns or any(p.search(f"{table}/{row}") for p in patterns),
        timeout=options.timeout,
        jobs=options.jobs or 1,  # probes that look at a GPU's free memory are alone with it
        set_id=installed.set_id if installed else None,
        translate=options.translate,
    )
    baseline = report.read(options.baseline) if options.baseline else None
    if not request.chosen:
        raise UsageError("no row matches --only", tip="`cairn test compat rows --json` lists them")
    with screen.stage(f"measuring {len(request.chosen)} rows") as stage:
        found = measure.measure(request, on_line=stage.update)
    write.write(request.work_dir, found, baseline=baseline)
    record = None
    if installed is not None:
        chosen = tuple(f"--only={text}" for text in options.only)
        # Whose report that is nobody has judged: it may be this set's own.
        chosen += (f"--baseline={options.baseline}",) if options.baseline else ()
        with isolation.own_home() as home:
            seen = isolation.variables(isolation.Isolation.TEST, home)
            attested = attest(seen, python=request.python, log=request.log)
        record = evidence.write_record(request.work_dir, found, installed, attested, chosen=chosen)
    if options.json:
        screen.json(datafile.to_plain(found))
    else:
        _show(found)
        screen.out(f"report: {request.work_dir / 'compat.html'}")
    outcome = junit.read(request.work_dir / records.JUNIT)
    broken = [case.name.replace("::", "/", 1) for case in outcome.cases if case.outcome == "failed"]
    if record is not None and record.verdict != "passed":
        raise TestsFailedError(f"the record is {record.verdict}: {record.reason}", tip=f"read {request.log}")
    if broken:
        raise TestsFailedError(
            f"{len(broken)} rows that a page claims do not work: {', '.join(broken[:_SHOWN])}",
            tip=f"read {request.log}",
        )
    return 0


def _environment(smoke_dir: Path) -> VirtualEnvironment:
    from cairn import venv

    return venv.describe(smoke_dir / "venv")


def _installed(smoke_dir: Path) -> TestRecord:
    from cairn.testing import record as records
    from cairn.testing.compat import evidence

    place = smoke_dir / records.FILE
    if not place.exists():
        raise UsageError(f"{smoke_dir} has no {place.name}", tip="run `cairn test smoke` there first")
    installed = records.read(place)
    evidence.check_environment(_environment(smoke_dir), installed)
    return installed


def _show(found: CompatReport) -> None:
    from cairn.testing.compat import tables

    screen = console.current()
    screen.table(
        ("table", "row", *tables.MEASURED_COLUMNS),
        [(table.id, row.name, *tables.cells_of(row)[len(row.cells) :]) for table, row in found.rows],
    )
    for line in tables.summary(found):
        screen.out(line)


def _diff(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.testing.compat import diff, report

    found = diff.diff(report.read(options.first), report.read(options.second))
    screen = console.current()
    if options.json:
        screen.json(datafile.to_plain(found))
        return 0
    for name, (before, after) in found.tested.items():
        screen.out(f"{name}: {before or '-'} -> {after or '-'}")
    for change in found.changes:
        screen.out(_line(change))
    if not found.tested and not found.changes:
        screen.out("no difference")
    return 0


def _line(change: Change) -> str:
    from cairn.testing.compat import tables

    sides = [
        f"{measured.support} ({seen})" if (seen := tables.seen(measured)) else measured.support
        for measured in (change.before, change.after)
        if measured is not None
    ]
    return f"{change.kind}: {change.table}/{change.name}: {' -> '.join(sides)}"


def _rows(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.testing.compat import pages, rows

    tables = rows.load()
    screen = console.current()
    problems: list[str] = []
    for path in options.against:
        listed = [table for table in tables if table.page == path.name]
        if not listed:
            known = ", ".join(dict.fromkeys(table.page for table in tables))
            raise UsageError(f"no table is of a page {path.name}", tip=f"the pages are {known}")
        problems += [f"{path.name}: {text}" for text in pages.differences(pages.read(path), listed)]
    if options.json:
        screen.json({"tables": [datafile.to_plain(table) for table in tables], "differences": problems})
    else:
        counted = [(table.page, table.section, table.id, str(len(table.rows))) for table in tables]
        screen.table(("page", "section", "table", "rows"), counted)
        screen.out(f"{sum(len(table.rows) for table in tables)} rows in {len(tables)} tables")
        for text in problems:
            screen.out(text)
    if problems:
        raise TestsFailedError(
            f"the pages say {len(problems)} things that the list does not, or the other way"
        )
    return 0


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error
    return text
