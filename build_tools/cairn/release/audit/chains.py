"""Check both chains: the generations of an index, down from the pointer, and the ledger.

Also check that the indexes agree with the ledger.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from msgspec import structs

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import CairnError, StoreError
from cairn.output.wording import short_id
from cairn.release import records, wholes
from cairn.release.audit.inventory import Inventory, Problem
from cairn.release.index import keys, marks
from cairn.release.index.generation import RECENT, FileRef, digest_of, encode
from cairn.release.index.names import FlatGeneration
from cairn.release.index.reach import Reach, change_since, with_every_name
from cairn.release.index.snapshot import Index, Snapshot, empty
from cairn.release.ledger import Ledger, replayed, short
from cairn.release.ledger_entries import Entry, Event, Head, History
from cairn.release.trust import anchor
from cairn.release.trust.current import DECISIONS, LEDGER, Current, SignedMetadata, decisions_of, vouched
from cairn.release.trust.metadata import Targets, role_of

_AT_ONCE = 16  # requests side by side
_AHEAD = 2  # see `_set_back`


def check_generations(snapshot: Snapshot, inventory: Inventory, *, hashes: bool) -> Iterator[Problem]:
    """The problems of an index's chain of generations, and of the objects beside it."""
    index, reach = snapshot.index, Reach(snapshot.index, inventory.named)
    parents: dict[str, tuple[str | None, int]] = {}  # of each generation that can be read, with its number
    reach.add(snapshot.generation)
    problems = tuple(_chain(snapshot, reach, parents))
    chain = frozenset(parents)
    generation_keys = inventory.below(keys.generations_prefix(index.name))
    inventory.name([keys.state_key(index.name), *generation_keys])
    rest = [key for key in generation_keys if (keys.generation_of(key) or (0, ""))[1] not in chain]
    for key, read in zip(rest, side_by_side(partial(_read, index), rest, jobs=_AT_ONCE), strict=True):
        if isinstance(read, str):
            yield Problem(code="generation", index=index.name, where=key, said=read)
        else:
            digest, parent, number = read
            parents[digest] = parent, number
    yield from problems
    yield from _pointer(snapshot, chain)
    yield from _set_back(snapshot, parents)
    reach.close()
    inventory.name(key for key in inventory.below("sets/") if inventory.is_named(key.split("/")[1]))
    if hashes:
        yield from _damaged_parts(index, inventory)


def _chain(snapshot: Snapshot, reach: Reach, parents: dict[str, tuple[str | None, int]]) -> Iterator[Problem]:
    """Read the generations down from the current one, each into `reach` and `parents`."""
    index = snapshot.index
    after: Snapshot | None = None
    try:
        for digest, generation in itertools.chain(index.chain(snapshot), [("", empty(index.name))]):
            before = index.at(generation, digest)
            if after is not None and not _is_true(before, after):
                key = keys.generation_key(index.name, after.generation.number, after.digest or "")
                text = f"{key} says of its change, as cairn release log shows it, what its parts do not say"
                yield Problem(code="generation", index=index.name, where=key, said=text)
            after = before
            if digest:
                parents[digest] = generation.parent, generation.number
                reach.add(generation)
    except CairnError as error:
        text = f"the chain breaks: {error}"
        yield Problem(code="generation", index=index.name, where=index.name, said=text)


def _is_true(before: Snapshot, after: Snapshot) -> bool:
    """Whether a generation describes its change as its bins and those of its parent have it."""
    made, recent = after.generation, before.generation.recent
    moved = {*made.brought, *made.removed, *made.marked}
    if moved or made.recent != recent:
        if not made.recent or not moved.issubset(made.recent[0].sets):
            return False
        entry = structs.replace(
            made.recent[0], number=made.number, action=made.action, who=made.who, why=made.why
        )
        if made.recent != (entry, *recent)[:RECENT]:
            return False
    if isinstance(made, FlatGeneration):
        return True
    with contextlib.suppress(StoreError):  # parts of a past one may be gone: nobody can go back to it
        change = change_since(before, after)
        return all(getattr(made, name) == value for name, value in change.items())
    return True


def _read(index: Index, key: str) -> tuple[str, str | None, int] | str:
    """The digest, the parent and the number of a generation, or the reason why it cannot be read."""
    numbered = keys.generation_of(key)
    if numbered is None:  # it is foreign, which the list of keys says
        return f"{key} is not called like a generation"
    try:
        generation = index.generation(*numbered)
    except (CairnError, OSError) as error:
        return str(error)
    return numbered[1], generation.parent, generation.number


