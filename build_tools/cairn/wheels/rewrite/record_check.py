"""Whether a wheel's members are what RECORD says, for commands that would hide it if they were not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata.record import UNLISTED, RecordRow, encode_digest, is_strong
from cairn.wheels.metadata.wheel_info import WheelInfo


def require_right(archive: Archive, info: WheelInfo, only: Collection[str] | None = None) -> None:
    """Refuse a wheel whose RECORD does not list its members with their hashes, on all cores.

    Args:
        archive: the wheel.
        info: what it says about itself.
        only: the members to look at; all by default.

    Raises:
        WheelError: RECORD lists what is not there, or not what is, or a size or a hash is wrong; or a member
            cannot be unpacked.
    """
    own = {f"{info.dist_info}/{name}" for name in UNLISTED}
    listed = {row.path for row in info.record} - own
    there = {member.name for member in archive.members if not member.is_dir} - own
    if only is not None:
        listed, there = listed.intersection(only), there.intersection(only)
    wrong = [(path, "is not listed" if path in there else "is not there") for path in listed ^ there]
    rows = [row for row in info.record if row.path in listed & there]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        wrong += [(p, why) for p, why in pool.map(lambda row: (row.path, _wrong(archive, row)), rows) if why]
    if wrong:
        path, why = min(wrong)
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise WheelError(
            f"RECORD of {info.file_name} is wrong: {path} {why}{more}",
            tip="`cairn wheel verify` lists all; fetch or build the wheel again, since somebody changed it",
        )


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
    return "" if encode_digest(digest.digest()) == row.digest else "has another content than its hash says"
