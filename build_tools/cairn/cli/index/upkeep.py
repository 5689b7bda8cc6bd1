"""`cairn index`: serve, check, repair, gc."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.errors import CairnError, StoreError, UsageError
from cairn.options import argument, flag, option
from cairn.output import console, wording

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.release.audit.inventory import AuditReport
    from cairn.release.index.restore import Candidate
    from cairn.release.index.snapshot import Index
    from cairn.store.protocol import Store


@dataclass(frozen=True, kw_only=True)
class Serve(common.StoreOptions):
    """Options of `cairn index serve`.

    Its own files are served, and no others.

        cairn index serve ./store
    """

    store: str = argument("URL", "the store: a path, file://…, s3://bucket/prefix, gs:// or az://")
    host: str = option(
        "address to listen on (default: %(default)s)",
        convert=converters.nonempty,  # an empty one would be every address of the machine
        default="127.0.0.1",
    )
    port: int = option(
        "port to listen on; 0 takes any free one (default: %(default)s)", convert=int, default=8383
    )


def _serve(request: Serve) -> None:
    from cairn.release.index import keys
    from cairn.release.index.snapshot import existing
    from cairn.release.serve import serving
    from cairn.store.folder import LocalStore

    store = request.open_existing_store()
    indexes = existing(store)
    names = {path.name for path in store.path.iterdir()} if isinstance(store, LocalStore) else set()
    if not indexes and names - keys.FOLDERS:
        raise StoreError(
            f"{store.url} is not a store: nothing was published into it, and it has other files",
            tip="name the folder that `cairn index publish --store` wrote",
        )
    try:
        with serving(store, host=request.host, port=request.port) as server:
            _announce(server.url, store, indexes)
            threading.Event().wait()
    except KeyboardInterrupt:
        console.current().info("stopped")


def _announce(url: str, store: Store, indexes: Sequence[str]) -> None:
    from cairn.release.index import keys

    screen = console.current()
    screen.info(f"serving {store.url} until Ctrl-C")
    if store.exists(keys.LANDING):
        screen.info(f"what there is, and how to install it: {url}/")
    if not indexes:
        screen.warn("nothing is published in it yet")
    for index in indexes:
        screen.out(keys.index_url(url, index))


@dataclass(frozen=True, kw_only=True)
class Check(signing.RootOptions, common.StoreOptions):
    """Options of `cairn index check`.

    Nothing is changed. It says what every key is (live, pending, garbage, temporary, foreign) and what is
    wrong; it exits with 9 if anything is, with 0 if nothing is. --json is for monitoring.

        cairn index check --store ./store --hashes
    """

    index: str | None = common.index("every one of the store", explicit=True)
    hashes: bool = flag("read every file for its sha256")
    trust: tuple[str, ...] = signing.trust("whose signature must be on each wheel of a set")


@dataclass(frozen=True, kw_only=True)
class Repair(signing.SignOptions, common.StoreOptions):
    """Options of `cairn index repair`.

    What a writer that died has left is finished, and each page that does not say what the current generation
    says is written again. Where the pointer, state.json, was lost or damaged, it lists the generations that
    may have been current last; --generation makes one of them current, if it is whole. An index, the ledger
    or the root of which nothing is left comes back from a copy of the store alone.

        cairn index repair --store ./store
        cairn index repair --store ./store --accept-loss "release/gfx90X-dcgpu=closed in May"
    """

    index: str | None = common.index("every one of the store", explicit=True)
    generation: str | None = option(
        "with --index: have this generation count (12-3f2a9c1b)", metavar="N-DIGEST"
    )
    accept_loss: str | None = option(
        "note by your name that an index, `ledger` or `metadata` is gone for good, and why",
        metavar="WHAT=REASON",
    )
    json: bool = False
    dry_run: bool = common.dry_run()


@dataclass(frozen=True, kw_only=True)
class CollectGarbage(signing.SignOptions, common.StoreOptions):
    """Options of `cairn index gc`.

    What counted within the time can still be rolled back to. Generations are never removed.

        cairn index gc --store ./store --older-than 90 --dry-run
    """

    older_than: int = option(
        "leave what was needed, or written, within so many days (default: %(default)s)",
        metavar="DAYS",
        convert=converters.days,
        default=30,
    )
    dry_run: bool = common.dry_run()


def check(request: Check) -> Answer:
    """Audit the store, or the one index that is named."""
    from cairn.release.audit import audit as auditing

    store = request.open_existing_store()
    with console.current().stage(f"audit {store.url}") as stage:
        report = auditing.audit(
            store,
            (request.index,) if request.index else (),
            hashes=request.hashes,
            trust=signing.read_trust(request.trust, store=store),
            on_step=stage.update,
        )
    error = StoreError(
        f"{request.index or store.url} has {wording.count(report.problems, 'problem')}",
        tip="pages: cairn index repair; files: publish them again, or restore them from a "
        "copy; what is gone: restore it; what is foreign: find out who put it there",
    )
    return Answer(report, _text(report), error=None if report.good else error)


def _text(report: AuditReport) -> Iterator[Piece]:
    for problem in report.problems:
        yield "failed", problem.said
    for kind, counted in report.keys.items():
        shown = f": {wording.some(counted.names, shown=3)}" if kind != "live" and counted.count else ""
        yield f"{kind:9} {counted.count:>7}  {console.size(counted.size)}{shown}"
    if report.good:
        for name, number in report.indexes.items():
            yield "done", f"{name} is what its generation {number} says"


def _repair(request: Repair) -> Iterator[Answer]:
    if request.accept_loss is not None:
        yield _accept(request)
        return
    if not request.json or request.index is not None:
        yield from _repair_each(request)
        return
    answers: list[object] = []
    error: CairnError | None = None
    try:
        for repaired in _repair_each(request):
            answers.append(repaired.value)  # noqa: PERF401 - those before a failure are shown too
    except CairnError as failed:
        error = failed
    if error is not None and not answers:
        raise error
    yield Answer({"indexes": answers}, error=error)


def _repair_each(request: Repair) -> Iterator[Answer]:
    from cairn.release import records, wholes
    from cairn.release.audit import audit as auditing
    from cairn.release.index import restore
    from cairn.release.index.snapshot import Index
    from cairn.release.ledger import Ledger

    store = request.open_existing_store()
    if request.generation is not None:
        if request.index is None:
            raise UsageError("--generation is of one index", tip="say of which: --index")
        index = Index(store, request.index)
        after = restore.restore(index, request.generation, dry_run=request.dry_run)
        verb = "would be current" if request.dry_run else "is current"
        yield _end(request, f"generation {after.generation.number} of {index.name} {verb}")
        return
    problems: list[CairnError] = []
    indexes = tuple(_indexes(store, request.index))
    forged = {index.name: restore.restore_signed(index, dry_run=request.dry_run) for index in indexes}
    yield from (_end(request, text) for text in forged.values() if text)
    # Pages and a ledger that are made anew would hide that it is gone.
    wholes.require_all(store, request.index)
    if not request.dry_run:
        Ledger(store).note_signed()
        records.publish_late(store)
    for index in indexes if not request.dry_run else (index for index in indexes if not forged[index.name]):
        if (why := restore.broken(index)) is None:
            with console.current().stage(f"make pages of {index.name}"):
                yield _end(request, _pages(index, dry_run=request.dry_run))
            continue
        candidates = restore.candidates(index)
        yield _candidates(index.name, why, candidates)
        problems.append(StoreError(f"{index.name}: {why}", tip=_tip(index.name, candidates)))
    if problems:
        raise problems[0]
    problems_left = auditing.lost(store, (request.index,) if request.index else ())
    # What a dry run has only announced is no loss.
    if lost := [each for each in problems_left if not (request.dry_run and forged.get(each.index or ""))]:
        names = wording.some([problem.said for problem in lost], shown=3)
        raise StoreError(
            f"the pages are whole, and {store.url} has lost what no repair brings back: {names}",
            tip=f"restore it from a copy of the store; all of it: cairn index check --store {store.url}",
        )


def _accept(request: Repair) -> Answer:
    from cairn.release.index import restore

    name, _, reason = (word.strip() for word in (request.accept_loss or "").partition("="))
    if not (name and reason) or request.generation or request.index:
        raise UsageError(
            "a loss is accepted by name and reason, and by nothing else", tip='--accept-loss "WHAT=REASON"'
        )
    store = request.open_existing_store()
    if not request.dry_run:
        restore.accept_loss(store, name, reason)
    verb = "would be noted" if request.dry_run else "is noted"
    return _end(request, f"the ledger: that {name} is gone for good {verb}")


def _pages(index: Index, *, dry_run: bool) -> str:
    """Write the pages of the current generation that are not what it says; return a sentence about them."""
    from cairn.release.index.commit import recover, render_all

    pointer = index.load().pointer
    is_finished = pointer is None or pointer.rendered == pointer.generation
    if dry_run:
        action = "check the pages" if is_finished else "write the pages that its writer left"
        return f"{index.name}: would {action}"
    if not is_finished:
        recover(index)
    projects = list(render_all(index))
    return f"{index.name}: the pages of {wording.count(projects, 'project')} say what is current"


def _end(request: Repair, text: str) -> Answer:
    return Answer({"done": text, "dry_run": request.dry_run}, [text])


def _candidates(name: str, why: str, candidates: tuple[Candidate, ...]) -> Answer:
    """List the generations that may have been current last."""
    from cairn.release.index import restore

    rows = []
    for entry in candidates:
        stands = (
            "its writer made a later one"
            if entry.lost_race
            else f"{entry.pages} of {entry.changed} pages show it"
        )
        rows.append((entry.name, entry.when, entry.action or "", entry.who, entry.problem or stands))
    plain = [restore.plain(entry) for entry in candidates]
    head = ("generation", "when", "action", "who", "how it stands")
    return Answer({"index": name, "problem": why, "candidates": plain}, [Table(head, rows)])


def _tip(name: str, candidates: tuple[Candidate, ...]) -> str:
    good = [entry.name for entry in candidates if entry.problem is None and not entry.lost_race]
    if not good:
        return "no generation is whole: restore the store from a copy"
    return f"choose the current one: cairn index repair --index {name} --generation {good[0]}"


def _gc(request: CollectGarbage) -> Answer:
    from datetime import timedelta

    from cairn.release import gc

    store, dry_run = request.open_existing_store(), request.dry_run
    older_than = timedelta(days=request.older_than)
    with console.current().stage(f"collect garbage of {store.url}") as stage:
        garbage = gc.collect(store, older_than=older_than, dry_run=dry_run, on_step=stage.update)
    names = (*garbage.keys, *garbage.temporaries)
    text = (
        *(f"{'would go:' if dry_run else '-'} {name}" for name in names),
        f"{wording.count(names, 'object')}, {console.size(garbage.size)}; {garbage.kept} stay",
    )
    return Answer(garbage, text, more={"dry_run": dry_run})


def _indexes(store: Store, name: str | None) -> Iterator[Index]:
    """Return the named index, or every index of which any object is left.

    Raises:
        StoreError: nothing is left of the one that was named.
    """
    from cairn.release.index import keys
    from cairn.release.index.snapshot import Index, missing, traces

    names = traces(store)
    if name is not None:
        if keys.checked_index(name) not in names:
            raise missing(store, name)
        names = (name,)
    return (Index(store, name) for name in names)


COMMANDS = {
    "serve": command(Serve, _serve, needs="serve"),
    "check": command(Check, check),
    "repair": command(Repair, _repair),
    "gc": command(CollectGarbage, _gc),
}
