"""`cairn release`: rollback, yank, retain, log."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.history.difference import Difference
    from cairn.release.history.log import Logged
    from cairn.release.history.yank import Yank

_SHORT = 12  # digits of a set id or a digest that are shown


def add_to(commands: Subparsers) -> None:
    """Add the commands that take something back."""
    _add_rollback(commands)
    _add_yank(commands)
    _add_retain(commands)
    _add_log(commands)


def _add_rollback(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "rollback",
        _rollback,
        about="give an index the state that it had before",
        more="It makes a new generation, so that this can be rolled back too. Yanks made since hold. What "
        "that state offered must still be in the store as it was. It is no ban: a set that it takes off a "
        "channel for users comes back there by a rollback or by promote --again, and goes elsewhere as ever.",
        example="cairn release rollback --store ./store --to 2026-11-20",
    )
    _add_place(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="N|DATE|SET",
        help="number of a generation; a date, for the last one of that day (UTC), or a moment; or the id of "
        "a set, for the generation that brought it",
    )
    parser.add_argument("--reason", help="why, for the log")


def _add_yank(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "yank",
        _yank,
        about="have installers pass over a set unless its exact version is asked for",
        more="It counts in every index of the store, and the set comes into no other, whatever becomes of "
        "the indexes, until --undo takes it back by name and reason. Wheels that a set which is not "
        "yanked has too stay as they are.",
        example="cairn release yank 3f2a --store ./store --reason 'wrong results of matmul on gfx942'",
    )
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("set_id", nargs="?", metavar="SET", help="its id: the first digits will do")
    subject.add_argument(
        "--night",
        metavar="NIGHT",
        help="all sets of a night, also those that are yet to be staged: its id, or its manifest's digest",
    )
    arguments.add_store(parser)
    parser.add_argument("--reason", required=True, help="why; every page shows it")
    parser.add_argument("--undo", action="store_true", help="take the yank back; asks for --who")
    parser.add_argument("--who", metavar="WHO", help="whom to ask")
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_retain(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "retain",
        _retain,
        about="take old sets off an index",
        more="Of each line, family, Python and platform the newest stay. So does what a lock of the index or "
        "a different release index names. Files stay in the store until `cairn index gc`.",
        example="cairn release retain --store ./store --index nightly --keep-last 60",
    )
    _add_place(parser)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--keep-last", type=converters.positive, metavar="N", help="so many sets that are not yanked stay"
    )
    how.add_argument(
        "--days", type=converters.positive, metavar="D", help="the sets of so many days stay, and the newest"
    )
    arguments.add_repeated(parser, "--keep", "SET", "this set stays too")
    parser.add_argument("--reason", help="why, for the log")


def _add_log(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "log",
        _log,
        about="say what was done to an index, newest first",
        example="cairn release log --store ./store --index release",
    )
    _add_place(parser, changes=False)
    parser.add_argument(
        "--limit", type=converters.positive, metavar="N", help="so many of the newest (default: all)"
    )


def _add_place(parser: argparse.ArgumentParser, *, changes: bool = True) -> None:
    arguments.add_store(parser)
    arguments.add_index(parser, default="release")
    if changes:
        arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _rollback(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.release.history.rollback import rollback

    screen = console.current()
    with screen.stage(f"roll {options.index} back to {options.to}") as stage:
        done = rollback(
            arguments.open_existing_store(options),
            options.index,
            options.to,
            reason=options.reason,
            dry_run=options.dry_run,
            on_step=stage.update,
        )
    if options.json:
        screen.json(datafile.to_plain(done) | {"index": options.index, "dry_run": options.dry_run})
        return 0
    if not done.changed:
        screen.out(f"{options.index} is as it was in generation {done.to} already")
        return 0
    _show(done.difference, dry_run=options.dry_run)
    for set_id in done.still_yanked:
        screen.item("bypassed", f"set {set_id[:_SHORT]} was yanked since, and stays so")
    made = "would be" if options.dry_run else "is"
    was = f"what {done.to} was, of {done.to_when}" if done.to else "empty, as it began"
    screen.out(f"generation {done.generation} of {options.index} {made} {was}")
    if done.difference.gone_sets:
        screen.out(_what_comes_next(options.index))
    return 0


def _what_comes_next(index: str) -> str:
    """What a rollback is not, and what becomes of the sets that it took off."""
    from cairn.release.index import keys

    if keys.is_gated(index):
        says = f"the next night does not bring these sets back into {index}, and promotes others as ever"
    else:
        says = f"whatever is published into {index} again, such as by the next night, is there again"
    return f"this bans nothing: {says}; for all indexes and for good: cairn release yank"


def _yank(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.errors import UsageError
    from cairn.release.history import yank

    if options.undo != (options.who is not None):
        raise UsageError("a yank is taken back by name and reason", tip="--undo --who WHO --reason WHY")
    store, dry_run = arguments.open_existing_store(options), options.dry_run
    subject = options.set_id if options.night is None else yank.manifest_of(store, options.night)
    if options.undo:
        done = yank.lift(store, subject, by=options.who, reason=options.reason, dry_run=dry_run)
    else:
        done = yank.yank(store, subject, reason=options.reason, dry_run=dry_run)
    if options.json:
        console.current().json(datafile.to_plain(done) | {"dry_run": dry_run})
    else:
        what = f"{'set' if options.night is None else 'the night of the manifest'} {done.subject[:_SHORT]}"
        _show_yank(done, what, undo=options.undo, dry_run=dry_run)
    return 0


def _show_yank(done: Yank, what: str, *, undo: bool, dry_run: bool) -> None:
    screen, word = console.current(), "not yanked" if undo else "yanked"
    if not done.changed:
        screen.out(f"{what} is {word} already")
        return
    for place in done.indexes:
        for name in place.files:
            screen.out(f"{'would be ' if dry_run else ''}{word} in {place.index}: {name}")
        for name in place.shared:
            screen.out(f"= {name} in {place.index}: a set that is not yanked has it too")
    places = dict.fromkeys(f"{place.index} (generation {place.generation})" for place in done.indexes)
    is_so = "would be" if dry_run else "is"
    screen.out(f"{what} {is_so} {word} in {', '.join(places) or 'no index: none has it'}")
    if not undo:
        screen.out(f"it {'would come' if dry_run else 'comes'} into no other index until --undo")


def _retain(options: argparse.Namespace) -> int:
    from cairn import datafile
    from cairn.release.history.retain import Rule, retain

    rule = Rule(last=options.keep_last, days=options.days, keep=tuple(options.keep))
    done = retain(
        arguments.open_existing_store(options),
        options.index,
        rule,
        reason=options.reason,
        dry_run=options.dry_run,
    )
    screen = console.current()
    if options.json:
        screen.json(datafile.to_plain(done) | {"index": options.index, "dry_run": options.dry_run})
        return 0
    for set_id, by in done.held:
        screen.out(f"= set {set_id[:_SHORT]}: {by} names it")
    _show(done.difference, dry_run=options.dry_run)
    if not done.changed:
        screen.out(f"{options.index} has nothing that is to go")
    else:
        screen.out(
            f"{'it would be' if options.dry_run else 'it is'} generation {done.generation} of {options.index}"
        )
    return 0


def _log(options: argparse.Namespace) -> int:
    import itertools

    from cairn import datafile
    from cairn.release.history import log

    found = log.entries(arguments.open_existing_store(options), options.index)
    entries = list(itertools.islice(found, options.limit))
    screen = console.current()
    if options.json:
        screen.json({"index": options.index, "generations": [datafile.to_plain(one) for one in entries]})
        return 0
    screen.table(("generation", "when", "action", "who", "why", "sets"), [_row(one) for one in entries])
    return 0


def _row(one: Logged) -> Sequence[str]:
    marks = (("+", one.brought), ("-", one.removed), ("~", one.marked))
    sets = [f"{mark}{set_id[:_SHORT]}" for mark, ids in marks for set_id in ids]
    when = f"{one.when[:10]} {one.when[11:16]}"
    return str(one.number), when, one.action or "", one.who, one.why or "", " ".join(sets)


def _show(difference: Difference, *, dry_run: bool) -> None:
    screen = console.current()
    for sets, refs, sign, verb in (
        (difference.gone_sets, difference.gone, "-", "would go:"),
        (difference.back_sets, difference.back, "+", "would come back:"),
    ):
        for name in (*(f"set {set_id[:_SHORT]}" for set_id in sets), *(ref.filename for ref in refs)):
            screen.out(f"{verb if dry_run else sign} {name}")
