"""Linux: keep foreign programs from reading the memory, variables and credentials of their callers.

A process may read `/proc/PID/environ` and `/proc/PID/mem` of every other of its user's (proc(5)): a token in
the environment of a job's shell is an open secret to all that the job runs. Landlock (landlock(7), Linux
5.19 and later) takes that from a process and its children without any privilege: it may look into processes
of its own domain alone. It may also be refused all files but those below folders that are named, and from
version 6 on (Linux 6.12) signals to processes and abstract sockets outside its domain. Root may do it by
capabilities all the same, so some are given up: nobody without them may look into a process that has them
(ptrace(2), "access mode checking"), with Landlock or without. Where there is neither, all that is left is to
hide ourselves (prctl(2), PR_SET_DUMPABLE); our own callers stay readable.

Both hold for the calling thread and what it starts, so a thread is made for each start.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import queue
import select
import signal
import stat
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from cairn.platforms import Reach

_T = TypeVar("_T", bound="subprocess.Popen[bytes]")

# The same on all architectures of Linux (asm-generic/unistd.h).
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1  # LANDLOCK_CREATE_RULESET_VERSION: asks which version of the interface there is
_PATH_BENEATH = 1  # LANDLOCK_RULE_PATH_BENEATH
_READ_FILE, _REFER, _TRUNCATE = 1 << 2, 1 << 13, 1 << 14  # LANDLOCK_ACCESS_FS_…
_READS = 1 << 0 | _READ_FILE | 1 << 3  # EXECUTE, READ_FILE, READ_DIR
_WRITES = _READS | 1 << 1 | sum(1 << bit for bit in range(4, 13)) | _REFER  # WRITE_FILE, REMOVE_…, MAKE_…
_OF_FILES = 1 << 0 | 1 << 1 | _READ_FILE | _TRUNCATE  # the rights that a rule for a file may give
_TRUNCATES, _SCOPES = 3, 6  # the versions that know the truncation of files; sockets and signals
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1  # LANDLOCK_SCOPE_…
# In the first version, nothing may be moved between folders by who is in a domain at all.
_OLDEST = 2
_SET_DUMPABLE, _CAPBSET_READ, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 4, 23, 24, 38  # linux/prctl.h
_OF_SYSTEM = ("/bin", "/dev/", "/etc/", "/lib", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/lib")
_LATE = 5.0  # seconds within which a thread that began to start a program has started it
# CAP_SYS_PTRACE; CAP_SYS_ADMIN and CAP_PERFMON, which since Linux 6.15 do to read a process's memory map; and
# CAP_MKNOD, which root has in containers where it lacks these.
_CAPABILITIES = (19, 21, 38, 27)


def start_confined(start: Callable[[], _T], reach: Reach) -> _T:
    """Call `start`, so that the program it starts cannot look into the processes above it.

    Args:
        start: starts a program.
        reach: the files that it can reach, where the kernel has Landlock.
    """
    answer: queue.SimpleQueue[_T | BaseException] = queue.SimpleQueue()

    def body() -> None:
        try:
            confine(reach)
            child = start()
        except BaseException as error:  # noqa: BLE001 - raised again, by the thread that asked
            answer.put(error)
            return
        answer.put(child)
        # A program that asks to be killed with its parent (PR_SET_PDEATHSIG) is killed when the thread that
        # has started it ends, so this one stays as long as it. Linux before 5.3 has no pidfd_open(2).
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(child.pid)
            try:
                select.select([handle], [], [])
            finally:
                os.close(handle)

    try:
        threading.Thread(target=body, daemon=True).start()
        child = answer.get()
    except BaseException:  # we are interrupted: the thread starts it all the same, and nobody else knows it
        with contextlib.suppress(queue.Empty, ProcessLookupError):
            late = answer.get(timeout=_LATE)
            if not isinstance(late, BaseException):
                os.killpg(late.pid, signal.SIGKILL)
        raise
    if isinstance(child, BaseException):
        raise child
    return child


def confine(reach: Reach) -> None:
    """Confine the calling thread and all that it will start, as far as this kernel can."""
    apart = drop_capabilities()
    if version() >= _OLDEST:
        _enter_domain(reach)
    elif not apart:
        _libc().prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def keeps_apart() -> bool:
    """Whether `confine` keeps a program from the variables of who called us; else we alone are hidden."""
    return version() >= _OLDEST or (os.geteuid() == 0 and any(map(_may_drop, _CAPABILITIES)))


def description() -> str:
    """See `System.confinement`."""
    if (abi := version()) < _OLDEST:
        return ""
    stays_open = [
        *(["emptying files"] if abi < _TRUNCATES else ()),
        *(["signals to your processes", "abstract sockets"] if abi < _SCOPES else ()),
        *("sockets by their paths", "names, modes and times of files"),
    ]
    return (
        f"foreign code is confined by Landlock ABI {abi}: it reads the system, its environment, its sources"
        f" and what you name, and writes to its work folder; open to it: {', '.join(stays_open)}"
    )


@functools.cache
def version() -> int:
    """The version of Landlock's interface; 0 where the kernel, or a container's filter of calls, has none."""
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)))


def drop_capabilities() -> bool:
    """Give up what those above us keep; false where we have nothing to give up, not being root."""
    # A program that root starts has what the bounding set leaves (capabilities(7)).
    dropped = [
        _may_drop(number) and _libc().prctl(_CAPBSET_DROP, number, 0, 0, 0) == 0 for number in _CAPABILITIES
    ]
    return os.geteuid() == 0 and any(dropped)


def _may_drop(number: int) -> bool:
    return bool(_libc().prctl(_CAPBSET_READ, number, 0, 0, 0) == 1)


def _enter_domain(reach: Reach) -> None:
    libc, (reads, writes, hidden) = _libc(), reach
    if Path("/") in writes:
        reading, writing, handled = 0, _READ_FILE | _REFER, _READ_FILE | _REFER
    else:
        writing = _WRITES | (_TRUNCATE if version() >= _TRUNCATES else 0)
        reading, handled = _READS, writing
    # struct landlock_ruleset_attr: files; of the network nothing; what is outside of the domain.
    attributes = struct.pack("=QQQ", handled, 0, _ABSTRACT_SOCKETS | _SIGNALS)
    size = len(attributes) if version() >= _SCOPES else 8
    ruleset = _checked(libc.syscall(_CREATE_RULESET, attributes, size, 0))
    try:
        # A rule is for a folder and all below it, and gives rights: what is to be hidden gets none, so each
        # folder on the way to it is gone through. A free program may move files everywhere.
        if Path("/") in writes:
            _allow(libc, ruleset, "/", _REFER)
        # As strings: each program that starts is allowed hundreds of paths.
        concealed = {os.path.realpath(path) for path in hidden if path.exists()}
        inside = tuple(f"{path}/" for path in concealed)
        for places, rights in ((reads, reading), (writes, writing)):
            for place in dict.fromkeys(map(_real, places if rights else ())):
                if place in concealed or place.startswith(inside):
                    continue
                folder = f"{place}/".replace("//", "/")
                below = [path for path in concealed if path.startswith(folder)]
                paths = _all_but(Path(place), frozenset(map(Path, below))) if below else (place,)
                for path in paths:
                    _allow(libc, ruleset, path, rights)
        # Without this, only root may enter a domain: no program may gain rights, sudo neither.
        _checked(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _real(path: Path) -> str:
    place = os.fspath(path)
    return _real_of_system(place) if place.startswith(_OF_SYSTEM) else os.path.realpath(place)


@functools.cache  # these links lead to the same places for as long as we run
def _real_of_system(place: str) -> str:
    return os.path.realpath(place)


def _all_but(folder: Path, hidden: frozenset[Path]) -> list[Path]:
    if not hidden:
        return [folder]
    try:
        entries = set(folder.iterdir())
    except PermissionError:  # such as /home where users must not see each other: all else there is hidden too
        entries = {folder / path.relative_to(folder).parts[0] for path in hidden}
    rules = []
    for entry in entries:
        if entry in hidden or entry.is_symlink():  # where a link leads is judged there
            continue
        below = frozenset(path for path in hidden if entry in path.parents)
        rules += _all_but(entry, below) if below else [entry]
    return rules


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path | str, rights: int) -> None:
    # What cannot be opened, or is gone, needs no rule; a special file of the kernel's may refuse one.
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= _OF_FILES
            # struct landlock_path_beneath_attr, which is packed.
            _checked(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0))
        finally:
            os.close(place)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
