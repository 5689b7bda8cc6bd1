"""Windows: written from its documentation, never run there; see docs/reference/platforms.md.

It imports nothing that Linux lacks, so that the tests exercise on Linux all of it that computes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from cairn.platforms import OwnGroup, Reach

_T = TypeVar("_T", bound="subprocess.Popen[bytes]")

# `subprocess` and `signal` define these on Windows only. Sources: "Process Creation Flags" of the Win32 API;
# CTRL_BREAK_EVENT of GenerateConsoleCtrlEvent.
_CREATE_NEW_PROCESS_GROUP = 0x00000200
_CTRL_BREAK_EVENT = 1

# learn.microsoft.com, "Naming Files, Paths, and Namespaces"; CONIN$ and CONOUT$ are of the console.
_DEVICES = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)
_NOT_IN_NAMES = re.compile(r'[<>:"|?*\\\x00-\x1f]')
_LONGEST = 255  # UTF-16 code units of a name, on NTFS
# Keys of the machine's registry, and values in them. Sources: "Maximum Path Length Limitation" of Win32;
# "Developer Mode features and debugging", where symbolic links need it.
_SETTINGS = {
    "long_paths": (r"SYSTEM\CurrentControlSet\Control\FileSystem", "LongPathsEnabled"),
    "developer_mode": (
        r"SOFTWARE\Microsoft\Windows\CurrentVersion\AppModelUnlock",
        "AllowDevelopmentWithoutDevLicense",
    ),
}


def own_group() -> OwnGroup:
    """See `System.own_group`."""
    # Such a group ignores Ctrl-C, and Ctrl-Break can be sent to it alone (Python, `subprocess`, Windows
    # constants).
    return {"creationflags": _CREATE_NEW_PROCESS_GROUP}


def ask_to_end(child: subprocess.Popen[bytes]) -> None:
    """See `System.ask_to_end`."""
    with contextlib.suppress(OSError):  # it shares no console with us, or it has ended
        child.send_signal(_CTRL_BREAK_EVENT)


def kill(child: subprocess.Popen[bytes]) -> None:
    """See `System.kill`, but for one thing: what outlives its parent is not found any more."""
    # TerminateProcess, which `Popen.kill` calls, ends one process and leaves its children; taskkill walks
    # the tree. A job object would also hold those whose parent has ended, but needs calls that we cannot
    # try here.
    with contextlib.suppress(OSError):
        subprocess.run(kill_command(child.pid), capture_output=True, check=False)
    child.kill()


def kill_command(pid: int) -> tuple[str, ...]:
    """The program that ends a process and all its descendants (taskkill: /F by force, /T the whole tree)."""
    # By its full name: what is called taskkill in the working folder must not run in its place.
    folder = os.environ.get("SYSTEMROOT", r"C:\Windows")
    return (rf"{folder}\System32\taskkill.exe", "/F", "/T", "/PID", str(pid))


def kill_marked(mark: str, claimed: int) -> None:  # noqa: ARG001 - nobody tells variables
    """See `System.kill_marked`."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(claimed, signal.SIGTERM)


def wait_for(pid: int, flags: int) -> tuple[int, int, tuple[float, int] | None]:
    """See `System.wait_for`; never called there, since `Popen` waits for handles."""
    return (*os.waitpid(pid, flags), None)


def expect(output: int) -> None:
    """See `System.expect`."""


def guard(child: subprocess.Popen[bytes]) -> None:
    """See `System.guard`: a job object would do it (see `kill`)."""


def unguard(child: subprocess.Popen[bytes]) -> None:
    """See `System.unguard`."""


def guarding() -> contextlib.AbstractContextManager[None]:
    """See `System.guarding`."""
    return contextlib.nullcontext()


def confined(start: Callable[[], _T], reach: Reach) -> _T:  # noqa: ARG001 - there is no such call
    """See `System.confined`: nothing keeps programs of one user apart here."""
    return start()


