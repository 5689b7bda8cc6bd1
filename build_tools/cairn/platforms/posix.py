"""Linux, and what it shares with macOS (where Cairn has never run)."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from cairn.platforms import OwnGroup, Reach

_T = TypeVar("_T", bound="subprocess.Popen[bytes]")
_NAME_MAX = 255  # bytes


def own_group() -> OwnGroup:
    """See `System.own_group`."""
    # setsid(2): the program leads a new session and so a new process group, whose id is its own. It also
    # loses the terminal: Ctrl-C reaches us alone, and we decide what ends and in which order.
    return {"start_new_session": True}


def ask_to_end(child: subprocess.Popen[bytes]) -> None:
    """See `System.ask_to_end`."""
    _signal(child, signal.SIGTERM)


def kill(child: subprocess.Popen[bytes]) -> None:
    """See `System.kill`."""
    _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group outlives its leader as long as one member lives (and the kernel gives its id to no new
    # process), so this reaches children that a program left behind. EPERM: all that is left are members of
    # other users.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def kill_marked(mark: str, claimed: int) -> None:
    """See `System.kill_marked`: by /proc (proc(5))."""
    processes = [claimed]
    if sys.platform == "linux":
        paths = Path("/proc").glob("[0-9]*/environ")
        processes = [int(path.parent.name) for path in paths if f"\0{mark}\0" in f"\0{_text(path)}\0"]
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def wait_for(pid: int, flags: int) -> tuple[int, int, tuple[float, int] | None]:
    """See `System.wait_for`."""
    try:
        ended, status, used = os.wait4(pid, flags)
    except ChildProcessError:  # something else has waited for it
        return pid, 0, None
    # getrusage(2): ru_maxrss is in KiB on Linux, in bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return ended, status, (used.ru_utime + used.ru_stime, used.ru_maxrss * unit)


class _Guard:
    """A process of its own that ends the programs we have started when it sees that we are gone.

    It reads a pipe that only we write to, and which the kernel closes when we end, however that comes: a
    compiler that is left behind by a kill would go on writing into the tree that the next run builds in.

    A program ends with us from its first moment: before it starts, the guard knows the pipe that will be its
    output (`?`), and so finds it below /proc where we do not live to say which process it became (`+`), and
    that its pipe need not be looked for (`!`). Until it has a group of its own and runs, it holds a copy of
    our end of the guard's pipe: the guard sees us gone after that only.
    """

    program = """
import glob, os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
live, expected = set(), set()
noted = {"+": live.add, "-": live.discard, "?": expected.add, "!": expected.discard}
for line in sys.stdin:
    if line == "leave\\n":
        sys.exit()
    noted[line[0]](int(line[1:]))
pipes = {f"pipe:[{number}]" for number in expected}
for path in glob.glob("/proc/[0-9]*/fd/*") if pipes else ():
    try:
        if os.readlink(path) in pipes:
            live.add(os.getpgid(int(path.split("/")[2])))
    except OSError:
        pass
for number in (signal.SIGTERM, signal.SIGKILL):
    for group in live:
        try:
            os.killpg(group, number)
        except OSError:
            pass
    time.sleep(0.5 if live else 0)
