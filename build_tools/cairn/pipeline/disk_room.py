"""Room on the disk, asked before the first stage rather than found missing in the last."""

from __future__ import annotations

import shutil
from pathlib import Path

from cairn.errors import SystemFailureError
from cairn.output import console


def check(work_dir: Path, needed: int | None) -> None:
    """Refuse to begin where the work folder's disk has no room for what a run leaves there.

    Args:
        work_dir: the work folder; what it holds already need not be free.
        needed: bytes that a first run leaves; None where nobody measured it.

    Raises:
        SystemFailureError: there is too little.
    """
    if needed is None:
        return
    there = next(folder for folder in (work_dir, *work_dir.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    # Counting what is there takes longer than all the rest, and is seldom needed.
    if free < needed and free + _size_of(work_dir) < needed:
        raise SystemFailureError(
            f"the run needs {console.size(needed)} of disk, and {work_dir} has {console.size(free)} free",
            tip="free some space, or name a folder on another disk with --work-dir",
        )


def _size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink() and path.is_file())
