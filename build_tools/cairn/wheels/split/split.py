"""Splitting a wheel: the host code in one, the device code of each processor in one of its own.

torch imports `torch._rocm_init` and calls `initialize()` before anything else (pytorch's torch/__init__.py).
A few lines at the end of that module make a host wheel call `device_check` too, whoever built the wheel. They
hold nothing that follows from the version, so that a host wheel can be given a different one.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

from packaging.utils import canonicalize_name

from cairn import datafile, files
from cairn.errors import WheelError
from cairn.formats import kpack
from cairn.formats.kpack import PLACEHOLDER, SUFFIX
from cairn.formats.offload import SPLIT_RECORD, code_object, detach, record
from cairn.formats.offload.record import Library, MovedFile, Record
from cairn.formats.view import FileView
from cairn.formats.zip import writer
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.targets import generic_targets, in_order
from cairn.wheels.contents.binaries import Binary, Format, for_each, read_view
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.metadata.record import row_of
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split import device_wheel
from cairn.wheels.split.device_wheel import HEADERS, Archives, Place, Terms
from cairn.wheels.verify import Expectation
from cairn.wheels.verify.written import judge_source, require_no_worse

RUNTIME = "7.14"
"""A release of ROCm that is known to read kpack archives; which was the first is not."""

_WHOLE = "publish this wheel unsplit, one for each target"
_LOADER, _CHECK = "_rocm_init.py", "_rocm_device_check.py"
_MARK = b"\n\n# Added by `cairn wheel split`; `cairn wheel join` takes it out again.\n"
# Whatever goes wrong with the check is no reason for an import to fail.
_CALL = """\
_load_rocm = initialize


def initialize():
    _load_rocm()
    try:
        from . import _rocm_device_check

        _rocm_device_check.check({own!r}, {build!r}, {archives!r}, {generic!r})
    except Exception:
        pass
"""


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
            code cannot be taken out faithfully; or `verify` has findings that it has not on the whole wheel.
    """
    info = wheel_info.read(wheel)
    expected = Expectation(require_platform_tag=False)
    writer.refuse_source(output_dir / info.file_name, [wheel])
    with Archive.open(wheel) as archive:
        _check(info, archive)
        before = judge_source(archive, expected)
        with (
            files.filling(output_dir) as output,
            tempfile.TemporaryDirectory(prefix=".split.", dir=output) as folder,
        ):
            work = _Work(info, archive, Path(folder), terms or Terms(runtime=RUNTIME))
            with_code = work.unpack()
            _check_binaries(info, with_code)
            groups: dict[str, list[tuple[Binary, Place]]] = {}
            for binary in with_code:
                if not binary.is_device_code:
                    place = Place(info, device_wheel.common_path(info, binary.path))
                    groups.setdefault(place.archives, []).append((binary, place))
            processors = {code.target.processor for binary in with_code for code in binary.code_objects}
            alone = {b.path: b.code_objects[0].target.processor for b in with_code if b.is_device_code}
            libraries = {binary.path for binary in with_code} - alone.keys()
            for name in (member.name for member in archive.members if member.name not in libraries):
                processor = alone.get(name) or code_object.database_processor(name, processors)
                if processor is not None:
                    work.move(name, processor)
            work.name_build(libraries)
            for group in groups.values():
                work.take(group)
            wheels = [edit_wheel(info.path, work.host_edit(), output)]
            licences = device_wheel.licences_of(info, archive)
            wheels += [
                device_wheel.write(info, name, work.code[name], licences, output, work.terms)
                for name in in_order(work.code)
            ]
            for path in wheels:
                require_no_worse(path, expected, [before])
        return tuple(output_dir / path.name for path in wheels)


