"""Joining a host wheel and device wheels that came from one split.

`join` makes one wheel of them all; `write_variant` a wheel variant of the host wheel and one device wheel,
chosen by the GPU. An installer that knows wheel variants takes the one for the GPU it finds (PEP 825). All
others do not take them for wheels at all, and install the host wheel, whose name and tags they have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn import datafile, files
from cairn.errors import UsageError, WheelError
from cairn.formats import kpack
from cairn.formats.kpack import PLACEHOLDER, SUFFIX
from cairn.formats.offload import SPLIT_RECORD, restore
from cairn.formats.offload.record import Library, Record
from cairn.formats.offload.restore import JoinedLibrary
from cairn.formats.view import FileView
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive
from cairn.targets import generic_targets
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.variants import AMD, GFX_ARCH, IN_WHEEL, Priorities, Provider, Variants, with_label
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split import device_wheel
from cairn.wheels.split.split import extract, hook_removed
from cairn.wheels.verify import Expectation
from cairn.wheels.verify.written import judge_source, require_no_worse

PROVIDER = Provider(
    requires=("rocm-bootstrap",), plugin_api="rocm_bootstrap.variant_provider:AMDVariantPlugin"
)
"""ROCm's own: it names the processors of the GPUs that it finds."""


class JoinedWheel(msgspec.Struct, frozen=True, kw_only=True):
    """The wheel that `join` made.

    Attributes:
        path: the wheel.
        libraries: what became of each library that was split.
    """

    path: Path
    libraries: tuple[JoinedLibrary, ...]


def join(host: Path, devices: Sequence[Path], output_dir: Path) -> JoinedWheel:
    """Write a wheel that has the device code of these device wheels, into `output_dir`.

    With all device wheels of a split every code object is back, and every library is the original byte for
    byte unless its compressed bundles could not be compressed to the same bytes again; with some of them the
    wheel has code for these alone. The extras of the split are gone either way.

    Raises:
        WheelError: the wheels do not belong together, or one is malformed; or `verify` has findings on the
            new one that it has on none of them.
    """
    info = wheel_info.read(host)
    with files.scratch(output_dir, "join") as folder, Archive.open(host) as archive:
        work = _Work(info, archive, folder)
        for wheel in devices:
            work.add(wheel)
        libraries = work.join()
        path = _checked(edit_wheel(host, work.edit(), folder / "made"), [host, *devices], output_dir)
    return JoinedWheel(path=path, libraries=libraries)


def _checked(made: Path, sources: Sequence[Path], output_dir: Path) -> Path:
    """Move a wheel into the output folder, once it is known to be no worse than what it was made of."""
    expected = Expectation(require_platform_tag=False)
    target = output_dir / made.name
    writer.refuse_source(target, sources)
    with ExitStack() as stack:
        archives = [stack.enter_context(Archive.open(path)) for path in sources]
        require_no_worse(made, expected, [judge_source(archive, expected) for archive in archives])
    return made.replace(target)


class _Work:
    """Collects the content of device wheels, and puts it back into the host wheel."""

    def __init__(self, host: WheelInfo, archive: Archive, folder: Path) -> None:
        self._host = host
        self._archive = archive
        self._folder = folder
        self._record = read_record(host, archive)
        self._processors: set[str] = set()
        self._archives: dict[str, Path] = {}
        self._files: dict[str, Path] = {}
        self._libraries: dict[str, Path | bytes] = {}

    def add(self, wheel: Path) -> None:
        """Take in a device wheel."""
        info = wheel_info.read(wheel)
        processor = processor_of(info, self._host, self._record)
        self._processors.add(processor)
        with Archive.open(wheel) as archive:
            for member in archive.members:
                if member.is_dir or member.name.startswith(f"{info.dist_info}/"):
                    continue
                path = device_wheel.data_path(self._host, device_wheel.common_path(info, member.name))
                # Not under its own name: that of an archive may have a colon, which Windows refuses.
                file = extract(archive, member.name, Path(tempfile.mkdtemp(dir=self._folder)), "file")
                # Code of libraries comes in archives; a code object of its own (`.hsaco`) comes as it was.
                if path.endswith(SUFFIX):
                    with file.open("rb") as opened:
                        targets = kpack.Archive.open(FileView(opened), path).table.gfx_arches
                    if any(target.partition(":")[0] != processor for target in targets):
                        raise WheelError(f"{path} is not code for {processor}, as the name of its wheel says")
                    unique = self._archives.setdefault(path, file) is file
                else:
                    unique = self._files.setdefault(path, file) is file
                if not unique:
                    raise WheelError(f"two device wheels have {path}")

    def join(self) -> tuple[JoinedLibrary, ...]:
        """Put the code of every library back."""
        used: set[str] = set()
        joined = tuple(self._join_one(library, used) for library in self._record.libraries)
        unused = sorted(self._archives.keys() - used)
        if unused:
            raise WheelError(f"{self._host.file_name} has no library that looks for {unused[0]}")
        self._check_files()
        return joined

    def edit(self) -> Edit:
        """The edit that makes the joined wheel of the host wheel."""
        # What the split added to METADATA goes again, for the processors that are not joined too.
        hook = hook_removed(self._archive)
        return Edit(
            replace_files={**hook.replace_files, **self._libraries},
            add_files=self._files,
            remove_files=(*hook.remove_files, f"{self._host.dist_info}/{SPLIT_RECORD}"),
            remove_requirements=tuple(self._record.devices.values()),
            remove_extras=tuple(self._record.extras),
        )

    def _join_one(self, library: Library, used: set[str]) -> JoinedLibrary:
        path = device_wheel.data_path(self._host, library.path)
        if path not in self._archive:
            raise WheelError(f"{self._host.file_name} has no {path}, which was split")
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        host = extract(self._archive, path, folder)
        name = device_wheel.data_path(self._host, library.archives)
        with ExitStack() as stack:
            archives = {}
            for target in {code.target for part in library.parts for code in part.codes}:
                archive = name.replace(PLACEHOLDER, target)
                if target.partition(":")[0] in self._processors:
                    if archive not in self._archives:
                        raise WheelError(f"there is no {archive}, where {path} has its code for {target}")
                    file = stack.enter_context(self._archives[archive].open("rb"))
                    archives[target] = kpack.Archive.open(FileView(file), archive)
            before, _, behind = name.partition(PLACEHOLDER)
            used.update(n for n in self._archives if n.startswith(before) and n.endswith(behind))
            self._libraries[path] = whole = folder / "whole"
            return restore.join(host, library, archives, whole)

    def _check_files(self) -> None:
        """Check that every file that had moved as it was is back, unchanged."""
        expected = {
            device_wheel.data_path(self._host, moved.path): moved.sha256
            for moved in self._record.files
            if moved.processor in self._processors
        }
        digests = {path: files.sha256_of(file) for path, file in self._files.items()}
        if wrong := sorted(path for path, _ in expected.items() ^ digests.items()):
            raise WheelError(
                f"{wrong[0]} is not what was split from {self._host.file_name}",
                tip="the device wheels and the host wheel must come from one split",
            )


