"""`cairn release`: promote, key; what takes something back is in `history`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments, history, signing
from cairn.cli.parser import add_command, add_commands
from cairn.errors import UsageError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.gate.judgement import GateReport, Outcome
    from cairn.release.promote import Promotion

_EXAMPLE = "cairn release promote SET --store ./store --record record.json"
_MARKS: Mapping[Outcome, console.Mark] = {"met": "done", "bypassed": "bypassed", "not met": "failed"}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the group."""
    commands = add_commands(parser, description="Bring sets from channel to channel.", example=_EXAMPLE)
    promote = add_command(
        commands,
        "promote",
        _promote,
        about="bring a set and all it needs to a different channel, if every demand on it holds",
        example=_EXAMPLE,
    )
    promote.add_argument("set_id", metavar="SET", help="its set.json, or its id: the first digits will do")
    arguments.add_store(promote)
    for flag, dest, usual, text in (
        ("--from", "source", "staging", "the index that has it"),
        ("--to", "target", "release", "the index that is to have it"),
    ):
        action = promote.add_argument(
            flag, dest=dest, metavar="INDEX", default=usual, help=f"{text} (default: %(default)s)"
        )
        arguments.completes(action, arguments.complete_indexes)
    promote.add_argument(
        "--record",
        action="append",
        default=[],
        type=arguments.file,
        metavar="FILE",
        help="a test record; may be repeated",
    )
    promote.add_argument(
        "--bypass", metavar="WHO", help="promote without a passed record; WHO vouches for it"
    )
    promote.add_argument("--reason", help="with --bypass: why; the pages show it")
    arguments.add_python(promote, what="to try the installation with")
    signing.add_attesting(promote)
    arguments.add_dry_run(promote)
    arguments.add_json(promote)
    history.add_history(commands)
    signing.add_key(commands)


def _promote(options: argparse.Namespace) -> int:
    from cairn.release.gate.evidence import Bypass
    from cairn.release.promote import promote

    if options.reason is not None and options.bypass is None:
        raise UsageError("--reason belongs to --bypass", tip="say who vouches: --bypass WHO")
    bypass = Bypass(who=options.bypass, reason=options.reason or "") if options.bypass is not None else None
    screen = console.current()
    with screen.stage(f"promote to {options.target}") as stage, signing.attester(options) as attester:
        done = promote(
            arguments.open_existing_store(options),
            _set_id(options.set_id),
            source=options.source,
            target=options.target,
            records=[path.read_bytes() for path in options.record],
            bypass=bypass,
            python=options.python,
            attester=attester,
            dry_run=options.dry_run,
            on_step=stage.update,
        )
    if options.json:
        screen.json(_plain(done))
    else:
        _show(done, options.target)
    return 0


def _set_id(text: str) -> str:
    """The id that a set.json has, or the beginning of one as it was given."""
    from cairn.wheels import wheelset

    if text and Path(text).is_dir():
        raise UsageError(f"{text} is a folder, not a set.json", tip=f"did you mean {Path(text, 'set.json')}?")
    if Path(text).is_file():
        return wheelset.read(Path(text)).id
    if Path(text).suffix or "/" in text:
        raise UsageError(f"there is no file {text}", tip="name a set.json, or the id of a set")
    return text


def _show(done: Promotion, target: str) -> None:
    screen = console.current()
    if done.kept:
        screen.out(f"{target} has the set already")
    if done.report is not None:
        show_demands(done.report, kept=done.kept)
    elif done.untested is not None:
        screen.item("bypassed", done.untested)
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
    if note := report.untested_note:
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
    return {"demands": found, "untested": list(report.untested) if report else []}
