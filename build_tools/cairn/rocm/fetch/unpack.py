"""Safe extraction of archives from the network: nothing is written outside the target folder.

Python's own filters for tars had holes (CVE-2025-4517 and others), which the Pythons in use may have.
Here files are written first, into a new folder in which there is no link yet. Links are made last, and none
may lead out.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import lzma
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Self, cast

from cairn.concurrency import go_on
from cairn.errors import WheelError
from cairn.formats import compression

MANIFEST = "artifact_manifest.txt"
"""The file of an artifact that lists its base folders."""
MOST_UNPACKED = 32 << 30
"""Bytes that one archive may unpack to: ROCm's largest have 2 GB, and 1 MB can become 1 GB of zeros."""

TARBALL = ".tar.gz"
"""How the name of a release ends, which has a whole tree and no manifest."""
TREE = "tree"
"""The folder that `unpack_release` makes for it."""

_BLOCK = 1 << 20
_LONGEST_WINDOW: dict[int, int] = {
    compression.DecompressionParameter.window_log_max: 31
}  # 2 GiB, what `zstd --long=31` needs
_MOST_MEMBERS = 1_000_000
_MOST_BESIDE = 64  # times what a file may have, the whole tar around it
_MOST_HEADER = 1 << 20  # bytes of a name or of extended headers, which tarfile holds in memory
_EXTENDED = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
# zlib's, xz's and zstd's own errors, the ends of truncated files, names that no file may have, numbers
# that are too large, and headers of headers without end.
_MALFORMED = (
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    compression.ZstdError,
    EOFError,
    ValueError,
    OverflowError,
    RecursionError,
)
# What the system says where a file and a folder have one name, or where no file may have it.
_OF_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ)


class UnsafeArchiveError(WheelError):
    """An archive is malformed, or would write where it must not."""


class _Header(tarfile.TarInfo):
    """A header of a tar, with what `tarfile` lets pass refused."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            # Behind the first member tarfile takes a damaged header for the end, which is a block of zeros.
            if any(buf):
                raise tarfile.ReadError(f"a header of its tar is damaged: {error}") from error
            raise
        if header.size < 0 or (header.type in _EXTENDED and header.size > _MOST_HEADER):
            raise tarfile.ReadError(f"a header of its tar is of {header.size:,} bytes")
        return header


class _Limited:
    """A stream that is refused where it gives more bytes than it may."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes; all that are left where it is negative."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise tarfile.ReadError(f"it unpacks to more than {self._most:,} bytes")
        return data


def unpack(archive: Path, folder: Path, *, most: int = MOST_UNPACKED) -> None:
    """Unpack an artifact into a new folder.

    Args:
        archive: a `.tar.zst` or `.tar.xz`.
        folder: must not be there.
        most: the bytes it may unpack to.

    Raises:
        UnsafeArchiveError: it is not such an archive, a member of it leads out of the folder, is twice there,
            or is neither file nor folder nor link, it is too large, or `base_folders` refuses its manifest.
    """
    folder.mkdir()
    with _refusing(archive), _opened(archive, most) as tar:
        write_members(tar, folder, archive)
    base_folders(folder, shown=archive)


def unpack_release(archive: Path, folder: Path, *, most: int = MOST_UNPACKED) -> None:
    """Unpack a `.tar.gz` with a whole tree into a new folder, as the one base folder of an artifact.

    Raises:
        UnsafeArchiveError: as of `unpack`; or it has no file.
    """
    folder.mkdir()
    (folder / TREE).mkdir()
    with _refusing(archive), _opened(archive, most) as tar:
        write_members(tar, folder / TREE, archive)
    if not any((folder / TREE).iterdir()):
        raise _unsafe(archive, "it is empty")
    (folder / MANIFEST).write_text(f"{TREE}\n", encoding="utf-8")


def unpack_stream(stream: IO[bytes], folder: Path, archive: Path, *, most: int = MOST_UNPACKED) -> None:
    """Unpack a tar that is part of an archive into a new folder, which stands for `/` in its links.

    Args:
        stream: the tar, no longer compressed.
        folder: must not be there.
        archive: what to name in errors.
        most: the bytes it may unpack to.

    Raises:
        UnsafeArchiveError: as of `unpack`.
    """
    folder.mkdir(parents=True)
    limited = cast("IO[bytes]", _Limited(stream, most))
    with _refusing(archive):
        with tarfile.open(fileobj=limited, mode="r|", tarinfo=_Header) as tar:
            write_members(tar, folder, archive, root="/")
        _read_to_end(limited)


def read_member(stream: IO[bytes], name: str, archive: Path, *, most: int) -> bytes:
    """The content of one file of a tar that is part of an archive.

    Raises:
        UnsafeArchiveError: there is no such file, or it has more than `most` bytes.
    """
    limited = cast("IO[bytes]", _Limited(stream, most * _MOST_BESIDE))
    with _refusing(archive), tarfile.open(fileobj=limited, mode="r|", tarinfo=_Header) as tar:
        for member in tar:
            if posixpath.normpath(member.name) == name and member.isreg() and member.size <= most:
                content = tar.extractfile(member)
                return b"" if content is None else content.read()
    raise _unsafe(archive, f"it has no file {name!r} of less than {most:,} bytes")


