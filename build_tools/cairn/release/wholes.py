"""The wholes of a store that the ledger remembers, so that one that is gone is missed.

An index is noted when its first generation is shown, and what promoters sign when the store gets its root.
An index in the ledger with no objects left counts as lost, until a user accepts the loss by name. The ledger
itself is missed where an index was published into. Its first entry shows whether it began after the indexes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from cairn.errors import StoreError, UsageError
from cairn.release.index import keys
from cairn.release.index.generation import now, who
from cairn.release.index.snapshot import traces
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event, subject_of
from cairn.store.protocol import Store

LEDGER = "ledger"
METADATA = "metadata"


def begin(store: Store, name: str) -> None:
    """Note in the ledger that an index, or `METADATA`, is there; nothing where that is noted already."""
    ledger = Ledger(store)
    before = ledger.history(subject_of(name))[-1:]
    if not before or before[0].kind == "end":
        why = f"again, after its end on {before[0].when}" if before else ""
        ledger.add(events=[_event("begin", name, why)])


def accept(store: Store, name: str, reason: str) -> None:
    """Note that an index, `LEDGER` or `METADATA` is gone for good; an audit misses it no more.

    Raises:
        UsageError: it is not gone, or this reason was given before.
    """
    missing = [of_store for of_store, _ in gone(store)]
    if name not in missing:
        raise UsageError(
            f"{name} is not missing at {store.url}", tip=f"what is: {', '.join(missing) or 'nothing'}"
        )
    if not Ledger(store).add(events=[_event("end", name, reason)]):
        raise UsageError(f"{name} was gone for this reason before", tip="say what happened this time")


def gone(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the names of the wholes that a store has lost, each with a sentence that says what to do.

    Raises:
        StoreError: the ledger cannot be read.
    """
    entries = [entry for _, entry in Ledger(store).entries()]
    present = traces(store)
    latest = {e.index: e for entry in entries for e in entry.events if e.kind in ("begin", "end")}
    published = [name for name in present if any(True for _ in store.list(keys.generations_prefix(name)))]
    if published and not entries:
        yield LEDGER, f"the ledger is gone, and {published[0]} was published into: {_advice(store, LEDGER)}"
    # The first entry of a ledger that came first has no names: they come with what is published.
    elif entries and entries[0].names and LEDGER not in latest:
        text = (
            f"the ledger begins on {entries[0].when[:10]}, later than the indexes, and has lost what it "
            f"remembered before: {_advice(store, LEDGER)}"
        )
        yield LEDGER, text
    for name, event in latest.items():
        if name is None or event.kind == "end":
            continue
        if not (store.exists("metadata/root.json") if name == METADATA else name in present):
            what = "the root of the store" if name == METADATA else f"the index {name}"
            since = f"which was there on {event.when[:10]}, by {event.who or 'somebody'}"
            yield name, f"{what} is gone, {since}: {_advice(store, name)}"


def _advice(store: Store, name: str) -> str:
    return (
        "restore it from a copy of the store, or accept by your name that it is lost: "
        f'cairn index repair --store {store.url} --accept-loss "{name}=REASON"'
    )


def require_all(store: Store) -> None:
    """Refuse a store that has lost a whole: what that needed cannot be known.

    Raises:
        StoreError: it has, or the ledger cannot be read.
    """
    if missing := [text for _, text in gone(store)]:
        raise StoreError(f"{store.url}: {'; '.join(missing)}", tip="nothing was changed")


def _event(kind: Literal["begin", "end"], name: str, reason: str) -> Event:
    return Event(kind=kind, set_id=subject_of(name), who=who(), when=now(), why=reason, index=name)
