"""Splitting a wheel: the host code in one, the device code of each processor in one of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import datafile, files
from cairn.errors import WheelError
from cairn.formats.kpack import reference
from cairn.formats.kpack.archive import SUFFIX
from cairn.formats.kpack.reference import PLACEHOLDER
from cairn.formats.offload import detach, record, unpacked
from cairn.formats.offload.record import Library, Moved, Record
from cairn.formats.view import FileView
from cairn.formats.zip.reader import Archive
from cairn.targets import in_order
from cairn.wheels.contents import binaries
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.metadata.record import encode_digest
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.rewrite.wheel import Edit
from cairn.wheels.split import databases, device_wheel, import_hook
from cairn.wheels.split.archives import Archives, Place
from cairn.wheels.split.device_wheel import Terms

RUNTIME = "7.14"
"""A release of ROCm that is known to read kpack archives; which was the first is not."""

_WHOLE = "publish this wheel unsplit, one for each target"


def split(wheel: Path, output_dir: Path, terms: Terms | None = None) -> tuple[Path, ...]:
    """Write a host wheel and a device wheel for each processor into `output_dir`; the host wheel comes first.

    The host wheel keeps the name, version and file name, and has an extra `device-<processor>` for each
    device wheel, one for each family that is whole, and `device-all`; both sides require exactly each other's
    version. All features of a processor (`gfx90a`, `gfx90a:xnack+`) go together. The code of libraries goes
    into archives that ROCm's runtime reads; docs/reference/device-wheels.md describes them.

    Args:
        wheel: the whole wheel.
        output_dir: where to write.
        terms: what the device wheels are called and require; None for what is usual.

    Raises:
        WheelError: the wheel has no device code, has been split already, or is malformed; or a library's
            code cannot be taken out faithfully.
    """
    info = wheel_info.read(wheel)
    target = output_dir / info.file_name
    if target.exists() and target.samefile(wheel):
        raise WheelError(f"{target} would overwrite its own source", tip="choose a different output folder")
    with Archive.open(wheel) as archive:
        found = [binary for binary in binaries.read_archive(archive) if binary.code_objects]
        _check(info, found, archive)
        groups: dict[str, list[tuple[Binary, Place]]] = {}
        for binary in found:
            if not binary.is_device_code:
                place = Place(info, device_wheel.common_path(info, binary.path))
                groups.setdefault(place.archives, []).append((binary, place))
        output_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".split.", dir=output_dir) as folder:
            work = _Work(info, archive, Path(folder), terms or Terms(runtime=RUNTIME))
            processors = {code.target.processor for binary in found for code in binary.code_objects}
            alone = {b.path: b.code_objects[0].target.processor for b in found if b.is_device_code}
            libraries = {binary.path for binary in found} - alone.keys()
            for name in (member.name for member in archive.members if member.name not in libraries):
                processor = alone.get(name) or databases.processor_of(name, processors)
                if processor is not None:
                    work.move(name, processor)
            work.name_build(libraries)
            for group in groups.values():
                work.take(group)
            # All are made before one is moved into place: a failure leaves no half of a split behind.
            made = Path(folder, "made")
            change = work.host_edit()
            wheels = [rewrite_wheel.apply(info.path, change, made)]
            if not set(change.add_extras) <= set(wheel_info.read(wheels[0]).extras):
                raise WheelError(
                    f"METADATA of {info.file_name} cannot be edited: it is malformed", tip="build it again"
                )
            wheels += [
                device_wheel.write(info, name, work.code[name], made, work.terms)
                for name in in_order(work.code)
            ]
            return tuple(path.replace(output_dir / path.name) for path in wheels)


class _Work:
    """What was taken out so far.

    Attributes:
        terms: what the device wheels are called and require.
        code: processor to path in the wheel to file.
        hosts: path in the wheel to the library without its device code.
        moved: files that leave the host wheel as they are.
        records: what `join` needs of each library.
        build: what tells this build from every other, in the names that archives have for libraries.
    """

    def __init__(self, info: WheelInfo, archive: Archive, folder: Path, terms: Terms) -> None:
        self.terms = terms
        self.code: dict[str, dict[str, Path]] = {}
        self.hosts: dict[str, Path | bytes] = {}
        self.moved: list[Moved] = []
        self.records: list[Library] = []
        self.build = ""
        self._info = info
        self._archive = archive
        self._folder = folder
        self._count = 0
        self._listed: dict[str, str | None] = {}

    def move(self, path: str, processor: str) -> None:
        """Move a file of which nothing is for the host: a code object, or a database of kernels."""
        copy = extract(self._archive, path, self._new_folder())
        self.code.setdefault(processor, {})[path] = copy
        common = device_wheel.common_path(self._info, path)
        self.moved.append(Moved(path=common, processor=processor, sha256=files.sha256_of(copy)))

    def name_build(self, libraries: Iterable[str]) -> None:
        """Know the build of these libraries, and of the files that have moved, from every other."""
        # By RECORD, so that no library is unpacked once more; `_take_one` compares it.
        rows = {row.path: row for row in self._info.record if row.algorithm == "sha256"}
        digests = {moved.path: moved.sha256 for moved in self.moved}
        for path in libraries:
            if path not in rows:
                raise WheelError(f"RECORD has no sha256 of {path}", tip="build the wheel again")
            digests[device_wheel.common_path(self._info, path)] = str(rows[path].digest)
            self._listed[path] = rows[path].digest
        self.build = reference.build_of(digests)

    def take(self, libraries: Sequence[tuple[Binary, Place]]) -> None:
        """Take the code of the libraries that look for it in one folder into archives."""
        offered = [code.target for binary, _ in libraries for code in binary.code_objects]
        with ExitStack() as stack:
            archives = Archives(stack, self._new_folder(), self._info.name, offered)
            for binary, place in libraries:
                try:
                    self.records.append(self._take_one(binary.path, place, archives))
                except WheelError as error:
                    raise WheelError(f"{binary.path}: {error}", tip=error.tip or _WHOLE) from error
        common = device_wheel.data_path(self._info, libraries[0][1].archives)
        for target, path in archives.paths.items():
            name = common.replace(PLACEHOLDER, target)
            self.code.setdefault(target.partition(":")[0], {})[name] = path

    def _take_one(self, path: str, place: Place, archives: Archives) -> Library:
        folder = self._new_folder()
        whole = extract(self._archive, path, folder)
        sha256 = files.sha256_of(whole)
        if encode_digest(bytes.fromhex(sha256)) != self._listed[path]:
            raise WheelError("its content does not match its hash in RECORD", tip="build the wheel again")
        host = folder / "host"
        leads_to = place.reference(self.build)
        with whole.open("rb") as file:
            view = FileView(file)
            library = detach.read(view)
            if library is None:
                raise WheelError("its device code is not in a section that a loader would find")
            parts = []
            for number, bundle in enumerate(library.bundles):
                with unpacked.unpacking(view, bundle, folder) as content:
                    parts.append(unpacked.record(content, library.wrappers_of(number), view))
                    archives.add(leads_to.kernel_name, content, parts[-1])
            undo = detach.detach(library, reference.dumps(leads_to), host)
        self.hosts[path] = host
        made = Library(
            path=device_wheel.common_path(self._info, path),
            kernel_name=leads_to.kernel_name,
            archives=place.archives,
            sha256=sha256,
            host_sha256=files.sha256_of(host),
            undo=undo,
            parts=tuple(parts),
        )
        whole.unlink()
        return made

    def host_edit(self) -> Edit:
        """What makes the host wheel of the whole one."""
        extras = device_names.extras_of(self.code)
        devices = {name: self.terms.name_of(self._info.name, name) for name in in_order(self.code)}
        made = Record(
            libraries=tuple(self.records),
            files=tuple(self.moved),
            devices=devices,
            extras=extras,
            runtime=self.terms.runtime,
        )
        text = datafile.dumps(made).encode()
        archives = (library.archives for library in self.records)
        hook = import_hook.added(self._archive, self._info, archives, self.build)
        return Edit(
            add_files={**hook.add_files, f"{self._info.dist_info}/{record.NAME}": text},
            replace_files={**hook.replace_files, **self.hosts},
            remove_files=tuple(device_wheel.data_path(self._info, moved.path) for moved in self.moved),
            add_extras=tuple(extras),
            add_requirements=device_wheel.requirements_of(self._info, devices, extras),
        )

    def _new_folder(self) -> Path:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return folder


def extract(archive: Archive, name: str, folder: Path, file_name: str = "") -> Path:
    """Write a member into a folder, by default under its own file name."""
    target = folder / (file_name or name.rpartition("/")[2])
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
    windows = next((binary.path for binary in libraries if binary.format == "pe"), None)
    if windows is not None:
        raise WheelError(f"{windows}: no runtime finds the device code of a DLL in an archive", tip=_WHOLE)
    own = (device_names.extra_of("gfx"), device_names.EVERY)
    taken = any(extra.lower().startswith(own) for extra in info.extras)
    if taken or any(member.name.endswith((SUFFIX, f"/{record.NAME}")) for member in archive.members):
        raise WheelError(f"{info.file_name} has been split already", tip="split the whole wheel")
