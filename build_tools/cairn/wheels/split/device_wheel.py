"""The wheel that carries the device code of one processor for a host wheel of exactly its version.

Here is what the two are called and how they require each other, and which kpack archives a split writes.

The runtime asks for the archive of a GPU's exact target, then with fewer of its features
(`gfx90a:sramecc+:xnack-`, `gfx90a:sramecc+`, `gfx90a:xnack-`, `gfx90a`), and takes the first that exists. One
that exists but lacks the code of a wrapper hides a later one that has it. So every archive is complete: for
each wrapper it has the code that its GPU would get from the library, also where that was compiled for fewer
features, or for a generic target. And where two exist that one GPU could ask for, the one for both is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import combinations as pairs
from pathlib import Path

import msgspec

from cairn.errors import WheelError
from cairn.formats.kpack import PLACEHOLDER, SUFFIX, Reference, Writer, kernel_name_of, writing
from cairn.formats.offload import code_object
from cairn.formats.offload.record import Part, UnpackedBundle
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive
from cairn.formats.zip.writer import New
from cairn.targets import TargetId, generic_targets, sort_key, that_run
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.record import RecordRow, format_record
from cairn.wheels.metadata.wheel_info import WheelInfo, parse_file_name
from cairn.wheels.rewrite.wheel import row_for

_FOLDER = ".kpack"
# Where files of the data folder go at last, of which these two are the folder that all else goes to.
_SITE = (".data/platlib/", ".data/purelib/")
_DATA = ".data/"
# Programs are installed into this folder of the prefix. A folder among them is an error to uv, so that their
# archives go there as data.
_SCRIPTS, _PROGRAMS = ".data/scripts/", ".data/data/bin/"
HEADERS = ".data/headers/"
"""What is in there, installers put into a folder that is named after the wheel."""

# Target IDs have two features, sramecc and xnack (LLVM's AMDGPUUsage.rst, "Target ID"). Each one more triples
# the archives, of which there is one for each way to have them.
_MOST_FEATURES = 4
# What holds for the code as for the wheel it comes from: who may install it, and its licence (PEP 639).
_KEPT_FIELDS = ("Requires-Python", "License", "License-Expression", "License-File")


class Place:
    """Where the archives of a library are, by the folders that installers make of a wheel's.

    Attributes:
        archives: path in the wheel of its archives, with `@GFXARCH@` for the target.
        library: the path of the library below its package.
    """

    def __init__(self, info: WheelInfo, path: str) -> None:
        """Find it for the library at a path in the wheel, of which the data folder is called `.data`.

        Raises:
            WheelError: in what the path begins with, the runtime would put the target of the GPU too, or no
                other wheel can bring a file to where the library is installed.
        """
        if path.startswith(HEADERS):
            raise WheelError(f"{path} is installed where no device wheel can have its code")
        scheme = next((start for start in _SITE if path.startswith(start)), "")
        rest = path.removeprefix(scheme)
        if rest.startswith(_DATA):
            scheme = "/".join(rest.split("/")[:2]) + "/"
            rest = rest.removeprefix(scheme)
        *folders, name = rest.split("/")
        top = f"{folders[0]}/" if folders else ""
        stem = f"{info.file_name.split('-', maxsplit=1)[0]}_{PLACEHOLDER}{SUFFIX}"
        if PLACEHOLDER in top + stem.replace(PLACEHOLDER, "", 1):
            raise WheelError(f"{path} has {PLACEHOLDER} in its path")
        base = "" if scheme in _SITE else _PROGRAMS if scheme == _SCRIPTS else scheme
        self.archives = f"{base}{top}{_FOLDER}/{stem}"
        up = "../" * max(len(folders) - 1, 0)
        self.library = "/".join((*folders[1:], name))
        self._search_path = f"{up}{_FOLDER}/{stem}"

    def reference(self, build: str) -> Reference:
        """What stands in the library in place of its code, which is of that build."""
        name = kernel_name_of(self.library, build)
        return Reference(kpack_search_paths=(self._search_path,), kernel_name=name)


def archive_targets(offered: Iterable[TargetId]) -> tuple[TargetId, ...]:
    """The targets that need an archive of their own, given code for the offered targets.

    Raises:
        WheelError: it is for more features of a processor than any has.
    """
    every = set(offered)
    targets_needed: set[TargetId] = set()
    for processor in {target.processor for target in every}:
        features = {target.features for target in every if processor in that_run(target.processor)}
        names = {feature[:-1] for some in features for feature in some}
        if len(names) > _MOST_FEATURES:
            raise WheelError(
                f"it has code for {len(names)} features of {processor}: {', '.join(sorted(names))}"
            )
        # Until nothing is new: with the codes for a GPU there is one that has the features of them all.
        while (
            new := {both for first, second in pairs(features, 2) if (both := _union(first, second))}
            - features
        ):
            features |= new
        targets_needed |= {TargetId(processor=processor, features=some) for some in features}
    return tuple(sorted(targets_needed, key=lambda target: (sort_key(str(target)), str(target))))


def best_code(target: TargetId, offered: Sequence[TargetId]) -> int | None:
    """The index of the code that the runtime picks for a GPU of this target; None if no code fits."""
    fits = [
        (code.processor != target.processor, -len(code.features), number)
        for number, code in enumerate(offered)
        if target.processor in that_run(code.processor) and set(code.features) <= set(target.features)
    ]
    return min(fits)[2] if fits else None


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...] | None:
    """The features of both; None where one has on what the other has off."""
    both = tuple(sorted({*first, *second}))
    return both if len({feature[:-1] for feature in both}) == len(both) else None


class Archives:
    """The archives of the libraries that look for them in one folder, while they are written."""

    def __init__(self, stack: ExitStack, folder: Path, group: str, offered: Iterable[TargetId]) -> None:
        """Begin an archive for each target, in `folder`."""
        self.paths: dict[str, Path] = {}
        self._writers: list[tuple[TargetId, Writer]] = []
        self._ordinals: dict[tuple[TargetId, str], int] = {}
        for number, target in enumerate(archive_targets(offered)):
            path = folder / f"{number}{SUFFIX}"
            archive = writing(path, group=group, family=target.processor, targets=[str(target)])
            self._writers.append((target, stack.enter_context(archive)))
            self.paths[str(target)] = path

    def add(self, kernel_name: str, content: UnpackedBundle, part: Part) -> None:
        """Write the code of one bundle, of which `part` is the record, for all wrappers that lead to it.

        Code that is in an archive already, from another bundle, is not written again.
        """
        entries = content.bundle.device_entries
        offered = [code_object.target_of_entry(entry.id) for entry in entries]
        for target, archive in self._writers:
            chosen = best_code(target, offered)
            if chosen is None:
                continue
            place = target, part.codes[chosen].sha256
            if place not in self._ordinals:
                self._ordinals[place] = archive.add(content.code(entries[chosen]), part.codes[chosen].size)
            for ordinal in part.wrappers:
                archive.name(kernel_name, ordinal, str(target), self._ordinals[place])


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of whoever splits a wheel.

    Attributes:
        prefix: stands before the names of its device wheels: with `amd`, amd-torch-device-gfx942.
        stem: their names but for the processor, in place of the prefix and the name of the host.
        sdk: version of the ROCm SDK whose own device wheel, such as rocm-sdk-device-gfx942, each device wheel
            requires; None where the packages of the SDK have all their code.
        runtime: the first release of ROCm whose runtime finds the code; None where that is not known.
    """

    prefix: str = ""
    stem: str | None = None
    sdk: str | None = None
    runtime: str | None = None

    def name_of(self, host: str, processor: str) -> str:
        """The project name of the device wheel of a processor."""
        stem = self.stem or f"{self.prefix}{'-' if self.prefix else ''}{host}-device"
        return f"{stem}-{processor}"


