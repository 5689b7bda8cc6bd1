"""The lock of a checkout: one run of Cairn at a time works in it, be it a checkout, a build or a patch.

After a killed run, the gits that it left are waited for, and their lock files and half-written packs go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cairn import files, platforms
from cairn.errors import SystemFailureError
from cairn.output import console
from cairn.sources.git.repository import ASIDE

_WAIT = 4 * 3600.0  # seconds; the other run may be at the first fetch of a big repository
_MARKER = "cairn-busy"
# What git-fetch and git-repack write before they rename it (git's pack-write.c, object-file.c).
_HALF = ("tmp_pack_", "tmp_idx_", "tmp_obj_", "tmp_rev_")
_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.part")
_HIPIFY = "hipify"
_WAIT_FOR_GIT = 60.0  # seconds for a git whose parent was killed to end by itself


@contextlib.contextmanager
def hold(checkout_dir: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock a checkout against other runs of Cairn; `on_wait` is called if another run holds it.

    Without `on_wait` the user is told: the other run may be a build of hours.

    Programs started in the block end with us, even if we are killed: git and hipify would go on writing
    over what somebody edits then. The lock is a file in the cache folder, so that the checkout need not be
    there yet.
    """
    name = hashlib.sha256(os.fsencode(checkout_dir.resolve())).hexdigest()[:16]
    lock = files.cache_dir() / "checkouts" / f"{name}.lock"

    def waiting() -> None:
        console.current().info(f"waiting for another run that works in {checkout_dir}")

    with files.locked(lock, timeout=_WAIT, on_wait=on_wait or waiting), platforms.here.guarding():
        yield


@contextlib.contextmanager
def busy(git_dir: Path) -> Iterator[None]:
    """Mark a git directory, which the caller has locked, as being changed while the block runs.

    A mark found on entry says that an earlier holder was killed: if it left a git running, that is waited
    for, then the `*.lock` files and half-written packs are removed. (A git that ends with an error has
    removed its own, and the mark goes with the block.)
    """
    marker = git_dir / _MARKER
    if marker.exists():
        sweep(git_dir, folders=(git_dir,))
    marker.touch()
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def sweep(git_dir: Path, *, folders: tuple[Path, ...], below: bool = False) -> None:
    """Remove lock files and half-written packs of programs that were killed.

    Args:
        git_dir: where they are looked for, git directories of submodules included.
        folders: working folders of git and hipify programs that may still be running.
        below: look for such programs in the folders below, too.

    Raises:
        SystemFailureError: one of them does not end.
    """
    resolved = {folder.resolve() for folder in folders}
    deadline = time.monotonic() + _WAIT_FOR_GIT
    while running := _at_work(resolved, below=below):
        name, process = running[0]
        if name == _HIPIFY:  # a guard has not seen to it (`cairn.platforms`): it would not end for long
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        elif time.monotonic() > deadline:
            raise SystemFailureError(
                f"{name} (process {process}) is still at work in {folders[0]}",
                tip="wait until it has ended, or end it, and run the same command again",
            )
        time.sleep(0.1)
    _remove_files(
        git_dir, lambda name: name.endswith(".lock") or name.startswith(_HALF) or is_temporary(name)
    )


def remove_temporary_files(git_dir: Path) -> None:
    """Remove what a killed `cairn.files` was writing, but no lock: a git of the user may hold it."""
    _remove_files(git_dir, is_temporary)


def _remove_files(git_dir: Path, is_left: Callable[[str], bool]) -> None:
    for folder, folders, names in os.walk(git_dir):
        folders[:] = [name for name in folders if name != ASIDE]
        for name in filter(is_left, names):
            Path(folder, name).unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Whether a file's name is one that `cairn.files` gives to what it is writing."""
    return _TEMPORARY.fullmatch(name) is not None


def _at_work(folders: set[Path], *, below: bool) -> list[tuple[str, int]]:
    """Return git and hipify processes running in these folders; none on systems without /proc (proc(5))."""
    with contextlib.suppress(OSError):
        processes = [process for process in Path("/proc").iterdir() if process.name.isdecimal()]
        candidates = ((_name_at_work(process, folders, below=below), process) for process in processes)
        return [(name, int(process.name)) for name, process in candidates if name]
    return []


def _name_at_work(process: Path, folders: set[Path], *, below: bool) -> str | None:
    try:
        folder = (process / "cwd").readlink()
        if folder not in folders and not (below and folders.intersection(folder.parents)):
            return None
        # Both go on writing when the process that started them is killed.
        if "git" in (name := (process / "comm").read_text().strip()):
            return name
        return _HIPIFY if b"watch_script" in (process / "cmdline").read_bytes() else None
    except OSError:
        return None  # it ended, or belongs to a different user
