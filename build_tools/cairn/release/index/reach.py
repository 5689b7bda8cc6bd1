"""What generations need of a store: their bins and parts, and the files and sets that these name."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from cairn.concurrency import side_by_side
from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import DamagedIndexError, FileEntry, Generation, ProjectChange, encode
from cairn.release.index.names import Bin, differing
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


def change_since(before: Snapshot, after: Snapshot) -> dict[str, Any]:
    """The fields in which a `Generation` describes its change, by its bins and those of its parent.

    Raises:
        DamagedIndexError: a bin is lost, was changed, or is another one.
    """
    old, new = before.set_entries, after.set_entries
    ids = sorted(differing(old, new))
    return {
        "brought": tuple(set_id for set_id in ids if set_id not in old),
        "removed": tuple(set_id for set_id in ids if set_id not in new),
        "marked": tuple(set_id for set_id in ids if set_id in old and set_id in new),
        "changed": len(differing(before.project_parts, after.project_parts)),
    }


class Reach:
    """What generations of an index name, collected one generation at a time.

    A part of a past generation may be gone, by an earlier collection with a shorter time: nobody can go back
    to it any more.

    Attributes:
        named: the hashes of the keys of parts and files, and of the ids of sets: as numbers they take a fifth
            of the memory.
    """

    def __init__(self, index: Index, reachable: set[int]) -> None:
        self.named, self._index = reachable, index
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
            self._name(generation.sets)
            self._name(keys.part_key(self._index.name, digest) for digest in generation.sets.values())
        for stored in (generation.projects, generation.sets):
            for digest in stored if not isinstance(stored, Mapping) else ():
                if not digest or (digest in self._bins and not required):
                    continue
                self._bins.add(digest)
                self._name([keys.part_key(self._index.name, digest)])
                try:
                    names = self._reader().part(digest, Bin)
                except StoreError:
                    if required:
                        raise
                    continue
                self._name(names.sets)
                self._add_projects(names.projects, required=required)

    def _name(self, names: Iterable[str]) -> None:
        self.named.update(map(hash, names))

    def _reader(self) -> Index:
        return Index(self._index.store, self._index.name)  # one for all would keep every part

    def _add_projects(self, projects: Mapping[str, str], *, required: bool) -> None:
        for name, digest in projects.items():
            self._projects[name].setdefault(digest, required)

    def close(self) -> None:
        """Read the parts of all projects, and add what they name.

        Raises:
            DamagedIndexError: a part that must be there is lost, or was changed.
        """
        while self._projects:
            self._of_project(next(iter(self._projects)))

    def _of_project(self, name: str) -> None:
        """Add the keys of the parts of a project, and of the files that its states have.

        All files of a part count that a generation names itself. Of one that others only build on, those
        count that at least one of them has not replaced.
        """
        digests = self._projects.pop(name)
        parts = self._read(name, digests)
        below = {digest for part in parts.values() if isinstance(part, _Read) for digest in part.over}
        parts |= self._read(name, below - digests.keys())
        for digest in (digest for digest, required in digests.items() if required):
            _require_whole(digest, parts)
        self._name(keys.part_key(self._index.name, digest) for digest in digests)
        stacks: dict[str, list[tuple[str, ...]]] = collections.defaultdict(list)
        for digest in digests:
            if isinstance(part := parts[digest], _Read):
                self.named.update(*part.files.values())
                chain = (digest, *part.over)
                for place, each_digest in enumerate(chain):
                    if each_digest not in digests:
                        stacks[each_digest].append(chain[:place])
        for digest, above in stacks.items():
            if isinstance(part := parts[digest], _Read):
                self._name([keys.part_key(self._index.name, digest)])
                gone = _replaced_in_all(above, parts)
                self.named.update(*(hashes for file, hashes in part.files.items() if file not in gone))

    def _read(self, name: str, digests: Iterable[str]) -> dict[str, _Read | StoreError]:
        """What parts of a project name, or why one cannot be read."""

        def read(digest: str) -> _Read | StoreError:
            try:
                part = self._reader().project_part(digest)
            except StoreError as error:
                return error
            if part.name != name:
                key = keys.part_key(self._index.name, digest)
                return DamagedIndexError(f"{key} is not a state of {name}")
            files = {hash(file.filename): tuple(map(hash, objects_of(file))) for file in part.files}
            if isinstance(part, ProjectChange):
                return _Read(files, {*map(hash, part.gone)}, part.over)
            return _Read(files, (), ())

        ordered = list(digests)
        return dict(zip(ordered, side_by_side(read, ordered, jobs=_AT_ONCE), strict=True))


class _Read(NamedTuple):
    """A part of a project: its files with their keys, the names that it removes, the parts below it.

    Names and keys are by their hashes.
    """

    files: Mapping[int, tuple[int, ...]]
    gone: Collection[int]
    over: tuple[str, ...]


def _require_whole(digest: str, parts: Mapping[str, _Read | StoreError]) -> None:
    """Refuse a state of which a part cannot be read."""
    part = parts[digest]
    for each_digest in (digest, *(part.over if isinstance(part, _Read) else ())):
        if isinstance(error := parts[each_digest], StoreError):
            raise error


def _replaced_in_all(
    stacks: Iterable[tuple[str, ...]], parts: Mapping[str, _Read | StoreError]
) -> Collection[int]:
    """The names that each of these stacks of parts replaces in what lies below it."""
    replaced: set[int] | None = None
    for stack in sorted(stacks, key=len):
        read = [part for digest in stack if isinstance(part := parts[digest], _Read)]
        if replaced is None:
            replaced = set().union(*(part.files for part in read), *(part.gone for part in read))
        replaced = {n for n in replaced if any(n in part.files or n in part.gone for part in read)}
        if not replaced:
            break
    return replaced or ()
