"""When each stage of a run began and ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cairn import console


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stage that has ended; times in seconds since the epoch."""

    name: str
    start: float
    end: float
    detail: str = ""


class Timeline:
    """Shows stages on the console and remembers them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[console.Stage]:
        """A stage that is shown while it runs."""
        start = time.time()
        with console.current().stage(name) as stage:
            yield stage
        self.add(name, start, time.time())

    def add(self, name: str, start: float, end: float, detail: str = "") -> None:
        """Remember a stage that somebody else showed."""
        self.spans.append(Span(name=name, start=start, end=end, detail=detail))
