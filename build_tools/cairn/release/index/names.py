"""What a generation names: its projects and its sets, by bins that are read where they are asked for.

A generation has the digest of each bin, and a bin has the names whose sha256 begins with the bin's number. So
a generation stays small however much its index has, a change writes only the bins of what it changes, and two
generations are compared by the bins that differ. An earlier Cairn wrote all names into each generation
(`FlatGeneration`), and each set as a part of its own; the next change of such an index writes bins.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, cast

import msgspec

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.release.index.generation import (
    Action,
    DamagedIndexError,
    Generation,
    IndexSet,
    ProjectChange,
    ProjectState,
    Stored,
)

V = TypeVar("V", str, IndexSet)

_MOST = {"projects": 128, "sets": 32}
"""So many names a bin has at most: a bin then is about as large as the list of all bins of 5,000 sets."""

_MOST_BINS = 1 << 16
_AT_ONCE = 16  # bins read side by side


class FlatGeneration(Generation, tag_field="schema", tag="cairn.generation/1"):
    """A generation that Cairn 0.1 wrote: `projects` and `sets` have the digest of each part by name."""


class Bin(datafile.Value, tag_field="schema", tag="cairn.bin/1", omit_defaults=True):
    """Names of a generation whose sha256 begins with the same bits: projects, or sets.

    Attributes:
        projects: normalised name -> digest of its `ProjectState`, or of a `ProjectChange` in its place.
        sets: set id -> the set.
    """

    projects: Mapping[str, str] = msgspec.field(default_factory=dict)
    sets: Mapping[str, IndexSet] = msgspec.field(default_factory=dict)


Part = ProjectState | ProjectChange | IndexSet | Bin
"""What a store has below `parts/`."""


class Names(Mapping[str, V]):
    """The projects of a generation, with their digests, or its sets; each bin is read once it is needed.

    Attributes:
        field: which of the two.
        stored: the digests of the bins, as the generation has them; of an earlier Cairn, that of each part.

    Raises:
        DamagedIndexError: in each method, if a bin is lost, was changed, or is another one.
    """

    def __init__(
        self, index: str, field: Literal["projects", "sets"], stored: Stored, part: Callable[[str, Any], Any]
    ) -> None:
        self.field, self.stored = field, stored
        self._index, self._part = index, part
        self._bins: dict[int, Mapping[str, V]] = {}
        if isinstance(stored, Mapping):
            return
        if len(stored) & (len(stored) - 1):
            raise DamagedIndexError(f"{index} has {len(stored)} bins of {field}, which is no power of two")
        if len(stored) > _MOST_BINS:
            raise DamagedIndexError(f"{index} has {len(stored)} bins of {field}, which are too many")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._near(name)

    def __getitem__(self, name: str) -> V:
        value = self._near(name)[name]
        if isinstance(self.stored, Mapping) and self.field == "sets":
            value = self._part(value, IndexSet)
            _require_named(self._index, {name: value})
        return cast("V", value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored if isinstance(self.stored, Mapping) else self.whole())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _near(self, name: str) -> Mapping[str, Any]:
        """The names among which a name is, if it is there at all."""
        if isinstance(self.stored, Mapping):
            return self.stored
        return self.bin(_number(name, len(self.stored))) if self.stored else {}

    def bin(self, number: int) -> Mapping[str, V]:
        """The names of one bin."""
        if number not in self._bins:
            assert not isinstance(self.stored, Mapping)  # noqa: S101 - those have no bins
            digest, count = self.stored[number], len(self.stored)
            entries: Mapping[str, V] = getattr(self._part(digest, Bin), self.field) if digest else {}
            if any(_number(name, count) != number for name in entries):
                raise DamagedIndexError(f"{digest} is not bin {number} of the {self.field} of {self._index}")
            _require_named(self._index, entries)
            self._bins[number] = entries
        return self._bins[number]

    def whole(self) -> dict[str, V]:
        """All names at once, which are not looked up one by one."""
        if isinstance(self.stored, Mapping):
            return dict(self)
        filled = [number for number, digest in enumerate(self.stored) if digest]
        bins = side_by_side(self.bin, filled, jobs=_AT_ONCE)
        return {name: value for entries in bins for name, value in entries.items()}

    def put(self, changes: Mapping[str, V | None], put_part: Callable[[Bin], str]) -> tuple[str, ...]:
        """Store the bins that a change makes; return the digests of all, for the next generation.

        Args:
            changes: what names get; None removes one.
            put_part: stores a bin, and returns its digest.
        """
        if not changes and not isinstance(self.stored, Mapping):
            return self.stored
        stored = [] if isinstance(self.stored, Mapping) else list(self.stored)
        of_bins: dict[int, dict[str, V | None]] = collections.defaultdict(dict)
        for name, value in changes.items() if stored else ():
            of_bins[_number(name, len(stored))][name] = value
        bins = {number: _changed(self.bin(number), some) for number, some in of_bins.items()}
        if not stored or any(len(entries) > _MOST[self.field] for entries in bins.values()):
            count, bins = _spread(_changed(self.whole(), changes), len(stored), _MOST[self.field])
            stored = [""] * count
        digests = side_by_side(
            lambda entries: put_part(_bin(self.field, dict(sorted(entries.items())))) if entries else "",
            bins.values(),
            jobs=_AT_ONCE,
        )
        for number, digest in zip(bins, digests, strict=True):
            stored[number] = digest
        return tuple(stored)


def _require_named(index: str, entries: Mapping[str, Any]) -> None:
    for name, value in entries.items():
        if isinstance(value, IndexSet) and value.set_id != name:
            text = f"{index} gives the set {value.set_id[:12]} for {name[:12]}"
            raise DamagedIndexError(text, tip="restore it from a copy of the store")


def _bin(field: str, entries: Mapping[str, Any]) -> Bin:
    return Bin(projects=entries) if field == "projects" else Bin(sets=entries)


def differing(old: Names[V], new: Names[V]) -> frozenset[str]:
    """The names that only one of two generations has, and those that are different in both."""
    before, after = old.stored, new.stored
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return frozenset(name for name, _ in before.items() ^ after.items())
    if isinstance(before, Mapping) or isinstance(after, Mapping) or len(before) != len(after):
        return _unequal(old.whole(), new.whole())
    numbers = [number for number, digest in enumerate(before) if digest != after[number]]
    return frozenset().union(*(_unequal(old.bin(number), new.bin(number)) for number in numbers))


def _unequal(old: Mapping[str, V], new: Mapping[str, V]) -> frozenset[str]:
    return frozenset(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _changed(entries: Mapping[str, V], changes: Mapping[str, V | None]) -> dict[str, V]:
    whole = {**entries, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def _spread(entries: Mapping[str, V], count: int, most: int) -> tuple[int, dict[int, dict[str, V]]]:
    """All bins of an index, twice as many as before until none has too many names."""
    while True:
        bins: dict[int, dict[str, V]] = {number: {} for number in range(max(count, 1))}
        for name, value in entries.items():
            bins[_number(name, len(bins))][name] = value
        if len(bins) >= _MOST_BINS or all(len(names) <= most for names in bins.values()):
            return len(bins), bins
        count = 2 * len(bins)


def _number(name: str, count: int) -> int:
    """The number of the bin that a name belongs to, of `count`, which is a power of two."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) * count >> 32


class GenerationOrigin(datafile.Value):
    """What names a generation, and who made it.

    Attributes:
        number: of the generation; with `digest`, its name.
        digest: of its bytes.
        action: which command made it.
        who: who ran that.
        when: RFC 3339 in UTC.
        why: the reason, where one was given.
    """

    number: int
    digest: str
    action: Action | None
    who: str
    when: str
    why: str | None


def origin_of(digest: str, generation: Generation) -> dict[str, Any]:
    """The fields of `GenerationOrigin`, for those that add their own."""
    names = ("number", "action", "who", "when", "why")
    return {"digest": digest, **{name: getattr(generation, name) for name in names}}
