"""`cairn ci night report` and `list`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Table
from cairn.cli.binder import command
from cairn.cli.ci.night_options import NightOptions, to_channel
from cairn.errors import GateError, StoreError, UsageError
from cairn.options import argument, flag, option
from cairn.output import console

_BEGUN, _GOOD = timedelta(hours=26), timedelta(hours=72)  # what --overdue allows


@dataclass(frozen=True, kw_only=True)
class Report(NightOptions):
    """Options of `cairn ci night report`.

    Each leg ends as `good` (promoted as tested), `untested` (promoted to `untested`, for want of a runner),
    `held` (left in staging, as the matrix says), `expected` (failed as the matrix expects), `failed` or
    `cancelled`. Exit code 10 for the last two.

        cairn ci night report --night latest --stack sample --store ./store
    """

    results: str = option(
        "how the jobs ended, as GitHub has it: `freeze=success build=failure …`; a leg to which a job that "
        "failed did not come is told as that, and with `cancelled` among them it counts as cancelled",
        metavar="WORDS",
        default="",
    )
    to: str | None = option(
        "where a night was to go that could not be frozen; with --line, the last nights show it",
        metavar="CHANNEL",
        convert=converters.nonempty,
    )
    notify: str = option(
        "run this with the report as JSON on its standard input, where the night was not good",
        metavar="COMMAND",
        default="",
    )
    dry_run: bool = common.dry_run()


@dataclass(frozen=True, kw_only=True)
class ListNights(common.PatientStoreOptions):
    """Options of `cairn ci night list`.

    Of a night that was reported: how many legs ended in which way. Of one under way: how far they are. A leg
    is late that takes half as much again as it usually does, and 30 minutes more.

    With NIGHT: what did not come through in that night, why, and where the log of it is.

    --overdue is for a schedule of its own, since one that has stopped fails nothing: exit code 9 where a line
    has begun no night for 26 hours, or a leg had no good one for 72.

        cairn ci night list --store ./store --overdue --lines nightly
    """

    night: str | None = argument(
        "NIGHT", "show what failed in this night; `latest` is the one that was frozen last", nargs="?"
    )
    overdue: bool = flag("find nights that did not happen, and legs whose last good one is long ago")
    lines: str = option(
        "release lines whose nights to list, joined by commas; with --overdue, those that must have some "
        "(default: all)",
        default="",
    )
    to: str | None = to_channel()


def _report(request: Report) -> Answer:
    from cairn.pipeline.night import plan, report

    if request.night != "latest":
        if plan.find(request.open_store(), request.night) is None:
            return _never_frozen(request)
        request = dataclasses.replace(request, line=None, to=None)  # it has its own
    run = request.load_run(by_id=True)
    words = (word.partition("=") for word in request.results.split())
    results = {job: how or job for job, _, how in words}
    plain, ended, error = report.reported(run, results, notify=request.notify)
    rows = (
        (
            leg.name,
            f"{result.outcome}, {result.age}" if result.is_bad else result.outcome,
            result.stage,
            result.reason,
        )
        for leg, result in zip(run.plan.legs, ended, strict=True)
    )
    table = Table(("leg", "outcome", "ended in", "why"), rows)
    return Answer(plain, [table, *map(Note, plain["hanging"]), Note(str(plain["counts"]))], error=error)


def _never_frozen(request: Report) -> Answer:
    """The report of a night that ended before it had a plan."""
    from cairn.output import github
    from cairn.pipeline.night import report

    error = GateError(
        f"the night {request.night} was not frozen, and nothing of it was built",
        tip="see the log of the job that freezes, then run the failed jobs again",
    )
    github.add_summary(f"## Night {request.night}\n\nIt was **not frozen**, and nothing of it was built.")
    plain: dict[str, object] = {
        "schema": "cairn.night-report/1",
        "night": request.night,
        "line": request.line,
        "log": github.run_url(),
        "counts": "not frozen",
        "problems": ["the night was not frozen, and nothing of it was built"],
        "hanging": [],
        "legs": [],
    }
    if not request.dry_run:
        report.tell(request.notify, plain)
    if request.line and request.to and not request.dry_run:
        store, stack = request.open_store(), request.load_stack()
        try:
            report.record_not_frozen(store, request.night, stack=stack, channel=request.to)
        except (StoreError, UsageError) as problem:  # that it was not frozen is told all the same
            console.current().warn(f"the page of the last nights of {request.to} was not written: {problem}")
    return Answer(plain, error=error)


def _list(request: ListNights) -> Answer:
    from cairn.pipeline.night import progress

    lines = tuple(dict.fromkeys(word.strip() for word in request.lines.split(",") if word.strip()))
    if request.night is not None:
        if request.overdue or lines or request.to:
            raise UsageError("one night is named by its id alone", tip="leave the options out, or the night")
        return _failures(request, request.night)
    if request.overdue:
        return _overdue(request, lines)
    nights = [
        night
        for night in progress.of_nights(request.open_existing_store())
        if night.plan.line in (lines or (night.plan.line,)) and request.to in (None, night.plan.release)
    ]
    plain = [
        {
            "night": night.plan.night,
            "stack": night.plan.stack,
            "line": night.plan.line,
            "refs": night.plan.refs,
            "to": night.plan.release,
            "frozen": night.plan.frozen,
            "manifest_sha256": night.plan.manifest_sha256,
            "log": night.plan.log,
            "state": night.state,
            "counts": night.counts,
            "late": night.late,
        }
        for night in nights
    ]
    rows = (
        (plan.night, plan.sources, plan.frozen[:16], plan.release, night.words, plan.log)
        for night, plan in ((night, night.plan) for night in nights)
    )
    late = [Note(f"late in {night.plan.night}: {text}") for night in nights for text in night.late]
    return Answer(plain, [Table(("night", "line", "began", "to", "legs", "run"), rows), *late])


def _failures(request: ListNights, night: str) -> Answer:
    from cairn.pipeline.night import progress

    failures = progress.failures(request.open_existing_store(), night)
    if not failures:
        return Answer(failures, [Note(f"nothing failed in the night {night}")])
    heads = ("leg", "step", "verdict", "cause", "log")
    return Answer(failures, [Table(heads, [tuple(row[head] for head in heads) for row in failures])])


def _overdue(request: ListNights, lines: tuple[str, ...]) -> Answer:
    from cairn.output import github
    from cairn.pipeline.night import progress

    problems = progress.overdue(
        request.open_existing_store(),
        lines=lines,
        begun_within=_BEGUN,
        good_within=_GOOD,
        release=request.to,
    )
    if not problems:
        return Answer(problems, [Note("no night and no good leg is overdue")])
    github.add_summary("\n".join(("## Nights", "", *(f"- {problem}" for problem in problems))))
    error = StoreError(
        f"the nights are not what they should be: {'; '.join(problems)}", tip="see the runs of nightly.yml"
    )
    return Answer(problems, error=error)


COMMANDS = {
    "report": command(Report, _report, needs="release"),
    "list": command(ListNights, _list),
}
