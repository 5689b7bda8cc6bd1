"""The inventory of a store: its keys, listed once and classified; and the report of an audit."""

from __future__ import annotations

import array
import bisect
import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from cairn import datafile
from cairn.errors import CairnError
from cairn.release.index import keys
from cairn.store.protocol import Store, Stray, is_key

Code = Literal[
    "pointer",
    "generation",
    "unfinished",
    "page",
    "file",
    "set",
    "evidence",
    "ledger",
    "requirement",
    "signature",
    "key",
]
"""What is wrong: the pointer or a generation of an index; pages that a dead writer left, or that say
something else; a file or what lies beside it; a set or its manifest, pages and locks; its records, answers
and judgements, or that a test has failed; the ledger, or what an index says otherwise; a need that nothing
meets; provenance that nobody trusted signed; what is not of a store of ours."""


KeyClass = Literal["live", "pending", "garbage", "temporary", "foreign"]
"""What a key is: named by a generation, now or before; young, and perhaps about to be named; named by nothing
and for `gc`; begun by a writer and not finished; not ours."""


SHOWN = 20
"""So many keys of a class are named."""

_LAST = "\U0010ffff"  # the last character there is: what begins with a prefix sorts before it with this
_FILE = re.compile(r"files/([0-9a-f]{2})/([0-9a-f]{64})/[^/]+")


class Problem(datafile.Value):
    """One problem that an audit found.

    Attributes:
        code: which kind.
        index: the index that it was found through; None if it belongs to no index.
        where: the key, file or set.
        said: what is wrong with it, as a sentence that names it.
    """

    code: Code
    index: str | None
    where: str
    said: str


class Counted(datafile.Value):
    """The number of keys of a class, their size, and the first of them by name.

    Attributes:
        count: how many.
        size: of all of them, in bytes.
        names: at most `SHOWN` of them.
    """

    count: int
    size: int
    names: tuple[str, ...]


