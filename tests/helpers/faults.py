"""Faults at one request of many, in front of any store: shown as a store shows them in the end.

On the line to a server of buckets there is `faulty_server`, which tries what our client does about them.
"""

from __future__ import annotations

import enum
import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, TypeVar

from cairn.errors import NetworkError
from cairn.store.protocol import ListedObject, ObjectInfo, OnBytes, Store, StoredObject, Stray, no_progress

T = TypeVar("T")
EVERY_MOMENT = bool(os.environ.get("CAIRN_TEST_ALL"))  # else a sample of those at which a request may break


class Fault(enum.Enum):
    """What may happen to a request."""

    LOST = "it is done, and its reply is lost"
    LOST_AND_REPEATED = "it is done, its reply is lost, and the next try learns that someone was first"
    REFUSED = "412: it is not done, since someone was first"
    CONFLICT = "409: it is not done, since someone does the same"
    FAILED = "500: it is not done"
    BUSY = "503: it is not done"
    TIMEOUT = "it is not done, and nobody says so"
    TRUNCATED = "half of what is read arrives"


@dataclass
class Plan:
    """Which request breaks, and how.

    Attributes:
        fault: how; None for a run that only counts.
        at: which one, from 1.
        times: how many that follow break as well.
        requests: what was asked so far: the kind, and the key or the path.
        happened: how many requests broke.
    """

    fault: Fault | None = None
    at: int = 0
    times: int = 1
    requests: list[tuple[str, str]] = field(default_factory=list)
    happened: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, kind: str, key: str) -> Fault | None:
        """Count a request; how it breaks, if it does."""
        with self._lock:
            self.requests.append((kind, key))
            if self.fault is None or not self.at <= len(self.requests) < self.at + self.times:
                return None
            self.happened += 1
            return self.fault


def alike(kind: str, key: str) -> tuple[str, str]:
    """What a request has in common with those for other projects, digests and numbers."""
    return kind, re.sub(r"/simple/[^/]+/|/names/[^/]+|/[^/]+\.whl|[0-9a-f]{8,}|\d+", "#", key)


class FaultyStore:
    """A store of which a plan breaks one request.

    Attributes:
        inner: where the requests go.
        plan: which of them breaks.
    """

    def __init__(self, inner: Store, plan: Plan) -> None:
        self.inner = inner
        self.plan = plan

    @property
    def url(self) -> str:
        return self.inner.url

    def read(self, key: str) -> StoredObject:
        return self._asked("read", key, lambda: self.inner.read(key))

    def clock_ahead(self) -> timedelta | None:
        return self.inner.clock_ahead()

    def stat(self, key: str) -> ObjectInfo | None:
        return self._asked("stat", key, lambda: self.inner.stat(key))

    def exists(self, key: str) -> bool:
        return self._asked("exists", key, lambda: self.inner.exists(key))

    def open(self, key: str, *, start: int = 0, count: int | None = None) -> BinaryIO:
        fault = self.plan.next("open", key)
        _before(fault)
        stream = self.inner.open(key, start=start, count=count)
        if fault is Fault.TRUNCATED:
            with stream:
                data = stream.read()
            return io.BufferedReader(_Truncated(data[: len(data) // 2]), 1)
        return stream

    def list(self, prefix: str) -> Iterator[ListedObject]:
        yield from self._asked("list", prefix, lambda: list(self.inner.list(prefix)))

    def folders(self, prefix: str) -> Iterator[str]:
        yield from self._asked("folders", prefix, lambda: list(self.inner.folders(prefix)))

    def write(self, key: str, data: bytes) -> None:
        self._asked("write", key, lambda: self.inner.write(key, data))

    def write_if(self, key: str, data: bytes, *, etag: str | None) -> bool:
        fault = self.plan.next("write_if", key)
        if fault is Fault.REFUSED:
            return False
        _before(fault)
        written = self.inner.write_if(key, data, etag=etag)
        _after(fault)
        return written and fault is not Fault.LOST_AND_REPEATED

    def put_file(
        self, key: str, source: Path, *, sha256: str | None = None, on_bytes: OnBytes = no_progress
    ) -> bool:
        return self._asked(
            "put_file", key, lambda: self.inner.put_file(key, source, sha256=sha256, on_bytes=on_bytes)
        )

    def as_file(self, key: str, *, on_bytes: OnBytes = no_progress) -> AbstractContextManager[Path]:
        fault = self.plan.next("as_file", key)
        _before(Fault.FAILED if fault in (Fault.LOST, Fault.TRUNCATED) else fault)
        return self.inner.as_file(key, on_bytes=on_bytes)

    def delete(self, key: str) -> None:
        self._asked("delete", key, lambda: self.inner.delete(key))

    def renew(self, key: str) -> None:
        self._asked("renew", key, lambda: self.inner.renew(key))

    def strays(self) -> Iterator[Stray]:
        yield from self._asked("strays", "", lambda: list(self.inner.strays()))

    def discard(self, stray: Stray) -> None:
        self._asked("discard", stray.name, lambda: self.inner.discard(stray))

    def _asked(self, kind: str, key: str, work: Callable[[], T]) -> T:
        fault = self.plan.next(kind, key)
        _before(fault)
        done = work()
        _after(fault, reads=kind in ("read", "list", "folders", "strays"))
        return done


def _before(fault: Fault | None) -> None:
    """Fail where the request does not arrive, or is not done."""
    if fault in (Fault.CONFLICT, Fault.FAILED, Fault.BUSY, Fault.TIMEOUT):
        raise NetworkError(f"injected: {fault.value}")


def _after(fault: Fault | None, *, reads: bool = False) -> None:
    """Fail where the request is done, and its reply does not arrive."""
    if fault is Fault.LOST or (fault is Fault.TRUNCATED and reads):
        raise NetworkError(f"injected: {fault.value}")


class _Truncated(io.RawIOBase):
    """What arrives before the line breaks."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._data.read(len(buffer))
        if not data:
            raise NetworkError(f"injected: {Fault.TRUNCATED.value}")
        buffer[: len(data)] = data
        return len(data)