"""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._left = False
        self._lock = threading.Lock()

    def tell(self, sign: str, number: int) -> None:
        """Note a pipe of what begins (`?`) or has begun (`!`), a group that runs (`+`) or ended (`-`)."""
        self.begin()
        with self._lock:
            if not self._left and self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError):  # someone has killed it: we do without
                    self._process.stdin.write(f"{sign}{number}\n".encode())

    def begin(self) -> None:
        """Start the process, unless it runs: not in a thread that is confined, whose limits it would have."""
        with self._lock:
            if self._process is None and not self._left:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", self.program],
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def leave(self) -> None:
        """End it alone: programs that other threads started meanwhile, outside of any block, go on."""
        with self._lock:
            self._left = True
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(b"leave\n")
                self._process.stdin.close()
            self._process.wait()


_guards: list[_Guard] = []  # at most one
_guarded: list[object] = []  # a block each
_guards_lock = threading.Lock()


def expect(output: int) -> None:
    """See `System.expect`."""
    for each in tuple(_guards):
        each.tell("?", os.fstat(output).st_ino)


def guard(child: subprocess.Popen[bytes]) -> None:
    """See `System.guard`."""
    for each in tuple(_guards):
        each.tell("+", child.pid)
        if child.stdout is not None:
            each.tell("!", os.fstat(child.stdout.fileno()).st_ino)


def unguard(child: subprocess.Popen[bytes]) -> None:
    """See `System.unguard`."""
    for each in tuple(_guards):
        each.tell("-", child.pid)


@contextlib.contextmanager
def guarding() -> Iterator[None]:
    """See `System.guarding`."""
    block = object()
    with _guards_lock:
        if not _guarded:
            _guards.append(_Guard())
        _guarded.append(block)
    try:
        yield
    finally:
        with _guards_lock:
            _guarded.remove(block)
            last = _guards.pop() if not _guarded else None
        if last is not None:
            last.leave()


def confined(start: Callable[[], _T], reach: Reach) -> _T:
    """See `System.confined`; of the systems here, Linux can."""
    if sys.platform != "linux":
        return start()
    from cairn.platforms import landlock  # noqa: PLC0415 - ctypes, which takes a tenth of a start

    for each in tuple(_guards):
        each.begin()
    return landlock.start_confined(start, reach)


def entrance() -> tuple[tuple[str, ...], tuple[int, ...]]:
    """See `System.entrance`; of the systems here, Linux has namespaces."""
    if sys.platform != "linux":
        return (), ()
    from cairn.platforms import namespaces  # noqa: PLC0415 - few commands start what is foreign

    return namespaces.entrance()


def confinement() -> str:
    """See `System.confinement`."""
    if sys.platform != "linux":
        return ""
    from cairn.platforms import landlock  # noqa: PLC0415 - as above

    return landlock.description()


def exposed() -> str:
    """See `System.exposed`."""
    if sys.platform != "linux":
        return "Cairn and of those who called it"
    from cairn.platforms import landlock  # noqa: PLC0415 - as above

    return "" if landlock.keeps_apart() else "those who called Cairn, such as the shell of a job"


def try_lock(file: int) -> bool:
    """See `System.try_lock`: flock(2), which also keeps out the other threads."""
    import fcntl  # noqa: PLC0415 - this module is imported on Windows, too

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def home_variables(home: Path) -> dict[str, str]:
    """See `System.home_variables`."""
    return {"HOME": str(home)}


def cache_of(program: Literal["pip", "uv"], variables: Mapping[str, str]) -> Path:
    """See `System.cache_of`."""
    home = Path(variables.get("HOME") or Path.home())
    if sys.platform == "darwin" and program == "pip":
        return home / "Library" / "Caches" / program
    return Path(variables.get("XDG_CACHE_HOME") or home / ".cache") / program


def pip_configurations(variables: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """See `System.pip_configurations`."""
    home = Path(variables.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - it need not be known
    configured = variables.get("XDG_CONFIG_HOME", "").strip()
    folder = Path(configured if configured.startswith("/") else home / ".config", "pip")
    shared = [path.strip() for path in variables.get("XDG_CONFIG_DIRS", "").split(os.pathsep)]
    absolute = [path for path in shared if path.startswith("/")]
    machine = [*(Path(path, "pip") for path in absolute or ["/etc/xdg"]), Path("/etc")]
    if sys.platform == "darwin":
        support = home / "Library" / "Application Support" / "pip"
        folder = support if support.is_dir() else home / ".config" / "pip"
        machine = [Path("/Library/Application Support/pip")]
    user = [home / ".pip", folder]
    return [path / "pip.conf" for path in machine], [path / "pip.conf" for path in user]


def memory(root: Path = Path("/")) -> tuple[int, int] | None:
    """See `System.memory`: of the machine, or of what our control group is given (proc(5), cgroups(7))."""
    fields = dict(re.findall(r"^(\w+): +(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE))
    if "MemTotal" not in fields or "MemAvailable" not in fields:
        return None
    total, free = int(fields["MemTotal"]) * 1024, int(fields["MemAvailable"]) * 1024
    group = root / "sys/fs/cgroup"
    for folder, limit, used, cached in (
        (group, "max", "current", "inactive_file"),
        (group / "memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
    ):
        most, now, parts = (_text(folder / f"memory.{name}").strip() for name in (limit, used, "stat"))
        if most.isdecimal() and int(most) < total:  # `max`, or a number beyond all memory, is none
            # What was read and written counts as used, and the kernel gives it up first (memory.stat).
            cache = re.search(rf"^{cached} (\d+)$", parts, re.MULTILINE)
            left = int(most) - (int(now) if now.isdecimal() else 0) + (int(cache[1]) if cache else 0)
            return int(most), max(0, min(free, int(most), left))
    return total, free


def _text(path: Path) -> str:
    """A file of the system's; empty where it is not there, or hidden from a container."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def programs_of(environment: Path) -> Path:
    """See `System.programs_of`."""
    return environment / "bin"


def python_of(environment: Path) -> Path:
    """See `System.python_of`."""
    return environment / "bin" / "python"


def packages_of(environment: Path) -> tuple[Path, ...]:
    """See `System.packages_of`."""
    # As the `venv` scheme of sysconfig has it, but for whichever Python the environment was made from: ours
    # first.
    ours = f"python{sys.version_info.major}.{sys.version_info.minor}"
    values = [
        folder
        for lib in dict.fromkeys(("lib", sys.platlibdir))
        for folder in sorted(
            environment.glob(f"{lib}/*py*/site-packages"), key=lambda f: f.parent.name != ours
        )
    ]
    return tuple(values) or (environment / "lib" / ours / "site-packages",)


def folder_in_the_way() -> Collection[int]:
    """See `System.folder_in_the_way`."""
    return (errno.ENOTEMPTY, errno.EEXIST)  # rename(2) lets the file system choose between them


def others_may_read(path: Path) -> bool:
    """See `System.others_may_read`."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def stack_section() -> str:
    """See `System.stack_section`."""
    return "linux"


def settings() -> Mapping[str, bool]:
    """See `System.settings`."""
    return {}


def forbidden(name: str) -> str:
    """See `System.forbidden`; NAME_MAX of every usual file system."""
    too_long = len(name) > _NAME_MAX // 4 and len(os.fsencode(name)) > _NAME_MAX
    return f"{name[:40]}… has more than {_NAME_MAX} bytes" if too_long else ""


def config_home() -> str:
    """See `System.config_home`: the XDG base directory, or Apple's."""
    if sys.platform == "darwin":
        return "~/Library/Application Support"
    return os.environ.get("XDG_CONFIG_HOME") or "~/.config"


def name() -> str:
    """See `System.name`."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return platform.freedesktop_os_release()["ID"]  # os-release(5)
    return platform.system().lower()
