"""Joining a host wheel and device wheels that came from one split."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.formats.offload import container, restore
from cairn.formats.offload.container import Source
from cairn.formats.offload.restore import Joined
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.rewrite.wheel import Edit
from cairn.wheels.split import device_wheel
from cairn.wheels.split.split import extract


@dataclass(frozen=True, kw_only=True)
class JoinedWheel:
    """What `join` made.

    Attributes:
        path: the wheel.
        libraries: what became of each library that was split.
    """

    path: Path
    libraries: tuple[Joined, ...]


def join(host: Path, devices: Sequence[Path], output_dir: Path) -> JoinedWheel:
    """Write a wheel that has the device code of these device wheels, into `output_dir`.

    With all device wheels of a split every code object is back, and every library is the original byte for
    byte unless its compressed bundles could not be compressed to the same bytes again; with some of them the
    wheel has code for these alone. The extras of the split are gone either way.

    Raises:
        WheelError: the wheels do not belong together, or one is malformed.
    """
    info = wheel_info.read(host)
    output_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".join.", dir=output_dir) as folder,
        Archive.open(host) as archive,
    ):
        work = _Work(info, archive, Path(folder))
        for wheel in devices:
            work.add(wheel)
        libraries = tuple(work.join(member) for member in sorted(work.sources))
        path = rewrite_wheel.apply(host, work.edit(), output_dir)
    return JoinedWheel(path=path, libraries=libraries)


class _Work:
    """What the device wheels bring.

    Attributes:
        sources: path of a library in the host wheel to its containers.
    """

    def __init__(self, host: WheelInfo, archive: Archive, folder: Path) -> None:
        self.sources: dict[str, list[Source]] = {}
        self._host = host
        self._archive = archive
        self._folder = folder
        self._count = 0
        self._files: dict[str, Path | bytes] = {}
        self._libraries: dict[str, Path | bytes] = {}

    def add(self, wheel: Path) -> None:
        """Take in a device wheel."""
        info = wheel_info.read(wheel)
        processor = _check_pair(self._host, info)
        # Files for the data folder stand in one that is named after the device wheel.
        old, new = (i.dist_info.removesuffix(".dist-info") for i in (info, self._host))
        with Archive.open(wheel) as archive:
            for member in archive.members:
                if member.is_dir or member.name.startswith(f"{info.dist_info}/"):
                    continue
                path = member.name.replace(f"{old}.data/", f"{new}.data/", 1)
                file = extract(archive, member.name, self._new_folder())
                # Code of a library comes as a container; a code object of its own (`.hsaco`) comes as it was.
                if path.endswith(container.SUFFIX):
                    self._add_container(path, file, processor)
                elif self._files.setdefault(path, file) is not file:
                    raise WheelError(f"two device wheels have {path}")

    def join(self, member: str) -> Joined:
        """Put the code of one library back."""
        file = extract(self._archive, member, self._new_folder())
        self._libraries[member] = file
        return restore.join(file, self.sources[member])

    def edit(self) -> Edit:
        """What makes the joined wheel of the host wheel."""
        # What the split added to METADATA goes again, for the processors that are not joined too.
        start = canonicalize_name(device_wheel.name_of(self._host.name, "gfx"))
        names = [canonicalize_name(wheel_info.requirement(text).name) for text in self._host.requires_dist]
        return Edit(
            replace_files=self._libraries,
            add_files=self._files,
            remove_requirements=tuple(sorted({name for name in names if name.startswith(start)})),
            remove_extras=tuple(e for e in self._host.extras if e.startswith(device_wheel.extra_of("gfx"))),
        )

    def _add_container(self, path: str, file: Path, processor: str) -> None:
        source = container.read(file)
        member = path.removesuffix(f".{processor}{container.SUFFIX}")
        if member == path or source.container.processor != processor:
            raise WheelError(f"{path} is not code for {processor}, as the name of its wheel says")
        if member not in self._archive:
            raise WheelError(f"{self._host.file_name} has no {member}, to which {path} belongs")
        self.sources.setdefault(member, []).append(source)

    def _new_folder(self) -> Path:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return folder


def _check_pair(host: WheelInfo, info: WheelInfo) -> str:
    """The processor of a device wheel, once it is certain that it belongs to the host wheel."""
    start: str = canonicalize_name(device_wheel.name_of(host.name, "gfx"))
    if not info.distribution.startswith(start):
        raise WheelError(f"{info.file_name} is not a device wheel of {host.name}")
    # Both ways: the pin of the device wheel, and the extra of the host wheel that asks for it.
    pins = {str(wheel_info.requirement(text)) for text in info.requires_dist}
    if (
        str(wheel_info.requirement(f"{host.name}=={host.version}")) not in pins
        or info.version != host.version
    ):
        raise WheelError(
            f"{info.file_name} does not belong to {host.file_name}", tip="join wheels of exactly one version"
        )
    processor = info.distribution.removeprefix(start.removesuffix("gfx"))
    if device_wheel.extra_of(processor) not in host.extras:
        raise WheelError(
            f"{host.file_name} is not a host wheel with the extra {device_wheel.extra_of(processor)}"
        )
    return processor