SDK = Terms(stem="rocm-sdk-device")
"""The names of the ROCm SDK's own device wheels, as upstream has them."""


def requirements_of(
    host: WheelInfo, devices: Mapping[str, str], extras: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """The requirements by which a host wheel asks for its device wheels.

    Args:
        host: the wheel.
        devices: each processor, and the project of its device wheel.
        extras: each extra, and the processors that it asks for.
    """
    return tuple(
        f'{devices[processor]}=={host.version} ; extra == "{extra}"'
        for extra, processors in extras.items()
        for processor in processors
    )


def file_prefix(host: str, processor: str, terms: Terms) -> str:
    """The name of a device wheel as its file name has it, by that of the host wheel."""
    # In a file name dashes separate parts, so those of gfx9-4-generic are escaped (PEP 427).
    return re.sub(r"[-.]+", "_", terms.name_of(host, processor))


def common_path(info: WheelInfo, path: str) -> str:
    """A path in a wheel with `.data` for the name of its data folder, which differs in each wheel."""
    data_folder = f"{info.data_folder}/"
    return f".data/{path.removeprefix(data_folder)}" if path.startswith(data_folder) else path


def data_path(info: WheelInfo, path: str) -> str:
    """The path in a wheel that `common_path` was made of."""
    data_folder = f"{info.data_folder}/"
    return data_folder + path.removeprefix(".data/") if path.startswith(".data/") else path


def licences_of(host: WheelInfo, archive: Archive) -> dict[str, bytes]:
    """The licence files of a wheel, by their paths below its dist-info folder; each device wheel has them."""
    folder = f"{host.dist_info}/licenses/"
    names = [m.name for m in archive.members if m.name.startswith(folder) and not m.is_dir]
    # Before PEP 639 they stood right in the dist-info folder.
    named = parse_headers(host.metadata, name="METADATA").all("License-File")
    older = [name for name in named if f"{host.dist_info}/{name}" in archive]
    licenses = {f"licenses/{name}": archive.read(f"{host.dist_info}/{name}") for name in older}
    return licenses | {name.removeprefix(f"{host.dist_info}/"): archive.read(name) for name in names}


def write(
    host: WheelInfo,
    processor: str,
    content: Mapping[str, Path],
    licences: Mapping[str, bytes],
    output_dir: Path,
    terms: Terms,
) -> Path:
    """Write the device wheel of a processor.

    Args:
        host: the wheel that was split.
        processor: such as `gfx942`.
        content: path in the host wheel, beside which the code belongs, to the file.
        licences: see `licences_of`.
        output_dir: where to write.
        terms: its name, and what it requires.
    """
    prefix = file_prefix(host.file_name.split("-", maxsplit=1)[0], processor, terms)
    new = f"{prefix}-{host.dist_info.removesuffix('.dist-info').rpartition('-')[2]}"
    entries = [
        New(name=path.replace(f"{host.data_folder}/", f"{new}.data/", 1), content=file, executable=False)
        for path, file in sorted(content.items())
    ]
    about = f"{new}.dist-info"
    entries += [New(name=f"{about}/{name}", content=text) for name, text in licences.items()]
    entries.append(New(name=f"{about}/METADATA", content=_metadata(host, processor, terms)))
    lines = ["Wheel-Version: 1.0", "Generator: cairn", "Root-Is-Purelib: false"]
    lines += [f"Tag: {tag}" for tag in host.tags]
    lines += [f"Build: {host.build}"] if host.build else []
    entries.append(New(name=f"{about}/WHEEL", content=("\n".join(lines) + "\n").encode()))
    rows = [*map(row_for, entries), RecordRow(path=f"{about}/RECORD")]
    entries.append(New(name=f"{about}/RECORD", content=format_record(rows).encode()))
    rest = host.file_name.split("-", maxsplit=1)[1]
    target = output_dir / f"{prefix}-{rest}"
    parse_file_name(target.name)
    writer.write(target, entries)
    return target


def _metadata(host: WheelInfo, processor: str, terms: Terms) -> bytes:
    old = parse_headers(host.metadata, name="METADATA")
    kind = next(iter(old.all("Metadata-Version")), "2.1")
    lines = [f"Metadata-Version: {kind}", f"Name: {terms.name_of(host.name, processor)}"]
    lines += [f"Version: {host.version}", f"Summary: Device code of {host.name} for {processor}"]
    lines += [f"{field}: {value}" for field in _KEPT_FIELDS for value in old.all(field)]
    lines.append(f"Requires-Dist: {host.name}=={host.version}")
    # Of a generic target no one can say which of its processors the code of the SDK's libraries is for.
    if terms.sdk is not None and processor not in generic_targets():
        lines.append(f"Requires-Dist: {SDK.name_of('', processor)}=={terms.sdk}")
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
