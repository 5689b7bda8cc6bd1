"""What a killed run leaves in a git directory, and clearing it away."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

ASIDE = "cairn-aside"  # folder of a git directory with what builds left (cairn.build.inputs.leftovers)
_MARKER = "cairn-busy"
_HALF = ("tmp_pack_", "tmp_idx_", "tmp_obj_", "tmp_rev_")
_PART = re.compile(r"\..*\.[0-9a-f]{16}\.part")
_PATIENCE = 60.0  # seconds for a git whose parent was killed to come to its own end


@contextlib.contextmanager
def busy(git_dir: Path) -> Iterator[None]:
    """Mark a git directory, which the caller holds alone, as being changed while the block runs.

    A mark found on entry says that an earlier holder was killed: its git is waited for, and the lock files
    and half packs it left are removed. Not on an error, which leaves none.
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
    """Remove lock files and half-written packs that nobody finishes any more.

    Args:
        git_dir: where they are looked for, git directories of submodules included.
        folders: working folders of the git and hipify programs that may still be at it.
        below: look for such programs in the folders below, too.
    """
    _wait_for_programs_in(folders, below=below)
    for folder, names in _files(git_dir):
        for name in names:
            if name.endswith(".lock") or name.startswith(_HALF) or is_part(name):
                Path(folder, name).unlink(missing_ok=True)


def sweep_parts(git_dir: Path) -> None:
    """Remove what a killed `cairn.files` was writing; nothing of git's, whose locks may be a person's."""
    for folder, names in _files(git_dir):
        for name in names:
            if is_part(name):
                Path(folder, name).unlink(missing_ok=True)


def _files(git_dir: Path) -> Iterator[tuple[str, list[str]]]:
    for folder, folders, names in os.walk(git_dir):
        folders[:] = [name for name in folders if name != ASIDE]
        yield folder, names


def is_part(name: str) -> bool:
    """Whether a file's name is one that `cairn.files` gives to what it is writing."""
    return _PART.fullmatch(name) is not None


def _wait_for_programs_in(folders: tuple[Path, ...], *, below: bool) -> None:
    """Wait until none works in `folders`; knows of them on Linux only, elsewhere returns at once."""
    wanted = {folder.resolve() for folder in folders}
    deadline = time.monotonic() + _PATIENCE
    while _running_in(wanted, below=below) and time.monotonic() < deadline:
        time.sleep(0.1)


def _running_in(folders: set[Path], *, below: bool) -> bool:
    with contextlib.suppress(OSError):
        return any(_is_at_work(process, folders, below=below) for process in Path("/proc").iterdir())
    return False


def _is_at_work(process: Path, folders: set[Path], *, below: bool) -> bool:
    if not process.name.isdecimal():
        return False
    try:
        folder = (process / "cwd").readlink()
        if folder not in folders and not (below and folders.intersection(folder.parents)):
            return False
        # Both go on writing when what started them is killed.
        if "git" in (process / "comm").read_text():
            return True
        return b"watch_script" in (process / "cmdline").read_bytes()
    except OSError:
        return False  # it ended, or belongs to somebody else
