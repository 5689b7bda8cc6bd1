"""One change of an index, from its generation to its pages: a crash anywhere can be finished or undone.

    step                                if the writer dies after it
    1 files, sidecars, sets             no page names them; the next run finds them there
      the ledger has their names        other bytes cannot have these names any more; the same bytes can
    2 parts and the generation          the pointer does not lead to them; `gc` collects the parts
      the promoter's word for it        where the store has a root: see `trust.online`, also for its sequel
    3 state.json, if it is unchanged    the change is made; the pages are still the old ones, whole
      the ledger has the index          it is missed where all of it is lost (`release.wholes`)
    4 pages of projects, the root,      an installer sees each project before or after the change, in an
      those for people                  order (`write`) that never leads it to what is not there
    5 state.json: pages are written     the next run compares the pages once more

Only step 3 decides. All after it can be done by any run, as often as it likes, because pages are made from
the generation alone. `attempts` does just that before each change. The writer of step 2 has them already,
with lines of the pages before (`write.page_after`): they have the bytes that any other run makes.

Nobody does step 3 while pages of the generation before are still to be written, and a writer of pages begins
again once a different generation is current. So two generations are never written side by side, or in two
orders at once: one that adds files goes from what is needed to what needs it, one that removes them the other
way.

Each command that changes an index tells its own story, as a loop over the states that it may begin from:

    for attempt in attempts(index):                     the state, with every page written
        change = …                                      proposed from attempt.before, judged, or refused
        if attempt.commit(change, "promote"):           steps 2 to 5, if the state is still the same
            break

What is judged is what is committed: where a different writer was first, the next attempt begins with what
that one made.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from cairn.errors import CairnError, GateError, StoreError
from cairn.release import wholes
from cairn.release.index import generation, keys, write
from cairn.release.index.generation import (
    RECENT,
    Action,
    FileEntry,
    Generation,
    IndexSet,
    LogEntry,
    Pointer,
    digest_of,
    now,
    who,
)
from cairn.release.index.names import differing
from cairn.release.index.reach import change_since
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Change, Index, Snapshot, empty, traces
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event
from cairn.release.trust import anchor
from cairn.release.trust.current import DECISIONS
from cairn.release.trust.metadata import role_of
from cairn.store.protocol import Store, attempts_at, write_once

if TYPE_CHECKING:
    from cairn.release.trust.online import Promoter


_TAKES_AWAY: frozenset[Action] = frozenset({"yank", "retain"})  # and offers nothing that a ban may be of


class Attempt:
    """One attempt to change an index, based on its state at that moment.

    Attributes:
        before: the index that the change is made of.
        recovered: the projects whose pages an earlier run had left to be written, in their order; by now
            they are.
        generation: number of the current generation: of `before`, then of the change.
    """

    def __init__(
        self, before: Snapshot, *, change_id: str, recovered: tuple[str, ...] = (), dry_run: bool = False
    ) -> None:
        self.before = before
        self.recovered = recovered
        self.generation = before.generation.number
        self._change_id = change_id
        self._dry_run = dry_run

    def commit(self, change: Change, action: Action, *, why: str | None = None) -> bool:
        """Make a change if the index is unchanged, and write its pages; do nothing for an empty change.

        Args:
            change: what is to be different; the files that it offers are in the store (step 1).
            action: which command asks for it.
            why: the reason, for the log.

        Returns:
            False where a different writer was first, or the change was refused by what became known
            meanwhile, and taken back: nothing is changed then. True for a dry run, which
            writes nothing.

        Raises:
            GateError: a set of the change is banned, and the change does not say so.
            NameTakenError: a name that the change brings has had other bytes.
            StoreError: what the store answered leaves open whether the change was made; or the ledger has
                lost entries, and with them perhaps the ban of what the change offers.
        """
        if change.empty:
            return True
        if action not in _TAKES_AWAY and (lost := wholes.lost_entries(self.before)):
            raise StoreError(lost, tip="nothing was changed")
        if not self._dry_run:
            before = _begun(self.before)
            if before is None:
                return False
            # What the ledger says holds for every change of every index, whatever command asks.
            ledger = Ledger(before.index.store)
            ledger.refuse_banned(s for s in change.sets.values() if s is not None and s.yanked is None)
            if action != "rollback":  # which brings a state back, and marks what of it was yanked
                _refuse_banned_files(ledger, before, change)
            new = {file.filename: file.sha256 for file in _new_files(before, change)}
            ledger.add(names={keys.scope_of(before.index.name): new} if new else None)
            change = write.with_pages(before, change)
            made = _next(before, change, action, change_id=self._change_id, why=why, ledger=ledger.last())
            data = generation.encode(made)
            key = keys.generation_key(made.index, made.number, digest_of(data))
            write_once(before.index.store, key, data)
            if (promoter := _promoter_of_index(before.index)) is not None:
                promoter.promise(before, change, made, data)
            if not (_point(before, made.number, digest_of(data)) and _stands(before.index, made.number)):
                return False
        self.generation += 1
        return True


def attempts(index: Index, *, dry_run: bool = False) -> Iterator[Attempt]:
    """Yield attempts, each on a newer state of the index; the caller leaves the loop once one has committed.

    All pages of the state are written by then. A dry run has one attempt, on the state as it is.

    Raises:
        StoreError: others were first too many times in a row.
    """
    change_id = secrets.token_hex(8)
    if dry_run:
        yield Attempt(read_current(index), change_id=change_id, dry_run=True)
        return
    for before, recovered in _fully_shown(index):
        yield Attempt(before, change_id=change_id, recovered=recovered)


def recover(index: Index) -> tuple[str, ...]:
    """Write the pages that a change has yet to write, be it this writer's or that of one that died.

    Safe beside writers that are alive: pages are made from the current generation, by whichever run.

    Returns:
        The projects whose pages were written, in that order.
    """
    _, recovered = next(_fully_shown(index))
    return recovered


def _fully_shown(index: Index) -> Iterator[tuple[Snapshot, tuple[str, ...]]]:
    """Yield states of the index, each once all its pages are written, with the projects written by then.

    Raises:
        StoreError: others were first too many times in a row.
    """
    written: dict[str, None] = {}
    promoter = _promoter_of_index(index)
    for _ in attempts_at(index.name):
        current = index.load()
        if promoter is not None and not promoter.settle(
            current, may_sign=partial(_take_back_if_refused, current)
        ):
            continue
        if not _shows_all(current):
            if current.pointer is not None and current.pointer.rendered == 0:
                wholes.begin(index.store, index.name)
            written |= dict.fromkeys(_write_pages(current))
            current = index.load()
        if _shows_all(current):
            yield current, tuple(written)


def _promoter_of_index(index: Index) -> Promoter | None:
    """Whoever signs the states of an index; None where nobody does.

    Where a builder may publish without the promoter's key, as into staging, nothing is signed: what comes
    from there to users does so by the gate.
    """
    return _promoter(index.store) if keys.is_gated(index.name) else None


def _promoter(store: Store) -> Promoter | None:
    """Whoever signs for a store, with or without the key here; None where the store has no root."""
    trusted = anchor.anchor(store)
    if trusted is None:
        return None
    from cairn.release.trust.online import Promoter  # noqa: PLC0415 - cryptography, which nobody else needs

    return Promoter(store, trusted)


LAGGING = (
    "only a promoter's key signs what users install: its pages say so after the next cairn trust refresh, or "
    "cairn index repair, with that key"
)
"""Why the pages of signed indexes do not say what was added to a set."""


def can_change_gated(store: Store) -> bool:
    """Whether gated indexes can be changed here: nobody signs them, or the promoter's key is there."""
    promoter = _promoter(store)
    return promoter is None or promoter.can_sign


