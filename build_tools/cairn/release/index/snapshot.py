"""Read an index: its current state, and every earlier one."""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import CairnError, StoreError, UsageError
from cairn.output import wording
from cairn.release.index import generation, keys
from cairn.release.index.generation import (
    DamagedIndexError,
    FileEntry,
    FileRef,
    Generation,
    IndexSet,
    Pointer,
    ProjectChange,
    ProjectPart,
    ProjectState,
    change_of,
    decode_pointer,
    digest_of,
    project_of,
    weight_of,
)
from cairn.release.index.names import Bin, FlatGeneration, Names
from cairn.release.index.names import Part as StoredPart
from cairn.store.protocol import MissingKeyError, Store, write_young
from cairn.wheels import wheelset
from cairn.wheels.wheelset import WheelSet

Part = TypeVar("Part", bound=datafile.Value)

SET_FILE, MANIFEST_FILE = "set.json", "manifest.json"

_ID = re.compile(r"[0-9a-f]{4,64}")
_AT_ONCE = 8  # parts of one project read side by side
_BINS = 600  # kept of an index: two states of 5,000 sets
_RESTORE = "restore it from a copy of the store"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to make to an index.

    Attributes:
        projects: the new state of each changed project; None removes it.
        sets: new or changed sets by id; None removes one.
    """

    projects: Mapping[str, ProjectState | None] = msgspec.field(default_factory=dict)
    sets: Mapping[str, IndexSet | None] = msgspec.field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether the change changes nothing."""
        return not self.projects and not self.sets


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """An index at one moment.

    Attributes:
        index: the index it is of.
        generation: what it held.
        digest: of that generation; None while the index does not exist.
        pointer: `state.json`, and its etag in the store; None for a moment that is not the present one.
        etag: see `pointer`.
        changed: what would be different (`with_change`); nothing for what is stored.
    """

    index: Index
    generation: Generation
    digest: str | None
    pointer: Pointer | None = None
    etag: str | None = None
    changed: Change = field(default_factory=Change)

    @property
    def exists(self) -> bool:
        """Whether anything was ever published into it."""
        return self.generation.number > 0

    @functools.cached_property
    def project_parts(self) -> Names[str]:
        """The digest of the part of each project that the generation has."""
        return Names(self.index.name, "projects", self.generation.projects, self.index.part)

    @functools.cached_property
    def set_entries(self) -> Names[IndexSet]:
        """Each set that the generation has."""
        return Names(self.index.name, "sets", self.generation.sets, self.index.part)

    @property
    def project_names(self) -> tuple[str, ...]:
        """The projects that it lists, sorted."""
        names = {*self.project_parts, *self.changed.projects}
        gone = {name for name, new in self.changed.projects.items() if new is None}
        return tuple(sorted(names - gone))

    def project(self, name: str) -> ProjectState:
        """What the index offers of a project; an empty state where it has none."""
        if name in self.changed.projects:
            return self.changed.projects[name] or ProjectState(name=name, files=())
        digest = self.project_parts.get(name)
        if digest is None:
            return ProjectState(name=name, files=(), serial=self.generation.number)
        return self.index.project(digest, name)

    def projects(self) -> Iterator[ProjectState]:
        """Every project, in the order of names."""
        return (self.project(name) for name in self.project_names)

    @property
    def set_ids(self) -> tuple[str, ...]:
        """The ids of its sets, sorted."""
        removed = {set_id for set_id, new in self.changed.sets.items() if new is None}
        return tuple(sorted({*self.set_entries, *self.changed.sets} - removed))

    def has_set(self, set_id: str) -> bool:
        """Whether it has a set of this id."""
        changed = self.changed.sets
        return changed[set_id] is not None if set_id in changed else set_id in self.set_entries

    def set(self, set_id: str) -> IndexSet:
        """A set of the index.

        Raises:
            StoreError: it has no such set.
        """
        changed = self.changed.sets
        entry = changed[set_id] if set_id in changed else self.set_entries.get(set_id)
        if entry is None:
            raise StoreError(f"{self.index.name} has no set {set_id}", tip=_sets_there(self.set_ids))
        return entry

    def sets(self) -> Iterator[IndexSet]:
        """Every set, in the order of ids."""
        entries = {**self.set_entries.whole(), **self.changed.sets}
        return (entry for _, entry in sorted(entries.items()) if entry is not None)

    def entry(self, ref: FileRef) -> FileEntry:
        """The entry of exactly this file.

        Raises:
            StoreError: the index does not have it, or has other bytes under its name.
        """
        entry = self.project(project_of(ref.filename)).file(ref.filename)
        if entry is None or entry.sha256 != ref.sha256:
            raise StoreError(
                f"{self.index.name} has no {ref.filename} with sha256 {ref.sha256}", tip="stage the set again"
            )
        return entry

    def with_change(self, change: Change) -> Snapshot:
        """The index as it will be once a change is made."""
        whole = Change(
            projects={**self.changed.projects, **change.projects}, sets={**self.changed.sets, **change.sets}
        )
        return Snapshot(index=self.index, generation=self.generation, digest=self.digest, changed=whole)


