"""The development tree: unpacked next to the packages when it is first asked for.

Wheels hold no links, and a ROCm tree is full of them. So the wheel carries a tar, and what core and
libraries hold already is linked to.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import importlib.util
import json
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none: two first uses at the same time are not kept apart there
    fcntl = None  # type: ignore[assignment]

from . import _dist
from ._dist import RocmSdkError

_STAMP = ".rocm-sdk-devel.json"
_LISTING = ".rocm-sdk-devel.files.json"
_LOCK = ".lock"
_LINK, _BROKEN = -1, -2


def root(*, look: bool = False) -> Path:
    """The folder with `bin`, `include` and `lib`; unpacked first where that has not happened yet.

    Args:
        look: look for each file that was unpacked, and unpack again where one is missing or has another size.
            That takes 0.1 s for 30,000 files.

    Raises:
        RocmSdkError: the devel package is not installed, not whole, or cannot be unpacked.
    """
    package = _package()
    target = package.parent / str(_dist.load()["folders"]["devel"])
    try:
        stamp = _stamp(package)
        if _is_current(target, stamp, look=look):
            return target
        # Several builds may ask at once for the first time: all but one find the tree when they get the lock.
        with _locked(package / _LOCK):
            if not _is_current(target, stamp, look=look):
                _unpack(package, target, stamp)
    except tarfile.TarError as error:
        raise _partial(package, str(error)) from error
    except FileNotFoundError as error:
        raise _partial(package, f"{error.filename} is missing") from error
    except OSError as error:
        raise RocmSdkError(
            f"cannot unpack the ROCm development files: {error}; "
            "run `rocm-sdk init` as a user who may write there"
        ) from error
    return target


def package() -> Path | None:
    """The folder of the installed devel package; None where it is not installed."""
    name = _dist.load()["folders"].get("devel")
    spec = importlib.util.find_spec(str(name).removeprefix("_")) if name else None
    return Path(spec.origin).parent if spec and spec.origin else None


def _package() -> Path:
    folder = package()
    if folder is None:
        raise RocmSdkError(
            "the ROCm development files are not installed; "
            f"pip install 'rocm[devel]=={_dist.load()['version']}'"
        )
    return folder


def _stamp(package: Path) -> str:
    """What the tree was made from, and by which rules: this very tar, and the packages it links to."""
    tar = (package / "devel.tar").stat()
    return json.dumps(
        {
            "format": 2,  # with a listing
            "version": _dist.load()["version"],
            "tar": [tar.st_size, tar.st_mtime_ns],
            "links to": [str(_dist.folder(component)) for component in ("core", "libraries", "profiler")],
        }
    )


def _partial(package: Path, reason: str) -> RocmSdkError:
    name = package.name.replace("_", "-")
    version = _dist.load()["version"]
    return RocmSdkError(
        f"the ROCm development files are not whole: {reason}; "
        f"install them again: pip install --force-reinstall --no-deps {name}=={version}"
    )


def _is_current(target: Path, stamp: str, *, look: bool) -> bool:
    try:
        if (target / _STAMP).read_text(encoding="utf-8") != stamp:
            return False
        return not look or all(_look(f"{target}/{path}") == size for path, size in listing(target).items())
    except (OSError, ValueError):
        return False


def listing(target: Path) -> dict[str, int]:
    """Return what was unpacked: path to size in bytes; _LINK for a link, _BROKEN for one to nothing."""
    sizes: dict[str, int] = json.loads((target / _LISTING).read_text(encoding="utf-8"))
    return sizes


def _look(path: str | Path) -> int:
    # One call for most of tens of thousands of files: `rocm-sdk path` waits for it.
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return _LINK if os.path.exists(path) else _BROKEN  # noqa: PTH110 - pathlib takes three times as long
    return status.st_size


def _unpack(package: Path, target: Path, stamp: str) -> None:
    _check_tar(package)
    # Beside the target, so that relative links mean the same and the rename is atomic.
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        with tarfile.open(package / "devel.tar", "r:") as archive:
            # Set rather than passed: `extractall` takes no filter before 3.11.4 (PEP 706).
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(part)  # noqa: S202
            # tarfile takes the end of the file, and a damaged header, for the end of the tar, which is a
            # block of zeros (pax(1), ustar Interchange Format).
            with (package / "devel.tar").open("rb") as file:
                file.seek(archive.offset)
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError(f"devel.tar ends early, after {archive.offset} bytes")
        _link(package, part)
        sizes = {path.relative_to(part).as_posix(): _look(path) for path in _files(part)}
        (part / _LISTING).write_text(json.dumps(sizes, indent=0), encoding="utf-8")
        (part / _STAMP).write_text(stamp, encoding="utf-8")
        part.chmod(0o755)  # mkdtemp made it private
        if target.exists():
            shutil.rmtree(target)
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    _record(package, target)


def _check_tar(package: Path) -> None:
    """Compare the tar with the package's own RECORD, where an installer has left one."""
    name = f"{package.name}/devel.tar"
    try:
        rows = list(csv.reader(_record_of(package).read_text(encoding="utf-8").splitlines()))
    except FileNotFoundError:
        return
    expected, size = next(((row[1], row[2]) for row in rows if row[0] == name and row[1:]), ("", ""))
    if not expected.startswith("sha256="):
        raise tarfile.ReadError(f"RECORD names no sha256 of {name}")
    digest, count = hashlib.sha256(), 0
    with (package / "devel.tar").open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            count += len(block)
    actual = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
    if f"sha256={actual}" != expected:
        raise tarfile.ReadError(
            f"devel.tar has {count} bytes, and not the {size} of its RECORD, or other ones"
        )


def _record_of(package: Path) -> Path:
    return package.parent / f"{package.name}-{_dist.load()['version']}.dist-info" / "RECORD"


def _link(package: Path, part: Path) -> None:
    for path, component, inside in json.loads((package / "links.json").read_text(encoding="utf-8")):
        folder = _dist.folder(component)
        link = part / path
        if folder is None or link.is_symlink() or link.exists():
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder / inside, link.parent))


def _record(package: Path, target: Path) -> None:
    """Name the unpacked files in RECORD, so that uninstalling removes them (PEP 376)."""
    record = _record_of(package)
    if not record.is_file():
        return
    site = package.parent
    mine = f"{target.name}/"
    others = [line for line in record.read_text(encoding="utf-8").splitlines() if not line.startswith(mine)]
    added = [_row(path.relative_to(site).as_posix()) for path in _files(target)]
    lock = _row((package / _LOCK).relative_to(site).as_posix())
    # A new file, not a change in place: an installer may have linked this one to its cache.
    new = record.with_name("RECORD.new")
    new.write_text("\n".join([*others, *added, *([] if lock in others else [lock]), ""]), encoding="utf-8")
    new.replace(record)


def _row(path: str) -> str:
    quoted = path.replace('"', '""')
    return f'"{quoted}",,' if quoted != path or "," in path else f"{path},,"


def _files(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(at, name) for name in sorted(names))
        yield from (Path(at, name) for name in folders if Path(at, name).is_symlink())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
