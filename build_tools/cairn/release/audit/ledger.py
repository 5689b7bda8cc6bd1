"""Whether the ledger is whole, and what it says is what the indexes offer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cairn import datafile
from cairn.errors import CairnError
from cairn.release import records
from cairn.release.audit.inventory import Inventory
from cairn.release.audit.offered import readable_projects
from cairn.release.audit.report import Problem
from cairn.release.index import keys, marks
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.ledger.chain import Ledger, replayed, scope_of, short
from cairn.release.ledger.entry import Entry, Head, encode

_SHORT = 12


def check(names: Sequence[str], inventory: Inventory) -> Iterator[Problem]:
    """What is wrong with the ledger, and with what these indexes say that it says otherwise."""
    inventory.named |= {k for k in inventory.objects if keys.kind_of(k) in ("ledger", "evidence")}
    ledger = Ledger(inventory.store)
    try:
        entries = [entry for _, entry in ledger.entries()]
    except (CairnError, OSError) as error:
        yield Problem(code="ledger", index=None, where="ledger/", said=str(error))
        return
    if len(entries) < len(inventory.below("ledger/entries/")):
        text = f"the ledger ends after entry {len(entries) - 1}, and there are later ones"
        yield Problem(code="ledger", index=None, where=keys.ledger_entry_key(len(entries)), said=text)
    yield from _lookups(entries, inventory)
    published = {
        scope: {name: sha for entry in entries for name, sha in entry.names.get(scope, {}).items()}
        for scope in {scope_of(name) for name in names}
    }
    for name in names:
        try:
            snapshot = Index(inventory.store, name).load()
        except (CairnError, OSError):
            continue  # that it cannot be read is said of it already
        yield from _names(snapshot, published[scope_of(name)] if entries else None)
        yield from _marks(snapshot)


def _lookups(entries: Sequence[Entry], inventory: Inventory) -> Iterator[Problem]:
    """What is looked up by project and by set, and is not what the entries say."""
    try:
        head = datafile.loads(inventory.store.read(keys.LEDGER_HEAD).data, Head, name=keys.LEDGER_HEAD)
    except (CairnError, OSError):
        if not entries and inventory.below("ledger/"):
            text = "the ledger has lost its entries: restore it from a copy of the store"
            yield Problem(code="ledger", index=None, where=keys.ledger_entry_key(0), said=text)
        return  # without it nothing is looked up
    if head.number >= len(entries):
        text = f"the ledger had {head.number + 1} entries, and has {len(entries)}: restore it from a copy"
        yield Problem(code="ledger", index=None, where=keys.ledger_entry_key(len(entries)), said=text)
        return
    if head.number != len(entries) - 1:  # a writer is at work or has died: readers go by the entries after it
        return
    lookups = replayed(entries)
    named = " ".join(sorted(set(map(short, lookups)))) if head.lookups is not None else None
    whole_head = msgspec.structs.replace(head, lookups=named)
    for key, value in (*lookups.items(), (keys.LEDGER_HEAD, whole_head)):
        try:
            same = inventory.store.read(key).data == encode(value)
        except (CairnError, OSError):
            same = False
        if not same:
            text = f"{key} does not say what the entries say: remove it and {keys.LEDGER_HEAD}"
            yield Problem(code="ledger", index=None, where=key, said=text)


def _names(snapshot: Snapshot, published: dict[str, str] | None) -> Iterator[Problem]:
    """The files of an index that the ledger does not have, or has with other bytes."""
    if published is None:  # a store that is older than its ledger, and that nobody has written to since
        return
    name = snapshot.index.name
    for project in readable_projects(snapshot):
        for file in project.files:
            if published.get(file.filename) != file.sha256:
                text = (
                    f"{name} offers {file.filename}, and the ledger does not have these bytes under that name"
                )
                yield Problem(code="ledger", index=name, where=file.filename, said=text)


def _marks(snapshot: Snapshot) -> Iterator[Problem]:
    """The sets that are marked otherwise than what is known of them, and those that a test speaks against."""
    name, store = snapshot.index.name, snapshot.index.store
    known, ledger = marks.known(store), Ledger(store)
    for set_id in snapshot.set_ids:
        short = f"set {set_id[:_SHORT]}"
        try:
            listed = snapshot.set(set_id)
            due = known(listed)
            # What was damaged is said of the record itself.
            if listed.failed or any(event.is_bad for event in ledger.history(set_id)):
                due = msgspec.structs.replace(due, failed=records.standing(store, set_id) or None)
        except (CairnError, OSError):
            continue  # as above
        if due.yanked is not None and listed.yanked is None:
            text = (
                f"{short}: {name} offers it, and it was yanked: {due.yanked} "
                "(run the yank again, or cairn index render)"
            )
            yield Problem(code="ledger", index=name, where=set_id, said=text)
        if due.failed != listed.failed:
            text = f"{short}: {name} does not say what its records come to: {due.failed or 'none failed'}"
            yield Problem(code="evidence", index=name, where=set_id, said=text)
        elif due.failed is not None and due.yanked is None and keys.is_gated(name):
            text = f"{short}: since it came into {name}, a test has failed: {due.failed} (yank it, or answer)"
            yield Problem(code="evidence", index=name, where=set_id, said=text)
