"""`cairn ci night report`, `list` and `watch`."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.ci.night import options as common
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import CairnError, GateError, StoreError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.pipeline.night.plan import NightPlan
    from cairn.release.pages.view import Night


def add_to(commands: Subparsers) -> None:
    """Add the commands."""
    _add_report(commands)
    _add_list(commands)
    _add_watch(commands)


def _add_report(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "report",
        _report,
        about="say how a night ended: on the status pages, in the run's summary, to whoever is to know",
        more="Exit code 10 where a leg that is not expected to fail is not in the index.",
        example="cairn ci night report --night latest --stack external-builds/sample --store ./store",
    )
    arguments.add_stack(parser)
    common.add_night(parser)
    parser.add_argument(
        "--results",
        default="",
        metavar="WORDS",
        help="how the jobs ended, as GitHub has it: with `cancelled` among them, legs without a word of "
        "their own count as cancelled",
    )
    parser.add_argument(
        "--notify",
        default="",
        metavar="COMMAND",
        help="run this with the report as JSON on its standard input, where the night was not good",
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_list(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "list",
        _list,
        about="list the nights that a store knows, the last one first",
        example="cairn ci night list --store ./store",
    )
    arguments.add_store(parser)
    arguments.add_json(parser)


def _add_watch(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "watch",
        _watch,
        about="find nights that did not happen, and families whose last good night is long ago",
        more="For a schedule of its own: a schedule that has stopped fails nothing. Exit code 9 with a "
        "finding.",
        example="cairn ci night watch --store ./store --lines nightly --begun-within 26 --good-within 72",
    )
    arguments.add_store(parser)
    parser.add_argument(
        "--lines", default="", help="release lines that must have nights, joined by commas (default: all)"
    )
    common.add_to_channel(parser)
    for name, usual, what in (
        ("--begun-within", 26, "hours within which a night must have begun"),
        ("--good-within", 72, "hours within which each leg must have had a good one"),
    ):
        parser.add_argument(
            name, type=converters.positive, default=usual, metavar="HOURS", help=f"{what} (default: {usual})"
        )
    arguments.add_json(parser)


def _report(options: argparse.Namespace) -> int:
    from cairn.output import github
    from cairn.pipeline.night import report

    run = common.run_of(options)
    ended = report.of_night(run, cancelled="cancelled" in options.results.split())
    unwritten = () if run.dry_run else report.record(run.store, run.plan, ended)
    github.add_summary(report.markdown(run.plan, ended))
    screen, plain = console.current(), _plain(run.plan, ended)
    if options.json:
        screen.json(plain)
    else:
        rows = [
            (leg.name, one.outcome, one.stage or "-", one.reason or "-")
            for leg, one in zip(run.plan.legs, ended, strict=True)
        ]
        screen.table(("leg", "outcome", "ended in", "why"), rows)
    for problem in unwritten:
        screen.warn(problem)
    bad = report.bad_legs(run.plan, ended)
    if not bad and not unwritten:
        return 0
    if options.notify and not run.dry_run:
        _notify(options.notify, plain)
    if not bad:
        raise StoreError("; ".join(unwritten), tip="see what is wrong with it: cairn index audit")
    raise GateError(
        f"{len(bad)} of {len(ended)} legs of the night {run.plan.night} are not in {run.plan.release}",
        reasons=tuple(f"{leg.name}: {one.outcome} in {one.stage}: {one.reason}" for leg, one in bad),
        tip="run the failed jobs again: what is done stays done",
    )


def _plain(night: NightPlan, ended: Sequence[Night]) -> dict[str, object]:
    from cairn import datafile

    return {
        "schema": "cairn.night-report/1",
        "night": night.night,
        "line": night.line,
        "log": night.log,
        "legs": [datafile.to_plain(one) for one in ended],
    }


def _notify(command: str, plain: dict[str, object]) -> None:
    """Tell whoever is to know; that it did not work changes nothing of the night."""
    import json

    from cairn import process

    try:
        process.run(shlex.split(command), stdin=json.dumps(plain).encode(), timeout=60)
    except (CairnError, OSError, ValueError) as error:  # also of a quote that does not end
        console.current().warn(f"{command} was to be told of it, and failed: {error}")


def _list(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.pipeline.night import plan

    found = sorted(plan.every(arguments.open_existing_store(options)), key=lambda n: n.frozen, reverse=True)
    if options.json:
        console.current().json([datafile.to_plain(night) for night in found])
        return 0
    console.current().table(
        ("night", "frozen", "stack", "line", "to", "legs", "manifest"),
        [
            (n.night, n.frozen[:16], n.stack, n.line, n.release, str(len(n.legs)), n.manifest_sha256[:12])
            for n in found
        ],
    )
    return 0


def _watch(options: argparse.Namespace) -> int:
    from cairn.output import github
    from cairn.pipeline.night import watch

    found = watch.problems(
        arguments.open_existing_store(options),
        lines=tuple(word.strip() for word in options.lines.split(",") if word.strip()),
        begun_within=timedelta(hours=options.begun_within),
        good_within=timedelta(hours=options.good_within),
        release=options.to,
    )
    if options.json:
        console.current().json(list(found))
    if not found:
        console.current().info("every line has had its night, and every leg a good one")
        return 0
    github.add_summary("\n".join(("## Nights", "", *(f"- {problem}" for problem in found))))
    raise StoreError(
        f"the nights are not what they should be: {'; '.join(found)}", tip="see the runs of nightly.yml"
    )
