"""When each stage of a run began and ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.output import console


@dataclass(frozen=True, kw_only=True)
class StageSpan:
    """A stage that has ended; times in seconds since the epoch.

    Attributes:
        name: what the report and the console call it.
        start: when it began.
        end: when it ended.
        mark: how it ended.
        detail: why, where it was not plainly done.
    """

    name: str
    start: float
    end: float
    mark: console.Mark = "done"
    detail: str = ""


class Timeline:
    """Shows stages on the console and remembers them."""

    def __init__(self) -> None:
        self.spans: list[StageSpan] = []

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[console.Stage]:
        """A stage that is shown while it runs."""
        start = time.time()
        with console.current().stage(name) as stage:
            yield stage
        self.add(name, start, time.time(), mark=stage.mark, detail=stage.note)

    def kept(self, name: str, note: str) -> None:
        """Add a stage that need not run, since its earlier result still holds."""
        console.current().kept(name, note)
        self.add(name, time.time(), time.time(), mark="kept", detail=note)

    def add(
        self, name: str, start: float, end: float, *, mark: console.Mark = "done", detail: str = ""
    ) -> None:
        """Remember a stage that was shown elsewhere."""
        self.spans.append(StageSpan(name=name, start=start, end=end, mark=mark, detail=detail))
