"""The pipes of a running program: what it writes is read as it comes, what it is given is fed to it."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO, Self

from cairn.process.children import Child, end

LINGER = 5.0
"""Seconds of silence after a program's end until a pipe that a child of its own still holds is given up."""

_AFTER_KILL = 0.5  # seconds that the output of a killed program may take to arrive
_LOOK = 0.2  # seconds between two looks at whether the program still runs
_BLOCK = 1 << 16  # what a pipe holds on Linux (pipe(7))
_WAITING = 256  # blocks that may wait for a slow callback before the program has to wait

Listener = Callable[[bytes], None]
"""What is called with each line, with its end."""


class Dialogue:
    """What a running program writes and is given: all its pipes at once, none for longer than it may take.

    A pipe ends when the last process that holds it closes it, and that need not be the program: a daemon
    that it started, or a server of a compiler cache, inherits the pipe and lives on. So reading ends by the
    clock too:

        running ── deadline ─────────> late: the group is killed, and read for `_AFTER_KILL` seconds more
        running ── ended, silent ────> lingering: given up after `LINGER` seconds of silence
        lingering ── output ─────────> running: what a program leaves may be more than one block

    Threads do the reading, since `select` knows no pipes on Windows. They are daemons: one that waits for a
    pipe which is held elsewhere cannot be hurried, and must not keep Cairn from ending.
    """

    def __init__(
        self,
        child: Child,
        *,
        stdin: bytes,
        listener: Listener | None,
        most: int | None,
        deadline: float | None,
    ) -> None:
        self.late = False
        self._child = child
        self._deadline = deadline
        self._give_up: float | None = None  # when to stop reading although a pipe is still open
        self._left = False
        self._blocks: queue.Queue[tuple[IO[bytes], bytes]] = queue.Queue(_WAITING)
        self._streams = {
            pipe: _Stream(listener, most) for pipe in (child.stdout, child.stderr) if pipe is not None
        }
        self._open = list(self._streams)
        for pipe in self._open:
            threading.Thread(target=self._read, args=(pipe,), daemon=True).start()
        if child.stdin is not None:
            threading.Thread(target=_feed, args=(child.stdin, stdin), daemon=True).start()

    def hold(self) -> tuple[str, str]:
        """Standard output and standard error, once the program and its pipes have ended or time is over."""
        while self._open and not self._is_over():
            moment = self._give_up if self.late or self._deadline is None else self._deadline
            wait = _LOOK if moment is None else min(_LOOK, max(0.0, moment - time.monotonic()))
            try:
                pipe, data = self._blocks.get(timeout=wait)
            except queue.Empty:
                if self._give_up is None and self._child.poll() is not None:
                    self._give_up = time.monotonic() + LINGER
                continue
            if not self.late:
                self._give_up = None
            if not data:
                self._open.remove(pipe)
            self._streams[pipe].add(data)
        if self._open:
            end([self._child])  # the rest of its group; a process that left the group goes on
        elif not self.late:
            self._await_end()
        whole = {pipe: b"".join(stream.kept) for pipe, stream in self._streams.items()}
        out, err = (b"" if p is None else whole[p] for p in (self._child.stdout, self._child.stderr))
        return text_of(out), text_of(err)

    def __enter__(self) -> Self:
        """Give the dialogue, which has begun."""
        return self

    def __exit__(self, *_ended: object) -> None:
        """Read no more; each pipe is closed by its thread, as soon as that is free."""
        self._left = True

    def _is_over(self) -> bool:
        if not self.late and self._deadline is not None and time.monotonic() >= self._deadline:
            self._run_out()
        return self._give_up is not None and time.monotonic() >= self._give_up

    def _await_end(self) -> None:
        """Wait for the end of a program that has closed its pipes; it may go on for long."""
        try:
            remaining = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            self._child.wait(remaining)
        except subprocess.TimeoutExpired:
            self._run_out()

    def _run_out(self) -> None:
        self.late = True
        end([self._child])
        self._give_up = time.monotonic() + _AFTER_KILL

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            while not self._left:
                # Popen makes the pipes without a buffer (bufsize=0), so this gives what there is, and b""
                # at the end.
                data = pipe.read(_BLOCK)
                while not self._left:
                    with contextlib.suppress(queue.Full):
                        self._blocks.put((pipe, data), timeout=_LOOK)
                        break
                if not data:
                    return


class _Stream:
    """The blocks of one pipe, kept, and put together to lines for a listener, in time linear in their length.

    `kept` is everything so far, or, where `most` bytes are the limit, the end of it.
    """

    def __init__(self, listener: Listener | None, most: int | None) -> None:
        self.kept: deque[bytes] = deque()
        self._listener = listener
        self._most = most
        self._size = 0  # bytes in `kept`
        self._begun: list[bytes] = []  # pieces of a line whose end has not come yet

    def add(self, data: bytes) -> None:
        """Take the next block; an empty one ends the last line."""
        self.kept.append(data)
        self._size += len(data)
        # Whole blocks are dropped, as long as what remains is more than the limit.
        while self._most is not None and self._size - len(self.kept[0]) > self._most:
            self._size -= len(self.kept.popleft())
        if self._listener is None:
            return
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._listener(b"".join((*self._begun, line, b"\n")))
            self._begun.clear()
        if rest:
            self._begun.append(rest)
        elif not data and self._begun:
            self._listener(b"".join(self._begun))
            self._begun.clear()


def _feed(pipe: IO[bytes], data: bytes) -> None:
    # A program need not read what it is given; it may also have ended (EPIPE).
    with contextlib.suppress(OSError), pipe:
        view = memoryview(data)
        while view:
            view = view[pipe.write(view) :]


def text_of(data: bytes) -> str:
    """Output as text; what is not UTF-8 is replaced."""
    return data.decode("utf-8", "replace")
