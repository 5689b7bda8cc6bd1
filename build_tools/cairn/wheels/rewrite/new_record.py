"""Writing the RECORD of a wheel anew from its files, where it is known that these are right."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.formats.zip.writer import Kept, New
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.record import UNLISTED, RecordRow, format_record, row_of
from cairn.wheels.rewrite import record_check


@dataclass(frozen=True, kw_only=True)
class Written:
    """A wheel with a new RECORD.

    Attributes:
        path: where it is.
        differences: what RECORD said that is not so: one line for each file, or one for all that it said.
    """

    path: Path
    differences: tuple[str, ...]


def write(wheel: Path, output_dir: Path) -> Written:
    """Write a wheel with a RECORD that lists its files as they are, and nothing else changed.

    Signatures of the old RECORD are left out.

    Raises:
        WheelError: the wheel cannot be read, or would overwrite itself.
    """
    name = wheel_info.parse_file_name(wheel.name)
    target = output_dir / wheel.name
    if target.exists() and target.samefile(wheel):
        raise WheelError(f"{target} would overwrite its own source", tip="choose a different output folder")
    with collector_paused(), Archive.open(wheel) as archive:
        folder = wheel_info.find_dist_info(archive, name.distribution)
        try:
            info = wheel_info.read_archive(archive, name)
            wrong = tuple(f"{path} {why}" for path, why in record_check.differences(archive, info))
        except WheelError as error:
            wrong = (str(error),)
        left_out = {f"{folder}/{one}" for one in UNLISTED}
        members = [member for member in archive.members if member.name not in left_out]
        rows = []
        for member in members:
            if not member.is_dir:
                digest = hashlib.sha256()
                for piece in archive.stream(member):
                    digest.update(piece)
                rows.append(row_of(member.name, digest.digest(), member.size))
        record = f"{folder}/RECORD"
        text = format_record([*rows, RecordRow(record)])
        kept: list[Kept | New] = [Kept(member, member.name) for member in members]
        entries = [*kept, New(name=record, content=text.encode())]
        writer.write(target, entries, archive)
    return Written(path=target, differences=wrong)
