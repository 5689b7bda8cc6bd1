"""What a running program reads and writes: all its pipes at once, and none for longer than it may take."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO

LINGER = 5.0
"""Seconds of silence after a program's end until a pipe that a child of its own still holds is given up."""

_AFTER_KILL = 0.5  # seconds that the output of a killed program may take to arrive
_LOOK = 0.2  # seconds between two looks at whether the program still runs
_BLOCK = 1 << 16
_WAITING = 256  # blocks that may wait for a slow reader before the program has to

Reader = Callable[[bytes], None]


@dataclass(frozen=True, kw_only=True)
class Block:
    """What came out of one pipe; `data` is empty at its end."""

    pipe: IO[bytes]
    data: bytes


@dataclass(kw_only=True)
class Lines:
    """Blocks of one pipe put together to lines, in time linear in their length.

    Attributes:
        on_line: called with each line, its end included.
        most: bytes of `kept` at most, besides the last block; None for no limit.
        kept: everything so far, or the end of it.
    """

    on_line: Reader | None
    most: int | None = None
    kept: deque[bytes] = field(default_factory=deque)
    _held: int = 0
    _begun: list[bytes] = field(default_factory=list)

    def add(self, data: bytes) -> None:
        """Take the next block; an empty one ends the last line."""
        self.kept.append(data)
        self._held += len(data)
        while self.most is not None and self._held - len(self.kept[0]) > self.most:
            self._held -= len(self.kept.popleft())
        if self.on_line is None:
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            self.on_line(b"".join((*self._begun, line, b"\n")))
            self._begun.clear()
        if rest:
            self._begun.append(rest)
        elif not data and self._begun:
            self.on_line(b"".join(self._begun))
            self._begun.clear()


@dataclass(kw_only=True)
class _Clock:
    """How long to wait for what a program writes.

    Attributes:
        child: the program.
        deadline: when its time is over, or None.
        on_late: ends the program; called once.
        late: whether that was necessary.
        give_up: when to stop reading although a pipe is still open, or None.
    """

    child: subprocess.Popen[bytes]
    deadline: float | None
    on_late: Callable[[], None]
    late: bool = False
    give_up: float | None = None

    @property
    def moment(self) -> float | None:
        """When the next thing has to happen."""
        return self.give_up if self.late or self.deadline is None else self.deadline

    def left(self, most: float) -> float:
        """Seconds until then, at most `most`."""
        return most if self.moment is None else min(most, max(0.0, self.moment - time.monotonic()))

    def over(self) -> bool:
        """Whether to stop reading; ends the program when its time is over."""
        if not self.late and self.deadline is not None and time.monotonic() >= self.deadline:
            self._end()
        return self.give_up is not None and time.monotonic() >= self.give_up

    def heard(self) -> None:
        """Take note of output: a program that has ended may have left more of it than one block."""
        if not self.late:
            self.give_up = None

    def silent(self) -> None:
        """Take note of silence: when the program itself has ended, somebody else holds the pipe."""
        if self.give_up is None and self.child.poll() is not None:
            self.give_up = time.monotonic() + LINGER

    def wait(self) -> None:
        """Wait for the end of a program that has closed its pipes."""
        if self.late:
            return
        try:
            self.child.wait(None if self.deadline is None else max(0.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._end()

    def _end(self) -> None:
        self.late = True
        self.on_late()
        self.give_up = time.monotonic() + _AFTER_KILL


class Pipes:
    """Threads that read and feed a program; daemons, since a pipe that is held elsewhere cannot be hurried.

    Threads rather than `select`, which knows no pipes on Windows.
    """

    def __init__(self, child: subprocess.Popen[bytes], stdin: bytes | None) -> None:
        self._child = child
        self._blocks: queue.Queue[Block] = queue.Queue(_WAITING)
        self._left = False
        self._open = [pipe for pipe in (child.stdout, child.stderr) if pipe is not None]
        for pipe in self._open:
            self._start(self._read, pipe)
        if child.stdin is not None:
            self._start(self._feed, child.stdin, stdin or b"")

    def blocks(self, deadline: float | None, on_late: Callable[[], None]) -> Iterator[Block]:
        """What the program writes, in the order it comes, until all its pipes and itself have ended.

        Args:
            deadline: by `time.monotonic`; None for none.
            on_late: called once when that is over; it must end the program.
        """
        clock = _Clock(child=self._child, deadline=deadline, on_late=on_late)
        while self._open and not clock.over():
            try:
                block = self._blocks.get(timeout=clock.left(_LOOK))
            except queue.Empty:
                clock.silent()
                continue
            clock.heard()
            if not block.data:
                self._open.remove(block.pipe)
            yield block
        if not self._open:
            clock.wait()

    @property
    def held(self) -> bool:
        """Whether somebody else kept a pipe open when `blocks` ended."""
        return bool(self._open)

    def leave(self) -> None:
        """Read no more; each pipe is closed by its thread, as soon as that is free."""
        self._left = True

    @staticmethod
    def _start(target: Callable[..., None], *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            while not self._left:
                # Popen makes the pipes without a buffer, so this gives what there is.
                data = pipe.read(_BLOCK)
                self._put(Block(pipe=pipe, data=data))
                if not data:
                    return

    def _put(self, block: Block) -> None:
        while not self._left:
            with contextlib.suppress(queue.Full):
                self._blocks.put(block, timeout=_LOOK)
                return

    @staticmethod
    def _feed(pipe: IO[bytes], data: bytes) -> None:
        # A program need not read what it is given; it may also have ended.
        with contextlib.suppress(OSError), pipe:
            view = memoryview(data)
            while view:
                view = view[pipe.write(view) :]