class AuditReport(datafile.Value, tag_field="schema", tag="cairn.audit/1"):
    """The contents of a store, and its problems.

    Attributes:
        store: its URL.
        when: RFC 3339 in UTC.
        indexes: those that were looked at, with the number of the current generation; None where its
            pointer cannot be read.
        hashes: whether every file was read for its sha256.
        problems: everything that is wrong; none means that the store is what its generations say.
        keys: how many keys there are of each class, in an audit of the whole store.
    """

    store: str
    when: str
    indexes: Mapping[str, int | None]
    hashes: bool
    problems: tuple[Problem, ...]
    keys: Mapping[KeyClass, Counted]

    @property
    def good(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


class Inventory:
    """The objects of a store at one moment, and which of them something names.

    Attributes:
        store: the store.
        keys: of what it lists, sorted.
        strays: files in the store that are not objects of it.
        problems: what kept the list from being whole.
        named: the hashes of the keys that a generation names, or that are made from one: as numbers they
            take a fifth of the memory.
        pages_left: pages of projects that are gone; they say nothing, and `gc` removes them.
        offered: what each index offers, as far as its projects can be read: by a hash of all that a set says
            of a file, its name and the hash of its `FileRef`.
        checked: the results for objects that several indexes share, by the hash of the key, so that each is
            read once.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.keys: list[str] = []
        self.strays: tuple[Stray, ...] = ()
        self.problems: list[Problem] = []
        self.named: set[int] = set()
        self.pages_left: set[str] = set()
        self.offered: dict[str, dict[int, tuple[str, int]]] = {}
        self.checked: dict[int, tuple[Problem, ...]] = {}
        self._sizes, self._written = array.array("q"), array.array("d")  # of each key
        try:
            for item in store.list(""):
                self.keys.append(item.key)
                self._sizes.append(item.size)
                self._written.append(item.modified.timestamp())
            self.strays = tuple(store.strays())
        except (CairnError, OSError) as error:
            self.keys = []
            text = f"the store cannot be listed to its end: {error}"
            self.problems.append(Problem(code="key", index=None, where=store.url, said=text))

    def __contains__(self, key: str) -> bool:
        place = bisect.bisect_left(self.keys, key)
        return self.keys[place : place + 1] == [key]

    def size(self, key: str) -> int | None:
        """The size of an object, also of one written since the listing; None if it does not exist."""
        if key in self:
            return self._sizes[bisect.bisect_left(self.keys, key)]
        info = self.store.stat(key)
        return info.size if info else None

    def is_older(self, key: str, than: datetime) -> bool:
        """Whether a key that is listed was written before that."""
        return self._written[bisect.bisect_left(self.keys, key)] < than.timestamp()

    def name(self, names: Iterable[str]) -> None:
        """Note keys that a generation names."""
        self.named.update(map(hash, names))

    def is_named(self, key: str) -> bool:
        """Whether a generation names a key."""
        return hash(key) in self.named

    def below(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, sorted."""
        first, last = (bisect.bisect_left(self.keys, text) for text in (prefix, f"{prefix}{_LAST}"))
        return self.keys[first:last]

    def indexes(self) -> tuple[str, ...]:
        """Every index that anything is left of, including those whose pointer was lost."""
        present = {keys.index_of(key) for key in self.keys}
        return tuple(name for name in keys.possible_indexes() if name in present)

    def classes(self, now: datetime, young: timedelta) -> dict[KeyClass, Counted]:
        """Count the keys of each class.

        Args:
            now: the present, by the clock of the store.
            young: for how long a key may lie in the store before a generation names it.
        """
        since = (now - young).timestamp()
        order: tuple[KeyClass, ...] = ("live", "pending", "garbage", "temporary", "foreign")
        of_class = {kind: Counted(count=0, size=0, names=()) for kind in order}
        strays = sorted((stray.name, stray.size, stray.kind) for stray in self.strays)

        def kinds() -> Iterator[tuple[str, int, KeyClass]]:
            for key, size, written in zip(self.keys, self._sizes, self._written, strict=True):
                unnamed: KeyClass = "pending" if written >= since else "garbage"
                kind: KeyClass = "live" if self.is_named(key) else unnamed
                yield key, size, kind if _is_ours(key) else "foreign"

        for name, size, kind in heapq.merge(kinds(), strays):
            before = of_class[kind]
            shown = (name.encode("utf-8", "backslashreplace").decode(),) if before.count < SHOWN else ()
            of_class[kind] = Counted(
                count=before.count + 1, size=before.size + size, names=(*before.names, *shown)
            )
        return of_class

    def foreign(self, places: tuple[str, ...]) -> Iterator[Problem]:
        """The keys that Cairn did not write, and those that a case-insensitive file system would confuse.

        Args:
            places: the prefixes to look at; `""` for everything.
        """
        for key in self.keys:
            if key.startswith(places) and not _is_ours(key):
                yield _foreign(key, "is not of a store of Cairn's")
        for stray in self.strays:
            if stray.kind == "foreign" and stray.name.startswith(places):
                is_ours = is_key(stray.name) or any(part.startswith(".") for part in stray.name.split("/"))
                reason = "is a link, or hidden: it " if is_ours else ""
                yield _foreign(stray.name, f"{reason}is not of a store of Cairn's")
        spelt: dict[int, str] = {}  # by hash, since all keys once more are 100 MB of a store of 500,000
        for key in self.keys:
            same_spelling = spelt.setdefault(hash(key.casefold()), key)
            if same_spelling != key and same_spelling.casefold() == key.casefold() and key.startswith(places):
                yield _foreign(key, f"is {same_spelling} where capital letters do not count")


def _is_ours(key: str) -> bool:
    """Whether Cairn writes keys like this one, at the place that follows from its digest."""
    kind = keys.kind_of(key)
    if kind == "file":
        match = _FILE.fullmatch(key)
        return match is not None and match[2].startswith(match[1])
    return kind is not None and keys.index_of(key) in (None, *keys.possible_indexes())


def _foreign(name: str, text: str) -> Problem:
    # A file system's names may be no text at all (PEP 383).
    shown = name.encode("utf-8", "backslashreplace").decode()
    return Problem(code="key", index=None, where=shown, said=f"{shown} {text}")
