"""Writing wheels, sdists and tars whose bytes depend on their content alone."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import os
import tarfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cairn import files

_EPOCH_DIGITS = 10  # of seconds until the year 2286; zip files end in 2107
_ZIP_EPOCH = 315532800  # 1980-01-01, the first moment a zip file can name
_ZIP64_FROM = 1 << 31
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class File:
    """A file to be archived: from disk, or bytes."""

    path: str
    source: Path | None = None
    data: bytes = b""
    executable: bool = False

    @property
    def mode(self) -> int:
        """Permissions, the same whoever packages."""
        return 0o755 if self.executable else 0o644

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) if self.source is None else self.source.stat().st_size

    def open(self) -> IO[bytes]:
        """Its bytes as a stream."""
        return io.BytesIO(self.data) if self.source is None else self.source.open("rb")


def timestamp() -> int:
    """The time every archived file carries: `SOURCE_DATE_EPOCH`, else 1980-01-01 (seconds since 1970)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdecimal() or len(epoch) > _EPOCH_DIGITS:
        return _ZIP_EPOCH
    return max(_ZIP_EPOCH, int(epoch))


def write_wheel(path: Path, members: Iterable[File], *, dist_info: str) -> None:
    """Write a wheel whose members come in the order given, and its RECORD at the end (PEP 427, PEP 376)."""
    rows: list[tuple[str, str, str]] = []
    with files.writing_beside(path) as part, zipfile.ZipFile(part, "w") as archive:
        for member in members:
            digest = _write_member(archive, member)
            rows.append((member.path, f"sha256={digest}", str(member.size)))
        record = f"{dist_info}/RECORD"
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        _write_member(archive, File(path=record, data=text.getvalue().encode()))


def _write_member(archive: zipfile.ZipFile, member: File) -> str:
    info = zipfile.ZipInfo(member.path, time.gmtime(timestamp())[:6])
    info.external_attr = (0o100000 | member.mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, so that the permissions above count
    digest = hashlib.sha256()
    with member.open() as source, archive.open(info, "w", force_zip64=member.size >= _ZIP64_FROM) as target:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            target.write(chunk)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def write_tar(path: Path, members: Iterable[File | tuple[str, str]]) -> None:
    """Write a plain tar; a pair is a link and what it points to."""
    with files.writing_beside(path) as part, tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        _fill_tar(archive, members)


def write_sdist(path: Path, members: Iterable[File]) -> None:
    """Write a .tar.gz (PEP 625)."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _fill_tar(archive, members)
    # The gzip header would name the moment and the temporary file.
    files.write_bytes(path, gzip.compress(plain.getvalue(), mtime=timestamp()))


def _fill_tar(archive: tarfile.TarFile, members: Iterable[File | tuple[str, str]]) -> None:
    for member in members:
        if isinstance(member, tuple):
            info = tarfile.TarInfo(member[0])
            info.type, info.linkname, info.mode, info.mtime = tarfile.SYMTYPE, member[1], 0o777, timestamp()
            archive.addfile(info)
            continue
        info = tarfile.TarInfo(member.path)
        info.size, info.mode, info.mtime = member.size, member.mode, timestamp()
        with member.open() as source:
            archive.addfile(info, source)
