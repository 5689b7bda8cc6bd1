"""Files written whole or not at all, hashed, linked and locked."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cairn import platforms
from cairn.errors import SystemFailureError, UsageError

_NOTICEABLE = 0.5  # seconds a user waits without wondering why
_POLL = 0.05  # seconds between two tries to take a lock
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WRITERS = 100  # of one folder at once
_LOCK = "lock"  # in a folder of `scratch`
_AT_ONCE = 1 << 30  # bytes asked of one call; the kernel gives no more than 2 GiB
_OPEN_FILES = Path("/proc/self/fd")  # Linux alone: proc(5)


def text_or_empty(path: Path) -> str:
    """Read a text file of somebody else's; empty if it does not exist or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cache_dir() -> Path:
    """The cache folder.

    `CAIRN_CACHE_DIR`, else `cairn` in `XDG_CACHE_HOME`, else `~/.cache/cairn`.

    Raises:
        UsageError: it is below a home folder that is not known, as in a container without users.
    """
    if chosen := os.environ.get("CAIRN_CACHE_DIR"):
        return expanded(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(expanded(base), "cairn").absolute()
    except UsageError as error:
        raise UsageError(str(error), tip="name a folder for the cache in CAIRN_CACHE_DIR") from error


def expanded(text: str) -> Path:
    """The path that the user named, with `~` or `~user` as the home folder.

    Raises:
        UsageError: no path is named, as by a variable that is empty, or the home folder is not known.
    """
    if not text:
        raise UsageError("no path is given")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{text}: the home folder is not known") from error


def sha256_of(path: Path) -> str:
    """The lowercase hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def writing_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` on success, delete it otherwise.

    Readers of `path` see the old bytes or all of the new ones. The folder is made when missing.

    Raises:
        OSError: naming `path`, where there is no room for it.
    """
    part = _part_of(path)
    # Made by hand, not by tempfile: the kernel applies the umask, which Python can only read by changing it
    # under the other threads.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        with _naming(path, written=part):
            yield part
            with part.open("rb") as file:
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(path: Path, *, written: Path) -> Iterator[None]:
    """Make errors of a full disk or quota, or of a file too large, name `path` instead of `written`.

    A failed write has no file name in its error, and Python's copy functions name the source first.
    """
    try:
        yield
    except OSError as error:
        names = (error.filename, error.filename2)
        if error.errno not in _FULL or not (names == (None, None) or {str(written), written} & {*names}):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


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

    An existing folder at `path` is replaced as a whole; of several writers at once, the last one wins.
    """
    with scratch(path.parent, path.name) as part:
        yield part
        _replace_folder(part, path)


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield a new empty folder, whose files go into `folder` at the end of the block, if that succeeds.

    Where there is no `folder` yet, it appears with all of them at once. Else they are moved one by one, each
    whole: a run that is killed meanwhile is to be repeated.
    """
    is_new = not folder.exists()
    with scratch(folder.parent if is_new else folder, folder.name) as part:
        yield part
        if not is_new or not _renamed(part, folder, last=False):
            for path in sorted(part.iterdir()):
                path.replace(folder / path.name)


@contextlib.contextmanager
def scratch(folder: Path, name: str) -> Iterator[Path]:
    """Yield a new empty folder on the file system of `folder`, and delete it in the end.

    A killed run leaves its own behind: the next one of the same name takes it away, since nobody holds its
    lock any more.
    """
    for left in folder.glob(f".{glob.escape(name[:40])}.*.part/{_LOCK}"):
        with contextlib.suppress(OSError):  # another run takes it away
            if (held := try_lock(left)) is not None:
                _remove_locked(left.parent, held)
    lock = None
    while lock is None:  # another run may take it away before it is locked
        part = _part_of(folder / (name or "new"))
        part.mkdir()
        with contextlib.suppress(FileNotFoundError):
            lock = try_lock(part / _LOCK)
    try:
        (part / "new").mkdir()
        yield part / "new"
    finally:
        _remove_locked(part, lock)


def _remove_locked(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    shutil.rmtree(folder, ignore_errors=True)  # Windows deletes no file that is open


def link_or_copy(source: Path, target: Path) -> None:
    """Put the bytes of `source` at `target` atomically, as a hard link where the file system allows it."""
    with writing_beside(target) as part:
        part.unlink()
        try:
            os.link(source, part)
        except OSError:
            copy_into(source, part)


def copy(source: Path, target: Path) -> None:
    """Put the bytes of `source` at `target` atomically, copy-on-write where the file system can."""
    with writing_beside(target) as part:
        copy_into(source, part)


def copy_into(source: Path, target: Path) -> None:
    """Put the bytes of `source` into the file `target`, copy-on-write where the file system can.

    Raises:
        OSError: naming `target`, where there is no room for it.
    """
    with _naming(target, written=target):
        try:
            _copy_range(source, target)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _FULL:
                raise
            # No such call on this system, or not between these file systems.
            shutil.copyfile(source, target)


@contextlib.contextmanager
def pinned(folder: Path) -> Iterator[Path]:
    """Yield a path that leads to a folder while the block runs, whatever is put in its place."""
    if not _OPEN_FILES.is_dir():
        yield folder
        return
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _OPEN_FILES / str(at)
    finally:
        os.close(at)


@contextlib.contextmanager
def plain_file(folder: Path, name: str) -> Iterator[Path]:
    """Yield a path of a file below a folder to which no link leads, also where one takes its place meanwhile.

    Raises:
        OSError: a link is on the way from the folder, itself included; or it is no file.
    """
    if not _OPEN_FILES.is_dir():
        yield folder / name
        return
    with contextlib.ExitStack() as stack:
        at: int | None = None
        for part in (os.fspath(folder), *Path(name).parts):
            at = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            stack.callback(os.close, at)
        path = _OPEN_FILES / str(at)
        if not path.is_file():
            raise OSError(errno.EINVAL, "is no file", name)
        yield path


def walk(folder: Path) -> Iterator[Path]:
    """Every file and link below a folder; links are not followed."""
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        yield from (Path(place, name) for name in (*names, *links))


def statuses(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Like `walk`, with the `lstat` of each; a file that others delete meanwhile is left out."""
    for path in walk(folder):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            yield path, path.lstat()


def inventory(folder: Path, *below: Path) -> str:
    """A digest over name, size and time of every file below a folder, or of those below some folders in it.

    It tells at little cost whether something was changed there. Bytecode, which Python writes when it likes,
    does not count.
    """
    entries = []
    for path, info in (each for place in below or (folder,) for each in statuses(place)):
        if "__pycache__" not in path.parts:
            entries.append((str(path.relative_to(folder)), info.st_size, info.st_mtime_ns))
    return hashlib.sha256(json.dumps(sorted(entries)).encode(errors="surrogateescape")).hexdigest()


@contextlib.contextmanager
def locked(path: Path, *, timeout: float = 600, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` (its folder is made) against other processes and threads.

    Args:
        path: the lock file itself, by custom `<what it guards>.lock`.
        timeout: seconds to wait for the other holder.
        on_wait: called once when something else holds it, so that the user does not wait in silence.

    Raises:
        SystemFailureError: the lock was not free in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    begun, is_told = time.monotonic(), False
    while (lock := try_lock(path)) is None:
        waited = time.monotonic() - begun
        if on_wait is not None and not is_told and waited >= min(timeout, _NOTICEABLE):
            on_wait()
            is_told = True
        if waited >= timeout:
            raise SystemFailureError(
                f"another run has held {path} for {timeout:.0f} seconds",
                tip="wait for it to end; the lock goes with the process that holds it",
            )
        time.sleep(_POLL)
    try:
        yield
    finally:
        os.close(lock)


def try_lock(path: Path) -> int | None:
    """Take the lock file `path` and return its descriptor, or None while something else has it.

    `os.close` gives the lock back, and so does the end of the process.
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not platforms.here.try_lock(lock):
            os.close(lock)
            return None
        # Whoever had it may have removed the file before we took it: that keeps nobody out.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)


def _copy_range(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as write:
        while os.copy_file_range(read.fileno(), write.fileno(), _AT_ONCE):
            pass


def _part_of(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name has at most 255 bytes, of which a character may take four.
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.part")


def is_part(path: Path) -> bool:
    """Whether a path is a temporary one of `writing_beside`, which a killed run may have left."""
    return path.name.startswith(".") and path.name.endswith(".part")


def _replace_folder(part: Path, path: Path) -> None:
    """Rename a folder to where another may be; that one comes back if the new one cannot take its place."""
    aside: list[Path] = []
    try:
        # Other writers may put theirs there meanwhile, but not for ever: Windows gives the same error where a
        # file of `part` is open.
        while not _renamed(part, path, last=len(aside) == _WRITERS):
            aside.append(Path(tempfile.mkdtemp(prefix=".old.", suffix=".part", dir=path.parent)))
            with contextlib.suppress(FileNotFoundError):  # another writer has moved it first
                path.replace(aside[-1] / "was")
    except BaseException:
        for old in reversed(aside):
            with contextlib.suppress(OSError):
                (old / "was").replace(path)
        raise
    finally:
        for old in aside:
            shutil.rmtree(old, ignore_errors=True)


def _renamed(part: Path, path: Path, *, last: bool) -> bool:
    try:
        part.replace(path)
    except OSError as error:
        if not last and error.errno in platforms.here.folder_in_the_way():
            return False
        raise
    return True