def lost_indexes(store: Store) -> list[str]:
    """Sentences on the indexes of which nothing is left, where nobody accepted the loss."""
    lost = dict.fromkeys(wholes.lost_indexes(store), "the ledger knows it, and it is lost")
    if promoter := _promoter(store):
        meta, present = promoter.current(late=True).meta, traces(store)
        signed = (name for name in keys.possible_indexes() if f"{role_of(name)}.json" in meta)
        away = (name for name in signed if name not in present and not wholes.has_ended(store, name))
        lost |= dict.fromkeys(away, "it is signed, and lost")
    return [f"{name}: {text}" for name, text in lost.items()]


def note_events(store: Store, events: Sequence[Event]) -> None:
    """Note events of sets in the ledger; where the store has a root, a promoter signs them.

    With what a promoter notes of a set, the failures that it has by then are signed too, so that nobody can
    have them forgotten.

    Raises:
        UsageError: they are decisions, and there is no key of a promoter.
    """
    ledger, promoter = Ledger(store), _promoter(store)
    if promoter is not None and any(event.kind in DECISIONS for event in events):
        promoter.require_key()
    if promoter is not None and promoter.can_sign:
        # Signed first: what is signed and not noted yet counts, and anybody can note it (`ledger.add`).
        of_sets = dict.fromkeys(event.set_id for event in events)
        failures = [event for set_id in of_sets for event in ledger.history(set_id) if event.is_bad]
        news = [event for event in ledger.news(events) if event.is_bad or event.kind != "record"]
        promoter.decide([*failures, *news])
        ledger.add(events=events)
        if news:
            promoter.decide(news, noted=True)
        return
    ledger.add(events=events)