def write_members(tar: tarfile.TarFile, folder: Path, archive: Path, *, root: str = "") -> None:
    """Write what a tar has into an empty folder; a link that begins with `root` leads from the folder on."""
    links: list[tuple[Path, str, str]] = []
    # Artifacts are for Windows too. What stands for `/` is a POSIX system, where a backslash is a character
    # as any other: systemd's files have it in their names.
    refused = "\0" if root and os.sep == "/" else "\0\\"
    for number, member in enumerate(tar):
        go_on()
        if number > _MOST_MEMBERS:
            raise _unsafe(archive, f"it has more than {_MOST_MEMBERS:,} members")
        if root and member.issym() and member.linkname.startswith(root):
            inside = posixpath.normpath(member.linkname.lstrip("/") or ".")
            at = posixpath.dirname(posixpath.normpath(member.name))
            # Of absolute paths, since `relpath` takes relative ones from the current folder on.
            if not _leads_out(inside):
                member.linkname = posixpath.relpath(posixpath.join(root, inside), posixpath.join(root, at))
        _unpack_member(tar, member, folder, links, archive, refused)
    _make_links(links, folder, archive, refused)


@contextlib.contextmanager
def _refusing(archive: Path) -> Iterator[None]:
    """Turn what readers of malformed archives raise into an `UnsafeArchiveError`."""
    try:
        yield
    except _MALFORMED as error:
        raise _unsafe(archive, str(error) or "it ends too early") from error
    except OSError as error:
        # gzip's and bzip2's own errors have no number.
        if error.errno not in (None, *_OF_NAMES):
            raise
        reason = f"{str(error.filename)[-100:]!r} cannot be made: {error.strerror}"
        raise _unsafe(archive, reason if error.errno else str(error)) from error


