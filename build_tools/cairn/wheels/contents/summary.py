"""What `cairn wheel show` prints about a wheel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from cairn import targets
from cairn.formats.kpack import reference
from cairn.formats.offload import record
from cairn.formats.zip.reader import Archive, Limits, Member
from cairn.wheels.contents import binaries, code_archives
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.contents.code_archives import CodeArchive
from cairn.wheels.metadata import wheel_info

_LONGEST_LINK = 4096
Kind: TypeAlias = Literal["host", "device", "variant"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A wheel.

    Attributes:
        file_name: its file name.
        distribution: its project's canonical name.
        version: its version.
        build: its build number, or None.
        variant: its label where it is a wheel variant, or None.
        tags: the tags it is good for.
        requires_python: the Python versions it supports, or None.
        requires_dist: its requirements.
        extras: its extras.
        entry_points: group to name to object reference.
        size: bytes of the file.
        unpacked_size: bytes of its members.
        members: how many there are.
        metadata_sha256: of METADATA.
        targets: every target it has device code for.
        binaries: those of Linux, then those of Windows.
        kind: `host` for what is left of a wheel that was split, `device` for nothing but device code,
            `variant` for the first with archives of its own.
        archives: those that it brings for libraries of its host wheel.
        builds: what must be the same of a host wheel and its device wheels; none where it was not split.
        links: its symbolic links and where they lead, as `a -> b`; no wheel may be published that has any.
    """

    file_name: str
    distribution: str
    version: str
    build: str | None
    variant: str | None
    tags: tuple[str, ...]
    requires_python: str | None
    requires_dist: tuple[str, ...]
    extras: tuple[str, ...]
    entry_points: Mapping[str, Mapping[str, str]]
    size: int
    unpacked_size: int
    members: int
    metadata_sha256: str
    targets: tuple[str, ...]
    binaries: tuple[Binary, ...]
    kind: Kind | None = None
    archives: tuple[CodeArchive, ...] = ()
    builds: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """What `cairn wheel show --json` prints: plain values, under names that programs rely on."""
        names = (field.name for field in dataclasses.fields(self))
        plain = {"libraries" if name == "binaries" else name: getattr(self, name) for name in names}
        plain["libraries"] = [
            {
                "member": binary.path,
                "machine": binary.machine,
                "size": binary.size,
                "soname": binary.soname,
                "needed": binary.needed,
                "run_paths": binary.run_paths,
                "targets": binary.targets,
                "device_code_size": binary.device_code_size,
                "kpack_search_paths": binary.reference.kpack_search_paths if binary.reference else (),
            }
            for binary in self.binaries
        ]
        plain["archives"] = [dataclasses.asdict(archive) for archive in self.archives]
        return plain


def summarise(wheel: Path) -> Summary:
    """Read a wheel.

    Raises:
        WheelError: it cannot be read.
    """
    name = wheel_info.parse_file_name(wheel.name, variants_too=True)
    with Archive.open(wheel, limits=Limits(links=True)) as archive:
        info = wheel_info.read_archive(archive, name)
        read = binaries.read_archive(archive)
        archives = code_archives.read_archives(archive)
        has_record = f"{info.dist_info}/{record.NAME}" in archive
        links = tuple(_link(archive, member) for member in archive.members if member.is_link)
        sizes = [member.size for member in archive.members]
    return Summary(
        file_name=info.file_name,
        distribution=info.distribution,
        version=info.version,
        build=info.build,
        variant=name.variant,
        tags=info.tags,
        requires_python=info.requires_python,
        requires_dist=info.requires_dist,
        extras=info.extras,
        entry_points=info.entry_points,
        size=info.size,
        unpacked_size=sum(sizes),
        members=len(sizes),
        metadata_sha256=info.metadata_sha256,
        targets=targets.in_order(
            [name for binary in read for name in binary.targets]
            + [name for one in archives for name in one.targets]
        ),
        binaries=read,
        kind=_kind(read, archives, has_record=has_record),
        archives=archives,
        builds=_builds(read, archives),
        links=links,
    )


def _kind(libraries: Sequence[Binary], archives: Sequence[CodeArchive], *, has_record: bool) -> Kind | None:
    if has_record or any(binary.reference for binary in libraries):
        return "variant" if archives else "host"
    # Code objects that are files of their own move into a device wheel as they are.
    only_code = all(binary.is_device_code for binary in libraries)
    return "device" if only_code and (libraries or archives) else None


def _builds(libraries: Sequence[Binary], archives: Sequence[CodeArchive]) -> tuple[str, ...]:
    looked_for = reference.builds_in(binary.reference.kernel_name for binary in libraries if binary.reference)
    return tuple(sorted({*looked_for, *(name for one in archives for name in one.builds)}))


def _link(archive: Archive, member: Member) -> str:
    # PATH_MAX of Linux: a longer target leads nowhere.
    target = archive.read(member.name, limit=_LONGEST_LINK).decode("utf-8", "backslashreplace")
    return f"{member.name} -> {target}"
