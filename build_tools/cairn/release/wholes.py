"""The wholes of a store that the ledger remembers, so that one that is gone is missed.

An index is noted when its first generation is shown, and what promoters sign when the store gets its root.
An index in the ledger with no objects left counts as lost, until a user accepts the loss by name; so does a
night that the pages of its channel show. The ledger
itself is missed where an index was published into. Its first entry shows whether it began after the indexes,
and each generation which entry was the last one then. Entries that came after all generations are missed only
by what else they leave: an index that began, a test record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from cairn import datafile
from cairn.errors import CairnError, StoreError
from cairn.release.index import keys
from cairn.release.index.generation import now, who
from cairn.release.index.snapshot import Index, Snapshot, traces
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event, has_entry, subject_of
from cairn.store.protocol import Store, read_or_none

LEDGER = "ledger"
METADATA = "metadata"
NIGHTS = "nights"


def begin(store: Store, name: str) -> None:
    """Note in the ledger that an index, or `METADATA`, is there; nothing where that is noted already."""
    ledger = Ledger(store)
    before = _last_of(ledger, name)
    if before is None or before.kind == "end":
        why = f"again, after its end on {before.when}" if before else ""
        ledger.add(events=[event_of("begin", name, why)])


def has_ended(store: Store, name: str) -> bool:
    """Whether somebody has accepted by name that an index is lost."""
    last = _last_of(Ledger(store), name)
    return last is not None and last.kind == "end"


def lost_indexes(store: Store) -> tuple[str, ...]:
    """The indexes that the ledger knows, of which nothing is left, and whose loss nobody has accepted."""
    present = traces(store)
    absent = [name for name in keys.possible_indexes() if name not in present]
    last = Ledger(store).last_events(map(subject_of, absent))
    return tuple(name for name, event in zip(absent, last, strict=True) if event and event.kind == "begin")


def gone(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the names of the wholes that a store has lost, each with a sentence that says what to do.

    Raises:
        StoreError: the ledger cannot be read.
    """
    ledger = Ledger(store)
    entries = [entry for _, entry in ledger.entries()]
    present = traces(store)
    names = [e.index for entry in entries for e in entry.events if e.kind == "begin" and e.index]
    latest = {name: event for name in dict.fromkeys(names) if (event := _last_of(ledger, name))}
    published = [name for name in present if any(True for _ in store.list(keys.generations_prefix(name)))]
    if published and not entries:
        yield LEDGER, f"the ledger is gone, and {published[0]} was published into: {_advice(store, LEDGER)}"
    # The first entry of a ledger that came first has no names: they come with what is published.
    elif entries and entries[0].names and _last_of(ledger, LEDGER) is None:
        text = (
            f"the ledger begins on {entries[0].when[:10]}, later than the indexes, and has lost what it "
            f"remembered before: {_advice(store, LEDGER)}"
        )
        yield LEDGER, text
    else:
        lost = (_cut_off(store, name, has_begun=name in latest) for name in present)
        yield from ((LEDGER, text) for text in list(filter(None, lost))[:1])
    for name, event in latest.items():
        if event.kind == "end":
            continue
        if not (store.exists("metadata/root.json") if name == METADATA else name in present):
            subject = "the root of the store" if name == METADATA else f"the index {name}"
            since = f"which was there on {event.when[:10]}, by {event.who or 'somebody'}"
            yield name, f"{subject} is gone, {since}: {_advice(store, name)}"
    yield from ((NIGHTS, text) for text in list(_lost_nights(store, ledger))[:1])


def _lost_nights(store: Store, ledger: Ledger) -> Iterator[str]:
    """Sentences on the nights that the pages of a channel show, and the store has lost."""
    accepted = _last_of(ledger, NIGHTS)
    for channel in keys.CHANNELS:
        key = keys.nights_key(channel, "json")
        blob, nights = read_or_none(store, key), []
        try:
            shown = datafile.parse_json(blob.data, name=f"{store.url}/{key}") if blob else {"nights": []}
            nights = [(past["night"], past["started"], past["manifest_sha256"]) for past in shown["nights"]]
        except (CairnError, TypeError, KeyError) as error:
            yield f"{key} cannot be read, which shows the last nights: {error}: {_advice(store, NIGHTS)}"
        for night, started, manifest in nights:
            plan = keys.night_key(night, "night.json")
            if manifest and not (accepted and accepted.when > started) and not store.exists(plan):
                yield f"{plan} is missing, which {key} shows: {_advice(store, NIGHTS)}"


def _cut_off(store: Store, name: str, *, has_begun: bool) -> str | None:
    """Why the ledger cannot be all that it was when an index was changed last; None if it can."""
    try:
        current = Index(store, name).load()
    except CairnError:
        return None  # an audit names what is damaged
    if (text := lost_entries(current)) is None and current.pointer and current.pointer.rendered:
        return None if has_begun else f"the ledger has lost that {name} began: {_advice(store, LEDGER)}"
    return text


def lost_entries(current: Snapshot) -> str | None:
    """Why the ledger is not the one that a generation was made beside; None if it is, or its loss accepted.

    Raises:
        StoreError: the ledger cannot be read.
    """
    made, store = current.generation, current.index.store
    if made.ledger is None or has_entry(store, made.ledger):
        return None
    accepted = _last_of(Ledger(store), LEDGER)
    if accepted is not None and accepted.when > made.when:
        return None
    return (
        f"the ledger has lost entry {made.ledger[0]}, the last one when generation {made.number} of "
        f"{made.index} was made, and perhaps a ban with it: {_advice(store, LEDGER)}"
    )


def _last_of(ledger: Ledger, name: str) -> Event | None:
    """The last event of a whole; of the end of one, where somebody signs, the last that a promoter signed."""
    return ledger.last_events([subject_of(name)])[0]


def _advice(store: Store, name: str) -> str:
    if name == LEDGER and store.exists("metadata/root.json"):  # a shorter one is not what was signed
        return "restore it from a copy of the store"
    return (
        "restore it from a copy of the store, or accept by your name that it is lost: "
        f'cairn index repair --store {store.url} --accept-loss "{name}=REASON"'
    )


def require_all(store: Store, index: str | None = None) -> None:
    """Refuse a store that has lost a whole: what that needed cannot be known.

    Args:
        store: the store.
        index: let all indexes but this one be gone.

    Raises:
        StoreError: it has, or the ledger cannot be read.
    """
    others = keys.possible_indexes() if index else ()
    # Without its nights a store can do all but resume them: `index check` and `repair` name these.
    lost = [(name, text) for name, text in gone(store) if name != NIGHTS]
    if missing := [text for name, text in lost if name == index or name not in others]:
        raise StoreError(f"{store.url}: {'; '.join(missing)}", tip="nothing was changed")


def event_of(kind: Literal["begin", "end"], name: str, reason: str) -> Event:
    """The event that a whole began, or is gone for good."""
    return Event(kind=kind, set_id=subject_of(name), who=who(), when=now(), why=reason, index=name)