def _pointer(snapshot: Snapshot, chain: Collection[str]) -> Iterator[Problem]:
    """Check that the generation which the pages are said to show is in the chain."""
    pointer, index = snapshot.pointer, snapshot.index
    if pointer is None or pointer.rendered == pointer.generation:
        return
    key = keys.state_key(index.name)
    try:
        index.generation(pointer.rendered, pointer.rendered_digest)
    except CairnError as error:
        yield Problem(code="pointer", index=index.name, where=key, said=str(error))
        return
    if pointer.rendered and pointer.rendered_digest not in chain:
        text = f"{key} says that the pages are of generation {pointer.rendered}, which was never current"
        yield Problem(code="pointer", index=index.name, where=key, said=text)
    text = (
        f"the pages of {index.name} are of generation {pointer.rendered}, and {pointer.generation} is "
        "current: cairn index repair writes them"
    )
    yield Problem(code="unfinished", index=index.name, where=key, said=text)


def _set_back(snapshot: Snapshot, parents: Mapping[str, tuple[str | None, int]]) -> Iterator[Problem]:
    """Check that nobody has written an older pointer over a newer one.

    A generation whose parent is the current one was left by a writer that lost the race, died, or is still
    at work. If that generation has a child in its turn, it was once current, and the pointer was set back.
    """
    children: dict[str, list[tuple[str, int]]] = collections.defaultdict(list)
    for digest, (parent, number) in parents.items():
        children[parent or ""].append((digest, number))
    ahead = [(1, *child) for child in children[snapshot.digest or ""]]
    newest = max(ahead, key=lambda item: item[0], default=None)
    while ahead:
        depth, digest, later = ahead.pop()
        if newest is None or depth > newest[0]:
            newest = depth, digest, later
        ahead += [(depth + 1, *child) for child in children[digest]]
    if newest is not None and newest[0] >= _AHEAD:
        _, digest, later = newest
        name, number = snapshot.index.name, snapshot.generation.number
        text = (
            f"{keys.state_key(name)} was set back: it names generation {number}, and {later} was made"
            f" after it (cairn index repair --index {name} --generation {later}-{short_id(digest)})"
        )
        yield Problem(code="pointer", index=name, where=keys.state_key(name), said=text)


def _damaged_parts(index: Index, inventory: Inventory) -> Iterator[Problem]:
    """The parts, old ones included, whose bytes do not match their digest."""

    def judge(key: str) -> str | None:
        digest = key.rpartition("/")[2].removesuffix(".json")
        try:
            if digest_of(inventory.store.read(key).data) != digest:
                return f"{inventory.store.url}/{key} was changed"
        except (CairnError, OSError) as error:
            return str(error)
        return None

    part_keys = inventory.below(f"{index.name}/parts/")
    for key, text in zip(part_keys, side_by_side(judge, part_keys, jobs=_AT_ONCE), strict=True):
        if text:
            yield Problem(code="generation", index=index.name, where=key, said=text)


def check_ledger(names: Sequence[str], inventory: Inventory) -> Iterator[Problem]:
    """The problems of the ledger, and the places where these indexes contradict it."""
    inventory.name(k for k in inventory.keys if keys.kind_of(k) in ("ledger", "evidence"))
    ledger = Ledger(inventory.store)
    try:
        chain = dict(ledger.entries())
    except (CairnError, OSError) as error:
        yield Problem(code="ledger", index=None, where="ledger/", said=str(error))
        return
    entries = tuple(chain.values())
    if len(entries) < len(inventory.below("ledger/entries/")):
        text = f"the ledger ends after entry {len(entries) - 1}, and there are later ones"
        yield Problem(code="ledger", index=None, where=keys.ledger_entry_key(len(entries)), said=text)
    yield from _lookups(chain, inventory)
    if entries and keys.LEDGER_HEAD not in inventory:
        yield from _later_than(entries, inventory)
    yield from _records(entries, inventory)
    published = {
        scope: {name: sha for entry in entries for name, sha in entry.names.get(scope, {}).items()}
        for scope in {keys.scope_of(name) for name in names}
    }
    for name in names:
        try:
            snapshot = with_every_name(Index(inventory.store, name).load())
        except (CairnError, OSError):
            continue  # that it cannot be read is said of it already
        if entries:  # none in a store that is older than its ledger, and that nobody has written to since
            yield from _names(name, inventory, published[keys.scope_of(name)])
        yield from _marks(snapshot)


