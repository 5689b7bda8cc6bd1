"""What one collection of texts has and another does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The items removed and the items added between two wheels.

    Attributes:
        removed: only in the first.
        added: only in the second.
    """

    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.removed or self.added)


def change(one: Iterable[str], other: Iterable[str]) -> Delta:
    """The change from one collection to another, sorted."""
    a, b = set(one), set(other)
    return Delta(removed=tuple(sorted(a - b)), added=tuple(sorted(b - a)))
