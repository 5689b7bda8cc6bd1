"""`cairn release`: rollback, yank, retain, log."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli import signing
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.options import Exclusive, argument, flag, option, repeated
from cairn.output import console, wording
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from cairn.release.history.difference import Difference, Logged
    from cairn.release.history.retain import Retained
    from cairn.release.history.rollback import Rollback as RollbackResult
    from cairn.release.history.yank import Yank

_SUBJECT = Exclusive(required=True)
_RULE = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class _IndexOptions(common.StoreOptions):
    index: str = common.index("release")


@dataclass(frozen=True, kw_only=True)
class _ChangeOptions(signing.SignOptions, _IndexOptions):
    reason: str | None = option("why, for the log")
    dry_run: bool = common.dry_run()

    def context(self) -> Mapping[str, object]:
        """Fields of the request that the answer repeats."""
        return {"index": self.index, "dry_run": self.dry_run}


@dataclass(frozen=True, kw_only=True)
class Rollback(_ChangeOptions):
    """Options of `cairn release rollback`.

    It makes a new generation, so that this can be rolled back too. Yanks made since hold. What that state
    offered must still be in the store as it was. It is no ban: a set that it takes off a channel for
    users comes back there by a rollback or by promote --again, and goes elsewhere as ever.

        cairn release rollback --store ./store --to 2026-11-20
    """

    to: str = option(
        "number of a generation; a date, for the last one of that day (UTC), or a moment; or the id of "
        "a set, for the generation that brought it",
        metavar="N|DATE|SET",
        required=True,
    )


@dataclass(frozen=True, kw_only=True)
class YankSet(signing.SignOptions, common.StoreOptions):
    """Options of `cairn release yank`.

    It counts in every index of the store, and the set comes into no other, whatever becomes of the
    indexes, until --undo takes it back by name and reason. Wheels that a set which is not yanked has too
    stay as they are.

        cairn release yank 3f2a --store ./store --reason 'wrong results of matmul on gfx942'
    """

    set_id: str = argument("SET", "its id: the first digits will do", nargs="?", default="", group=_SUBJECT)
    night: str | None = option(
        "all sets of a night, also those that are yet to be staged: its id, in a store with a root "
        "ID@DIGEST; or its manifest's digest",
        group=_SUBJECT,
    )
    built_by: str | None = option(
        "all sets that a builder made: its public key's file, or the address of its workflow",
        metavar="FILE|ADDRESS",
        convert=converters.nonempty,
        group=_SUBJECT,
    )
    reason: str = option("why; every page shows it", required=True)
    undo: bool = flag("take the yank back; asks for --who")
    who: str | None = option("whom to ask")
    dry_run: bool = common.dry_run()


@dataclass(frozen=True, kw_only=True)
class Retain(_ChangeOptions):
    """Options of `cairn release retain`.

    Of each line, family, Python and platform the newest stay. So does what a lock of the index or a
    different release index names. Files stay in the store until `cairn index gc`.

        cairn release retain --store ./store --index nightly --keep-last 60
    """

    keep_last: int | None = option(
        "so many sets that are not yanked stay", metavar="N", convert=converters.positive, group=_RULE
    )
    days: int | None = option(
        "the sets of so many days stay, and the newest",
        metavar="D",
        convert=converters.days,
        group=_RULE,
    )
    keep: tuple[str, ...] = repeated("this set stays too", metavar="SET")


@dataclass(frozen=True, kw_only=True)
class Log(_IndexOptions):
    """Options of `cairn release log`.

    With a project, or one version of it, it says of each file that the store knows why an installer by this
    Python takes it from the index, or does not: yanked, untested, Requires-Python, its platform, a
    pre-release, never promoted, rolled back.

        cairn release log --store ./store --index release
        cairn release log torch==2.9.0 --store ./store
    """

    project: str | None = argument("PROJECT[==VERSION]", "why this is installed, or not", nargs="?")
    limit: int | None = option(
        "so many of the newest (default: all)", metavar="N", convert=converters.positive
    )


def _rollback(request: Rollback) -> Answer:
    from cairn.release.history.rollback import rollback

    with console.current().stage(f"roll {request.index} back to {request.to}") as stage:
        result = rollback(
            request.open_existing_store(),
            request.index,
            request.to,
            reason=request.reason,
            dry_run=request.dry_run,
            on_step=stage.update,
        )
    return Answer(result, _rollback_text(request, result), more=request.context())


def _rollback_text(request: Rollback, result: RollbackResult) -> Iterator[Piece]:
    from cairn.release.index import keys

    index = request.index
    if not result.changed:
        yield f"{index} is as it was in generation {result.to} already"
        return
    yield from _changes(result.difference, dry_run=request.dry_run)
    for set_id in result.still_yanked:
        yield "bypassed", f"set {short_id(set_id)} was yanked since, and stays so"
    verb = "would be" if request.dry_run else "is"
    was = f"what {result.to} was, of {result.to_when}" if result.to else "empty, as it began"
    yield f"generation {result.generation} of {index} {verb} {was}"
    if not result.difference.gone_sets:
        return
    if keys.is_gated(index):
        says = f"the next night does not bring these sets back into {index}, and promotes others as ever"
    else:
        says = f"whatever is published into {index} again, such as by the next night, is there again"
    yield f"this bans nothing: {says}; for all indexes and for good: cairn release yank"


def _yank(request: YankSet) -> Answer:
    from cairn.errors import StoreError, UsageError
    from cairn.release.history import yank

    if request.undo != (request.who is not None):
        raise UsageError("a yank is taken back by name and reason", tip="--undo --who WHO --reason WHY")
    store, dry_run = request.open_existing_store(), request.dry_run
    if request.built_by is not None:
        subjects, unread = yank.built_by(store, request.built_by)
        if not (subjects or unread):
            raise StoreError(
                f"{store.url} has no set that {request.built_by} built",
                tip="give the public key that signed builder.json, or the builder's id as it stands there",
            )
    elif request.night is not None:
        subjects = (yank.manifest_of(store, request.night),)
    else:
        subjects = (yank.set_of(store, request.set_id),)
    results = yank.yank_each(store, subjects, by=request.who, reason=request.reason, dry_run=dry_run)
    text = [line for result in results for line in _yank_text(request, result)]
    if request.built_by is not None:
        plain = {"built_by": request.built_by, "sets": results, "changed": any(r.changed for r in results)}
        reasons = "; ".join(f"{short_id(set_id)}: {reason}" for set_id, reason in unread.items())
        count = wording.count(unread, "set")
        error = StoreError(
            f"who built {count} cannot be read: {reasons}", tip="look at each; yank it by its id"
        )
        return Answer(plain, text, error=error if unread else None, more={"dry_run": dry_run})
    return Answer(results[0], text, more={"dry_run": dry_run})


def _yank_text(request: YankSet, result: Yank) -> Iterator[Piece]:
    word = "not yanked" if request.undo else "yanked"
    subject = f"{'set' if request.night is None else 'the night of the manifest'} {short_id(result.subject)}"
    if not result.changed:
        yield f"{subject} is {word} already"
        return
    for place in result.indexes:
        for name in place.files:
            yield f"{'would be ' if request.dry_run else ''}{word} in {place.index}: {name}"
        for name in place.shared:
            yield f"= {name} in {place.index}: a set that is not yanked has it too"
    places = dict.fromkeys(f"{place.index} (generation {place.generation})" for place in result.indexes)
    is_so = "would be" if request.dry_run else "is"
    yield f"{subject} {is_so} {word} in {', '.join(places) or 'no index: none has it'}"
    if not request.undo:
        yield f"it {'would come' if request.dry_run else 'comes'} into no other index until --undo"


def _retain(request: Retain) -> Answer:
    from cairn.release.history.retain import Rule, retain

    rule = Rule(last=request.keep_last, days=request.days, keep=request.keep)
    retention = retain(
        request.open_existing_store(),
        request.index,
        rule,
        reason=request.reason,
        dry_run=request.dry_run,
    )
    return Answer(retention, _retain_text(request, retention), more=request.context())


def _retain_text(request: Retain, retention: Retained) -> Iterator[Piece]:
    for set_id, by in retention.held:
        yield f"= set {short_id(set_id)}: {by} names it"
    yield from _changes(retention.difference, dry_run=request.dry_run)
    if retention.changed:
        verb = "it would be" if request.dry_run else "it is"
        yield f"{verb} generation {retention.generation} of {request.index}"
    else:
        yield f"{request.index} has nothing that is to go"


def _log(request: Log) -> Answer:
    from cairn.release.history import difference, why

    if request.project is not None:
        files = why.explain(request.open_existing_store(), request.index, request.project)
        rows = [
            (row["version"], row["file"], "; ".join(row["reasons"]) or ("taken" if row["taken"] else "older"))
            for row in files[: request.limit]
        ]
        return Answer({"index": request.index, "files": files}, [Table(("version", "file", "why"), rows)])
    every = difference.entries(request.open_existing_store(), request.index)
    entries = tuple(itertools.islice(every, request.limit))
    head = ("generation", "when", "action", "who", "why", "sets")
    return Answer({"index": request.index, "generations": entries}, [Table(head, map(_row, entries))])


def _row(entry: Logged) -> Sequence[object]:
    marks = (("+", entry.brought), ("-", entry.removed), ("~", entry.marked))
    sets = [f"{mark}{short_id(set_id)}" for mark, ids in marks for set_id in ids]
    when = f"{entry.when[:10]} {entry.when[11:16]}"
    return entry.number, when, entry.action or "", entry.who, entry.why or "", " ".join(sets)


def _changes(difference: Difference, *, dry_run: bool) -> Iterator[str]:
    """The sets and files that go, and those that come back."""
    for sets, refs, sign, verb in (
        (difference.gone_sets, difference.gone, "-", "would go:"),
        (difference.back_sets, difference.back, "+", "would come back:"),
    ):
        for name in (*(f"set {short_id(set_id)}" for set_id in sets), *(ref.filename for ref in refs)):
            yield f"{verb if dry_run else sign} {name}"


COMMANDS = {
    "rollback": command(Rollback, _rollback, needs="release"),
    "yank": command(YankSet, _yank, needs="release"),
    "retain": command(Retain, _retain, needs="release"),
    "log": command(Log, _log, needs="release"),
}
