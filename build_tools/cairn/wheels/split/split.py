"""Splitting a wheel: the host code in one, the device code of each processor in one of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.formats.errors import BombError
from cairn.formats.offload import container as offload_container
from cairn.formats.offload import strip
from cairn.formats.zip.reader import Archive
from cairn.targets import in_order
from cairn.wheels.contents import binaries
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.rewrite.wheel import Edit
from cairn.wheels.split import device_wheel


def split(wheel: Path, output_dir: Path) -> tuple[Path, ...]:
    """Write a host wheel and a device wheel for each processor into `output_dir`; the host wheel comes first.

    The host wheel keeps the name, version and file name, and has an extra `device-<processor>` for each
    device wheel; both sides require exactly each other's version. All features of a processor (`gfx90a`,
    `gfx90a:xnack+`) go together. docs/reference/device-wheels.md says what a host wheel can do alone.

    Raises:
        WheelError: the wheel has no device code, has been split already, or is malformed.
    """
    info = wheel_info.read(wheel)
    target = output_dir / info.file_name
    if target.exists() and target.samefile(wheel):
        raise WheelError(f"{target} would overwrite its own source", tip="choose a different output folder")
    with Archive.open(wheel) as archive:
        libraries = [binary for binary in binaries.read_archive(archive) if binary.code_objects]
        _check(info, libraries, archive)
        output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".split.", dir=output_dir) as folder:
            work = _Work(archive, Path(folder))
            for library in libraries:
                work.take(library)
            # All are made before one is moved into place: a failure leaves no half of a split behind.
            made = Path(folder, "made")
            change = work.host_edit(info)
            wheels = [rewrite_wheel.apply(info.path, change, made)]
            _check_host(wheels[0], change)
            wheels += [device_wheel.write(info, name, work.code[name], made) for name in in_order(work.code)]
            return tuple(path.replace(output_dir / path.name) for path in wheels)


class _Work:
    """What was taken out so far.

    Attributes:
        code: processor to path in the wheel to file.
        hosts: path in the wheel to the library without its device code.
        moved: code objects that leave the host wheel as they are.
    """

    def __init__(self, archive: Archive, folder: Path) -> None:
        self.code: dict[str, dict[str, Path]] = {}
        self.hosts: dict[str, Path | bytes] = {}
        self.moved: list[str] = []
        self._archive = archive
        self._folder = folder
        self._count = 0

    def take(self, library: Binary) -> None:
        """Take the device code of one binary out of the wheel."""
        folder = self._folder / str(self._count)
        self._count += 1
        folder.mkdir()
        file = extract(self._archive, library.path, folder)
        if library.is_device_code:
            # A code object of its own moves as a whole: nothing of it is for the host.
            self.moved.append(library.path)
            (code,) = library.code_objects
            self.code.setdefault(code.target.processor, {})[library.path] = file
            return
        # The container gets the library's path and the processor: `join` finds the library by it.
        for processor, container in strip.cut(file, folder).items():
            path = f"{library.path}.{processor}{offload_container.SUFFIX}"
            self.code.setdefault(processor, {})[path] = container
        self.hosts[library.path] = file

    def host_edit(self, info: WheelInfo) -> Edit:
        """What makes the host wheel of the whole one."""
        names = in_order(self.code)
        return Edit(
            replace_files=self.hosts,
            remove_files=tuple(self.moved),
            add_extras=tuple(map(device_wheel.extra_of, names)),
            add_requirements=tuple(device_wheel.requirement_of(info, name) for name in names),
        )


def extract(archive: Archive, name: str, folder: Path) -> Path:
    """Write a member into a folder under its own file name."""
    target = folder / name.rpartition("/")[2]
    with target.open("wb") as out:
        out.writelines(archive.stream(archive.member(name)))
    return target


def _check(info: WheelInfo, libraries: Sequence[Binary], archive: Archive) -> None:
    version = str(wheel_info.parsed_version(info.version))
    named = wheel_info.parse_file_name(info.file_name)
    if (canonicalize_name(info.name), version) != (named.distribution, named.version):
        raise WheelError(
            f"METADATA of {info.file_name} is that of {info.name} {info.version}", tip="build the wheel again"
        )
    if not libraries:
        raise WheelError(
            f"{info.file_name} has no device code to split off", tip="`cairn wheel show` lists it"
        )
    taken = any(extra.startswith(device_wheel.extra_of("gfx")) for extra in info.extras)
    if taken or any(member.name.endswith(offload_container.SUFFIX) for member in archive.members):
        raise WheelError(f"{info.file_name} has been split already", tip="split the whole wheel")


def _check_host(host: Path, change: Edit) -> None:
    """Read it as everyone will: a library of device code alone turns into zeros, which look like a bomb."""
    try:
        info = wheel_info.read(host)
    except BombError as error:
        raise WheelError(
            f"{host.name} has a library that is nearly all device code: {error}",
            tip="publish this wheel unsplit, one for each target",
        ) from error
    if not set(change.add_extras) <= set(info.extras):
        raise WheelError(f"METADATA of {host.name} cannot be edited: it is malformed", tip="build it again")
