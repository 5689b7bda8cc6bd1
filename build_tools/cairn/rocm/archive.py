"""Writing wheels, sdists and tars whose bytes depend on their content alone."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cairn import files
from cairn.formats.zip import writer
from cairn.formats.zip.writer import New
from cairn.output import Progress, silent

_EPOCH_DIGITS = 10  # of seconds until the year 2286
_ZIP_EPOCH = 315532800  # 1980-01-01, the first moment a ZIP file can name; tars take the same


def timestamp() -> int:
    """The mtime of every file in a tar: `SOURCE_DATE_EPOCH`, else 1980-01-01 (seconds since 1970)."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch.isdecimal() or len(epoch) > _EPOCH_DIGITS:
        return _ZIP_EPOCH
    return max(_ZIP_EPOCH, int(epoch))


def write_wheel(path: Path, members: Sequence[New], *, dist_info: str, say: Progress = silent) -> None:
    """Write a wheel whose members come in the order given, and its RECORD at the end (PEP 427, PEP 376)."""
    rows = io.StringIO()
    record = f"{dist_info}/RECORD"
    record_writer = csv.writer(rows, lineterminator="\n")
    for member in members:
        content = member.content
        if isinstance(content, bytes):
            digest, size = hashlib.sha256(content).hexdigest(), len(content)
        else:
            digest, size = files.sha256_of(content), content.stat().st_size
        # URL-safe base64 without its padding, as PEP 427 wants it.
        code = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
        record_writer.writerow((member.name, f"sha256={code}", size))
    record_writer.writerow((record, "", ""))
    members = [*members, New(name=record, content=rows.getvalue().encode())]
    writer.write(path, _announced(members, path.name, say))


def _announced(members: Iterable[New], name: str, say: Progress) -> Iterator[New]:
    """Tell each member before it is compressed: libraries of 2 GB take minutes."""
    for member in members:
        say(f"write {name}: {member.name}")
        yield member


def write_tar(path: Path, members: Iterable[New | tuple[str, str]]) -> None:
    """Write a plain tar; a pair is a link and what it points to."""
    with files.writing_beside(path) as part, tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as archive:
        _fill_tar(archive, members)


def write_sdist(path: Path, members: Iterable[New]) -> None:
    """Write a .tar.gz (PEP 625)."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _fill_tar(archive, members)
    # gzip.open would write the time and the name of the temporary file into the header (RFC 1952, 2.3).
    files.write_bytes(path, gzip.compress(plain.getvalue(), mtime=timestamp()))


def _fill_tar(archive: tarfile.TarFile, members: Iterable[New | tuple[str, str]]) -> None:
    for member in members:
        if isinstance(member, tuple):
            info = tarfile.TarInfo(member[0])
            info.type, info.linkname, info.mode, info.mtime = tarfile.SYMTYPE, member[1], 0o777, timestamp()
            archive.addfile(info)
            continue
        info = tarfile.TarInfo(member.name)
        info.mode, info.mtime = 0o755 if member.executable else 0o644, timestamp()
        if isinstance(member.content, bytes):
            info.size = len(member.content)
            archive.addfile(info, io.BytesIO(member.content))
        else:
            info.size = member.content.stat().st_size
            with member.content.open("rb") as source:
                archive.addfile(info, source)
