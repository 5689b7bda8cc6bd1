"""The first entry of a ledger: what the indexes of a store that is older than it still tell.

It is made in one step, by the first command that has something to remember. What no generation tells any
more, such as a name whose part was collected, cannot be known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime

from cairn.errors import CairnError
from cairn.release.index import keys
from cairn.release.index.generation import Generation, IndexSet, ProjectState, now, who
from cairn.release.index.snapshot import Index, read_set, traces
from cairn.release.ledger.chain import scope_of
from cairn.release.ledger.entry import Entry, Event, with_wheels
from cairn.store.protocol import Store
from cairn.testing import record as test_record
from cairn.wheels.wheelset import WheelSet


def entry_of(store: Store) -> Entry:
    """The entry that a ledger of this store begins with; nothing is written.

    Raises:
        StoreError: the store cannot be listed.
    """
    names: dict[str, dict[str, str]] = {}
    events: dict[str, Event] = {}
    # Where two indexes disagree, what users install from is what a name means.
    for name in sorted(traces(store), key=lambda name: not keys.is_gated(name)):
        index, marked = Index(store, name), set[str]()
        for generation in _generations(index):
            known = names.setdefault(scope_of(name), {})
            for filename, sha256 in _files(index, generation):
                known.setdefault(filename, sha256)
            for entry in _sets(index, generation):
                # The newest generation that has a set says whether it is yanked there.
                if entry.set_id not in marked and entry.yanked is not None:
                    events.setdefault(entry.set_id, _ban(entry, generation, name))
                marked.add(entry.set_id)
    bans = [one for event in events.values() for one in with_wheels(event, _whole(store, event.set_id))]
    # Nobody knows any more in which order they came.
    records = sorted(_records(store), key=lambda event: datetime.fromisoformat(event.when))
    return Entry(
        number=0,
        parent=None,
        who=who(),
        when=now(),
        names={scope: files for scope, files in names.items() if files},
        events=(*bans, *records),
    )


def _generations(index: Index) -> Iterator[Generation]:
    """Every state that an index had, newest first; of a damaged one all that may have been one."""
    try:
        chain = [one for _, one in index.chain(index.load())]
    except CairnError:
        listed = index.store.list(keys.generations_prefix(index.name))
        named = sorted(filter(None, (keys.generation_of(one.key) for one in listed)), reverse=True)
        for number, digest in named:
            with contextlib.suppress(CairnError):
                yield index.generation(number, digest)
    else:
        yield from chain


def _files(index: Index, generation: Generation) -> Iterator[tuple[str, str]]:
    for digest in generation.projects.values():
        with contextlib.suppress(CairnError):  # `gc` has collected the parts of what was long ago
            yield from ((file.filename, file.sha256) for file in index.part(digest, ProjectState).files)


def _sets(index: Index, generation: Generation) -> Iterator[IndexSet]:
    for digest in generation.sets.values():
        with contextlib.suppress(CairnError):
            yield index.part(digest, IndexSet)


def _ban(entry: IndexSet, generation: Generation, index: str) -> Event:
    by = next((e for e in generation.recent if e.action == "yank" and entry.set_id in e.sets), generation)
    return Event(
        kind="ban", set_id=entry.set_id, who=by.who, when=by.when, why=entry.yanked or f"yanked in {index}"
    )


def _whole(store: Store, set_id: str) -> Iterator[WheelSet]:
    with contextlib.suppress(CairnError):  # without its `set.json` nobody knows its wheels
        yield read_set(store, set_id)


def _records(store: Store) -> Iterator[Event]:
    for set_id in store.folders("sets/"):
        for listed in store.list(keys.set_key(set_id, "records/")):
            digest = listed.key.rpartition("/")[2].removesuffix(".json")
            if digest.endswith(".dsse"):
                continue
            event = Event(kind="record", set_id=set_id, who="", when=now(), record=digest)
            with contextlib.suppress(CairnError):
                test_result = test_record.loads(store.read(listed.key).data, name=listed.key)
                event = Event(
                    kind="record",
                    set_id=set_id,
                    who="",
                    when=test_result.started,
                    record=digest,
                    verdict=test_result.verdict,
                    failures=test_result.failures,
                )
            yield event