def base_folders(artifact: Path, *, shown: Path | None = None) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the base folders of an unpacked artifact, and those its manifest names that are not there.

    A component that matched no file of a base folder leaves none, so one may be missing. But each file lies
    in a folder of the manifest: a manifest that was cut off shows by that.

    Source: ROCm/TheRock 89553ce, build_tools/_therock_utils/artifacts.py and
    build_tools/_therock_utils/artifact_builder.py.

    Args:
        artifact: its folder.
        shown: what to call it in errors.

    Raises:
        UnsafeArchiveError: the manifest is missing, empty or not UTF-8, or names what is outside of the
            artifact; or a file is in none of its folders.
    """
    shown, root = shown or artifact, artifact.resolve()
    names = _names_in(artifact / MANIFEST, shown)
    for name in names:
        if not (artifact / name).resolve().is_relative_to(root):
            raise _partial(shown, f"its {MANIFEST} names {name!r}, which is outside its folder")
    bases = {artifact / name: None for name in names if (artifact / name).is_dir()}
    for at, folders, files in os.walk(artifact):
        folders[:] = [name for name in folders if Path(at, name) not in bases]
        links = [name for name in folders if Path(at, name).is_symlink()]
        for path in (Path(at, name) for name in (*files, *links)):
            if path != artifact / MANIFEST:
                inside = path.relative_to(artifact).as_posix()
                raise _partial(shown, f"{inside} is in no folder that its {MANIFEST} names")
    return tuple(bases), tuple(name for name in names if artifact / name not in bases)


def _names_in(manifest: Path, shown: Path) -> list[str]:
    if not manifest.is_file():
        raise _partial(shown, f"it has no {MANIFEST}")
    try:
        text = manifest.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise _partial(shown, f"its {MANIFEST} is not UTF-8") from error
    if not text:  # that of a component without files has one empty line
        raise _partial(shown, f"its {MANIFEST} is empty, as a copy that was cut off leaves it")
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def _partial(artifact: Path, reason: str) -> UnsafeArchiveError:
    return UnsafeArchiveError(
        f"the artifact {artifact.name} is not whole: {reason}", tip="fetch or copy it again"
    )


def move_into(artifact: Path, folder: Path) -> list[Path]:
    """Move what an unpacked artifact holds into one tree that several share; return where its files are.

    Raises:
        UnsafeArchiveError: `base_folders` refuses its manifest, or a link there leads out of the tree.
    """
    moved: list[Path] = []
    for base in base_folders(artifact)[0]:
        for at, folders, names in os.walk(base):
            below = folder / Path(at).relative_to(base)
            below.mkdir(parents=True, exist_ok=True)
            # A link of an earlier artifact may stand where this one has a folder.
            if not below.resolve().is_relative_to(folder.resolve()):
                raise _unsafe(artifact, f"{below} leads out of {folder}")
            for name in (*names, *(each for each in folders if Path(at, each).is_symlink())):
                _replace(Path(at, name), below / name)
                moved.append(below / name)
                if (below / name).is_symlink() and not _inside(below / name, folder):
                    (below / name).unlink()
                    raise _unsafe(artifact, f"the link {below / name} leads out of {folder}")
    # Only now are the folders there that its own links go up from.
    _refuse_turning(artifact, [path for path in moved if path.is_symlink()])
    return moved


def _refuse_turning(artifact: Path, links: Sequence[Path]) -> None:
    for link in links:
        if not _stays(link):
            link.unlink()
            raise _unsafe(artifact, f"the link {link} may lead elsewhere once a later one is there")


def _stays(link: Path) -> bool:
    """Whether a link goes up from real folders alone, in whose place no other artifact can put a link."""
    place, parts = Path(os.path.realpath(link.parent)), link.readlink().parts
    for number, part in enumerate(parts):
        place /= part
        if ".." in parts[number + 1 :] and (place.is_symlink() or not place.is_dir()):
            return False
    return True


def _replace(source: Path, target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        raise UnsafeArchiveError(f"{target} is a folder, and {source.name} of another artifact is not")
    source.replace(target)


@contextlib.contextmanager
def _opened(archive: Path, most: int) -> Iterator[tarfile.TarFile]:
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(archive.open("rb"))
        stream: IO[bytes]
        if archive.name.endswith(".tar.zst"):
            opened = stack.enter_context(compression.ZstdFile(file, options=_LONGEST_WINDOW))
            stream = cast("IO[bytes]", opened)
        elif archive.name.endswith(TARBALL):
            stream = cast("IO[bytes]", stack.enter_context(gzip.open(file)))
        else:
            stream = stack.enter_context(lzma.open(file))
        limited = cast("IO[bytes]", _Limited(stream, most))
        yield stack.enter_context(tarfile.open(fileobj=limited, mode="r|", tarinfo=_Header))
        _read_to_end(limited)


def _read_to_end(stream: IO[bytes]) -> None:
    # The end of the tar is not the end of the file, where a truncated one shows.
    while stream.read(_BLOCK):
        pass


def _unpack_member(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    folder: Path,
    links: list[tuple[Path, str, str]],
    archive: Path,
    refused: str,
) -> None:
    name = posixpath.normpath(member.name)
    if name == "." and member.isdir():
        return
    if _leads_out(name) or any(each in name for each in refused) or name == ".":
        raise _unsafe(archive, f"its member {member.name[:100]!r} leads out of it")
    path = folder / name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.issym() or member.islnk():
        links.append((path, "symbolic" if member.issym() else "hard", member.linkname))
    elif member.isreg() and not member.issparse() and member.size >= 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        # Of the mode only whether it may be run; the rest is the user's umask.
        mode = 0o777 if member.mode & 0o100 else 0o666
        try:
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        except FileExistsError as error:
            raise _unsafe(archive, f"it has {member.name[:100]!r} twice") from error
        with os.fdopen(target, "wb") as file:
            if source is not None:
                shutil.copyfileobj(source, file, _BLOCK)
    else:
        raise _unsafe(archive, f"its member {member.name[:100]!r} is neither a file, a folder nor a link")


def _make_links(links: list[tuple[Path, str, str]], folder: Path, archive: Path, refused: str) -> None:
    for path, _, _ in links:
        path.parent.mkdir(parents=True, exist_ok=True)
    # While no symbolic link is there, none can be on the way to what a hard one names.
    for path, kind, target in sorted(links, key=lambda link: link[1]):
        shown = f"its link {path.relative_to(folder)} to {target[:100]!r}"
        if path.is_symlink() or path.exists():
            raise _unsafe(archive, f"{shown} is in the place of something else")
        if kind == "hard":
            name = posixpath.normpath(target)
            if _leads_out(name) or not (folder / name).is_file():
                raise _unsafe(archive, f"{shown} leads to no file of it")
            os.link(folder / name, path)
        else:
            path.symlink_to(target)
    # Only now is it known where a link leads by way of other links.
    for path, kind, target in links:
        if kind == "symbolic" and not (_plain(target, refused) and _inside(path, folder)):
            raise _unsafe(archive, f"its link {path.relative_to(folder)} leads to {target[:100]!r}")


def _plain(target: str, refused: str) -> bool:
    return bool(target) and not posixpath.isabs(target) and not any(each in target for each in refused)


def _inside(link: Path, folder: Path) -> bool:
    """Whether the target of a link, existing or not, is below a folder."""
    try:
        return Path(os.path.realpath(link)).is_relative_to(os.path.realpath(folder))
    except OSError:  # a circle
        return False


def _leads_out(name: str) -> bool:
    return posixpath.isabs(name) or name.startswith("../") or name == ".." or name[1:2] == ":"


def _unsafe(archive: Path, reason: str) -> UnsafeArchiveError:
    return UnsafeArchiveError(
        f"{archive.name} cannot be unpacked: {reason}",
        tip="look at where it comes from; nothing of it was kept",
    )
