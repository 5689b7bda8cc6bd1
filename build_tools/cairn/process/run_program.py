"""Running one program: to its end, as a server while a block runs, or for a user who types to it."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import ProcessError
from cairn.output import safe_text
from cairn.process.children import cannot_start, end, name_of, running
from cairn.process.dialogue import LINGER, Dialogue, Listener, text_of

_TAIL_LINES = 40
_KEPT = 4 << 20  # bytes of an output that are kept where a log has all of it: builds write gigabytes


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
    hidden: Sequence[Path] | None = None,
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
        hidden: for foreign code: what it cannot read (`cairn.isolation.credential_files`), besides the
            variables and the memory of us and of who called us, as far as the system can keep that from it.

    A process that outlives it is waited for `LINGER` seconds of silence; then one of its group that still
    holds its output is killed, one that left the group (a daemon) is left alone.

    Raises:
        PrerequisiteError: there is no such program.
        ProcessError: it failed (with `check`), ran out of time, or may not start: its `Group` has ended.
    """
    command = tuple(os.fspath(a) for a in args)
    started = time.monotonic()
    deadline = None if timeout is None else started + timeout
    most = None if log is None else _KEPT
    with (
        _listening(log, command, on_line) as listener,
        running(
            command, cwd=cwd, env=env, feeds=bool(stdin), separate_stderr=separate_stderr, hidden=hidden
        ) as child,
        Dialogue(child, stdin=stdin or b"", listener=listener, most=most, deadline=deadline) as dialogue,
    ):
        output, stderr = dialogue.hold()
    seconds = time.monotonic() - started
    completed = Completed(
        args=command, returncode=child.returncode, output=output, stderr=stderr, seconds=seconds
    )
    if dialogue.late:
        raise _failure(completed, f"{name_of(command)} did not end within {timeout:g} seconds")
    if check and completed.returncode:
        raise _failure(completed, f"{name_of(command)} failed with exit code {completed.returncode}")
    return completed


@contextlib.contextmanager
def background(
    args: Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    log: Path,
    hidden: Sequence[Path] | None = None,
) -> Iterator[Callable[[], bool]]:
    """Run a server while the block runs, and end its group after it; yields whether it has ended.

    Args:
        args: the program, which must not go into the background by itself, and its arguments.
        env: its whole environment; None is ours.
        log: receives what it writes.
        hidden: for a server that runs foreign code, as in `run`.

    Raises:
        PrerequisiteError: there is no such program.
    """
    command = tuple(os.fspath(a) for a in args)
    with (
        _listening(log, command) as listener,
        running(command, cwd=None, env=env, feeds=False, separate_stderr=False, hidden=hidden) as child,
    ):

        def read() -> None:
            with child.stdout or contextlib.nullcontext():
                while listener is not None and child.stdout is not None and (line := child.stdout.readline()):
                    listener(line)

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


def tail(text: str, lines: int = _TAIL_LINES) -> tuple[str, ...]:
    """The last lines of an output that are not blank."""
    return tuple(deque((line for line in text.splitlines() if line.strip()), maxlen=lines))


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
    return ProcessError(message, returncode=completed.returncode, output=output)
