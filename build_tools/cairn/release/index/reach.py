"""What generations need of a store: their bins and parts, and the files and sets that these name."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from cairn.concurrency import side_by_side
from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import DamagedIndexError, FileEntry, Generation, ProjectChange, encode
from cairn.release.index.names import Bin
from cairn.release.index.snapshot import Index, Snapshot
from cairn.store.protocol import read_named

_AT_ONCE = 16  # parts read side by side


def objects_of(file: FileEntry) -> dict[str, str]:
    """The objects that a store must have for a file in an index: key to sha256, the file itself first."""
    objects = {keys.file_key(file.sha256, file.filename): file.sha256}
    if file.metadata_sha256 is not None:
        objects[keys.sidecar_key(file.sha256, file.filename)] = file.metadata_sha256
    if file.provenance is not None:
        objects[keys.provenance_key(file.sha256, file.filename, file.provenance)] = file.provenance
    if file.variants is not None:
        objects[keys.file_key(file.variants.sha256, file.variants.filename)] = file.variants.sha256
    return objects


def with_every_name(snapshot: Snapshot) -> Snapshot:
    """A snapshot whose bins were all read, for those that must find all.

    Raises:
        DamagedIndexError: a bin is lost, was changed, or is another one.
    """
    for names in (snapshot.project_parts, snapshot.set_entries):
        len(names)
    return snapshot


def stored_bytes(current: Snapshot) -> bytes:
    """The bytes of the generation of a snapshot, as they are stored.

    Raises:
        StoreError: they are lost, or were changed.
    """
    if current.digest is None:  # the empty one, which nobody stores
        return encode(current.generation)
    key = keys.generation_key(current.index.name, current.generation.number, current.digest)
    return read_named(current.index.store, key, current.digest)


class Reach:
    """What generations of an index name, collected one generation at a time.

    A part of a past generation may be gone, by an earlier collection with a shorter time: nobody can go back
    to it any more.

    Attributes:
        named: the keys of parts and files.
        sets: the ids of sets.
    """

    def __init__(self, index: Index) -> None:
        self.named: set[str] = set()
        self.sets: set[str] = set()
        self._index = index
        self._bins: set[str] = set()
        # By project: the digests of its parts, and whether they must be there.
        self._projects: dict[str, dict[str, bool]] = collections.defaultdict(dict)

    def add(self, generation: Generation, *, required: bool = False) -> None:
        """Add what a generation names; what must be there is to be added first.

        Raises:
            DamagedIndexError: a bin of a generation that is `required` is lost, or was changed.
        """
        if isinstance(generation.projects, Mapping):
            self._add_projects(generation.projects, required=required)
        if isinstance(generation.sets, Mapping):
            self.sets |= generation.sets.keys()
            self.named |= {keys.part_key(self._index.name, digest) for digest in generation.sets.values()}
        for stored in (generation.projects, generation.sets):
            for digest in stored if not isinstance(stored, Mapping) else ():
                if not digest or (digest in self._bins and not required):
                    continue
                self._bins.add(digest)
                self.named.add(keys.part_key(self._index.name, digest))
                try:
                    names = self._index.part(digest, Bin)
                except StoreError:
                    if required:
                        raise
                    continue
                self.sets |= names.sets.keys()
                self._add_projects(names.projects, required=required)

    def _add_projects(self, projects: Mapping[str, str], *, required: bool) -> None:
        for name, digest in projects.items():
            self._projects[name].setdefault(digest, required)

    def close(self) -> None:
        """Read the parts of all projects, and add what they name.

        Raises:
            DamagedIndexError: a part that must be there is lost, or was changed.
        """
        while self._projects:
            self.named |= self._of_project(next(iter(self._projects)))

    def _of_project(self, name: str) -> set[str]:
        """The keys of the parts of a project, and of the files that its states have.

        All files of a part count that a generation names itself. Of one that others only build on, those
        count that at least one of them has not replaced.
        """
        digests = self._projects.pop(name)
        parts = self._read(name, digests)
        below = {digest for part in parts.values() if isinstance(part, _Read) for digest in part.over}
        parts |= self._read(name, below - digests.keys())
        for digest in (digest for digest, required in digests.items() if required):
            _require_whole(digest, parts)
        objects = {keys.part_key(self._index.name, digest) for digest in digests}
        stacks: dict[str, list[tuple[str, ...]]] = collections.defaultdict(list)
        for digest in digests:
            if isinstance(part := parts[digest], _Read):
                objects.update(*part.files.values())
                chain = (digest, *part.over)
                for place, one in enumerate(chain):
                    if one not in digests:
                        stacks[one].append(chain[:place])
        for digest, above in stacks.items():
            if isinstance(part := parts[digest], _Read):
                objects.add(keys.part_key(self._index.name, digest))
                gone = _replaced_in_all(above, parts)
                objects.update(*(file_keys for file, file_keys in part.files.items() if file not in gone))
        return objects

    def _read(self, name: str, digests: Iterable[str]) -> dict[str, _Read | StoreError]:
        """What parts of a project name, or why one cannot be read."""

        def read(digest: str) -> _Read | StoreError:
            index = Index(self._index.store, self._index.name)  # one for all would keep every part
            try:
                part = index.project_part(digest)
            except StoreError as error:
                return error
            if part.name != name:
                return DamagedIndexError(f"{keys.part_key(index.name, digest)} is not a state of {name}")
            files = {file.filename: tuple(objects_of(file)) for file in part.files}
            if isinstance(part, ProjectChange):
                return _Read(files, frozenset((*files, *part.gone)), part.over)
            return _Read(files, frozenset(files), ())

        ordered = list(digests)
        return dict(zip(ordered, side_by_side(read, ordered, jobs=_AT_ONCE), strict=True))


class _Read(NamedTuple):
    """A part of a project: the keys of its files by name, the names that it decides, the parts below it."""

    files: Mapping[str, tuple[str, ...]]
    names: frozenset[str]
    over: tuple[str, ...]


def _require_whole(digest: str, parts: Mapping[str, _Read | StoreError]) -> None:
    """Refuse a state of which a part cannot be read."""
    part = parts[digest]
    for one in (digest, *(part.over if isinstance(part, _Read) else ())):
        if isinstance(error := parts[one], StoreError):
            raise error


def _replaced_in_all(
    stacks: Iterable[tuple[str, ...]], parts: Mapping[str, _Read | StoreError]
) -> Collection[str]:
    """The names that each of these stacks of parts replaces in what lies below it."""
    replaced: set[str] | None = None
    for stack in sorted(stacks, key=len):
        names = [part.names for digest in stack if isinstance(part := parts[digest], _Read)]
        if replaced is None:
            replaced = set().union(*names)
        replaced = {name for name in replaced if any(name in some for some in names)}
        if not replaced:
            break
    return replaced or ()
