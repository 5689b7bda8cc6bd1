"""`cairn bisect`: which set was the first bad one, and what changed with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.errors import UsageError
from cairn.output import console, wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cairn.pipeline.bisect import Found, Verdict
    from cairn.release.index.generation import IndexSet

_SHORT = 12
_MARKS: Mapping[Verdict, console.Mark] = {"good": "done", "bad": "failed", "skip": "bypassed"}
_FOLDER = Path("bisect")


def add_to(parser: argparse.ArgumentParser) -> None:
    """Make the parser that of this command: it has none below it."""
    parser.description = (
        "Install sets between a good night and a bad one, each into an environment that is thrown away, "
        "run a command in it, and name the first bad set and its commits. The command says how a "
        "set is by its exit code: 0 is good, 125 cannot be told, anything else is bad. A search that was "
        "interrupted goes on when it is run again."
    )
    parser.epilog = (
        "example: cairn bisect --store ./store --index nightly --good 2026-11-01 --bad 2026-11-20 -- "
        "python check_matmul.py"
    )
    arguments.add_store(parser)
    arguments.add_index(parser, default="staging")
    for name, which in (("--good", "an earlier set that is good"), ("--bad", "a later one that is bad")):
        parser.add_argument(
            name,
            required=True,
            metavar="SET|DATE",
            help=f"{which}: the first digits of its id, or a date, for the last set of that day or before",
        )
    arguments.add_python(parser, what="to make the environments from; it must be of the Python of the sets")
    parser.add_argument(
        "--commits",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="name the commits between, which are fetched from their origins",
    )
    arguments.add_output_dir(parser, default=_FOLDER)
    arguments.add_dry_run(parser)
    arguments.add_json(parser)
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="what tells good from bad")
    parser.set_defaults(run=_bisect)


def _bisect(options: argparse.Namespace) -> int:
    from cairn.pipeline import bisect

    if not options.command and not options.dry_run:
        raise UsageError("nothing says which set is bad", tip="give a command after --: -- python check.py")
    store = arguments.open_existing_store(options)
    search, sets = bisect.prepare(
        store,
        options.index,
        good=options.good,
        bad=options.bad,
        command=options.command,
        python=options.python or Path(sys.executable),
    )
    if options.dry_run:
        return _list(sets, as_json=options.json)
    search = bisect.resumed(search, options.output_dir)
    screen = console.current()
    if search.tries:
        screen.info(f"going on after {wording.count(search.tries, 'run')} of {options.output_dir}")
    with screen.stage(f"search {wording.count(sets, 'set')}") as stage:
        done = bisect.run(store, search, options.output_dir, on_try=screen.info, on_line=stage.update)
        found = bisect.found(store, done, commits=options.commits, say=stage.update)
    if options.json:
        screen.json(_plain(found))
    else:
        _show(found)
    return 0


def _list(sets: Sequence[IndexSet], *, as_json: bool) -> int:
    if as_json:
        console.current().json([{"set": one.set_id, "added": one.added} for one in sets])
        return 0
    rows = [(one.set_id[:_SHORT], one.added[:16].replace("T", " "), _versions(one)) for one in sets]
    console.current().table(("set", "added", "versions"), rows)
    return 0


def _show(found: Found) -> None:
    from cairn.sources.manifest import changelog

    screen = console.current()
    for tried in found.search.tries:
        screen.item(_MARKS[tried.verdict], f"{tried.set_id[:_SHORT]} {tried.verdict} ({tried.log})")
    if len(found.suspects) == 1:
        screen.out(f"the first bad set is {_named(found.suspects[0])}")
    else:
        screen.out("the first bad set is one of these; the others could not be told:")
        for one in found.suspects:
            screen.out(f"  {_named(one)}")
    screen.out(f"the last good one is {_named(found.last_good)}")
    for line in changelog.lines(found.changes):
        screen.out(line)


def _plain(found: Found) -> dict[str, object]:
    from cairn import datafile

    return {
        "first_bad": [one.set_id for one in found.suspects],
        "last_good": found.last_good.set_id,
        "search": datafile.to_plain(found.search),
        "changes": datafile.to_plain(found.changes),
    }


def _named(one: IndexSet) -> str:
    return f"{one.set_id[:_SHORT]} of {one.added[:16].replace('T', ' ')}: {_versions(one)}"


def _versions(one: IndexSet) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(one.projects.items()))