def render_all(index: Index) -> tuple[str, ...]:
    """Render every page of an index from the current generation; pages that are right stay untouched.

    Pages of projects that it does not have say so: an index that was restored may have had more.

    Returns:
        The projects, in the order in which their pages were written.
    """
    ordered: tuple[str, ...] = ()
    for attempt in attempts(index):
        current = attempt.before
        if current.pointer is None:
            break
        nothing = index.at(empty(index.name), "")
        ordered = write.page_order(nothing, current, current.project_names)
        names = (*ordered, *write.pages_of_others(current))
        if (
            all(write.put_project_page(current, name) for name in names)
            and write.put_root_page(current)
            and _put_people_pages(current)
        ):
            break
    return ordered


def render_adopted(index: Index) -> None:
    """Render every page of a state that a promoter has adopted, whoever wrote it.

    Where it names another page than its own, which may be forged, a new generation names its own: else the
    next change would copy lines of the other page.
    """
    for attempt in attempts(index):
        now = attempt.before
        names = [name for name in now.project_names if write.names_another_page(now, name)]
        change = Change(projects={name: now.project(name) for name in names})
        if attempt.commit(change, "record", why="pages are rendered anew"):
            break
    render_all(index)


def _shows_all(current: Snapshot) -> bool:
    """Whether every page shows the current generation."""
    return current.pointer is None or current.pointer.rendered == current.pointer.generation


def _write_pages(current: Snapshot) -> tuple[str, ...]:
    """Write the pages that differ between the generation that they show and the current one.

    It ends early where a different writer comes between: then the pointer does not say that they are written,
    and whoever looks at the index next goes on.

    Returns:
        The projects whose pages are right by now, in their order.
    """
    index, pointer = current.index, current.pointer
    assert pointer is not None  # noqa: S101 - its caller has looked
    try:
        shown = index.at(index.generation(pointer.rendered, pointer.rendered_digest), pointer.rendered_digest)
        changed = differing(shown.project_parts, current.project_parts)
        ordered = write.page_order(shown, current, changed)
        other_sets = bool(differing(shown.set_entries, current.set_entries))
    except StoreError:
        # What the pages show was lost: an old `gc` collected it. All that is current can still be shown.
        shown, changed, other_sets = index.at(empty(index.name), ""), frozenset(current.project_names), True
        ordered = write.page_order(shown, current, changed)
        ordered += write.pages_of_others(current)
    for place, name in enumerate(ordered):
        if not write.put_project_page(current, name):
            return ordered[:place]
    is_first = not shown.exists
    other_projects = any((name in shown.project_parts) != (name in current.project_parts) for name in changed)
    if (not (other_projects or is_first) or write.put_root_page(current)) and (
        not (other_sets or is_first) or _put_people_pages(current)
    ):
        whole = structs.replace(pointer, rendered=pointer.generation, rendered_digest=pointer.digest)
        index.store.write_if(keys.state_key(index.name), generation.encode(whole), etag=current.etag)
    return ordered


def _put_people_pages(current: Snapshot) -> bool:
    # A tenth of the time that one more wheel takes, and a wheel without a set changes none of these pages.
    from cairn.release.index import people  # noqa: PLC0415

    return people.write(current.index.store, current.index.name, current.index)


def _begun(before: Snapshot) -> Snapshot | None:
    """Ensure that an index has a pointer before its first generation; None if it changed meanwhile.

    So a store never has generations and no pointer, unless the pointer was lost.
    """
    if before.pointer is not None:
        return before
    index = before.index
    zero = digest_of(generation.encode(empty(index.name)))
    first = Pointer(generation=0, digest=zero, rendered=0, rendered_digest=zero)
    index.store.write_if(keys.state_key(index.name), generation.encode(first), etag=None)
    current = index.load()
    return current if current.digest == before.digest else None


def _refuse_banned_files(ledger: Ledger, before: Snapshot, change: Change) -> None:
    """Refuse a change if it newly offers files of a banned set."""
    files = [file for project in change.projects.values() if project is not None for file in project.files]
    requested = {
        set_id: frozenset(file.sha256 for file in files if set_id in file.sets)
        for set_id, entry in change.sets.items()
        if entry is not None and entry.yanked is None and not before.has_set(set_id)
    }
    fresh = {file.sha256 for file in _new_files(before, change) if file.yanked is None}
    if requested or fresh:
        ledger.refuse_banned_files(requested, fresh.difference(*requested.values()))