class Index:
    """One index of a store.

    Attributes:
        store: where it lives.
        name: such as `staging` or `release/gfx110X-all`.
        strict: a part that two readers could take for different things is refused, for those who believe
            nobody; it takes longer.
    """

    def __init__(self, store: Store, name: str, *, strict: bool = False) -> None:
        self.store, self.strict = store, strict
        self.name = keys.checked_index(name)
        self._parts: dict[str, datafile.Value] = {}
        self._bins, self._generations = deque[str](), deque[str]()  # see `_keep`
        self.pages: dict[str, Any] = {}  # see `write.with_pages`
        self._states: dict[str, ProjectState] = {}  # what a `ProjectChange` stands for, by its digest

    def load(self) -> Snapshot:
        """The index as it is now; empty if nothing was ever published.

        Raises:
            DamagedIndexError: `state.json` is lost or damaged, or the generation that it names is.
        """
        key = keys.state_key(self.name)
        try:
            blob = self.store.read(key)
        except MissingKeyError:
            # The first writer makes the pointer before any generation, so that one without the other means
            # damage, and never an index that is about to begin.
            if next(iter(self.store.list(keys.generations_prefix(self.name))), None) is not None:
                raise DamagedIndexError(
                    f"{self.store.url}/{key} was lost: {self.name} has generations and no pointer",
                    tip=f"choose the current one: cairn index repair --index {self.name}",
                ) from None
            return Snapshot(index=self, generation=empty(self.name), digest=None)
        pointer = decode_pointer(blob.data, name=f"{self.store.url}/{key}")
        if pointer.generation == 0:
            return Snapshot(
                index=self, generation=empty(self.name), digest=None, pointer=pointer, etag=blob.etag
            )
        current = self.generation(pointer.generation, pointer.digest)
        return Snapshot(
            index=self, generation=current, digest=pointer.digest, pointer=pointer, etag=blob.etag
        )

    def generation(self, number: int, digest: str) -> Generation:
        """One generation, by its number and digest.

        Raises:
            DamagedIndexError: it is lost, was changed, or is of a different index.
        """
        if number == 0:
            return empty(self.name)
        key = keys.generation_key(self.name, number, digest)
        past = self._object(key, digest, Generation, FlatGeneration)
        if (past.index, past.number) != (self.name, number):
            raise DamagedIndexError(
                f"{self.store.url}/{key} is generation {past.number} of {past.index[:100]}", tip=_RESTORE
            )
        return past

    def at(self, past: Generation, digest: str) -> Snapshot:
        """The index as of one generation."""
        return Snapshot(index=self, generation=past, digest=digest)

    def chain(self, snapshot: Snapshot) -> Iterator[tuple[str, Generation]]:
        """Every generation from a snapshot's own back to the first, each with its digest.

        Raises:
            StoreError: one of them is lost or was changed.
        """
        past, digest = snapshot.generation, snapshot.digest
        while digest is not None and past.number > 0:
            yield digest, past
            digest = past.parent
            if digest is not None:
                past = self.generation(past.number - 1, digest)

    def part(self, digest: str, cls: type[Part]) -> Part:
        """A part of a generation as it is stored: a set; or of a project, which `project` puts together.

        Raises:
            DamagedIndexError: it is lost, has not the bytes of its digest, or is of a different kind.
        """
        return self._object(keys.part_key(self.name, digest), digest, cls)

    def project(self, digest: str, name: str) -> ProjectState:
        """A project of a generation, whose part may be what changed over others.

        Raises:
            DamagedIndexError: a part is lost, has not the bytes of its digest, or is of something else.
        """
        if digest in self._states:
            return self._states[digest]
        over = self._over(digest)
        below = side_by_side(self.project_part, over, jobs=_AT_ONCE) if over else ()
        *changes, state = (self.project_part(digest), *below)
        for part in (state, *reversed(changes)):
            if part.name != name or isinstance(part, ProjectState) != (part is state):
                where = f"{self.store.url}/{keys.part_key(self.name, digest)}"
                raise DamagedIndexError(f"{where} is not a state of {name}", tip=_RESTORE)
        assert isinstance(state, ProjectState)  # noqa: S101 - the loop has looked
        above = [part for part in changes if isinstance(part, ProjectChange)]  # all: the loop has looked
        if above:
            whole = functools.reduce(lambda later, part: part.followed_by(later, part.over), above)
            state = whole.applied(state)
        self._states[digest] = state
        return state

    def file(self, digest: str, name: str, filename: str) -> tuple[ProjectPart, FileEntry | None]:
        """The current part of a project, and its file of that name from the newest part that names it.

        Parts below that one are not read: what they say of the file is not current any more.

        Raises:
            DamagedIndexError: a part is lost, has not the bytes of its digest, is of something else, or has
                the file twice.
        """
        current = self.project_part(digest)
        for below in self.parts_of(digest):
            part = self.project_part(below)
            entries = [file for file in part.files if file.filename == filename]
            if part.name != name or len(entries) > 1:
                where = f"{self.store.url}/{keys.part_key(self.name, below)}"
                problem = f"has {filename} twice" if part.name == name else f"is not a state of {name}"
                raise DamagedIndexError(f"{where} {problem}", tip=_RESTORE)
            if entries or (isinstance(part, ProjectChange) and filename in part.gone):
                return current, entries[0] if entries else None
        return current, None

    def project_part(self, digest: str) -> ProjectPart:
        """One part of a project as it is stored; raises like `part`."""
        part = self._object(keys.part_key(self.name, digest), digest, ProjectState, ProjectChange)
        assert isinstance(part, ProjectPart)  # noqa: S101 - `_object` gives no other
        return part

    def parts_of(self, digest: str) -> tuple[str, ...]:
        """The digests of all parts that make up a project, its own first."""
        return (digest, *self._over(digest))

    def put_project(self, new: ProjectState, over: str | None) -> str:
        """Store a state of a project and return the digest of its part; nothing refers to it yet.

        What is written is what differs from an earlier part that says at least twice as much, so that a
        state is never spread over more parts than its size has binary digits, and what a hundred changes
        write grows with what they change. The states below the newest are not read for it: changes add up.

        Args:
            new: the state.
            over: digest of the part that the index has of it now; None for a new project.
        """
        if over is None:
            return self.put_part(new)
        chain = self.parts_of(over)
        change = change_of(self.project(over, new.name), new, chain)
        for place, digest in enumerate(chain):
            part = self.project_part(digest)
            if weight_of(part) >= 2 * weight_of(change):
                put = self.put_part(change)
                self._states[put] = new
                return put
            if isinstance(part, ProjectChange):
                change = part.followed_by(change, chain[place + 1 :])
        return self.put_part(new)

    def put_part(self, value: StoredPart) -> str:
        """Store a part and return its digest; nothing refers to it yet."""
        digest = digest_of(data := generation.encode(value))
        # The key has the digest of the bytes: what is there is the same, unless it was damaged.
        write_young(self.store, keys.part_key(self.name, digest), data)
        self._keep(digest, value)
        return digest

    def _over(self, digest: str) -> tuple[str, ...]:
        part = self.project_part(digest)
        return part.over if isinstance(part, ProjectChange) else ()

    def _object(self, key: str, digest: str, *kinds: type[Part]) -> Part:
        cached = self._parts.get(digest)
        if cached is None:
            try:
                data = self.store.read(key).data
            except MissingKeyError as error:
                raise DamagedIndexError(f"{self.store.url}/{key} is lost", tip=_RESTORE) from error
            # Whatever the pointer leads to is checked before it is believed: a part that was edited in the
            # store would otherwise be published by the next change of its project.
            if digest_of(data) != digest:
                raise DamagedIndexError(f"{self.store.url}/{key} was changed", tip=_RESTORE)
            part = self._decoded(data, kinds, f"{self.store.url}/{key}")
            self._keep(digest, part)
            return part
        if not isinstance(cached, kinds):
            raise DamagedIndexError(f"{digest} is not a {kinds[0].__name__} in {self.name}")
        return cached

    def _keep(self, digest: str, value: datafile.Value) -> None:
        """Keep what was read; of generations and bins, of which an index has thousands, the last ones."""
        self._parts[digest] = value
        if isinstance(value, Generation | Bin):
            passing, most = (self._bins, _BINS) if isinstance(value, Bin) else (self._generations, 4)
            passing.append(digest)
            while len(passing) > most:
                self._parts.pop(passing.popleft(), None)

    def _decoded(self, data: bytes, kinds: tuple[type[Part], ...], name: str) -> Part:
        if not self.strict:
            with contextlib.suppress(msgspec.DecodeError):
                return datafile.decode(data, functools.reduce(operator.or_, kinds))
        try:
            plain = datafile.parse_json(data, name=name)
            schema = plain.get("schema") if isinstance(plain, dict) else None
            kind = next((cls for cls in kinds if cls.__struct_config__.tag == schema), kinds[0])
            return datafile.from_plain(plain, kind, name=name)
        except UsageError as error:
            raise DamagedIndexError(str(error), tip=datafile.tip_of_stored(error, _RESTORE)) from error


