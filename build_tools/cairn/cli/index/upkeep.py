"""`cairn index`: audit, render, recover, gc."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments, signing
from cairn.cli.parser import Subparsers, add_command
from cairn.errors import CairnError, StoreError
from cairn.output import console, wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.release.audit.report import AuditReport
    from cairn.release.index.restore import Candidate
    from cairn.release.index.snapshot import Index
    from cairn.store.protocol import Store

_EVERY = "every one of the store"
_DAYS = 30


def add_to(commands: Subparsers) -> None:
    """Add the commands that look after a store."""
    _add_audit(commands)
    _add_render(commands)
    _add_recover(commands)
    _add_gc(commands)


def _add_audit(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "audit",
        audit,
        about="compare all that is in a store with what its generations say",
        more="Nothing is changed. It says what every key is (live, pending, garbage, temporary, foreign) and "
        "what is wrong; it exits with 9 if anything is, with 0 if nothing is. --json is for monitoring.",
        example="cairn index audit --store ./store --hashes",
    )
    _add_place(parser)
    parser.add_argument("--hashes", action="store_true", help="read every file for its sha256")
    signing.add_trust(parser, what="whose signature must be on each wheel of a set")


def _add_render(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "render",
        _render,
        about="make every page of an index anew from the generation that counts",
        more="Pages that are right are not written.",
        example="cairn index render --store ./store --index release",
    )
    _add_place(parser)


def _add_recover(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "recover",
        _recover,
        about="finish what a writer that died has left, or choose the generation that counts",
        more="Where the pointer, state.json, was lost or damaged, it lists the generations that may have "
        "counted last; --generation has one of them count, once all of it was found to be whole.",
        example="cairn index recover --store ./store",
    )
    _add_place(parser)
    parser.add_argument(
        "--generation", metavar="N-DIGEST", help="with --index: have this generation count (12-3f2a9c1b)"
    )
    arguments.add_dry_run(parser)


def _add_gc(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "gc",
        _gc,
        about="remove files, sets and leftovers that no generation names any more",
        more="What counted within the time can still be rolled back to. Generations are never removed.",
        example="cairn index gc --store ./store --older-than 90 --dry-run",
    )
    arguments.add_store(parser)
    parser.add_argument(
        "--older-than",
        type=converters.positive,
        default=_DAYS,
        metavar="DAYS",
        help="leave what was needed, or written, within so many days (default: %(default)s)",
    )
    arguments.add_dry_run(parser)
    arguments.add_json(parser)


def _add_place(parser: argparse.ArgumentParser) -> None:
    arguments.add_store(parser)
    arguments.add_index(parser, default=_EVERY, told=True)
    arguments.add_json(parser)


def audit(options: argparse.Namespace) -> int:
    """Audit the store, or the one index, that the options name."""
    from cairn import datafile
    from cairn.release.audit import audit as auditing

    store = arguments.open_existing_store(options)
    with console.current().stage(f"audit {store.url}") as stage:
        report = auditing.audit(
            store,
            (options.index,) if options.index else (),
            hashes=options.hashes,
            trust=signing.trust(options) if options.trust else None,
            on_step=stage.update,
        )
    if options.json:
        console.current().json(datafile.to_plain(report))
    else:
        _show(report)
    if not report.good:
        raise StoreError(
            f"{options.index or store.url} has {wording.count(report.problems, 'problem')}",
            tip="pages: cairn index recover, then render; files: publish them again, or restore them from a "
            "copy; what is foreign: find out who put it there",
        )
    return 0


def _show(report: AuditReport) -> None:
    screen = console.current()
    for problem in report.problems:
        screen.item("failed", problem.said)
    for kind, counted in report.keys.items():
        shown = f": {wording.some(counted.names, shown=3)}" if kind != "live" and counted.count else ""
        screen.out(f"{kind:9} {counted.count:>7}  {console.size(counted.size)}{shown}")
    if report.good:
        for name, number in report.indexes.items():
            screen.item("done", f"{name} is what its generation {number} says")


def _render(options: argparse.Namespace) -> int:
    from cairn.release.index import marks
    from cairn.release.index.commit import render_all

    done = {}
    marks.finish(arguments.open_existing_store(options))
    for index in _indexes(options):
        with console.current().stage(f"render {index.name}"):
            done[index.name] = list(render_all(index))
    if options.json:
        console.current().json(done)
        return 0
    for name, projects in done.items():
        console.current().out(f"{name}: the pages of {wording.count(projects, 'project')} say what counts")
    return 0


def _recover(options: argparse.Namespace) -> int:
    from cairn.errors import UsageError
    from cairn.release.index import restore
    from cairn.release.index.snapshot import Index

    store = arguments.open_existing_store(options)
    if options.generation is not None:
        if options.index is None:
            raise UsageError("--generation is of one index", tip="say of which: --index")
        index = Index(store, options.index)
        after = restore.restore(index, options.generation, dry_run=options.dry_run)
        said = "would count" if options.dry_run else "counts"
        return _said(options, f"generation {after.generation.number} of {index.name} {said}")
    problems: list[CairnError] = []
    for name in _there(store, options.index):
        index = Index(store, name)
        if (why := restore.broken(index)) is not None:
            found = restore.candidates(index)
            _offer(index.name, why, found, as_json=options.json)
            problems.append(StoreError(f"{name}: {why}", tip=_tip(name, found)))
            continue
        _finish(index, options)
    if problems:
        raise problems[0]
    return 0


def _finish(index: Index, options: argparse.Namespace) -> None:
    from cairn.release.index.commit import recover

    pointer = index.load().pointer
    if pointer is None or pointer.rendered == pointer.generation:
        _said(options, f"{index.name} has nothing to finish")
        return
    if options.dry_run:
        said = f"would write the pages of generation {pointer.generation} of {index.name}"
    else:
        pages = recover(index)
        said = f"wrote what generation {pointer.generation} of {index.name} has changed: {', '.join(pages)}"
    _said(options, said)


def _said(options: argparse.Namespace, text: str) -> int:
    if options.json:
        console.current().json({"done": text, "dry_run": options.dry_run})
    else:
        console.current().out(text)
    return 0


def _offer(name: str, why: str, found: tuple[Candidate, ...], *, as_json: bool) -> None:
    """Show the generations that may have counted last."""
    from cairn.release.index import restore

    screen = console.current()
    if as_json:
        screen.json({"index": name, "problem": why, "candidates": [restore.plain(one) for one in found]})
        return
    rows = [
        (
            one.name,
            one.when,
            one.action or "",
            one.who,
            _standing(one),
        )
        for one in found
    ]
    screen.table(("generation", "when", "action", "who", "how it stands"), rows)


def _standing(found: Candidate) -> str:
    if found.problem is not None:
        return found.problem
    if found.lost_race:
        return "its writer made a later one"
    return f"{found.pages} of {found.changed} pages show it"


def _tip(name: str, found: tuple[Candidate, ...]) -> str:
    good = [one.name for one in found if one.problem is None and not one.lost_race]
    if not good:
        return "no generation is whole: restore the store from a copy"
    return f"choose the one that counts: cairn index recover --index {name} --generation {good[0]}"


def _gc(options: argparse.Namespace) -> int:
    from datetime import timedelta

    from cairn import datafile
    from cairn.release import gc

    store = arguments.open_existing_store(options)
    with console.current().stage(f"collect garbage of {store.url}") as stage:
        done = gc.collect(
            store,
            older_than=timedelta(days=options.older_than),
            dry_run=options.dry_run,
            on_step=stage.update,
        )
    screen = console.current()
    if options.json:
        screen.json(datafile.to_plain(done) | {"dry_run": options.dry_run})
        return 0
    for name in (*done.keys, *done.temporaries):
        screen.out(f"{'would go:' if options.dry_run else '-'} {name}")
    objects = wording.count((*done.keys, *done.temporaries), "object")
    screen.out(f"{objects}, {console.size(done.size)}; {done.kept} stay")
    return 0


def _indexes(options: argparse.Namespace) -> Iterator[Index]:
    from cairn.release.index.snapshot import Index

    store = arguments.open_existing_store(options)
    return (Index(store, name) for name in _there(store, options.index))


def _there(store: Store, name: str | None) -> tuple[str, ...]:
    """The index that was named, or every one that anything is left of.

    Raises:
        StoreError: nothing is there of the one that was named.
    """
    from cairn.release.index import keys
    from cairn.release.index.snapshot import missing, traces

    found = traces(store)
    if name is None:
        return found
    if keys.checked_index(name) not in found:
        raise missing(store, name)
    return (name,)