def check_signed(names: Sequence[str], inventory: Inventory) -> Iterator[Problem]:
    """Where a store with a root is not what its promoters have signed: indexes, the ledger, the metadata."""
    store = inventory.store
    inventory.name(key for key in inventory.keys if keys.kind_of(key) == "metadata")
    try:
        trusted = anchor.anchor(store)
        if trusted is None:
            return
        signed = SignedMetadata(store, trusted)
        now = signed.current()
        role = signed.role(now, LEDGER)
        yield from _decisions(decisions_of(role), tuple(Ledger(store).events())) if role else ()
        ending = signed.ending(now)
    except (CairnError, OSError) as error:
        yield Problem(code="signature", index=None, where="metadata/", said=str(error))
        return
    if text := anchor.warning(store):
        yield Problem(code="signature", index=None, where="metadata/root.json", said=text)
    if ending:
        until, name = min((made.expires[:10], name) for name, made in ending.items())
        text = (
            f"{len(ending)} lists of metadata/ count until {until} ({name}) or little longer, and no client "
            f"takes them after that; a promoter signs them again: cairn trust refresh --store {store.url}"
        )
        yield Problem(code="signature", index=None, where=name, said=text)
    yield from _lost(now, inventory)
    for name in filter(keys.is_gated, names):
        try:
            texts = tuple(_unsigned(Index(store, name).load(), signed, signed.role(now, name)))
        except (CairnError, OSError) as error:
            texts = (str(error),)
        for text in texts:
            yield Problem(code="signature", index=name, where=keys.state_key(name), said=text)


def _lost(now: Current, inventory: Inventory) -> Iterator[Problem]:
    """The signed indexes of which nothing is left, and whose loss no promoter has accepted."""
    present, store = inventory.indexes(), inventory.store
    for name in keys.possible_indexes():
        is_lost = f"{role_of(name)}.json" in now.meta and name not in present
        if is_lost and not wholes.has_ended(store, name):
            text = f"{name} is signed, and lost: restore it from a copy of the store"
            yield Problem(code="signature", index=None, where=keys.state_key(name), said=text)


def _decisions(signed: Sequence[Event], entries: Sequence[Event]) -> Iterator[Problem]:
    """The decisions that only the entries of the ledger have, or only the promoters' signatures.

    What a command left unsigned when it died is no problem once a promoter has decided of the set again.
    """
    decided = {event.set_id: event.when for event in signed if event.kind in DECISIONS}  # the last of each
    open_entries = [event for event in entries if event.when > decided.get(event.set_id, "")]
    unsigned = (
        "the ledger has the {} of {} by {}, and no promoter signed it: it counts for nothing; if it is "
        "right, run its command again with the promoter's key"
    )
    lost = "the ledger has lost the {} of {} by {}, which a promoter signed: it counts"
    for events, rest, text in ((open_entries, signed, unsigned), (signed, entries, lost)):
        for event in events:
            if event.kind in DECISIONS and event not in rest:
                subject = event.index if event.kind == "end" else short_id(event.set_id)
                sentence = text.format(event.kind, subject, event.who)
                yield Problem(code="ledger", index=None, where=event.set_id, said=sentence)


def _unsigned(current: Snapshot, signed: SignedMetadata, role: Targets | None) -> Iterator[str]:
    vouch = vouched(role.targets, current.index.name) if role else None
    if (current.digest if current.generation.number else None) != (vouch.digest if vouch else None):
        yield (
            f"{current.index.name} is at generation {current.generation.number}, and "
            f"{f'generation {vouch.number}' if vouch else 'nothing'} of it is signed: no client that knows "
            "the root believes the rest"
        )
    signed.require_entry(vouch.ledger if vouch else None)