def empty(index: str) -> Generation:
    """Generation 0: what an index holds before anything is published."""
    return Generation(index=index, number=0, parent=None, action=None, who="", when="", change_id="")


def read_set(store: Store, set_id: str) -> WheelSet:
    """A sealed set of a store.

    Raises:
        MissingKeyError: the store has no such set.
        StoreError: what lies there is not that set.
    """
    key = keys.set_key(set_id, SET_FILE)
    data = store.read(key).data
    try:
        wheel_set = wheelset.loads(data, name=f"{store.url}/{key}")
    except CairnError as error:
        raise StoreError(str(error), tip=_RESTORE) from error
    if wheel_set.set_id != set_id:
        raise StoreError(f"{store.url}/{key} is a different set: {wheel_set.set_id}", tip=_RESTORE)
    return wheel_set


def ancestors(store: Store, wheel_set: WheelSet) -> Iterator[str]:
    """The ids of the sets that this one was derived from by new versions, as far as the store has them."""
    set_id = wheel_set.derived_from
    while set_id is not None:
        yield set_id
        try:
            set_id = read_set(store, set_id).derived_from
        except MissingKeyError:
            return


def refs_of(wheel_set: WheelSet) -> tuple[FileRef, ...]:
    """Every file that a set installs, by name."""
    return tuple(FileRef(filename=name, sha256=sha) for name, sha in sorted(wheel_set.sha256s.items()))


