"""Checking that host wheels and device wheels belong together, and that no part of a split is missing.

What must be there follows from the record in each host wheel (`cairn-split.json`), which was written when the
whole wheel was split: the device wheels, the extras that ask for them, the archives, for each wrapper the
code of each target, and the sha256 of that code as the whole wheel had it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.files import sha256_of
from cairn.formats.kpack import PLACEHOLDER, SUFFIX, build_of, key_of, without_build
from cairn.formats.offload import SPLIT_RECORD, detach
from cairn.formats.offload.record import Library, Record
from cairn.formats.view import FileView
from cairn.formats.zip.reader import Archive
from cairn.targets import in_order, parse_target_id
from cairn.wheels.contents import code_archives
from cairn.wheels.metadata import device_names, rocm_version, wheel_info
from cairn.wheels.metadata.wheel_info import WheelInfo, split_label
from cairn.wheels.split import device_wheel
from cairn.wheels.split.join import read_record
from cairn.wheels.split.split import extract

_MARK = "-device-gfx"  # in the name of every device wheel
# What the dist-info folder of a device wheel may hold: installers act on more than that, as on entry points.
_ABOUT = ("METADATA", "WHEEL", "RECORD")
_ABOUT_FOLDERS = ("licenses/", "sboms/")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host wheel, and what it says was split from it.

    Attributes:
        info: the wheel.
        record: what was split.
    """

    info: WheelInfo
    record: Record

    @classmethod
    def read(cls, wheel: Path) -> Host | None:
        """Read a host wheel; None for a wheel that nothing was split from.

        Raises:
            WheelError: it, or what it says of its split, cannot be read.
        """
        with Archive.open(wheel) as archive:
            info = wheel_info.read_archive(archive)
            if f"{info.dist_info}/{SPLIT_RECORD}" not in archive:
                return None
            return cls(info=info, record=read_record(info, archive))


def problems(
    wheels: Sequence[Path],
    *,
    processors: Collection[str] | None = None,
    rocm: str | None = None,
    floor: str | None = None,
    all_recorded: bool = False,
) -> Iterator[str]:
    """The problems of the host and device wheels among the wheels of a set; none where none was split.

    Args:
        wheels: of the set.
        processors: those whose device wheels must be there, of what was split from a host wheel that other
            sets have too; None for all.
        rocm: the version of ROCm that they run on; None where that is not known.
        floor: the first release of ROCm whose runtime finds the code, where a host wheel does not say a later
            one; None to believe the host wheels.
        all_recorded: refuse device wheels that others have split, whose host wheels have no record. Of these
            it is only known that a wheel of the set requires them.

    Raises:
        WheelError: a wheel cannot be read.
    """
    recorded: set[str] = set()
    beside = {wheel_info.parse_file_name(path.name).distribution: path for path in wheels}
    for host in filter(None, map(Host.read, wheels)):
        recorded |= {canonicalize_name(name) for name in host.record.devices.values()}
        yield from _too_old(host, rocm, floor)
        yield from _extras(host)
        yield from _host_wheel(host)
        for processor, name in host.record.devices.items():
            wheel = beside.get(canonicalize_name(name))
            if wheel is not None:
                yield from _device_wheel(host, processor, wheel)
            elif processors is None or processor in processors:
                extra = device_names.extra_of(processor)
                yield f"{name} is missing, which {host.info.name}[{extra}] asks for"
    unknown = sorted(name for name in beside.keys() - recorded if _MARK in name)
    infos = map(wheel_info.read, wheels)
    required = {wheel_info.required_name(text) for info in infos for text in info.requires_dist}
    for name in unknown:
        if name not in required:
            yield f"{name} is a device wheel, and no wheel beside it has an extra for it"
        elif all_recorded:
            yield f"no host wheel says that {name} was split from it, and what its code was before"


