"""Linux, and what it shares with macOS (where Cairn has never run)."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import signal
import stat
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.platforms import OwnGroup


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
    found = [
        folder
        for lib in dict.fromkeys(("lib", sys.platlibdir))
        for folder in sorted(
            environment.glob(f"{lib}/*py*/site-packages"), key=lambda f: f.parent.name != ours
        )
    ]
    return tuple(found) or (environment / "lib" / ours / "site-packages",)


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


def name() -> str:
    """See `System.name`."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return platform.freedesktop_os_release()["ID"]  # os-release(5)
    return platform.system().lower()
