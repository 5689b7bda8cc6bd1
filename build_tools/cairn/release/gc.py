"""Garbage collection: remove what no generation names any more, and what dead writers left behind.

    what                                        when it goes
    files, what lies beside them, parts, sets   no generation of any index names them that was current within
                                                the time, or that pages still show, and they are older than it
    pages of projects that are gone             they say nothing, and are older than it
    what promoters signed (metadata/)           it was replaced before that, and is no root
    temporaries                                 they are older than a day

Generations never go, nor does the ledger, nor the test records of sets and the answers to them, nor what is
not ours. A publisher puts files before the generation that names them, so what is young stays; what it finds
there already it makes young (`keep_young`). Pages that a dead writer has left are written first: who writes
them later needs the state that they show, however long ago it was current.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import StoreError, UsageError
from cairn.output import Progress, silent, wording
from cairn.release import wholes
from cairn.release.index import keys, marks, write
from cairn.release.index.commit import attempts, recover
from cairn.release.index.reach import Reach
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import SET_FILE, Index, Snapshot, existing
from cairn.release.trust import anchor
from cairn.store.protocol import ListedObject, Store

_AT_ONCE = 16  # requests side by side
_TEMPORARY = timedelta(days=1)  # no upload, and no change of an index, takes as long


class Collected(datafile.Value):
    """The result of a collection, or of a dry run.

    Attributes:
        keys: the objects, by name.
        size: of all of them, in bytes.
        temporaries: what writers left unfinished.
        kept: how many objects stay.
    """

    keys: tuple[str, ...]
    size: int
    temporaries: tuple[str, ...]
    kept: int


def collect(
    store: Store, *, older_than: timedelta, dry_run: bool = False, on_step: Progress = silent
) -> Collected:
    """Remove the objects from a store that nothing needs.

    Args:
        store: the store; others may write to it meanwhile.
        older_than: what was current within this time can still be rolled back to, and what is younger stays.
        dry_run: say what would go, and write and remove nothing.
        on_step: called with what is being done.

    Raises:
        StoreError: an index cannot be read to its beginning, or is gone, so nobody knows what it needs.
        UsageError: the time is under a day, and so may be what a writer has put and is about to name.
    """
    if older_than < _TEMPORARY:
        raise UsageError(
            f"what is younger than a day cannot be collected: {older_than} is less",
            tip="a writer may be about to name it; give a day or more",
        )
    since = datetime.now(UTC) - older_than
    wholes.require_all(store)
    if not dry_run:
        on_step("writing the pages that dead writers have left")
        for name in existing(store):
            recover(Index(store, name))
        marks.finish_interrupted(store)
    on_step("reading what generations name, and listing the store")
    (old, count), replaced = _needless(store, store.list(""), since), _replaced(store, since)
    temporaries = [
        stray
        for stray in store.strays()
        if stray.kind == "temporary" and stray.modified < datetime.now(UTC) - _TEMPORARY
    ]
    if not dry_run and (old or replaced):
        on_step(f"removing {wording.count([*old, *replaced], 'object')}")
        # Looked at again, since reading took its time: what a writer has come to need meanwhile stays.
        old = _remove(store, [*_needless(store, old, since)[0], *replaced], since)
        _write_pages_again(store, old)
    if not dry_run:
        for stray in temporaries:
            store.discard(stray)
    if dry_run:
        old += replaced
    return Collected(
        keys=tuple(item.key for item in old),
        size=sum(item.size for item in old),
        temporaries=tuple(s.name.encode("utf-8", "backslashreplace").decode() for s in temporaries),
        kept=count - len(old),
    )


def _needless(
    store: Store, objects: Iterable[ListedObject], since: datetime
) -> tuple[list[ListedObject], int]:
    """The old objects that no generation names which was current since then; and how many are listed.

    They are listed once the names are read: what a writer has begun to need meanwhile, it made young.
    """
    current = {name: read_current(Index(store, name)) for name in existing(store)}
    hashes: set[int] = set()
    for snapshot in current.values():
        _name(snapshot, since, hashes)

    def may_go(key: str) -> bool:
        kind = keys.kind_of(key)
        if kind in ("set", "set page"):
            return hash(_set_of(key)) not in hashes
        if kind == "page":
            # One whose project is gone offers nothing, and may go.
            name = keys.index_of(key) or ""
            project, slash, _ = key.removeprefix(keys.simple_prefix(name)).partition("/")
            gone = name in current and project not in current[name].project_parts
            return bool(slash) and gone and write.is_empty_page(store, key)
        return kind in ("file", "part") and hash(key) not in hashes

    of_indexes, young_sets, old, count = set[str | None](), set[str](), list[ListedObject](), 0
    for count, item in enumerate(objects, start=1):  # noqa: B007 - the last one is the answer
        of_indexes.add(keys.index_of(item.key))
        if item.modified >= since:
            young_sets.add(_set_of(item.key))
        elif may_go(item.key):
            old.append(item)
    _require_pointers(of_indexes, current)
    young_sets.discard("")
    # A set is collected as one, so that none is ever there in part.
    return [item for item in old if _set_of(item.key) not in young_sets], count


def _require_pointers(of_indexes: Collection[str | None], current: Collection[str]) -> None:
    if lost := [name for name in keys.possible_indexes() if name in of_indexes and name not in current]:
        raise StoreError(
            f"{', '.join(lost)} has lost its pointer, so nobody knows what it needs",
            tip=f"choose the current generation: cairn index repair --index {lost[0]}",
        )


def _name(snapshot: Snapshot, since: datetime, reachable: set[int]) -> None:
    """Add the keys of files and parts and the ids of sets that the needed generations of an index name.

    Needed are those that were current since then, the one that the pages show, and those that are young and
    were not yet, since they may be about to be.
    """
    index, pointer = snapshot.index, snapshot.pointer
    items = index.store.list(keys.generations_prefix(index.name))
    young = [of for item in items if item.modified >= since and (of := keys.generation_of(item.key))]
    reach = Reach(index, reachable)
    reach.add(snapshot.generation, required=True)
    if pointer is not None:
        reach.add(index.generation(pointer.rendered, pointer.rendered_digest), required=True)
    for of in young:
        reach.add(index.generation(*of))
    for digest, item in index.chain(snapshot):
        reach.add(item)
        # The one before it was current until this one was made: by the clock of its writer, or by that of the
        # store if that says later. A writer whose clock is slow must not make what it took away look old.
        if datetime.fromisoformat(item.when) < since and (item.number, digest) not in young:
            break
    reach.close()


def _replaced(store: Store, since: datetime) -> list[ListedObject]:
    """The versions of signed metadata that a later one replaced before then: no timestamp leads to them."""
    trusted = anchor.anchor(store)
    if trusted is None:
        return []
    from cairn.release.trust.current import SignedMetadata  # noqa: PLC0415 - a store that nobody signs needs none

    current = SignedMetadata(store, trusted).current(late=True).versions
    of_role: dict[str, dict[int, ListedObject]] = defaultdict(dict)
    for item in store.list("metadata/"):
        number, _, role = item.key.removeprefix("metadata/").partition(".")
        if keys.kind_of(item.key) == "metadata" and number.isdigit():
            of_role[role][int(number)] = item
    return [
        versions[number]
        for role, versions in of_role.items()
        for number, after in itertools.pairwise(sorted(versions))
        if after <= current.get(role, 0) and versions[after].modified < since
    ]


def _set_of(key: str) -> str:
    """The id of the set that a key belongs to; empty for other keys."""
    return key.split("/")[1] if key.startswith("sets/") else ""


def _remove(store: Store, objects: Iterable[ListedObject], since: datetime) -> list[ListedObject]:
    """Remove objects but for what was renewed since; return what went. A set goes whole or stays whole.

    Each is looked at right before it goes, as a store of many objects takes a while. The `set.json`, by which
    a publisher knows whether the set is there, goes first.
    """
    groups: dict[str, list[ListedObject]] = defaultdict(list)
    for item in objects:
        groups[_set_of(item.key) or item.key].append(item)

    def remove(group: list[ListedObject]) -> list[ListedObject]:
        of_set = _set_of(group[0].key)
        first = [keys.set_key(of_set, SET_FILE)] if of_set else []
        whole = list(dict.fromkeys([*first, *(item.key for item in group)]))
        if any(info is not None and info.modified >= since for info in map(store.stat, whole)):
            return []
        for key in whole:
            store.delete(key)
        return group

    return [item for group in side_by_side(remove, groups.values(), jobs=_AT_ONCE) for item in group]


def _write_pages_again(store: Store, removed: Iterable[ListedObject]) -> None:
    """Rewrite the pages of projects that came back while their empty pages were removed."""
    projects: dict[str, set[str]] = {}
    for item in removed:
        name = keys.index_of(item.key)
        if name is not None and keys.kind_of(item.key) == "page":
            project = item.key.removeprefix(keys.simple_prefix(name)).partition("/")[0]
            projects.setdefault(name, set()).add(project)
    for name, names in projects.items():
        for attempt in attempts(Index(store, name)):
            back = sorted(name for name in names if name in attempt.before.project_parts)
            if all(write.put_project_page(attempt.before, project) for project in back):
                break