class _Work:
    """Takes the device code out of a wheel, and knows what was taken so far.

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
        self.moved: list[MovedFile] = []
        self.records: list[Library] = []
        self.build = ""
        self._info = info
        self._archive = archive
        self._folder = folder
        self._whole: dict[str, Path] = {}
        self._sums: dict[str, str] = {}
        self._checked: set[str] = set()

    def unpack(self) -> list[Binary]:
        """The binaries with device code, which are unpacked here.

        To look for it takes each of them whole, and inflating is what costs most: so that is done once.
        """

        def take_member(member: Member, kind: Format) -> tuple[Binary, Path]:
            path = extract(self._archive, member.name, self._new_folder())
            with path.open("rb") as file:
                binary = read_view(FileView(file), member.name, kind)
            if binary.code_objects:
                self._known(member.name, path)
            else:
                path.unlink()
            return binary, path

        read = for_each(self._archive, take_member)
        with_code = sorted((each for each in read if each[0].code_objects), key=lambda each: each[0].path)
        self._whole = {binary.path: path for binary, path in with_code}
        return [binary for binary, _ in with_code]

    def move(self, path: str, processor: str) -> None:
        """Move a file of which nothing is for the host: a code object, or a database of kernels."""
        common = device_wheel.common_path(self._info, path)
        if common.startswith(HEADERS):
            raise WheelError(f"{path} is installed where no device wheel can bring it", tip=_WHOLE)
        copy = self._whole.get(path) or extract(self._archive, path, self._new_folder())
        self.code.setdefault(processor, {})[path] = copy
        sha256 = self._sums.get(path) or self._known(path, copy)
        self.moved.append(MovedFile(path=common, processor=processor, sha256=sha256))

    def name_build(self, libraries: Iterable[str]) -> None:
        """Set the build id: a digest of these libraries and the files that have moved."""
        digests = {moved.path: moved.sha256 for moved in self.moved}
        digests |= {device_wheel.common_path(self._info, path): self._sums[path] for path in libraries}
        self.build = kpack.build_of(digests)

    def _known(self, path: str, file: Path) -> str:
        """The sha256 of a file of the wheel; where RECORD says the same, no edit need unpack it again."""
        self._sums[path] = sha256 = files.sha256_of(file)
        if row_of(path, bytes.fromhex(sha256), file.stat().st_size) in self._info.record:
            self._checked.add(path)
        return sha256

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
        whole = self._whole[path]
        folder = whole.parent
        host = folder / "host"
        leads_to = place.reference(self.build)
        with whole.open("rb") as file:
            view = FileView(file)
            library = detach.read(view)
            if library is None:
                raise WheelError("its device code is not in a section that a loader would find")
            parts = []
            for number, bundle in enumerate(library.bundles):
                with record.unpacking(view, bundle, folder) as content:
                    parts.append(record.part_of(content, library.wrappers_of(number), view))
                    archives.add(leads_to.kernel_name, content, parts[-1])
            undo = detach.detach(library, kpack.dump_reference(leads_to), host)
        self.hosts[path] = host
        linked = Library(
            path=device_wheel.common_path(self._info, path),
            kernel_name=leads_to.kernel_name,
            archives=place.archives,
            sha256=self._sums[path],
            host_sha256=files.sha256_of(host),
            undo=undo,
            parts=tuple(parts),
        )
        whole.unlink()
        return linked

    def host_edit(self) -> Edit:
        """The edit that makes the host wheel of the whole one."""
        extras = device_names.extras_of(self.code)
        devices = {name: self.terms.name_of(self._info.name, name) for name in in_order(self.code)}
        written = Record(
            libraries=tuple(self.records),
            files=tuple(self.moved),
            devices=devices,
            extras=extras,
            runtime=self.terms.runtime,
        )
        text = datafile.dumps(written).encode()
        archives = (library.archives for library in self.records)
        hook = hook_added(self._archive, self._info, archives, self.build)
        return Edit(
            add_files={**hook.add_files, f"{self._info.dist_info}/{SPLIT_RECORD}": text},
            replace_files={**hook.replace_files, **self.hosts},
            remove_files=tuple(device_wheel.data_path(self._info, moved.path) for moved in self.moved),
            digests={
                device_wheel.data_path(self._info, entry.path): entry.host_sha256 for entry in self.records
            },
            checked=frozenset(self._checked),
            add_extras=tuple(extras),
            add_requirements=device_wheel.requirements_of(self._info, devices, extras),
        )

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))


def extract(archive: Archive, name: str, folder: Path, file_name: str = "") -> Path:
    """Write a member into a folder, by default under its own file name."""
    target = folder / (file_name or name.rpartition("/")[2])
    with target.open("wb") as out:
        out.writelines(archive.stream(archive.member(name)))
    return target


def _check(info: WheelInfo, archive: Archive) -> None:
    version = str(wheel_info.parsed_version(info.version))
    named = wheel_info.parse_file_name(info.file_name)
    if (canonicalize_name(info.name), version) != (named.distribution, named.version):
        raise WheelError(
            f"METADATA of {info.file_name} is that of {info.name} {info.version}", tip="build the wheel again"
        )
    device_extras = (device_names.extra_of("gfx"), device_names.EVERY)
    # As installers compare them (PEP 685): Device_All is device-all.
    clashing = any(canonicalize_name(extra).startswith(device_extras) for extra in info.extras)
    names = (wheel_info.requirement(text).name for text in info.requires_dist)
    clashing = clashing or any(device_names.processor_of(name, info.name) for name in names)
    if clashing or any(member.name.endswith((SUFFIX, f"/{SPLIT_RECORD}")) for member in archive.members):
        raise WheelError(f"{info.file_name} has been split already", tip="split the whole wheel")


def _check_binaries(info: WheelInfo, libraries: Sequence[Binary]) -> None:
    if not libraries:
        raise WheelError(
            f"{info.file_name} has no device code to split off", tip="`cairn wheel show` lists it"
        )
    windows = next((binary.path for binary in libraries if binary.format == "pe"), None)
    if windows is not None:
        raise WheelError(f"{windows}: no runtime finds the device code of a DLL in an archive", tip=_WHOLE)


def hook_added(archive: Archive, info: WheelInfo, archives: Iterable[str], build: str) -> Edit:
    """The edit that puts the check into each package of a wheel that loads the ROCm libraries.

    Args:
        archive: the wheel.
        info: its metadata.
        archives: paths of the archives that its libraries look for, with `@GFXARCH@` for the target.
        build: what these archives call the build that their code is of.
    """
    # What is not in site-packages is found by no path that counts from there.
    names = tuple(sorted({path for path in archives if not path.startswith(".data/")}))
    generic = dict(generic_targets())  # all, since it speaks for other host wheels too
    dist_name = info.dist_info.partition("-")[0]
    call = _MARK + _CALL.format(own=dist_name, build=build, archives=names, generic=generic).encode()
    loaders = {
        name: source
        for name, source in _loaders(archive).items()
        if names and _MARK not in source and _can_be_wrapped(source)
    }
    check = resources.files(__package__).joinpath("device_check.py").read_bytes()
    return Edit(
        add_files={_beside(name): check for name in loaders},
        replace_files={name: source + call for name, source in loaders.items()},
    )


def hook_removed(archive: Archive) -> Edit:
    """The edit that takes the check out of a host wheel again, to the byte."""
    loaders = {name: source.partition(_MARK) for name, source in _loaders(archive).items() if _MARK in source}
    return Edit(
        replace_files={name: before for name, (before, _, _) in loaders.items()},
        remove_files=tuple(_beside(name) for name in loaders if _beside(name) in archive),
    )


def _loaders(archive: Archive) -> dict[str, bytes]:
    """The modules of that name right below a package, and their source."""
    loaders = (m.name for m in archive.members if m.name.count("/") == 1 and m.name.endswith(f"/{_LOADER}"))
    return {name: archive.read(name) for name in loaders}


def _beside(loader: str) -> str:
    return f"{loader.partition('/')[0]}/{_CHECK}"


def _can_be_wrapped(source: bytes) -> bool:
    """Whether a module defines `initialize()`, to be called without arguments."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "initialize"]
    return bool(functions) and not ast.unparse(functions[-1].args)
