"""Files written whole or not at all, hashed, linked and locked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from cairn.errors import SystemFailureError

_CHUNK = 1 << 20


def cache_dir() -> Path:
    """Where things live that can be made again.

    `CAIRN_CACHE_DIR`, else `cairn` in `XDG_CACHE_HOME`, else `~/.cache/cairn`.
    """
    if chosen := os.environ.get("CAIRN_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "cairn").absolute()


def sha256_of(path: Path) -> str:
    """The lowercase hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def writing_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` on success, delete it otherwise.

    Readers of `path` see the old bytes or all of the new ones. The folder is made when missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        _sync(part)
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with writing_beside(path) as part:
        part.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically, as UTF-8 with newlines as they are."""
    write_bytes(path, text.encode())


@contextlib.contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Yield a new empty folder beside `path`; rename it to `path` on success, delete it otherwise.

    An existing folder at `path` is replaced as a whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent))
    try:
        yield part
        part.chmod(0o777 & ~_umask())
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=".old.", suffix=".part", dir=path.parent))
            path.replace(old / "was")
            part.replace(path)
            shutil.rmtree(old)
        else:
            part.replace(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def link_or_copy(source: Path, target: Path) -> None:
    """Put the bytes of `source` at `target` atomically, as a hard link where the file system allows it."""
    with writing_beside(target) as part:
        part.unlink()
        try:
            os.link(source, part)
        except OSError:
            shutil.copyfile(source, part)


@contextlib.contextmanager
def locked(path: Path, *, timeout: float = 600) -> Iterator[None]:
    """Hold the lock file `path` (its folder is made) against other processes and threads.

    Args:
        path: the lock file itself, by custom `<what it guards>.lock`.
        timeout: seconds to wait for the other holder.

    Raises:
        SystemFailureError: the lock was not free in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=timeout):
            yield
    except Timeout as error:
        raise SystemFailureError(
            f"another run has held {path} for {timeout:.0f} seconds",
            tip="wait for it to end; the lock goes with the process that holds it",
        ) from error


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    # There is no call that only reads it; two threads at once could both read 0, hence the fixed fallback.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
