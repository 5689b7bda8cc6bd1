"""Transfer many files into a store or out of one: in parallel, with progress, only what is missing."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from cairn.concurrency import side_by_side
from cairn.errors import StoreError
from cairn.output import console
from cairn.store.protocol import Store

_JOBS = 4  # files at once; a bucket moves the parts of each at once too
_INTERVAL = 0.2  # seconds between two reports, so that reporting takes no time


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a transfer.

    Attributes:
        done: files that have arrived.
        files: all of them.
        size: bytes that have arrived.
        of_size: all of them.
        seconds: since it began.
    """

    done: int
    files: int
    size: int
    of_size: int
    seconds: float

    def __str__(self) -> str:
        """One line for users, such as `3 of 12 files, 1.2 GB of 3.4 GB, 85.0 MB/s`."""
        line = f"{self.done} of {self.files} files, {console.size(self.size)} of {console.size(self.of_size)}"
        speed = int(self.size / self.seconds) if self.seconds else 0
        return f"{line}, {console.size(speed)}/s"


OnProgress: TypeAlias = Callable[[Progress], None]


def put_files(
    store: Store,
    sources: Mapping[str, Path],
    *,
    sha256s: Mapping[str, str] = MappingProxyType({}),
    on_progress: OnProgress = lambda _: None,
) -> tuple[str, ...]:
    """Put local files into a store; what is there already is not sent again.

    Args:
        store: where they go.
        sources: the files by key.
        sha256s: what they had when they were looked at, by key; without, they are taken as they are.
        on_progress: called from time to time, and at the end.

    Returns:
        The keys of those that were not there with the same size and sha256.

    Raises:
        StoreError: a file was changed since then, or a different writer put other bytes under a key
            meanwhile.
    """
    count = Count({key: path.stat().st_size for key, path in sources.items()}, on_progress)

    def put(key: str) -> bool:
        is_new = store.put_file(key, sources[key], sha256=sha256s.get(key), on_bytes=count.bytes)
        count.file()
        return is_new

    return tuple(itertools.compress(sources, side_by_side(put, sources, jobs=_JOBS)))


@contextlib.contextmanager
def as_files(store: Store, keys: Collection[str]) -> Iterator[dict[str, Path]]:
    """Make objects of a store available as local files, by key, until the block ends; see `Store.as_file`.

    Raises:
        StoreError: the store lacks some, and nothing was fetched; or one has other bytes than were put there.
    """
    infos = zip(keys, side_by_side(store.stat, keys, jobs=_JOBS), strict=True)
    if lacking := sorted(key for key, info in infos if info is None):
        raise StoreError(f"{store.url} lacks {len(lacking)} object(s), such as {lacking[0]}")
    with contextlib.ExitStack() as stack:

        def fetch(key: str) -> Path:
            return stack.enter_context(store.as_file(key))

        yield dict(zip(keys, side_by_side(fetch, keys, jobs=_JOBS), strict=True))


class Count:
    """Counts what arrives in several threads, and reports it.

    Args:
        sizes: of all that is to arrive, in bytes.
        on_progress: called from time to time.
    """

    def __init__(self, sizes: Mapping[str, int], on_progress: OnProgress) -> None:
        self._sizes, self._on_progress = sizes, on_progress
        self._lock = threading.Lock()
        self._done = self._size = 0
        self._begun = time.monotonic()
        self._reported = 0.0

    def bytes(self, count: int) -> None:
        """Count bytes that have arrived."""
        with self._lock:
            self._size += count
            if time.monotonic() - self._reported > _INTERVAL:
                self._report()

    def file(self) -> None:
        """Count a file that has arrived."""
        with self._lock:
            self._done += 1
            self._report()

    def _report(self) -> None:
        self._reported = time.monotonic()
        self._on_progress(
            Progress(
                done=self._done,
                files=len(self._sizes),
                size=self._size,
                of_size=sum(self._sizes.values()),
                seconds=self._reported - self._begun,
            )
        )