def _lookups(chain: Mapping[str, Entry], inventory: Inventory) -> Iterator[Problem]:
    """The lookups by project and by set that do not follow from the entries, which `chain` has by digest."""
    entries = tuple(chain.values())
    try:
        head = datafile.loads(inventory.store.read(keys.LEDGER_HEAD).data, Head, name=keys.LEDGER_HEAD)
    except (CairnError, OSError):
        if keys.LEDGER_HEAD in inventory or (not entries and inventory.below("ledger/")):
            text = f"{keys.LEDGER_HEAD} cannot be read: remove it, and the next writer makes it again"
            text = text if entries else "the ledger has lost its entries: restore it from a copy of the store"
            yield Problem(code="ledger", index=None, where=keys.LEDGER_HEAD, said=text)
        return  # without it nothing is looked up
    if (
        lost := head.number >= len(entries)
    ) or head.digest not in chain:  # no other names the last one's digest
        key = keys.ledger_entry_key(min(head.number, len(entries)))
        text = (
            f"the ledger had {head.number + 1} entries, and has {len(entries)}"
            if lost
            else f"{key} was changed"
        )
        yield Problem(code="ledger", index=None, where=key, said=f"{text}: restore it from a copy")
        return
    if head.number != len(entries) - 1:  # a writer is at work or has died: readers go by the entries after it
        return
    lookups = replayed(entries)
    digests = " ".join(sorted(set(map(short, lookups)))) if head.lookups is not None else None
    whole_head = structs.replace(head, lookups=digests)
    for key, value in (*lookups.items(), (keys.LEDGER_HEAD, whole_head)):
        try:
            same = inventory.store.read(key).data == encode(value)
        except (CairnError, OSError):
            same = False
        if not same:
            text = f"{key} does not say what the entries say: remove it and {keys.LEDGER_HEAD}"
            yield Problem(code="ledger", index=None, where=key, said=text)


def _later_than(entries: Sequence[Entry], inventory: Inventory) -> Iterator[Problem]:
    """Report a ledger that was cut off: a lookup refers to an entry that is missing."""
    for key in inventory.below("ledger/sets/"):
        try:
            history = datafile.loads(inventory.store.read(key).data, History, name=key)
        except (CairnError, OSError):
            continue  # it is made again from the entries
        if history.through >= len(entries):
            text = (
                f"the ledger had {history.through + 1} entries or more, and has {len(entries)}: "
                "restore it from a copy"
            )
            yield Problem(code="ledger", index=None, where=keys.ledger_entry_key(len(entries)), said=text)
            return


def _records(entries: Sequence[Entry], inventory: Inventory) -> Iterator[Problem]:
    """The test records that only the store has, or only the ledger: they stay, whatever becomes of sets."""
    events = [event for entry in entries for event in entry.events if event.kind == "record"]
    by_key = {keys.set_key(event.set_id, f"records/{event.record}.json"): event for event in events}
    for key in inventory.below("sets/") if entries else ():
        if "/records/" in key and not key.endswith(".dsse.json") and key not in by_key:
            text = f"{key} is not in the ledger, which has lost it: add it again (cairn release record add)"
            yield Problem(code="ledger", index=None, where=key, said=text)
    for key, event in by_key.items():
        if inventory.size(key) is None:
            text = f"{key} is missing, which the ledger has since {event.when[:10]}: restore it from a copy"
            yield Problem(code="evidence", index=None, where=key, said=text)


def _names(name: str, inventory: Inventory, published: dict[str, str]) -> Iterator[Problem]:
    """The files of an index that the ledger lacks, or has with other bytes."""
    for file, hashed in sorted(inventory.offered.get(name, {}).values()):
        if hash(FileRef(filename=file, sha256=published.get(file, ""))) != hashed:
            text = f"{name} offers {file}, and the ledger does not have these bytes under that name"
            yield Problem(code="ledger", index=name, where=file, said=text)


def _marks(snapshot: Snapshot) -> Iterator[Problem]:
    """The sets whose marks contradict the ledger or the records, and those that failed a test since."""
    name, store = snapshot.index.name, snapshot.index.store
    mark_of, ledger = marks.marking_from_ledger(store), Ledger(store)
    for set_id in snapshot.set_ids:
        short = f"set {short_id(set_id)}"
        try:
            entry = snapshot.set(set_id)
            due = mark_of(entry)
            # What was damaged is said of the record itself.
            if entry.failed or any(event.is_bad for event in ledger.history(set_id)):
                due = structs.replace(due, failed=records.standing(store, set_id) or None)
        except (CairnError, OSError):
            continue  # as above
        if due.yanked is not None and entry.yanked is None:
            text = (
                f"{short}: {name} offers it, and it was yanked: {due.yanked} "
                "(run the yank again, or cairn index repair)"
            )
            yield Problem(code="ledger", index=name, where=set_id, said=text)
        if due.failed != entry.failed:
            text = f"{short}: {name} does not say what its records come to: {due.failed or 'none failed'}"
            yield Problem(code="evidence", index=name, where=set_id, said=text)
        elif due.failed is not None and due.yanked is None and keys.is_gated(name):
            text = f"{short}: since it came into {name}, a test has failed: {due.failed} (yank it, or answer)"
            yield Problem(code="evidence", index=name, where=set_id, said=text)