def differences(wheels: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The problems of host wheels, and of device wheels beside their hosts: the wheel, and what is wrong.

    They go together by the rest of their file names, so that parts of several wheels can be given at once. A
    part that is not given is not missed.
    """
    beside = {_file_of(path): path for path in wheels}
    for path in wheels:
        try:
            if split_label(path.name)[1] is not None:
                yield from ((path, text) for text in variant_problems(path))
                continue
            host = Host.read(path)
        except WheelError:  # which `verify` tells
            continue
        if host is None:
            continue
        yield from ((path, text) for text in _host_wheel(host))
        for processor, name in host.record.devices.items():
            device = beside.get((canonicalize_name(name), _file_of(path)[1]))
            if device:
                try:
                    yield from ((device, text) for text in _device_wheel(host, processor, device))
                except WheelError as error:
                    yield device, str(error)


def _file_of(path: Path) -> tuple[str, str]:
    """The project of a wheel, and the rest of its file name."""
    project, _, rest = path.name.partition("-")
    return canonicalize_name(project), rest


def variant_problems(path: Path) -> Iterator[str]:
    """The problems of the device code of a wheel variant; none where it does not say what was split.

    Raises:
        WheelError: the wheel cannot be read.
    """
    with Archive.open(path) as archive:
        info = wheel_info.read_archive(archive, variants_too=True)
        if f"{info.dist_info}/{SPLIT_RECORD}" not in archive:
            return
        record = read_record(info, archive)
        processor = info.variant or ""
        hashes = {library.path: library.host_sha256 for library in record.libraries}
        hashes |= {file.path: file.sha256 for file in record.files if file.processor == processor}
        for common, sha256 in sorted(hashes.items()):
            member = device_wheel.data_path(info, common)
            if member not in archive or archive.digest(member).hex() != sha256:
                yield f"{path.name} has no {member} as it was split"
        packed = _codes_of(record, processor)
        for common in sorted(packed):
            member = device_wheel.data_path(info, common)
            if member in archive:
                yield from _archive(archive, member, packed[common], of=path.name)
            else:
                yield f"{path.name} lacks {common}"


def _host_wheel(host: Host) -> Iterator[str]:
    """The problems of the files of a host wheel."""
    host_name, moved = host.info.file_name, {file.path for file in host.record.files}
    with Archive.open(host.info.path) as archive, tempfile.TemporaryDirectory() as folder:
        for member in archive.members:
            if member.name.endswith(SUFFIX) or device_wheel.common_path(host.info, member.name) in moved:
                yield f"{host_name} has {member.name} itself, which belongs into a device wheel"
        for library in host.record.libraries:
            path = device_wheel.data_path(host.info, library.path)
            file = extract(archive, path, Path(folder), "library") if path in archive else None
            if file is None or sha256_of(file) != library.host_sha256:
                yield f"{host_name}: {path} is not the library that the code was split from"
            elif not _leads_there(host, library, file):
                yield f"{host_name}: {path} looks for different code than its {SPLIT_RECORD} says"


def _leads_there(host: Host, library: Library, file: Path) -> bool:
    """Whether each wrapper of a library finds in the archives what the record says that it led to.

    The record is compared with the library, and with the build that the library names: that was made of all
    libraries and files that the code was taken from, so that a record without one of them does not fit.
    """
    digests = {library.path: library.sha256 for library in host.record.libraries}
    digests |= {moved.path: moved.sha256 for moved in host.record.files}
    place = device_wheel.Place(host.info, library.path)
    expected = place.reference(build_of(digests))
    ordinals = sorted(ordinal for part in library.parts for ordinal in part.wrappers)
    try:
        with file.open("rb") as opened:
            read, count = detach.read_host(FileView(opened))
    except WheelError:
        return False
    named = (library.kernel_name, library.archives) == (expected.kernel_name, place.archives)
    return named and read == expected and ordinals == list(range(count))


def _too_old(host: Host, rocm: str | None, floor: str | None) -> Iterator[str]:
    """Whether the runtime of a ROCm release would not find the code of device wheels."""
    floors = [text for text in (host.record.runtime, floor) if text is not None]
    if rocm is None or not floors:
        return
    first = max(floors, key=wheel_info.parsed_version)
    if rocm_version.is_before(rocm, first):
        yield f"{host.info.file_name} is split, and finds its code on ROCm {first} or later, not on {rocm}"


def _extras(host: Host) -> Iterator[str]:
    """The contradictions between METADATA and the record: extras, and what they ask for."""
    info, devices, extras = host.info, host.record.devices, dict(host.record.extras)
    every = in_order(devices)
    needed = {device_names.extra_of(name): (name,) for name in every} | {device_names.EVERY: every}
    known = all(set(processors) <= devices.keys() for processors in extras.values())
    if not known or {**extras, **needed} != extras:
        yield f"{info.file_name}: its {SPLIT_RECORD} has extras that are not those of its device wheels"
        return
    own_extras = {canonicalize_name(extra) for extra in info.extras}
    own_extras = {
        extra for extra in own_extras if extra == device_names.EVERY or extra.startswith("device-gfx")
    }
    for extra in sorted(extras.keys() - own_extras):
        yield f"{info.file_name} lacks the extra {extra}"
    for extra in sorted(own_extras - extras.keys()):
        yield f"{info.file_name} has the extra {extra}, for which nothing was split from it"
    names = {canonicalize_name(name) for name in devices.values()}
    expected = {
        str(wheel_info.requirement(text)) for text in device_wheel.requirements_of(info, devices, extras)
    }
    required = {
        str(requirement)
        for requirement in map(wheel_info.requirement, info.requires_dist)
        if canonicalize_name(requirement.name) in names
        or device_names.processor_of(requirement.name, info.name)
    }
    for text in sorted(expected - required):
        yield f"{info.file_name} does not require {text}"
    for text in sorted(required - expected):
        yield f"{info.file_name} requires {text}, which was not split from it"


def _device_wheel(host: Host, processor: str, path: Path) -> Iterator[str]:
    """The problems of one device wheel."""
    with Archive.open(path) as archive:
        info = wheel_info.read_archive(archive)
        pin = str(wheel_info.requirement(f"{host.info.name}=={host.info.version}"))
        pins = {
            str(requirement): canonicalize_name(requirement.name)
            for requirement in map(wheel_info.requirement, info.requires_dist)
        }
        if info.version != host.info.version or pin not in pins:
            yield f"{path.name} does not require {pin}, which it was split from"
        sdk = canonicalize_name(device_wheel.SDK.name_of("", processor))
        for text in sorted(text for text, name in pins.items() if text != pin and name != sdk):
            yield f"{path.name} requires {text}, as no device wheel does"
        about = tuple(f"{info.dist_info}/{name}" for name in _ABOUT)
        licences = tuple(f"{info.dist_info}/{name}" for name in _ABOUT_FOLDERS)
        content = {
            device_wheel.common_path(info, member.name): member.name
            for member in archive.members
            if not member.is_dir and member.name not in about and not member.name.startswith(licences)
        }
        moved = {file.path: file.sha256 for file in host.record.files if file.processor == processor}
        packed = _codes_of(host.record, processor)
        for common in sorted((moved.keys() | packed.keys()) - content.keys()):
            yield f"{path.name} lacks {common}"
        for common, name in sorted(content.items()):
            if common in packed:
                yield from _archive(archive, name, packed[common], of=path.name)
            elif common not in moved:
                yield f"{path.name} has {name}, which was not split from {host.info.file_name}"
            elif archive.digest(name).hex() != moved[common]:
                yield f"{path.name} has {name} of a different build"


def _codes_of(record: Record, processor: str) -> dict[str, dict[tuple[str, str], str]]:
    """The archives that the device wheel of a processor must have, by path.

    Of each the sha256 of the code that the GPU must find, by key and target.
    """
    groups: dict[str, list[Library]] = {}
    for library in record.libraries:
        groups.setdefault(library.archives, []).append(library)
    archives = {}
    for name, libraries in groups.items():
        parts = [(library, part) for library in libraries for part in library.parts]
        every = (parse_target_id(code.target) for _, part in parts for code in part.codes)
        for target in device_wheel.archive_targets(every):
            if target.processor != processor:
                continue
            digests: dict[tuple[str, str], str] = {}
            for library, part in parts:
                offered = [parse_target_id(code.target) for code in part.codes]
                chosen = device_wheel.best_code(target, offered)
                places = ((key_of(library.kernel_name, n), str(target)) for n in part.wrappers)
                if chosen is not None:
                    digests |= dict.fromkeys(places, part.codes[chosen].sha256)
            archives[name.replace(PLACEHOLDER, str(target))] = digests
    return archives


def _archive(
    archive: Archive, name: str, expected: Mapping[tuple[str, str], str], *, of: str
) -> Iterator[str]:
    """The problems of a kpack archive: an entry is missing, is too many, or has different code."""
    try:
        sums = code_archives.digests(archive, name)
    except WheelError as error:
        yield f"{of}: {error}"
        return
    lacking, strange = _plain(expected.keys() - sums.keys()), _plain(sums.keys() - expected.keys())
    changed = _plain(place for place in expected.keys() & sums.keys() if expected[place] != sums[place])
    for key, arch in sorted(lacking - strange):
        yield f"{of} lacks the code for {arch} of {key}"
    for key, arch in sorted(strange - lacking):
        yield f"{of} has code for {arch} of {key}, which was not split from its host wheel"
    for key, arch in sorted(changed | (lacking & strange)):
        yield f"{of} has code of a different build for {arch} of {key}"


def _plain(places: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Keys and targets, by which the code of one build is that of another."""
    return {(without_build(key), arch) for key, arch in places}
