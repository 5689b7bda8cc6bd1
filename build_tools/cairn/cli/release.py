"""`cairn release`: promote."""

from __future__ import annotations

import argparse
from pathlib import Path

from cairn.cli import common, completers, demands, paths
from cairn.cli.parser import Subparsers
from cairn.errors import UsageError
from cairn.output import console
from cairn.release.gate.evidence import Bypass
from cairn.release.promote import Promotion, promote
from cairn.store.folder import open_existing
from cairn.testing import record
from cairn.wheels import wheelset as wheel_sets


def register(subparsers: Subparsers) -> None:
    """Add the group to the program."""
    group = subparsers.add_parser(
        "release",
        help="promote sets",
        description="Bring sets from channel to channel.",
        epilog="example: cairn release promote SET --store ./store --record record.json",
    )
    commands = group.add_subparsers(title="commands", required=True, metavar="COMMAND")
    parser = commands.add_parser(
        "promote",
        help="bring a set to a different channel, if every demand holds",
        description="Bring a set and all it needs to a different channel, if every demand on it holds.",
        epilog="example: cairn release promote SET --store ./store --record record.json",
    )
    parser.add_argument("set_id", metavar="SET", help="its set.json, or its id: the first digits will do")
    common.add_store(parser)
    for flag, dest, usual, text in (
        ("--from", "source", "staging", "the index that has it"),
        ("--to", "target", "release", "the index that is to have it"),
    ):
        action = parser.add_argument(
            flag, dest=dest, metavar="INDEX", default=usual, help=f"{text} (default: %(default)s)"
        )
        completers.completes(action, completers.indexes)
    parser.add_argument(
        "--record",
        action="append",
        default=[],
        type=paths.file,
        metavar="FILE",
        help="a test record; may be repeated",
    )
    parser.add_argument("--bypass", metavar="WHO", help="promote without a passed record; WHO vouches for it")
    parser.add_argument("--reason", help="with --bypass: why; the pages show it")
    common.add_python(parser, what="to try the installation with")
    common.add_dry_run(parser)
    common.add_json(parser)
    parser.set_defaults(run=_promote)


def _promote(options: argparse.Namespace) -> int:
    if options.reason is not None and options.bypass is None:
        raise UsageError("--reason belongs to --bypass", tip="say who vouches: --bypass WHO")
    bypass = Bypass(who=options.bypass, reason=options.reason or "") if options.bypass is not None else None
    screen = console.current()
    with screen.stage(f"promote to {options.target}") as stage:
        done = promote(
            open_existing(options.store),
            _set_id(options.set_id),
            source=options.source,
            target=options.target,
            records=[record.read(path) for path in options.record],
            bypass=bypass,
            python=options.python,
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
    if text and Path(text).is_dir():
        raise UsageError(f"{text} is a folder, not a set.json", tip=f"did you mean {Path(text, 'set.json')}?")
    if Path(text).is_file():
        return wheel_sets.read(Path(text)).set_id
    if Path(text).suffix or "/" in text:
        raise UsageError(f"there is no file {text}", tip="name a set.json, or the id of a set")
    return text


def _show(done: Promotion, target: str) -> None:
    screen = console.current()
    if done.kept:
        screen.out(f"{target} has the set already")
    if done.report is not None:
        demands.show(done.report, kept=done.kept)
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
        **demands.plain(done.report),
        "untested_note": done.untested,
    }
