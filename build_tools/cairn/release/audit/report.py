"""What an audit found: the one value that a terminal and a monitor show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cairn import datafile

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


class Problem(datafile.Value):
    """One thing that is not as it should be.

    Attributes:
        code: which kind.
        index: the index that it was found through; None for what belongs to no index.
        where: the key, file or set.
        said: what is wrong with it, as a sentence that names it.
    """

    code: Code
    index: str | None
    where: str
    said: str


class Counted(datafile.Value):
    """How many keys there are of a class, their bytes, and the first of them by name.

    Attributes:
        count: how many.
        size: of all of them, in bytes.
        names: at most `SHOWN` of them.
    """

    count: int
    size: int
    names: tuple[str, ...]


SHOWN = 20
"""So many keys of a class are named."""


class AuditReport(datafile.Value, tag_field="schema", tag="cairn.audit/1"):
    """What is in a store, and what is wrong with it.

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
        """Whether nothing is wrong."""
        return not self.problems
