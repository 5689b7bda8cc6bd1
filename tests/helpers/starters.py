"""Which modules of the package start programs in the tests' own process."""

from __future__ import annotations

import ctypes.util
import platform
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from helpers.trail import ROOT

_TESTS, _PACKAGE = f"{ROOT}/tests/", f"{ROOT}/build_tools/cairn/"
# Modules of Python's that ask programs of the system about the machine (`uname -p`, `ldconfig -p`).
_ASKING = {platform.__file__, ctypes.util.__file__, uuid.__file__}
_EVENTS = frozenset(
    {
        *("subprocess.Popen", "os.exec", "os.spawn", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"),
        *("os.startfile", "os.startfile/2", "pty.spawn"),
    }
)
"""The events of sys.addaudithook that start a program (Python's "Audit events table")."""

ALLOWED = {
    "process/children.py": "the one room",
    "process/run_program.py": "the one room: what somebody types to",
    "platforms/namespaces.py": "the helper of the one room that makes namespaces",
    "platforms/posix.py": "the guard of the one room, which ends what we leave behind where we are killed",
    "platforms/windows.py": "the system's taskkill, for the one room",
    "sources/manifest/changelog.py": "GitPython, which reads objects by git in our environment",
}
"""The modules of the package that start programs in our process, each with what for."""

_violations: list[str] = []


def _starter(frame: FrameType | None) -> str:
    """The module of the package that starts a program, unless a test does so itself; else ""."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name in _ASKING:
            return ""
        if name.startswith(_TESTS):
            return ""
        if name.startswith(_PACKAGE):
            return name.removeprefix(_PACKAGE)
        frame = frame.f_back
    return ""


def _hook(event: str, _arguments: tuple[object, ...]) -> None:
    if event in _EVENTS and (module := _starter(sys._getframe(1))) and module not in ALLOWED:
        _violations.append(f"{module}: {event}")


def watch() -> None:
    """Note from now on what starts programs; such a hook stays until the process ends."""
    sys.addaudithook(_hook)


@contextmanager
def judged() -> Iterator[list[str]]:
    """Yield what has started programs in the block without being allowed to."""
    _violations.clear()
    yield _violations
    _violations.clear()