def whole_id(given: str, source: Snapshot, *others: Snapshot) -> str:
    """The full id of the only set whose id starts with `given`.

    Args:
        given: at least four digits of a set id.
        source: where the set should be.
        others: where it may be as well.

    Raises:
        StoreError: there is no such set.
        UsageError: it cannot be the beginning of an id, or is that of several sets.
    """
    prefix = given.lower()
    if not _ID.fullmatch(prefix):
        raise UsageError(
            f"{given!r} is neither a set.json nor the id of a set",
            tip=f"give a set.json, or the first digits of an id; {_sets_there(source.set_ids)}",
        )
    matches = sorted({name for s in (source, *others) for name in s.set_ids if name.startswith(prefix)})
    if not matches and not source.exists:
        raise missing(source.index.store, source.index.name)
    if not matches:
        raise StoreError(f"{source.index.name} has no set {given}", tip=_sets_there(source.set_ids))
    if len(matches) > 1:
        raise UsageError(
            f"{given} is the beginning of {len(matches)} set ids",
            tip=f"give more of it: {', '.join(matches)}",
        )
    return matches[0]


def existing(store: Store) -> tuple[str, ...]:
    """The indexes of a store that something was published into at least once."""
    return tuple(name for name in _possible(store) if store.exists(keys.state_key(name)))


def with_status(store: Store) -> tuple[str, ...]:
    """The indexes that have results of nights, including those that were never published into."""
    return tuple(n for n in _possible(store) if any(True for _ in store.list(keys.status_prefix(n))))


def traces(store: Store) -> tuple[str, ...]:
    """The indexes of a store, and those that lost their pointer and still have generations."""

    def has_generations(name: str) -> bool:
        return any(True for _ in store.list(keys.generations_prefix(name)))

    possible = _possible(store)
    return tuple(name for name in possible if store.exists(keys.state_key(name)) or has_generations(name))


def _possible(store: Store) -> list[str]:
    names = []
    for channel in store.folders(""):
        if channel in keys.CHANNELS:
            below = (f"{channel}/{name}" for name in store.folders(f"{channel}/"))
            names += [channel, *(name for name in below if name in keys.possible_indexes())]
    # In the order of `possible_indexes`, whatever the store sorts by.
    return sorted(names, key=keys.possible_indexes().index)


def missing(store: Store, name: str) -> StoreError:
    """The error for an index that the store does not have."""
    have = ", ".join(existing(store)) or "none"
    return StoreError(f"there is no index {name} at {store.url}", tip=f"the indexes there: {have}")


def _sets_there(sets: Iterable[str]) -> str:
    return f"the sets there: {wording.some([wording.short_id(name) for name in sorted(sets)]) or 'none'}"