def processor_of(device: WheelInfo, host: WheelInfo, split: Record) -> str:
    """The processor of a device wheel, once it is certain that it belongs to a host wheel.

    Raises:
        WheelError: it does not.
    """
    names: dict[str, str] = {canonicalize_name(name): processor for processor, name in split.devices.items()}
    if device.distribution not in names:
        raise WheelError(f"{device.file_name} is not a device wheel of {host.name}")
    pins = {str(wheel_info.requirement(text)) for text in device.requires_dist}
    pinned = str(wheel_info.requirement(f"{host.name}=={host.version}")) in pins
    if not pinned or device.version != host.version:
        raise WheelError(
            f"{device.file_name} does not belong to {host.file_name}",
            tip="join wheels of exactly one version",
        )
    return names[device.distribution]


def read_record(host: WheelInfo, archive: Archive) -> Record:
    """The record of a split that is in a host wheel.

    Raises:
        WheelError: it says nothing, or nothing that can be read.
    """
    member = f"{host.dist_info}/{SPLIT_RECORD}"
    if member not in archive:
        raise WheelError(
            f"{host.file_name} is not a host wheel, or does not say what was split from it: "
            f"it has no {member}"
        )
    try:
        return datafile.loads(archive.read(member), Record, name=member)
    except UsageError as error:
        raise WheelError(str(error), tip="fetch the host wheel again") from error


def require_processors(targets: Iterable[str]) -> None:
    """Refuse targets of which no provider tells an installer which machines they are for.

    Raises:
        WheelError: one of them is generic.
    """
    generic = sorted({target.partition(":")[0] for target in targets} & generic_targets().keys())
    if generic:
        names = " and ".join(generic)
        raise WheelError(
            f"there can be no wheel variant for {names}: rocm-bootstrap names processors alone",
            tip="build for the processors themselves, or leave out --variants",
        )


def variant_for(processor: str) -> Variants:
    """The `variant.json` of the variant for a processor, which is its label.

    Raises:
        WheelError: see `require_processors`.
    """
    require_processors([processor])
    return Variants(
        default_priorities=Priorities(namespace=(AMD,)),
        providers={AMD: PROVIDER},
        variants={processor: {AMD: {GFX_ARCH: (processor,)}}},
    )


def write_variant(host: Path, device: Path, output_dir: Path) -> Path:
    """Write the variant that a host wheel and one of its device wheels make together.

    It requires what both did but for each other. The extras of the host wheel are gone: a device wheel
    beside the variant would bring the same files again.

    Raises:
        WheelError: the two do not belong together, or there can be no such variant.
    """
    info, device_info = wheel_info.read(host), wheel_info.read(device)
    with (
        files.scratch(output_dir, "variant") as folder,
        Archive.open(host) as archive,
        Archive.open(device) as code,
    ):
        record = read_record(info, archive)
        processor = processor_of(device_info, info, record)
        requires = [t for t in device_info.requires_dist if wheel_info.required_name(t) != info.distribution]
        content = datafile.dumps(variant_for(processor)).encode()
        added: dict[str, Path | bytes] = {f"{info.dist_info}/{IN_WHEEL}": content}
        for number, member in enumerate(code.members):
            if not member.is_dir and not member.name.startswith(f"{device_info.dist_info}/"):
                where = device_wheel.data_path(info, device_wheel.common_path(device_info, member.name))
                # Not under its own name: that of an archive may have a colon, which Windows refuses.
                added[where] = extract(code, member.name, folder, str(number))
        change = Edit(
            add_files=added,
            remove_extras=tuple(record.extras),
            remove_requirements=tuple(record.devices.values()),
            add_requirements=tuple(requires),
        )
        path = edit_wheel(host, change, folder / "made")
        labelled = path.replace(path.parent / with_label(path.name, processor))
        return _checked(labelled, [host, device], output_dir)