def entrance() -> tuple[tuple[str, ...], tuple[int, ...]]:
    """See `System.entrance`."""
    return (), ()


def confinement() -> str:
    """See `System.confinement`."""
    return ""


def exposed() -> str:
    """See `System.exposed`: ReadProcessMemory gives a user the memory of all that run as they."""
    return "Cairn and of those who called it"


def try_lock(file: int) -> bool:
    """See `System.try_lock`: the first byte of the file, which need not exist."""
    import msvcrt  # noqa: PLC0415 - on Windows alone

    try:
        # typeshed has the functions for Windows alone.
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except PermissionError:  # EACCES
        return False
    return True


def home_variables(home: Path) -> dict[str, str]:
    """See `System.home_variables`."""
    roaming, local = home / "AppData" / "Roaming", home / "AppData" / "Local"
    return {"USERPROFILE": str(home), "APPDATA": str(roaming), "LOCALAPPDATA": str(local)}


def cache_of(program: Literal["pip", "uv"], variables: Mapping[str, str]) -> Path:
    """See `System.cache_of`."""
    local = variables.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    return Path(local, program, "Cache" if program == "pip" else "cache")


def pip_configurations(variables: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """See `System.pip_configurations`."""
    home = Path(variables.get("USERPROFILE") or os.path.expanduser("~"))  # noqa: PTH111 - it need not be known
    roaming = Path(variables.get("APPDATA") or home / "AppData" / "Roaming")
    machine = Path(variables.get("PROGRAMDATA") or "C:/ProgramData")
    return [machine / "pip" / "pip.ini"], [home / "pip" / "pip.ini", roaming / "pip" / "pip.ini"]


def memory(root: Path = Path("/")) -> tuple[int, int] | None:  # noqa: ARG001 - Linux alone has such files
    """See `System.memory`: GlobalMemoryStatusEx would tell, and cannot be tried here."""
    return None


def programs_of(environment: Path) -> Path:
    """See `System.programs_of`."""
    return environment / "Scripts"


def python_of(environment: Path) -> Path:
    """See `System.python_of`."""
    return environment / "Scripts" / "python.exe"


def packages_of(environment: Path) -> tuple[Path, ...]:
    """See `System.packages_of`."""
    return (environment / "Lib" / "site-packages",)


def folder_in_the_way() -> Collection[int]:
    """See `System.folder_in_the_way`."""
    # MoveFileEx never replaces a folder: it says ERROR_ACCESS_DENIED, which Python calls EACCES.
    return (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES)


def others_may_read(path: Path) -> bool:  # noqa: ARG001 - here access lists decide, and a mode says nothing
    """See `System.others_may_read`."""
    return False


def stack_section() -> str:
    """See `System.stack_section`."""
    return "windows"


def settings() -> Mapping[str, bool]:
    """See `System.settings`; one that was never set is off."""
    return {name: _switched_on(*where) for name, where in _SETTINGS.items()}


def _switched_on(key: str, value: str) -> bool:
    import winreg  # noqa: PLC0415 - on Windows alone

    try:
        # typeshed has the module for Windows alone.
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:  # type: ignore[attr-defined]
            return bool(winreg.QueryValueEx(opened, value)[0])  # type: ignore[attr-defined]
    except OSError:
        return False


def forbidden(name: str) -> str:
    """See `System.forbidden`."""
    if _DEVICES.fullmatch(name.partition(".")[0].rstrip()):
        return f"{name} is the name of a device on Windows"
    if name != name.rstrip(". "):
        return f"Windows drops the end of the name {name!r}"
    if match := _NOT_IN_NAMES.search(name):
        return f"Windows allows no {match[0]!r} in a name"
    too_long = len(name.encode("utf-16-le", "surrogatepass")) > 2 * _LONGEST
    return f"{name[:40]}… is longer than Windows allows" if too_long else ""


def config_home() -> str:
    """See `System.config_home`."""
    return os.environ.get("APPDATA") or "~"


def name() -> str:
    """See `System.name`."""
    return "windows"