def _take_back_if_refused(current: Snapshot, signed: Snapshot, is_of_root: bool) -> bool:  # noqa: FBT001
    """Point an index back at its signed state if what it brings is refused by now; return whether it stands.

    Args:
        current: a state that a promoter promised, and that no timestamp leads to yet.
        signed: the signed state before it.
        is_of_root: whether the root by which the gate judged what a promotion brings is the newest still.
    """
    changed = differing(signed.project_parts, current.project_parts)
    projects = {name: current.project(name) for name in changed if name in current.project_parts}
    changed = differing(signed.set_entries, current.set_entries)
    sets = {set_id: current.set(set_id) for set_id in changed if current.has_set(set_id)}
    ledger = Ledger(current.index.store)
    try:
        ledger.refuse_banned(entry for entry in sets.values() if entry.yanked is None)
        if current.generation.action != "rollback":  # as `commit` asks
            _refuse_banned_files(ledger, signed, Change(projects=projects, sets=sets))
    except GateError:
        is_of_root = False
    brought = [entry for set_id, entry in sets.items() if not signed.has_set(set_id)]
    if is_of_root and (
        current.generation.action != "promote"
        or not any(_failed_since(ledger, entry, current.generation.when) for entry in brought)
    ):
        return True
    zero = digest_of(generation.encode(empty(current.index.name)))
    # Its writer may have written some of its pages: all are made anew.
    number = signed.generation.number
    back = Pointer(generation=number, digest=signed.digest or zero, rendered=0, rendered_digest=zero)
    key = keys.state_key(current.index.name)
    current.index.store.write_if(key, generation.encode(back), etag=current.etag)
    return False


def _stands(index: Index, number: int) -> bool:
    """Write the pages of a generation; return whether it was not taken back (`_take_back_if_refused`)."""
    shown, _ = next(_fully_shown(index))
    return shown.generation.number >= number


def _failed_since(ledger: Ledger, entry: IndexSet, moment: str) -> bool:
    """Whether a test of a set failed after the gate had judged it."""
    events = (event for event in ledger.history(entry.set_id) if event.is_bad and event.when > moment)
    return any(event.record not in entry.records for event in events)


def _new_files(before: Snapshot, change: Change) -> Iterator[FileEntry]:
    """The files that a change adds under names that the index does not have."""
    for name, project in change.projects.items():
        if project is not None:
            old = {file.filename for file in before.project(name).files}
            yield from (file for file in project.files if file.filename not in old)


def _next(
    before: Snapshot,
    change: Change,
    action: Action,
    *,
    change_id: str,
    why: str | None,
    ledger: tuple[int, str] | None,
) -> Generation:
    """Store the parts of the generation that a change makes, and return that generation."""
    index, old, parts, sets = before.index, before.generation, before.project_parts, before.set_entries
    number, digests = old.number + 1, dict[str, str | None]()
    for name, project in change.projects.items():
        new = structs.replace(project, serial=number) if project is not None else None
        digests[name] = index.put_project(new, parts.get(name)) if new is not None else None
    changed = {name for name, digest in digests.items() if digest != parts.get(name)}
    same_projects = all(name in parts and digests[name] is not None for name in changed)
    entry = LogEntry(
        number=number, action=action, who=who(), when=now(), why=why, sets=tuple(sorted(change.sets))
    )
    made = Generation(
        index=index.name,
        number=number,
        parent=before.digest,
        action=action,
        who=entry.who,
        why=why,
        when=entry.when,
        recent=(entry, *old.recent)[:RECENT] if entry.sets else old.recent,
        change_id=change_id,
        projects=parts.put(digests, index.put_part),
        sets=sets.put(change.sets, index.put_part),
        serial=old.serial if same_projects else number,
        ledger=ledger,
    )
    return structs.replace(made, **change_since(before, index.at(made, "")))


def _point(before: Snapshot, number: int, digest: str) -> bool:
    """Point `state.json` at a generation if it is unchanged; return whether it now leads to that generation.

    A bucket may apply a write and lose the answer; the client then tries again, and learns that a different
    writer was first. So a refusal, or a failure, is believed only if the generation is not in the chain.
    """
    assert before.pointer is not None  # noqa: S101 - it has begun
    index = before.index
    pointer = structs.replace(before.pointer, generation=number, digest=digest)
    try:
        # Only if nothing came between: else the change was made from a state that is no longer there, and
        # writing it would undo what the other writer did.
        if index.store.write_if(keys.state_key(index.name), generation.encode(pointer), etag=before.etag):
            return True
        return _is_in_chain(index, number, digest)
    except (CairnError, OSError) as error:
        try:
            made = _is_in_chain(index, number, digest)
        except (CairnError, OSError):
            raise StoreError(
                f"{error}; whether generation {number} of {index.name} is current is not known",
                tip="run the same command again when the store answers: it finds out, and does what is left",
            ) from error
        if not made:
            raise
        return True


def _is_in_chain(index: Index, number: int, digest: str) -> bool:
    """Whether a generation is the current one or one of its ancestors."""
    return next((d == digest for d, past in index.chain(index.load()) if past.number <= number), False)
