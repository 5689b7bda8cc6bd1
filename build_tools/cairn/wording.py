"""Numbers and lists as sentences have them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def count(items: Collection[object], what: str) -> str:
    """`3 files`, `1 file`."""
    return f"{len(items)} {what}{'' if len(items) == 1 else 's'}"


def some(names: Sequence[str], *, shown: int = 5) -> str:
    """`a, b and 7 more`."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
