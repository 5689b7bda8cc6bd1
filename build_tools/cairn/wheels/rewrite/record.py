"""RECORD against the files of a wheel: refusing a wrong one, or writing it anew (`--new-record`).

Commands that change a wheel would hide it if its members were not what RECORD says.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.formats.zip.writer import CopiedMember, New
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.record import (
    UNLISTED,
    RecordRow,
    encode_digest,
    format_record,
    is_strong,
    row_of,
)
from cairn.wheels.metadata.wheel_info import WheelInfo

_WORTH_THREADS = 8 << 20  # bytes that take longer to check than threads to start


@dataclass(frozen=True, kw_only=True)
class WrittenWheel:
    """A wheel with a new RECORD.

    Attributes:
        path: where it is.
        differences: what RECORD said that is not so: one line for each file, or one for all that it said.
    """

    path: Path
    differences: tuple[str, ...]


def write(wheel: Path, output_dir: Path) -> WrittenWheel:
    """Write a wheel with a RECORD that lists its files as they are, and nothing else changed.

    Signatures of the old RECORD are left out.

    Raises:
        WheelError: the wheel cannot be read, or would overwrite itself.
    """
    name = wheel_info.parse_file_name(wheel.name)
    target = output_dir / wheel.name
    writer.refuse_source(target, [wheel])
    with collector_paused(), Archive.open(wheel) as archive:
        folder = wheel_info.find_dist_info(archive, name.distribution)
        try:
            listed = differences(archive, wheel_info.read_archive(archive))
            wrong = tuple(f"{path} {why}" for path, why in listed)
        except WheelError as error:
            wrong = (str(error),)
        left_out = {f"{folder}/{name}" for name in UNLISTED}
        members = [member for member in archive.members if member.name not in left_out]
        rows = [
            row_of(member.name, archive.digest(member.name), member.size)
            for member in members
            if not member.is_dir
        ]
        record = f"{folder}/RECORD"
        text = format_record([*rows, RecordRow(record)])
        copied: list[CopiedMember | New] = [CopiedMember(member, member.name) for member in members]
        entries = [*copied, New(name=record, content=text.encode())]
        writer.write(target, entries, archive)
    return WrittenWheel(path=target, differences=wrong)


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
        raise wrong_record(info, f"{path} {why}{more}")


def wrong_record(info: WheelInfo, reason: str) -> WheelError:
    """The error for a wheel whose RECORD is wrong."""
    return WheelError(
        f"RECORD of {info.file_name} is wrong: {reason}",
        tip="fetch or build the wheel again: it was changed since; where you know that its files are "
        "right, `cairn wheel repair --new-record` writes RECORD from them",
    )


def differences(
    archive: Archive, info: WheelInfo, only: Collection[str] | None = None
) -> list[tuple[str, str]]:
    """The members that differ from RECORD, sorted, and how they differ; see `require_right`."""
    listed = {row.path for row in info.record} - info.unlisted
    names = {name for member in archive.members if not (name := member.name).endswith("/")} - info.unlisted
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
    digest, size = archive.digest(row.path, row.algorithm), archive.member(row.path).size
    if row.size is not None and row.size != size:
        return f"has {size} bytes, not {row.size}"
    if row.digest == digest.hex():
        return "has its hash in hexadecimal digits, not in base64"
    return "" if encode_digest(digest) == row.digest else "has different content than its hash says"
