"""Run one program: to its end, as a server while a block runs, or interactively."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

import msgspec

from cairn import isolation, platforms
from cairn.errors import ProcessError
from cairn.output import safe_text
from cairn.process.children import Child, cannot_start, end, name_of, running

LINGER = 5.0
"""Seconds of silence after a program's end until a pipe that a child of its own still holds is given up."""

_AFTER_KILL = 0.5  # seconds that the output of a killed program may take to arrive
_LOOK = 0.2  # seconds between two looks at whether the program still runs
_BLOCK = 1 << 16  # what a pipe holds on Linux (pipe(7))
_WAITING = 256  # blocks that may wait for a slow callback before the program has to wait

_TAIL_LINES = 40
_WIDEST = 10_000  # characters of a line among them
_KEPT = 4 << 20  # bytes of an output that are kept where a log has all of it: builds write gigabytes
_KEPT_OF_FOREIGN = 64 << 20  # the same where no log has it, of code that may write for ever
_MOST_READ = 1 << 20  # bytes of what a program is given that are searched for paths
_LONGEST = 1 << 20  # bytes of a line that are kept together

_REFUSED = re.compile(r"permission denied|PermissionError|Errno 13\b|EACCES", re.IGNORECASE)

Listener = Callable[[bytes], None]
"""Called with each line, its end included; a very long one comes in pieces."""


