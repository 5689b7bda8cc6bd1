"""Whether the clock of this machine may date a signature: a wrong one signs what is over, or what lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta

from cairn.errors import StoreError
from cairn.release.trust import metadata
from cairn.release.trust.metadata import FRESH, TIMESTAMP, YEAR, Root, Timestamp, opened
from cairn.store.protocol import Store, read_or_none

_APART = timedelta(hours=1)  # the clocks of a store and of this machine, at most
_SKEW = timedelta(minutes=5)  # of two machines that sign, as of those that test
_PAUSE = timedelta(days=8)  # between two signatures, at most: a timestamp counts for seven
_STAMPING = ("timestamp", "former timestamp", "former promoter")
_DATE: ContextVar[str | None] = ContextVar("date", default=None)


@contextlib.contextmanager
def confirmed(date: str | None) -> Iterator[None]:
    """Take the clock for right until the block ends, if this is the date that it shows: somebody looked."""
    before = _DATE.set(date)
    try:
        yield
    finally:
        _DATE.reset(before)


def require(store: Store, root: Root, *new: Root) -> None:
    """Refuse to sign by a clock that is wrong.

    Args:
        store: what is signed.
        root: its root, whose keys signed its timestamp.
        new: a root that is to follow. What is signed dates itself by when it ends.

    Raises:
        MetadataError: the timestamp is not signed.
        StoreError: the clock differs from the store's by over an hour; or it is before what was signed last,
            or, where the store has no other clock, more than eight days after that, and nobody confirmed it.
    """
    now, ahead = metadata.now(), store.clock_ahead()
    keys = {id_: key for role in _STAMPING for id_, key in root.of(role).items()}
    blob = read_or_none(store, TIMESTAMP)
    stamps = [opened(blob.data, Timestamp, keys, name=f"{store.url}/{TIMESTAMP}")] if blob else []
    newest = max([_moment(root), *map(_moment, stamps)])
    ours = f"nothing is signed: the clock of this machine says {now:%Y-%m-%d %H:%M} UTC, and"
    if ahead is not None and abs(ahead) > _APART:
        raise StoreError(
            f"{ours} that of {store.url} says {now + ahead:%Y-%m-%d %H:%M}",
            tip="set the clock of this machine",
        )
    if _DATE.get() == f"{now:%Y-%m-%d}":
        return
    is_late = ahead is None and stamps and now > newest + _PAUSE
    if is_late or now < max([newest, *map(_moment, new)]) - _SKEW:
        raise StoreError(
            f"{ours} {store.url} was last signed on {newest:%Y-%m-%d %H:%M}",
            tip="set the clock, if it is wrong; if it is right: cairn trust refresh "
            f"--store {store.url} --adopt clock={now:%Y-%m-%d}",
        )


def _moment(signed: metadata.Signed) -> datetime:
    return metadata.moment(signed.expires) - (YEAR if isinstance(signed, Root) else FRESH)
