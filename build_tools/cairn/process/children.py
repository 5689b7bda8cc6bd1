"""Start programs, each in a process group of its own, and end groups of them."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cairn import platforms
from cairn.errors import PrerequisiteError, ProcessError
from cairn.output import safe_text

_GRACE = 3.0  # seconds between asking a program to end and killing it
_SHEBANG = 256  # bytes of a script's first line that Linux reads (execve(2))
_NAME_LENGTH = 200  # characters of a command in a message


class Child(subprocess.Popen[bytes]):
    """A program that also knows, once it was waited for, what it and its children used (wait4(2))."""

    cpu = 0.0  # seconds
    largest = 0  # bytes of the largest of them

    @classmethod
    def started(cls, command: Sequence[str], **settings: Any) -> Self:  # noqa: ANN401 - those of `Popen`
        """Start a program in a group of its own, whose output is a pipe that is known before it starts."""
        output, its_end = os.pipe()
        try:
            platforms.here.expect(its_end)
            child = cls(command, bufsize=0, stdout=its_end, **settings, **platforms.here.own_group())
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(its_end)
        child.stdout = os.fdopen(output, "rb", buffering=0)  # as `Popen` does
        return child

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        # What `Popen.wait` calls. Where a Python has no such method, the figures stay 0.
        pid, status, used = platforms.here.wait_for(self.pid, wait_flags)
        if pid == self.pid and used is not None:
            self.cpu, self.largest = used
        return pid, status


_live: set[Child] = set()
_live_lock = threading.Lock()
_of_thread = threading.local()  # `.group`: the Group of a thread that joined one


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
        self.children: set[Child] = set()

    def join(self) -> None:
        """Make the calling thread one of the group; fit to be the initializer of a thread pool."""
        _of_thread.group = self

    def end(self) -> None:
        """End every program of the group, and let its threads start no more."""
        end_groups([self])

    def and_whole(self) -> tuple[Group, ...]:
        """The group, and those that it is part of."""
        return (self, *(self._whole.and_whole() if self._whole is not None else ()))


def is_ended() -> bool:
    """Whether the programs of the calling thread's group were ended, so that it should return."""
    group: Group | None = getattr(_of_thread, "group", None)
    return group is not None and any(each.ended for each in group.and_whole())


def end_groups(groups: Collection[Group]) -> None:
    """End every program of several groups at once, and let their threads start no more."""
    with _live_lock:
        for group in groups:
            group.ended = True
        children = [child for group in groups for child in group.children]
    end(children)


def terminate_all() -> None:
    """End every program that is running, with all its children; for an interrupt."""
    with _live_lock:
        children = list(_live)
    end(children)


@contextlib.contextmanager
def running(  # noqa: PLR0913 - each is one independent property of a start
    command: tuple[str, ...],
    *,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    feeds: bool,
    separate_stderr: bool,
    reach: platforms.Reach | None = None,
    network: bool = True,
) -> Iterator[Child]:
    """Start a program; it has ended when the block has, however that ends.

    `reach` is of foreign code (`System.confined`); None for what is ours. Without `network` it gets none
    where the system can do that (`System.entrance`).
    """
    group: Group | None = getattr(_of_thread, "group", None)

    def start() -> Child:
        child = Child.started(
            (*entrance, *command),
            cwd=cwd,
            pass_fds=handles,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
            stderr=subprocess.PIPE if separate_stderr else subprocess.STDOUT,
        )
        _live.add(child)
        return child

    try:
        entrance, handles = ((), ()) if network or reach is None else _entrance(command[0], cwd, env)
        # The lock is held from the look at the group to the entry in `_live`: `Group.end` takes it too, so
        # a program is either never started, or among those that it ends.
        with _live_lock:
            groups = () if group is None else group.and_whole()
            if any(each.ended for each in groups):
                message = f"{name_of(command)} was not started: the work that it is a part of has ended"
                raise ProcessError(message, returncode=-signal.SIGTERM)
            child = start() if reach is None else platforms.here.confined(start, reach)
            platforms.here.guard(child)
            for each in groups:
                each.children.add(child)
    except OSError as error:
        raise cannot_start(command, error, cwd=cwd) from error
    except ValueError as error:  # a null character, or half of a surrogate pair
        raise ProcessError(f"{name_of(command)} cannot be run: {error}", returncode=-1) from error
    try:
        for each in groups:
            each.on_start(command)
        yield child
    except BaseException:
        end([child])
        raise
    finally:
        child.wait()
        with _live_lock:
            _live.discard(child)
            platforms.here.unguard(child)
            _leave(child, groups)


def _entrance(
    name: str, cwd: Path | None, env: Mapping[str, str] | None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """See `System.entrance`; raises the system's error for a program that something else cannot start."""
    entrance = platforms.here.entrance()
    if not entrance[0]:
        return entrance
    path = (os.environ if env is None else env).get("PATH", os.defpath)
    place = Path(cwd or "", name) if os.sep in name else shutil.which(name, path=path)
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if place is None or not Path(place).exists():
        raise missing
    if not os.access(place, os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    with contextlib.suppress(PermissionError), Path(place).open("rb") as file:  # some may only be executed
        interpreter = file.readline(_SHEBANG).split()[:1] if file.read(2) == b"#!" else []
        if not all(map(os.path.exists, interpreter)):
            raise missing
    return entrance


def cannot_start(command: Sequence[str], error: OSError, *, cwd: Path | None = None) -> PrerequisiteError:
    """The error for a program that the system does not start, such as one for another machine."""
    if cwd is not None and not cwd.is_dir():
        return PrerequisiteError(f"cannot run {command[0]}: no folder {cwd}")
    if isinstance(error, FileNotFoundError):
        tip = f"install {Path(command[0]).name} and put it on PATH"
        return PrerequisiteError(f"{command[0]} is not on this machine", tip=tip)
    return PrerequisiteError(f"{command[0]} cannot be run: {error.strerror}")


def _leave(child: Child, groups: Collection[Group]) -> None:
    for group in groups:
        group.children.discard(child)
        group.cpu += child.cpu
        group.largest = max(group.largest, child.largest)


def end(children: Sequence[Child]) -> None:
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


def name_of(command: tuple[str, ...]) -> str:
    """A command as messages show it: without the folder of the program, masked, cut where it is long."""
    shown = safe_text.mask(shlex.join((Path(command[0]).name, *command[1:])))
    return shown if len(shown) <= _NAME_LENGTH else f"{shown[: _NAME_LENGTH - 3]}..."
