"""`cairn release promote`: a set through the gate into a channel, and how every demand on it stands."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, completion, signing
from cairn.cli.parser import Subparsers, add_command
from cairn.cli.release.record import set_id_of
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.gate.judgement import GateReport, Outcome
    from cairn.release.promote import Promotion
    from cairn.release.publish.mirror_lock import MirrorLock
    from cairn.stack import Stack

EXAMPLE = "cairn release promote SET --stack external-builds/pytorch --store ./store"
_MARKS: Mapping[Outcome, console.Mark] = {"met": "done", "bypassed": "bypassed", "not met": "failed"}


def add_to(commands: Subparsers) -> None:
    """Add `promote`."""
    promote = add_command(
        commands,
        "promote",
        _promote,
        about="bring a set and all it needs to a different channel, if every demand on it holds",
        example=EXAMPLE,
    )
    promote.add_argument("set_id", metavar="SET", help="its set.json, or its id: the first digits will do")
    arguments.add_stack(promote)
    arguments.add_store(promote)
    for flag, dest, usual, text in (
        ("--from", "source", "staging", "the index that has it"),
        ("--to", "target", "release", "the index that is to have it"),
    ):
        action = promote.add_argument(
            flag, dest=dest, metavar="INDEX", default=usual, help=f"{text} (default: %(default)s)"
        )
        arguments.completes(action, completion.complete_indexes)
    promote.add_argument(
        "--record",
        action="append",
        default=[],
        type=converters.file,
        metavar="FILE",
        help="a test record to add first (`cairn release record add`); may be repeated",
    )
    signing.add_trust(promote, what="whose signature each test record must have to count")
    promote.add_argument(
        "--bypass", metavar="WHO", help="promote without a passed record; WHO vouches for it"
    )
    promote.add_argument(
        "--again", metavar="WHO", help="promote what a rollback took off; WHO says that it is right after all"
    )
    promote.add_argument("--reason", help="with --bypass or --again: why; the pages and the log show it")
    promote.add_argument(
        "--mirror-lock",
        type=converters.file,
        metavar="FILE",
        help="what a mirror may hold, by hash (default: the stack's own mirror.lock.toml, where it has one)",
    )
    promote.add_argument(
        "--python",
        type=converters.program,
        metavar="FILE",
        help="interpreter to try the installation with (default: one of the set's Python, if it is here)",
    )
    promote.add_argument(
        "--notify",
        type=converters.nonempty,
        metavar="COMMAND",
        help="run this with the outcome as JSON on its standard input (default: `notify` of the stack)",
    )
    signing.add_attesting(promote)
    arguments.add_dry_run(promote)
    arguments.add_json(promote)


def _promote(options: argparse.Namespace) -> int:
    from cairn.release import records
    from cairn.release.gate.evidence import Bypass
    from cairn.release.promote import Readmission, RefusedError, promote

    if options.reason is not None and options.bypass is None and options.again is None:
        raise UsageError("--reason belongs to --bypass or --again", tip="say who vouches: --bypass WHO")
    again = Readmission(who=options.again, reason=options.reason or "") if options.again is not None else None
    bypass = Bypass(who=options.bypass, reason=options.reason or "") if options.bypass is not None else None
    stack = arguments.read_stack(options)
    screen = console.current()
    try:
        with screen.stage(f"promote to {options.target}") as stage, signing.attester(options) as attester:
            done = promote(
                arguments.open_existing_store(options),
                set_id_of(options.set_id),
                stack=stack,
                source=options.source,
                target=options.target,
                records=[records.read_given(path) for path in options.record],
                bypass=bypass,
                again=again,
                lock=_lock(options, stack),
                trust=signing.trust(options) if options.trust else None,
                python=options.python,
                attester=attester,
                dry_run=options.dry_run,
                on_step=stage.update,
            )
    except RefusedError as error:
        if options.json:
            screen.json({"set": error.report.set_id, **plain_demands(error.report)})
        _notify(error.report, options, stack)
        raise
    if options.json:
        screen.json(_plain(done))
    else:
        _show(done, options.target)
    if done.report is not None and not done.kept:
        _notify(done.report, options, stack)
    return 0


def _lock(options: argparse.Namespace, stack: Stack) -> MirrorLock | None:
    from cairn.release.publish import mirror_lock

    return mirror_lock.read(options.mirror_lock) if options.mirror_lock else mirror_lock.of(stack)


def _notify(report: GateReport, options: argparse.Namespace, stack: Stack) -> None:
    """Tell whom the options or the stack name; a dry run tells nobody."""
    from cairn.release import notify

    command = shlex.split(options.notify) if options.notify else stack.gate.notify
    if not command or options.dry_run:
        return
    folder = Path.cwd() if options.notify else Path(stack.folder)
    if problem := notify.send(command, notify.notice(report), folder=folder):
        console.current().warn(problem)


def _show(done: Promotion, target: str) -> None:
    screen = console.current()
    if done.kept:
        screen.out(f"{target} has the set already")
    if done.report is not None:
        show_demands(done.report, kept=done.kept)
    elif done.untested is not None:
        screen.item("bypassed", done.untested)
    for line in done.standing:
        screen.item("failed", f"since then: {line}")
    if done.kept:
        return
    for name in done.added:
        screen.out(f"{'would add' if done.dry_run else '+'} {name}")
    for name in done.already:
        screen.out(f"= {name}")


def _plain(done: Promotion) -> dict[str, object]:
    return {
        "set": done.set_id,
        "added": list(done.added),
        "already": list(done.already),
        "dry_run": done.dry_run,
        **plain_demands(done.report),
        "untested_note": done.untested,
        "standing": list(done.standing),
    }


def show_demands(report: GateReport, *, kept: bool = False) -> None:
    """Every demand with how it stands and why, then what the set was not tested on.

    Args:
        report: what the gate found.
        kept: it was asked when the set was promoted, and not again.
    """
    screen = console.current()
    when = f"{report.judged[:10]} {report.judged[11:16]} UTC"
    screen.out(f"the gate on the set {report.set_id[:12]}, asked {when}{' and not again' if kept else ''}:")
    for demand in report.demands:
        text = f"{demand.outcome:8} {demand.number}. {demand.name}: {demand.why}"
        screen.item(_MARKS[demand.outcome], text)
    weakened = (f"weak policy: {text}" for text in report.weakened)
    for note in (report.untested_note, *report.answered, *weakened):
        if note is not None:
            screen.item("bypassed", note)


def plain_demands(report: GateReport | None) -> dict[str, object]:
    """What the gate found, for programs to read."""
    found = [
        {
            "number": d.number,
            "name": d.name,
            "outcome": d.outcome,
            "holds": d.holds,
            "bypassed": d.bypassed,
            "reason": d.why,
        }
        for d in (report.demands if report else ())
    ]
    if report is None:
        return {"demands": [], "untested": []}
    return {
        "demands": found,
        "untested": list(report.untested),
        "answered": list(report.answered),
        "weakened": list(report.weakened),
        "size": report.size,
        "installed_with": list(report.installed_with),
    }
