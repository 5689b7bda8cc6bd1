"""Putting a bill of materials into a wheel: its sources, the SDK, the libraries it bundles.

PEP 770 gives such files the folder `sboms` of the dist-info folder; ours is `cairn.cdx.json`, CycloneDX.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cairn.formats import cyclonedx
from cairn.formats.cyclonedx import Source
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries as contents_binaries
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.wheel import Edit, edit_wheel

__all__ = ["Source", "add"]

_BUNDLED = ".libs"  # where auditwheel and delvewheel put what they bring
_DLL = ".dll"


def add(wheel: Path, output_dir: Path, *, sources: Sequence[Source], rocm_version: str | None) -> Path:
    """Write a wheel with its bill of materials into `output_dir`; one that it has from here is replaced.

    It is the last that a build does to a wheel, and what the umask of the machine has left goes too.

    Args:
        wheel: the wheel, with everything that it will bundle.
        output_dir: a folder other than its own.
        sources: its own repository first.
        rocm_version: of the ROCm SDK it was built against; None for a build without.

    Raises:
        WheelError: the wheel cannot be read.
    """
    info = wheel_info.read(wheel)
    path = f"{info.dist_info}/{cyclonedx.NAME}"
    with Archive.open(wheel) as archive:
        present = path in archive
        bundled = list(_bundled(archive))
    document = cyclonedx.document(
        info.distribution, info.version, sources=sources, rocm_version=rocm_version, bundled=bundled
    )
    content = {path: document}
    where: dict[str, Any] = {"replace_files" if present else "add_files": content}
    change = Edit(**where, usual_modes=True)
    return edit_wheel(wheel, change, output_dir)


def _bundled(archive: Archive) -> Iterator[dict[str, Any]]:
    """The libraries that a repair brought in, by their bytes."""
    binaries = {member.name for member, _ in contents_binaries.binary_members(archive)}
    for member in sorted(archive.members, key=lambda member: member.name):
        if not member.name.rpartition("/")[0].endswith(_BUNDLED):
            continue
        if member.name in binaries or member.name.lower().endswith(_DLL):
            yield cyclonedx.bundled_file(member.name, archive.digest(member.name).hex())
