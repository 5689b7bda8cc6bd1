"""Running programs: what they write is captured, logged and shown; what ends them ends their children too.

`run` takes a command and gives a `Completed`, or raises. Each program leads a process group of its own,
because four things may end it, and none may leave a compiler behind that goes on writing:

- its time is over (`timeout`): its group is killed, and what it has written so far goes into the error;
- we are interrupted, or a callback raises: the exception ends the group on its way through `run`;
- a different thread ends everything (`terminate_all`, or the `Group` that the calling thread belongs to);
- it ends by itself, but a child of its own holds its output open: see `_Dialogue`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cairn import platforms
from cairn.errors import PrerequisiteError, ProcessError
from cairn.output import safe_text

LINGER = 5.0
"""Seconds of silence after a program's end until a pipe that a child of its own still holds is given up."""

_GRACE = 3.0  # seconds between asking a program to end and killing it
_AFTER_KILL = 0.5  # seconds that the output of a killed program may take to arrive
_LOOK = 0.2  # seconds between two looks at whether the program still runs
_TAIL_LINES = 40
_KEPT = 4 << 20  # bytes of an output that are kept where a log has all of it: builds write gigabytes
_BLOCK = 1 << 16  # what a pipe holds on Linux (pipe(7))
_WAITING = 256  # blocks that may wait for a slow callback before the program has to wait
_NAME_LENGTH = 200  # characters of a command in a message


class _Child(subprocess.Popen[bytes]):
    """A program that also knows, once it was waited for, what it and its children used (wait4(2))."""

    cpu = 0.0  # seconds
    largest = 0  # bytes of the largest of them

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        # What `Popen.wait` calls. Where a Python has no such method, the figures stay 0.
        pid, status, used = platforms.here.wait_for(self.pid, wait_flags)
        if pid == self.pid and used is not None:
            self.cpu, self.largest = used
        return pid, status


_Listener = Callable[[bytes], None]

