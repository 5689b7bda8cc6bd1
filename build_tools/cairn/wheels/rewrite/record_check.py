"""Whether a wheel's members are what RECORD says, for commands that would hide it if they were not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata.record import UNLISTED, RecordRow, encode_digest, is_strong
from cairn.wheels.metadata.wheel_info import WheelInfo

_WORTH_THREADS = 8 << 20  # bytes that take longer to check than threads to start


def require_right(archive: Archive, info: WheelInfo, only: Collection[str] | None = None) -> None:
    """Refuse a wheel whose RECORD does not list exactly its members, or lists them with wrong hashes.

    Args:
        archive: the wheel.
        info: what it says about itself.
        only: the members whose hashes are checked, as far as they are there; all by default.

    Raises:
        WheelError: RECORD lists what is not there, or not what is, or a size or a hash is wrong; or a member
            cannot be unpacked.
    """
    if wrong := differences(archive, info, only):
        path, why = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise WheelError(
            f"RECORD of {info.file_name} is wrong: {path} {why}{more}",
            tip="fetch or build the wheel again: it was changed since; where you know that its files are "
            "right, `cairn wheel repair --new-record` writes RECORD from them",
        )


def differences(
    archive: Archive, info: WheelInfo, only: Collection[str] | None = None
) -> list[tuple[str, str]]:
    """The members that are not what RECORD says, sorted, and in what; see `require_right`."""
    own = {f"{info.dist_info}/{name}" for name in UNLISTED}
    listed = {row.path for row in info.record} - own
    names = {member.name for member in archive.members if not member.is_dir} - own
    wrong = [(path, "is not listed" if path in names else "is not there") for path in listed ^ names]
    rows = [row for row in info.record if row.path in names and (only is None or row.path in only)]
    if sum(archive.member(row.path).size for row in rows) < _WORTH_THREADS:
        reasons = [_wrong(archive, row) for row in rows]
    else:
        # Loaded here because most edits change a few small files, and it costs more than they do.
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

        # Threads, since inflating and hashing release the interpreter's lock.
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            reasons = list(pool.map(lambda row: _wrong(archive, row), rows))
    wrong += [(row.path, why) for row, why in zip(rows, reasons, strict=True) if why]
    return sorted(wrong)


def _wrong(archive: Archive, row: RecordRow) -> str:
    """What is wrong with a row; empty when nothing is."""
    if row.algorithm is None or not is_strong(row.algorithm):
        return f"has no hash that can be trusted ({row.algorithm or 'none'})"
    digest = hashlib.new(row.algorithm)
    member = archive.member(row.path)
    for piece in archive.stream(member):
        digest.update(piece)
    if row.size is not None and row.size != member.size:
        return f"has {member.size} bytes, not {row.size}"
    return "" if encode_digest(digest.digest()) == row.digest else "has different content than its hash says"
