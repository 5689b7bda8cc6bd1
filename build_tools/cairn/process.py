"""Running programs: echo, capture, time out, kill the whole group."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn import pipes
from cairn.errors import PrerequisiteError, ProcessError
from cairn.output import redact

_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_TAIL_LINES = 40
_KEPT = 4 << 20  # bytes of an output that are kept where a log has all of it: builds write gigabytes

_live: set[subprocess.Popen[bytes]] = set()
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

    A process that it started and that outlives it is waited for `pipes.LINGER` seconds of silence: one of its
    group that still holds its output then is killed, one that left the group (a daemon) is left alone.

    Raises:
        PrerequisiteError: there is no such program.
        ProcessError: it failed (with `check`), ran out of time, or may not start: its `Group` has ended.
    """
    command = tuple(os.fspath(a) for a in args)
    started = time.monotonic()
    with (
        _opened_log(log, command) as write,
        _spawned(command, cwd=cwd, env=env, feeds=bool(stdin), separate_stderr=separate_stderr) as child,
    ):
        most = None if log is None else _KEPT
        output, stderr, late = _collect(
            child, _listener(write, on_line), most=most, timeout=timeout, stdin=stdin
        )
    done = Completed(
        args=command,
        returncode=child.returncode,
        output=output,
        stderr=stderr,
        seconds=time.monotonic() - started,
    )
    if late:
        raise _failure(done, f"{_name(command)} did not end within {timeout:g} seconds")
    if check and done.returncode:
        raise _failure(done, f"{_name(command)} failed with exit code {done.returncode}")
    return done


def terminate_all() -> None:
    """End every program that is running, with all its children; for an interrupt."""
    with _live_lock:
        children = list(_live)
    _kill_groups(children)


class Group:
    """Threads whose programs end together: after `end`, none of them can start another."""

    def __init__(self) -> None:
        self.ended = False

    def join(self) -> None:
        """Make the calling thread one of the group; fit to be the initializer of a thread pool."""
        _of_thread.group = self

    def end(self) -> None:
        """End every program that is running, and let the threads of the group start no other."""
        with _live_lock:
            self.ended = True
        terminate_all()


def tail(text: str, lines: int = _TAIL_LINES) -> tuple[str, ...]:
    """The last lines of an output that are not blank."""
    return tuple(deque((line for line in text.splitlines() if line.strip()), maxlen=lines))


@contextlib.contextmanager
def _spawned(
    command: tuple[str, ...],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    feeds: bool,
    separate_stderr: bool,
) -> Iterator[subprocess.Popen[bytes]]:
    try:
        child = _start(command, cwd=cwd, env=env, feeds=feeds, separate_stderr=separate_stderr)
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
        yield child
    except BaseException:
        _kill_groups([child])
        raise
    finally:
        child.wait()
        with _live_lock:
            _live.discard(child)


def _start(
    command: tuple[str, ...],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    feeds: bool,
    separate_stderr: bool,
) -> subprocess.Popen[bytes]:
    group: Group | None = getattr(_of_thread, "group", None)
    with _live_lock:  # held while it starts, so that no program slips past the end of its group
        if group is not None and group.ended:
            message = f"{_name(command)} was not started: what it is part of has ended"
            raise ProcessError(message, returncode=-signal.SIGTERM)
        child = subprocess.Popen(
            command,
            cwd=cwd,
            env=None if env is None else dict(env),
            bufsize=0,
            stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if separate_stderr else subprocess.STDOUT,
            start_new_session=True,
        )
        _live.add(child)
    return child


def _collect(
    child: subprocess.Popen[bytes],
    listener: pipes.Reader | None,
    *,
    most: int | None,
    timeout: float | None,
    stdin: bytes | None,
) -> tuple[str, str, bool]:
    """Standard output, standard error, and whether the program took too long."""
    late = False

    def end() -> None:
        nonlocal late
        late = True
        _kill_groups([child])

    deadline = None if timeout is None else time.monotonic() + timeout
    lines = {
        pipe: pipes.Lines(on_line=listener, most=most)
        for pipe in (child.stdout, child.stderr)
        if pipe is not None
    }
    ends = pipes.Pipes(child, stdin)
    try:
        for block in ends.blocks(deadline, end):
            lines[block.pipe].add(block.data)
        if ends.held:
            _kill_groups([child])
    finally:
        ends.leave()
    out, err = (b"".join(lines[p].kept) if p is not None else b"" for p in (child.stdout, child.stderr))
    return _text(out), _text(err), late


def _listener(
    write: Callable[[str], None] | None, on_line: Callable[[str], None] | None
) -> pipes.Reader | None:
    if write is None and on_line is None:
        return None

    def listen(raw: bytes) -> None:
        line = redact.mask(_text(raw))
        if write is not None:
            write(line)
        if on_line is not None and line.strip():
            on_line(line.rstrip())

    return listen


@contextlib.contextmanager
def _opened_log(log: Path | None, command: tuple[str, ...]) -> Iterator[Callable[[str], None] | None]:
    if log is None:
        yield None
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"$ {redact.mask(shlex.join(command))}\n")

        def write(line: str) -> None:
            file.write(line)
            file.flush()

        yield write


def _kill_groups(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    try:
        while any(child.poll() is None for child in children) and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:  # also when a person who will not wait presses Ctrl-C again
        for child in children:
            _signal_group(child, getattr(signal, "SIGKILL", signal.SIGTERM))


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if not hasattr(os, "killpg"):
        child.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def _failure(done: Completed, message: str) -> ProcessError:
    output = redact.mask("\n".join(tail(done.stderr or done.output)))
    return ProcessError(message, returncode=done.returncode, output=output)


def _name(command: tuple[str, ...]) -> str:
    shown = redact.mask(shlex.join((Path(command[0]).name, *command[1:])))
    return shown if len(shown) <= 200 else shown[:197] + "..."  # noqa: PLR2004 - one readable line


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
