"""`cairn test smoke` and `compat`: test a set in a fresh environment, and what the pages claim of it."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.errors import TestsFailedError, UsageError
from cairn.options import Exclusive, argument, fill, flag, option, repeated
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.compat.report import CompatReport
    from cairn.testing.record import TestRecord
    from cairn.testing.smoke import SmokeResult


@dataclass(frozen=True, kw_only=True)
class Smoke(common.OptionalStack):
    """Options of `cairn test smoke`.

    Exactly the files of the set are installed, from one index alone; then the built-in checks and the
    stack's own tests run. Without --index-url, packages come from --find-links alone. Writes record.json
    and junit.xml. Tests of a set for GPUs that used none do not pass: they are untested.

        cairn test smoke --set out/set.json --stack sample --index-url
        http://127.0.0.1:8383/staging/simple/ -- -k cpu
    """

    set: Path = option("set.json of the wheels", convert=converters.file, required=True)
    index_url: str | None = common.index_url()
    find_links: tuple[str, ...] = common.find_links()
    targets: str | None = common.targets("what the set is for; others are refused")
    output_dir: Path = common.output_dir(default=Path("smoke"))
    python: Path | None = common.python("to make the environment from")
    timeout: float = option("for each run of pytest", default=1800.0, convert=converters.seconds)
    floor: int = option("fewest tests that must run", default=1, convert=converters.floor)
    allow_untested: bool = flag(
        "exit with 0 where nothing failed and no test used a GPU, though the set is for some: the "
        "record is `untested` all the same, and the gate asks for a bypass"
    )
    translate: Path | None = common.translate()
    pytest_args: tuple[str, ...] = argument(
        "-- PYTEST ARGS",
        "passed on to pytest; the gate does not count a record that was made with any",
        nargs="*",
    )


def _smoke(request: Smoke) -> Iterator[Answer]:
    from cairn.targets import parse_targets
    from cairn.testing.smoke import SmokeRequest, require_passed, run_smoke
    from cairn.wheels import wheelset

    wheel_set = wheelset.read(request.set)
    if request.targets and set(parse_targets(request.targets)) != set(wheel_set.targets):
        raise UsageError(
            f"the set is for {', '.join(wheel_set.targets)}, not for {request.targets}",
            tip="leave --targets out, or build a set for them",
        )
    work_dir = request.output_dir.absolute()
    smoke_request = fill(SmokeRequest, request, wheel_set=wheel_set, work_dir=work_dir)
    if (stack := request.load_stack()) is not None:
        smoke_request = smoke_request.of_stack(stack)
    with console.current().stage(f"smoke tests of {len(wheel_set.wheels)} wheels") as stage:
        result = run_smoke(smoke_request, on_line=stage.update)
    yield Answer(result.record, _text(result))
    require_passed(result, or_untested=request.allow_untested)


def _text(result: SmokeResult) -> Iterator[str]:
    record = result.record
    yield from (f"FAILED {line}" for line in result.failures)
    yield from (f"skipped {skip.test}: {skip.reason}" for skip in record.skips)
    yield f"{record.verdict}: {record.reason}"
    yield f"record: {result.record_path}"


_SHOWN = 3  # rows, in an error
_WHERE = Exclusive(required=True)


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from error


def _report(metavar: str, about: str) -> Path:
    path: Path = argument(metavar, f"{about}, or its folder", convert=converters.file_or_folder)
    return path


@dataclass(frozen=True, kw_only=True)
class Compat:
    """Options of `cairn test compat`.

    Writes compat.json, .rst, .md and .html, junit.xml, and, on what a smoke test has installed,
    record.json. A row that needs a GPU is not measurable without one, whatever the CPU does. It fails
    where a page claims a feature that is not there.

        cairn test compat --smoke-dir smoke
    """

    smoke_dir: Path | None = option(
        "output folder of `cairn test smoke`: its environment is measured, for a record of its set",
        convert=converters.folder,
        group=_WHERE,
    )
    python: Path | None = option(
        "measure the environment of this interpreter; no record is made, since nothing says which bytes are "
        "installed",
        convert=converters.program,
        group=_WHERE,
    )
    output_dir: Path = common.output_dir(default=Path("compat"))
    baseline: Path | None = option(
        "an earlier report: what was broken there already fails nothing; the gate counts no record that was "
        "made with one",
        metavar="REPORT",
        convert=converters.file_or_folder,
    )
    only: tuple[re.Pattern[str], ...] = repeated(
        "measure the rows alone whose TABLE/NAME has a match", metavar="REGEX", convert=_regex
    )
    timeout: float = option("for each probe", default=600.0, convert=converters.seconds)
    translate: Path | None = common.translate()


def _measure(request: Compat) -> Answer:
    """Measure, write, judge; it fails where something that a page claims is broken."""
    from cairn import isolation
    from cairn.testing import junit
    from cairn.testing import record as records
    from cairn.testing.compat import evidence, measure, report
    from cairn.testing.gpus.attest import attest

    screen = console.current()
    python, installed = request.python or Path(), None
    if request.smoke_dir:
        with screen.stage("comparing the environment with what was tested there"):
            python, installed = _installed(request.smoke_dir)
    measurement = fill(
        measure.CompatRequest,
        request,
        # Not resolved: what makes an environment's interpreter one is where it is called from.
        python=python.absolute(),
        tables=report.load_rows(),
        work_dir=request.output_dir.absolute(),
        selects=lambda table, row: not request.only or any(p.search(f"{table}/{row}") for p in request.only),
        set_id=installed.set_id if installed else None,
    )
    baseline = report.read(request.baseline) if request.baseline else None
    if not measurement.chosen:
        raise UsageError("no row matches --only", tip="compat.json of an earlier run has TABLE/NAME of each")
    with screen.stage(f"measuring {len(measurement.chosen)} rows") as stage:
        measured = measure.measure(measurement, on_line=stage.update)
    evidence.write(measurement.work_dir, measured, baseline=baseline)
    record = None
    if installed is not None:
        chosen = tuple(f"--only={each.pattern}" for each in request.only)
        # Whose report that is nobody has judged: it may be this set's own.
        chosen += (f"--baseline={request.baseline}",) if request.baseline else ()
        with isolation.own_home() as home:
            variables = isolation.variables(isolation.Isolation.TEST, home)
            attested = attest(variables, python=measurement.python, log=measurement.log)
        record = evidence.write_record(measurement.work_dir, measured, installed, attested, chosen=chosen)
    error = None
    outcome = junit.read(measurement.work_dir / records.JUNIT)
    broken = [case.name.replace("::", "/", 1) for case in outcome.cases if case.outcome == "failed"]
    tip = f"read {measurement.log}"
    if record is not None and record.verdict != "passed":
        error = TestsFailedError(f"the record is {record.verdict}: {record.reason}", tip=tip)
    elif broken:
        rows_broken = ", ".join(broken[:_SHOWN])
        error = TestsFailedError(f"{len(broken)} rows that a page claims do not work: {rows_broken}", tip=tip)
    return Answer(measured, _measured_text(measured, measurement.work_dir / "compat.html"), error=error)


def _installed(smoke_dir: Path) -> tuple[Path, TestRecord]:
    """The interpreter of what a smoke test has installed, and its record."""
    from cairn import venv
    from cairn.testing import record as records
    from cairn.testing.compat import evidence

    place = smoke_dir / records.FILE
    if not place.exists():
        raise UsageError(f"{smoke_dir} has no {place.name}", tip="run `cairn test smoke` there first")
    installed, environment = records.read(place), venv.describe(smoke_dir / "venv")
    evidence.check_environment(environment, installed)
    return environment.python, installed


def _measured_text(report: CompatReport, page: Path) -> Iterator[Piece]:
    from cairn.testing.compat import report as reports

    yield Table(
        ("table", "row", *reports.MEASURED_COLUMNS),
        [(table.id, row.name, *reports.cells_of(row)[len(row.cells) :]) for table, row in report.rows],
    )
    yield from reports.summary(report)
    yield f"report: {page}"


COMMANDS = {
    "smoke": command(Smoke, _smoke, needs="test"),
    "compat": command(Compat, _measure),
}