class Dialogue:
    """Reads and feeds all pipes of a running program at once, none for longer than it may take.

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
        self._begun = bytearray()  # of a line whose end has not come yet

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
            self._listener(bytes(self._begun) + line + b"\n")
            self._begun.clear()
        self._begun += rest
        if self._begun and (not data or len(self._begun) > _LONGEST):
            # Cut behind white space where there is some: `mask` must see the whole of a URL.
            blank = max(map(self._begun.rfind, (b" ", b"\t", b"\r"))) + 1
            piece = self._begun[: blank if data and blank else None]
            del self._begun[: len(piece)]
            self._listener(bytes(piece))


def _feed(pipe: IO[bytes], data: bytes) -> None:
    # A program need not read what it is given; it may also have ended (EPIPE).
    with contextlib.suppress(OSError), pipe:
        view = memoryview(data)
        while view:
            view = view[pipe.write(view) :]


def text_of(data: bytes) -> str:
    """Output as text; what is not UTF-8 is replaced."""
    return data.decode("utf-8", "replace")


class Completed(msgspec.Struct, frozen=True, kw_only=True):
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
    confined: bool = True,
    reads: Iterable[str | Path] = (),
    writes: Iterable[Path] = (),
    reach: platforms.Reach | None = None,
    network: bool = False,
) -> Completed:
    """Run a program to its end, in a process group of its own.

    Args:
        args: the program and its arguments.
        cwd: its working folder.
        env: its whole environment; None is ours.
        log: a file that receives the command line and each line; the answer then has its last megabytes.
        on_line: called with each line of output as it comes, by the thread that calls `run`.
        timeout: seconds after which the whole group is killed.
        check: raise when it fails.
        separate_stderr: keep standard error out of `output`; `log` and `on_line` have both.
        stdin: what it reads, nothing by default.
        confined: keep it from our variables and memory, and from all files but those of `isolation.reach`;
            its temporary files are removed. False only for what tests/unit/project/test_programs.py lists.
        reads: files, folders and interpreters that it reads besides.
        writes: folders that it writes to besides.
        reach: of git and of Cairn itself, whose output is kept whole: the files that they reach.
        network: let it have the network, as test_programs.py lists; others have a loopback (`entrance`).

    Raises:
        PrerequisiteError: there is no such program.
        ProcessError: it failed (with `check`), ran out of time, or may not start: its `Group` has ended.
    """
    command, started = tuple(os.fspath(a) for a in args), time.monotonic()
    data, deadline = stdin or b"", None if timeout is None else started + timeout
    most = _KEPT if log is not None else _KEPT_OF_FOREIGN if confined and reach is None else None
    with contextlib.ExitStack() as stack, _listening(log, command, on_line) as listener:
        if confined and reach is None:
            env = stack.enter_context(_temporary_files(os.environ if env is None else env))
            words = (*command, *map(str, reads), text_of(data[:_MOST_READ]))
            reach = isolation.reach(words, cwd=cwd, env=env, writes=writes)
        pipes = {"feeds": bool(data), "separate_stderr": separate_stderr}
        child = stack.enter_context(running(command, cwd=cwd, env=env, reach=reach, network=network, **pipes))
        talk = Dialogue(child, stdin=data, listener=listener, most=most, deadline=deadline)
        output, stderr = stack.enter_context(talk).hold()
        if child.returncode and reach is not None:
            output, stderr = _explained(output, stderr, reach, listener)
    code, seconds = child.returncode, time.monotonic() - started
    completed = Completed(args=command, returncode=code, output=output, stderr=stderr, seconds=seconds)
    if talk.late or (check and code):
        late = f"did not end within {timeout or 0:g} seconds"
        raise _failure(completed, late if talk.late else f"failed with exit code {code}")
    return completed


def _refusal(output: str, reached: platforms.Reach) -> str:
    """Return a line with the first file that a program was refused because it is confined; else empty."""
    reads, writes, hidden = ([place.resolve() for place in places] for places in reached)
    if not platforms.here.confinement() or Path(os.sep) in writes:
        return ""
    for line in filter(_REFUSED.search, output.splitlines()):
        paths = re.findall(r"(?<=')/[^']+(?=')|(?<=\")/[^\"]+(?=\")", line) or isolation.PLACE.findall(line)
        for path in map(Path.resolve, filter(Path.exists, map(Path, paths))):
            folder = path if path.is_dir() else path.parent
            beside = next((key for key in hidden if key.is_relative_to(folder)), None)
            if beside is not None:
                return (
                    f"cairn: this program runs confined, and {beside} lies in {folder}: move it elsewhere\n"
                )
            if not any(path.is_relative_to(place) for place in writes):
                may = "write to" if any(path.is_relative_to(place) for place in reads) else "read"
                return (
                    f"cairn: this program runs confined and may not {may} {path}; to let it: export"
                    f" {isolation.VARIABLE}={folder} (docs/explanation/isolation.md)\n"
                )
    return ""


def _explained(
    output: str, stderr: str, reach: platforms.Reach, listener: Listener | None
) -> tuple[str, str]:
    refusal = _refusal(output + stderr, reach)
    if refusal and listener is not None:
        listener(refusal.encode())
    return (output, stderr + refusal) if stderr else (output + refusal, "")


@contextlib.contextmanager
def background(
    args: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    log: Path,
    reach: platforms.Reach,
) -> Iterator[Callable[[], bool]]:
    """Run a server while the block runs, and end its group after it; yields whether it has ended.

    Args:
        args: the program, which must not go into the background by itself, and its arguments.
        env: its whole environment; None is ours.
        log: receives what it writes.
        reach: the files that it, and what it starts, reaches.

    Raises:
        PrerequisiteError: there is no such program.
    """
    command = tuple(os.fspath(a) for a in args)
    with (
        _listening(log, command) as listener,
        running(command, cwd=None, env=env, feeds=False, separate_stderr=False, reach=reach) as child,
    ):

        def read() -> None:
            stream = _Stream(listener, 0)
            with child.stdout or contextlib.nullcontext():
                while child.stdout is not None and (data := child.stdout.read(_BLOCK)):
                    stream.add(data)
            stream.add(b"")

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield lambda: child.poll() is not None
        finally:
            end([child])
            reader.join(LINGER)  # what it has left behind may hold the pipe


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
    except OSError as error:
        raise cannot_start(command, error) from error


@contextlib.contextmanager
def _temporary_files(env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    if env.get("TMPDIR") not in (None, os.environ.get("TMPDIR")):
        yield env  # the caller has given it a folder
        return
    with isolation.temporary_files() as variables:
        yield {**env, **variables}


def tail(text: str, lines: int = _TAIL_LINES) -> tuple[str, ...]:
    """The last lines of an output that are not blank, of a very long one its end."""
    return tuple(deque((line[-_WIDEST:] for line in text.splitlines() if line.strip()), maxlen=lines))


@contextlib.contextmanager
def _listening(
    log: Path | None, command: tuple[str, ...], on_line: Callable[[str], None] | None = None
) -> Iterator[Listener | None]:
    """Yield what takes each line of a program's output: writes it into a log, and hands it to a callback."""
    if log is None and on_line is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        file = None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(log.open("a", encoding="utf-8", errors="backslashreplace"))
            file.write(f"$ {safe_text.mask(shlex.join(command))}\n")

        def listen(raw: bytes) -> None:
            line = safe_text.mask(text_of(raw))
            if file is not None:
                file.write(line)
                file.flush()  # a user may be watching it
            if on_line is not None and line.strip():
                on_line(line.rstrip())

        yield listen


def _failure(completed: Completed, message: str) -> ProcessError:
    output = safe_text.mask("\n".join(tail(completed.stderr or completed.output)))
    message = f"{name_of(completed.args)} {message}"
    return ProcessError(message, returncode=completed.returncode, output=output)