_live: set[_Child] = set()
_live_lock = threading.Lock()
_of_thread = threading.local()  # `.group`: the Group of a thread that joined one


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A program that has ended.

    Attributes:
        args: what was run.
        returncode: exit status; negative for a signal.
        output: standard output and standard error in the order they came, decoded as UTF-8 (or standard
            output alone when `stderr` was kept apart).
        stderr: standard error when it was kept apart, else empty.
        seconds: wall time.
    """

    args: tuple[str, ...]
    returncode: int
    output: str
    stderr: str
    seconds: float


def run(  # noqa: PLR0913 - each is one independent property of a run
    args: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout: float | None = None,
    check: bool = True,
    separate_stderr: bool = False,
    stdin: bytes | None = None,
) -> Completed:
    """Run a program to its end, in a process group of its own.

    Args:
        args: the program and its arguments.
        cwd: its working folder.
        env: its whole environment; None is ours.
        log: a file that receives the command line and every line of output as it comes (appended); the answer
            then holds no more than the last megabytes of it.
        on_line: called with each line of output as it comes, by the thread that calls `run`.
        timeout: seconds after which the whole group is killed.
        check: raise when it fails.
        separate_stderr: keep standard error out of `output`; `log` and `on_line` have both.
        stdin: what it reads, nothing by default.

    A process that outlives it is waited for `LINGER` seconds of silence; then one of its group that still
    holds its output is killed, one that left the group (a daemon) is left alone.

    Raises:
        PrerequisiteError: there is no such program.
        ProcessError: it failed (with `check`), ran out of time, or may not start: its `Group` has ended.
    """
    command = tuple(os.fspath(a) for a in args)
    started = time.monotonic()
    with (
        _opened_log(log, command) as write,
        _running(command, cwd=cwd, env=env, feeds=bool(stdin), separate_stderr=separate_stderr) as child,
    ):

        def listen(raw: bytes) -> None:
            line = safe_text.mask(_text(raw))
            if write is not None:
                write(line)
            if on_line is not None and line.strip():
                on_line(line.rstrip())

        dialogue = _Dialogue(
            child,
            stdin=stdin or b"",
            listener=None if write is None and on_line is None else listen,
            most=None if log is None else _KEPT,
            deadline=None if timeout is None else started + timeout,
        )
        try:
            output, stderr = dialogue.hold()
        finally:
            dialogue.leave()
    done = Completed(
        args=command,
        returncode=child.returncode,
        output=output,
        stderr=stderr,
        seconds=time.monotonic() - started,
    )
    if dialogue.late:
        raise _failure(done, f"{_name(command)} did not end within {timeout:g} seconds")
    if check and done.returncode:
        raise _failure(done, f"{_name(command)} failed with exit code {done.returncode}")
    return done


@contextlib.contextmanager
def background(
    args: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str] | None = None, log: Path
) -> Iterator[Callable[[], bool]]:
    """Run a server while the block runs, and end its group after it; yields whether it has ended.

    Args:
        args: the program, which must not go into the background by itself, and its arguments.
        env: its whole environment; None is ours.
        log: receives what it writes.

    Raises:
        PrerequisiteError: there is no such program.
    """
    command = tuple(os.fspath(a) for a in args)
    with (
        _opened_log(log, command) as write,
        _running(command, cwd=None, env=env, feeds=False, separate_stderr=False) as child,
    ):

        def listen() -> None:
            with child.stdout or contextlib.nullcontext():
                while write is not None and child.stdout is not None and (line := child.stdout.readline()):
                    write(safe_text.mask(_text(line)))

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            yield lambda: child.poll() is not None
        finally:
            _end([child])
            listener.join(LINGER)  # what it has left behind may hold the pipe


def interactive(args: Sequence[str | os.PathLike[str]]) -> int:
    """Run a program that somebody types to: it has our terminal and our process group; gives its exit code.

    Raises:
        PrerequisiteError: there is no such program.
    """
    command = [os.fspath(a) for a in args]
    try:
        with subprocess.Popen(command) as child:
            while True:
                try:
                    return child.wait()
                except KeyboardInterrupt:
                    continue  # the terminal interrupts the program too, which decides what that means
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"{command[0]} is not on this machine", tip=f"install {Path(command[0]).name} and put it on PATH"
        ) from error


def terminate_all() -> None:
    """End every program that is running, with all its children; for an interrupt."""
    with _live_lock:
        children = list(_live)
    _end(children)


class Group:
    """Threads whose programs end together: after `end`, none of them can start one.

    A group that is made in a thread of a different one is part of it, and ends with it.

    Attributes:
        ended: its programs were ended.
        cpu: core-seconds that its programs have used.
        largest: bytes of memory of the largest of them and their children.
        children: those that run.
    """

    def __init__(self, on_start: Callable[[tuple[str, ...]], None] = lambda _command: None) -> None:
        """`on_start` is called with the command of each program that starts."""
        self.ended = False
        self.cpu = 0.0
        self.largest = 0
        self._whole: Group | None = getattr(_of_thread, "group", None)
        self.on_start = on_start
        self.children: set[_Child] = set()

    def join(self) -> None:
        """Make the calling thread one of the group; fit to be the initializer of a thread pool."""
        _of_thread.group = self

    def end(self) -> None:
        """End every program of the group, and let its threads start no more."""
        end_groups([self])

    def and_whole(self) -> tuple[Group, ...]:
        """The group, and those that it is part of."""
        return (self, *(self._whole.and_whole() if self._whole is not None else ()))


def end_groups(groups: Collection[Group]) -> None:
    """End every program of several groups at once, and let their threads start no more."""
    with _live_lock:
        for group in groups:
            group.ended = True
        children = [child for group in groups for child in group.children]
    _end(children)


def tail(text: str, lines: int = _TAIL_LINES) -> tuple[str, ...]:
    """The last lines of an output that are not blank."""
    return tuple(deque((line for line in text.splitlines() if line.strip()), maxlen=lines))


@contextlib.contextmanager
def _running(
    command: tuple[str, ...],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    feeds: bool,
    separate_stderr: bool,
) -> Iterator[_Child]:
    """Start a program; it has ended when the block has, however that ends."""
    group: Group | None = getattr(_of_thread, "group", None)
    try:
        # The lock is held from the look at the group to the entry in `_live`: `Group.end` takes it too, so
        # a program is either never started, or among those that it ends.
        with _live_lock:
            groups = () if group is None else group.and_whole()
            if any(each.ended for each in groups):
                message = f"{_name(command)} was not started: what it is part of has ended"
                raise ProcessError(message, returncode=-signal.SIGTERM)
            child = _Child(
                command,
                cwd=cwd,
                env=None if env is None else dict(env),
                bufsize=0,
                stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if separate_stderr else subprocess.STDOUT,
                **platforms.here.own_group(),
            )
            _live.add(child)
            platforms.here.guard(child)
            _join(child, groups)
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise PrerequisiteError(f"cannot run {command[0]}: no folder {cwd}") from error
        raise PrerequisiteError(
            f"{command[0]} is not on this machine", tip=f"install {Path(command[0]).name} and put it on PATH"
        ) from error
    except PermissionError as error:
        raise PrerequisiteError(f"{command[0]} cannot be run: {error.strerror}") from error
    except ValueError as error:  # a null character, or half of a surrogate pair
        raise ProcessError(f"{_name(command)} cannot be run: {error}", returncode=-1) from error
    try:
        for each in groups:
            each.on_start(command)
        yield child
    except BaseException:
        _end([child])
        raise
    finally:
        child.wait()
        with _live_lock:
            _live.discard(child)
            platforms.here.unguard(child)
            _leave(child, groups)


def _join(child: _Child, groups: Collection[Group]) -> None:
    for group in groups:
        group.children.add(child)


def _leave(child: _Child, groups: Collection[Group]) -> None:
    for group in groups:
        group.children.discard(child)
        group.cpu += child.cpu
        group.largest = max(group.largest, child.largest)


class _Dialogue:
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
        child: _Child,
        *,
        stdin: bytes,
        listener: _Listener | None,
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
            _end([self._child])  # the rest of its group; a process that left the group goes on
        elif not self.late:
            self._await_end()
        whole = {pipe: b"".join(stream.kept) for pipe, stream in self._streams.items()}
        out, err = (b"" if p is None else whole[p] for p in (self._child.stdout, self._child.stderr))
        return _text(out), _text(err)

    def leave(self) -> None:
        """Read no more; each pipe is closed by its thread, as soon as that is free."""
        self._left = True

    def _is_over(self) -> bool:
        if not self.late and self._deadline is not None and time.monotonic() >= self._deadline:
            self._run_out()
        return self._give_up is not None and time.monotonic() >= self._give_up

    def _await_end(self) -> None:
        """Wait for the end of a program that has closed its pipes; it may go on for long."""
        try:
            left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            self._child.wait(left)
        except subprocess.TimeoutExpired:
            self._run_out()

    def _run_out(self) -> None:
        self.late = True
        _end([self._child])
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

    def __init__(self, listener: _Listener | None, most: int | None) -> None:
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


@contextlib.contextmanager
def _opened_log(log: Path | None, command: tuple[str, ...]) -> Iterator[Callable[[str], None] | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"$ {safe_text.mask(shlex.join(command))}\n")

        def write(line: str) -> None:
            file.write(line)
            file.flush()  # a user may be watching it

        yield write


def _end(children: Sequence[_Child]) -> None:
    """Ask the groups of all these programs to end; kill what is left of them after `_GRACE` seconds."""
    for child in children:
        platforms.here.ask_to_end(child)
    deadline = time.monotonic() + _GRACE
    try:
        while any(child.poll() is None for child in children) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:  # also when a user who will not wait presses Ctrl-C again
        for child in children:
            # Its children may have outlived it: the group is killed although its leader has ended.
            platforms.here.kill(child)


def _failure(done: Completed, message: str) -> ProcessError:
    output = safe_text.mask("\n".join(tail(done.stderr or done.output)))
    return ProcessError(message, returncode=done.returncode, output=output)


def _name(command: tuple[str, ...]) -> str:
    shown = safe_text.mask(shlex.join((Path(command[0]).name, *command[1:])))
    return shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 3]}..."


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
