"""One change of an index, from its generation to its pages: a crash anywhere can be finished or undone.

    step                                if the writer dies after it
    1 files, sidecars, sets             no page names them; the next run finds them there
      the ledger has their names        other bytes cannot have these names any more; the same bytes can
    2 parts and the generation          the pointer does not lead to them; `gc` collects the parts
    3 state.json, if it is unchanged    the change counts; the pages are still the old ones, whole
    4 pages of projects, the root,      an installer sees each project before or after the change, in an
      those for people                  order (`write`) that never leads it to what is not there
    5 state.json: pages are written     the next run compares the pages once more

Only step 3 decides. All after it can be done by any run, as often as it likes, because pages are made from
the generation alone. `recover` does just that at the beginning of each change.

Nobody does step 3 while pages of the generation before are still to be written, and a writer of pages begins
again once a different generation counts. So two generations are never written side by side, or in two orders
at once: one that adds files goes from what is needed to what needs it, one that removes them the other way.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator

import msgspec

from cairn.errors import CairnError, StoreError
from cairn.release.index import generation, keys, write
from cairn.release.index.generation import (
    RECENT,
    Action,
    FileEntry,
    Generation,
    LogEntry,
    Pointer,
    digest_of,
    now,
    who,
)
from cairn.release.index.snapshot import Change, Index, Snapshot, empty
from cairn.release.ledger.chain import Ledger, scope_of
from cairn.store.protocol import write_once

# Each attempt that fails means that a different writer got through, so 200 of them need 200 other changes.
_ATTEMPTS = 200
_PAUSE = 0.05  # seconds, at most, before trying again after a different writer was first


def commit(
    index: Index, action: Action, plan: Callable[[Snapshot], Change], *, why: str | None = None
) -> Snapshot:
    """Make the change that `plan` decides on, after finishing what an earlier run left.

    Args:
        index: the index to change; the files that the change offers are in its store (step 1).
        action: which command asks for it.
        plan: the change to make of a snapshot; called again when a different writer was first.
        why: the reason, for the log.

    Returns:
        The index with the change; as it was where there was nothing to do.

    Raises:
        GateError: a set of the change is banned, and the change does not say so.
        NameTakenError: a name that the change brings has had other bytes.
        StoreError: others were first too many times in a row, or what the store answered leaves open whether
            the change was made.
    """
    change_id, started = secrets.token_hex(8), now()
    for _ in range(_ATTEMPTS):
        recover(index)
        before = index.load()
        if not _rendered(before):  # a different writer changed it again
            continue
        change = plan(before)
        if change.empty:
            return before
        if before.pointer is None:
            _begin(index)
            continue
        _remember(before, change, action)
        made = _next(before, change, action, change_id=change_id, when=started, why=why)
        data = generation.encode(made)
        digest = digest_of(data)
        write_once(index.store, keys.generation_key(index.name, made.number, digest), data)
        pointer = msgspec.structs.replace(before.pointer, generation=made.number, digest=digest)
        # Only if nothing came between: else the change was made from a state that is no longer there, and
        # writing it would undo what the other writer did.
        if _point(index, before, pointer):
            recover(index)
            return index.at(made, digest)
        time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - spreads two writers, keeps no secret
    raise StoreError(
        f"others changed {index.name} {_ATTEMPTS} times while this run tried to", tip="run it again"
    )


def recover(index: Index) -> tuple[str, ...]:
    """Write the pages that a change has yet to write: one's own, or that of a writer that died.

    Safe beside writers that are alive: pages are made from what counts, by whichever run.

    Returns:
        The projects whose pages were written, in that order.
    """
    written: dict[str, None] = {}
    for _ in range(_ATTEMPTS):
        after = index.load()
        if _rendered(after):
            return tuple(written)
        with contextlib.suppress(write.SupersededError):
            written |= dict.fromkeys(_write_pages(after))
    raise StoreError(
        f"others changed {index.name} {_ATTEMPTS} times while this run tried to write its pages",
        tip="run it again",
    )


def render_all(index: Index) -> tuple[str, ...]:
    """Make every page of an index anew from the generation that counts; those that are right stay untouched.

    Pages of projects that it does not have say so: an index that was restored may have had more.

    Returns:
        The projects, in the order in which their pages were written.
    """
    recover(index)
    now_there = index.load()
    if now_there.pointer is None:
        return ()
    nothing = index.at(empty(index.name), "")
    ordered = write.page_order(nothing, now_there, now_there.project_names)
    write.write_project_pages(index, (*ordered, *write.pages_of_others(now_there)))
    write.write_root_page(index)
    _write_people_pages(index)
    return ordered


def _rendered(snapshot: Snapshot) -> bool:
    """Whether every page shows what counts."""
    return snapshot.pointer is None or snapshot.pointer.rendered == snapshot.pointer.generation


def _write_pages(after: Snapshot) -> tuple[str, ...]:
    """Write the pages of what differs between the generation that they show and the one that counts.

    Raises:
        SupersededError: by now a different generation counts, so every page of this one was written.
    """
    index, pointer, new = after.index, after.pointer, after.generation
    assert pointer is not None  # noqa: S101 - its caller has looked
    try:
        old = index.generation(pointer.rendered, pointer.rendered_digest)
        names = old.projects.keys() | new.projects.keys()
        changed = {name for name in names if old.projects.get(name) != new.projects.get(name)}
        ordered = write.page_order(index.at(old, pointer.rendered_digest), after, changed)
    except StoreError:
        # What the pages show was lost: an old `gc` collected it. All that counts can still be shown.
        old = empty(index.name)
        ordered = write.page_order(index.at(old, ""), after, new.projects)
        ordered += write.pages_of_others(after)
    write.write_project_pages(index, ordered, of=after)
    if old.projects.keys() != new.projects.keys() or old.number == 0:
        write.write_root_page(index, of=after)
    if old.sets != new.sets or old.number == 0:
        _write_people_pages(index)
    _mark_rendered(index, after)
    return ordered


def _write_people_pages(index: Index) -> None:
    # A tenth of the time that one more wheel takes, and a wheel without a set changes none of these pages.
    from cairn.release.index import people  # noqa: PLC0415

    people.write(index.store, index.name)


def _remember(before: Snapshot, change: Change, action: Action) -> None:
    """Note the names that a change brings, and refuse what was decided before to be refused.

    Every change of every index goes through here, so what the ledger says holds whatever command asks.
    """
    ledger = Ledger(before.index.store)
    ledger.refuse_banned(s for s in change.sets.values() if s is not None and s.yanked is None)
    if action != "rollback":  # which brings a state back, and marks what of it was yanked
        _refuse_banned_files(before, change)
    new = {file.filename: file.sha256 for file in _new_files(before, change)}
    ledger.add(names={scope_of(before.index.name): new} if new else None)


def _refuse_banned_files(before: Snapshot, change: Change) -> None:
    """Ask for the files that a change newly offers, each with the sets that come with it."""
    files = [file for project in change.projects.values() if project is not None for file in project.files]
    own = {
        set_id: frozenset(file.sha256 for file in files if set_id in file.sets)
        for set_id, listed in change.sets.items()
        if listed is not None and listed.yanked is None and set_id not in before.set_ids
    }
    fresh = {file.sha256 for file in _new_files(before, change) if file.yanked is None}
    if own or fresh:
        Ledger(before.index.store).refuse_banned_files(own, fresh.difference(*own.values()))


def _new_files(before: Snapshot, change: Change) -> Iterator[FileEntry]:
    """The files of names that an index does not have and that a change brings."""
    for name, project in change.projects.items():
        if project is not None:
            old = {file.filename for file in before.project(name).files}
            yield from (file for file in project.files if file.filename not in old)


def _begin(index: Index) -> None:
    """Make the pointer of an index that has none, before its first generation.

    So a store never has generations and no pointer, unless the pointer was lost.
    """
    zero = digest_of(generation.encode(empty(index.name)))
    begin = Pointer(generation=0, digest=zero, rendered=0, rendered_digest=zero)
    index.store.write_if(keys.state_key(index.name), generation.encode(begin), etag=None)


def _next(
    before: Snapshot, change: Change, action: Action, *, change_id: str, when: str, why: str | None
) -> Generation:
    """The generation that a change makes of a snapshot; its parts are stored."""
    index, old = before.index, before.generation
    projects, sets = dict(old.projects), dict(old.sets)
    for name, project in change.projects.items():
        if project is None:
            projects.pop(name, None)
        else:
            new = msgspec.structs.replace(project, serial=old.number + 1)
            projects[name] = index.put_project(new, old.projects.get(name))
    for set_id, listed in change.sets.items():
        if listed is None:
            sets.pop(set_id, None)
        else:
            sets[set_id] = index.put_part(listed)
    entry = LogEntry(
        number=old.number + 1, action=action, who=who(), when=when, why=why, sets=tuple(sorted(change.sets))
    )
    return Generation(
        index=index.name,
        number=entry.number,
        parent=before.digest,
        action=action,
        who=entry.who,
        why=why,
        when=when,
        recent=(entry, *old.recent)[:RECENT] if entry.sets else old.recent,
        change_id=change_id,
        projects=dict(sorted(projects.items())),
        sets=dict(sorted(sets.items())),
        serial=old.serial if projects.keys() == old.projects.keys() else entry.number,
    )


def _point(index: Index, before: Snapshot, pointer: Pointer) -> bool:
    """Have the pointer name a generation, if it is as it was; whether it does is found out for certain.

    A bucket may apply a write and lose the answer; the client then tries again, and learns that a different
    writer was first. So a refusal, or a failure, is believed only if the generation is not in the chain.
    """
    try:
        if index.store.write_if(keys.state_key(index.name), generation.encode(pointer), etag=before.etag):
            return True
        return _counts(index, pointer)
    except (CairnError, OSError) as error:
        try:
            counts = _counts(index, pointer)
        except (CairnError, OSError):
            raise StoreError(
                f"{error}; whether generation {pointer.generation} of {index.name} counts is not known",
                tip="run the same command again when the store answers: it finds out, and does what is left",
            ) from error
        if not counts:
            raise
        return True


def _counts(index: Index, pointer: Pointer) -> bool:
    """Whether a generation counts, or is one that what counts was made from."""
    for digest, found in index.chain(index.load()):
        if found.number <= pointer.generation:
            return digest == pointer.digest
    return False


def _mark_rendered(index: Index, written: Snapshot) -> None:
    """Note that every page shows a generation, or a later one."""
    assert written.pointer is not None  # noqa: S101 - its callers have looked
    number, digest = written.pointer.generation, written.pointer.digest
    for _ in range(_ATTEMPTS):
        there = index.load()
        if there.pointer is None or there.pointer.rendered >= number:
            return
        marked = msgspec.structs.replace(there.pointer, rendered=number, rendered_digest=digest)
        if index.store.write_if(keys.state_key(index.name), generation.encode(marked), etag=there.etag):
            return
        time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - as above
