"""Describes the folders that are written to, and the file systems they are on."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from cairn import files
from cairn.errors import UsageError
from cairn.pipeline.doctor.machine import Disk


def disks(work: Path, root: Path = Path("/")) -> tuple[Disk, ...]:
    """The work folder, that of temporary files, and Cairn's cache."""
    mounts = _mounts(root)
    facts = (_disk("work folder", work.absolute(), mounts), _disk("temporary files", _temporary(), mounts))
    try:
        return (*facts, _disk("cache", files.cache_dir(), mounts))
    except UsageError:  # a number without a name, which has no home
        return (*facts, Disk(role="cache", path="~/.cache/cairn", free=0, writable=False))


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir()).absolute()
    except FileNotFoundError:  # none of its candidates can be written to: the first that users mean
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - to be named, and not written to


def _disk(role: str, path: Path, mounts: dict[str, tuple[str, frozenset[str]]]) -> Disk:
    existing = next((folder for folder in (path, *path.parents) if _is_folder(folder)), path)
    try:
        free = shutil.disk_usage(existing).free
    except OSError:
        free = 0
    writable, ignores_case = _try(existing)
    above = [str(folder) for folder in (existing, *existing.parents)]
    kind, options = next((mounts[name] for name in above if name in mounts), ("", frozenset[str]()))
    return Disk(
        role=role,
        path=str(path),
        free=free,
        writable=writable,
        filesystem=kind,
        no_exec="noexec" in options,
        ignores_case=ignores_case,
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # below a folder of somebody else's
        return False


def _try(folder: Path) -> tuple[bool, bool]:
    """Whether we may write in a folder, and whether a file is found there by its name in capitals."""
    # Permissions do not tell: a file system may be read-only, or of another user's (root of NFS).
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cairn-doctor-a") as file:
            here = Path(file.name)
            return True, here.with_name(here.name.upper()).exists()
    except OSError:
        return False, False


def _mounts(root: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Mount point to kind and options; of several on one point the last counts (proc(5), mountinfo)."""
    try:
        lines = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    options = {}
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) > 5:  # noqa: PLR2004 - id, parent, device, root, mount point, options
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            options[os.path.normpath(point)] = (kind, frozenset(fields[5].split(",")))
    return options
