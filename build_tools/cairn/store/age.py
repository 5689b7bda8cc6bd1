"""How old an object may get that something is about to name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cairn.store.protocol import Store

_YOUNG = timedelta(hours=12)  # half of the least that a collector waits


def keep_young(store: Store, key: str) -> None:
    """Make an object count as just written, unless it was written lately or is not there.

    What no generation names is collected once it is old. Whoever finds bytes that it would have written, and
    is about to name them, calls this first: else they may go between its look and its commit.
    """
    info = store.stat(key)
    if info is not None and info.modified < datetime.now(UTC) - _YOUNG:
        store.renew(key)
