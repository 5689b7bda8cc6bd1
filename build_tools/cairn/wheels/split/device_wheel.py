"""The wheel that carries the device code of one processor for a host wheel of exactly its version.

Here too is what the two are called, and how they require each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import targets
from cairn.formats.zip import writer
from cairn.formats.zip.reader import Archive
from cairn.formats.zip.writer import New
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.record import RecordRow, format_record
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite.wheel import row_for

# What holds for the code as for the wheel it comes from: who may install it, and its licence (PEP 639).
_KEPT_FIELDS = ("Requires-Python", "License", "License-Expression", "License-File")

# Tensile writes library/TensileLibrary_…_gfx942.dat and library/gfx942/…, AOTriton …images/amd-gfx942/….
_BY_WORD = re.compile(
    r"(?:^|/)(?:(?:rocblas|hipblaslt|hipsparselt)/library|aotriton\.images)/(?P<below>.+)", re.IGNORECASE
)
_PROCESSOR = re.compile(r"(?<![0-9a-z])gfx(?:[0-9]+(?:-[0-9]+)*-generic|[0-9a-f]+)(?![0-9a-z])")
# MIOpen's are named after the processor and its count of compute units: `_60`, or for more than 64 of them in
# hex without anything between, as in gfx90a68.kdb (MIOpen, `Handle::GetDbBasename`).
_OF_MIOPEN = re.compile(r"(?:^|/)miopen/db/(?P<name>gfx[0-9a-f]+)(?:_[0-9]+)?\.[^/]+")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What whoever splits a wheel decides.

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


def database_processor(path: str, processors: Collection[str]) -> str | None:
    """The one processor that a file is a database for, by its path in a wheel; None where there is no such.

    ROCm's math libraries bring kernels, and what is known of their speed, as files beside them, which the
    library opens by the name of the GPU that it meets. They are not packed into archives: each goes to the
    device wheel of its processor under its own path. A name counts whole: `gfx90a` is not `gfx90`, and
    `amd-gfx11xx` is for several. What names several processors, or none, such as the fallback kernels of
    Tensile, stays in the host wheel.

    Args:
        path: in the wheel.
        processors: those that the wheel has device code for.
    """
    if match := _OF_MIOPEN.search(path):
        # No name of a processor is the beginning of another's.
        return next((name for name in processors if match["name"].startswith(name)), None)
    if match := _BY_WORD.search(path):
        named = set(_PROCESSOR.findall(match["below"]))
        return named.pop() if len(named) == 1 and named <= set(processors) else None
    return None


def requirements_of(
    host: WheelInfo, devices: Mapping[str, str], extras: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """How a host wheel requires its device wheels.

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
    own = f"{info.data_folder}/"
    return f".data/{path.removeprefix(own)}" if path.startswith(own) else path


def data_path(info: WheelInfo, path: str) -> str:
    """The path in a wheel that `common_path` was made of."""
    own = f"{info.data_folder}/"
    return own + path.removeprefix(".data/") if path.startswith(".data/") else path


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
    entries.append(New(name=f"{about}/WHEEL", content=_wheel(host)))
    rows = [*map(row_for, entries), RecordRow(path=f"{about}/RECORD")]
    entries.append(New(name=f"{about}/RECORD", content=format_record(rows).encode()))
    rest = host.file_name.split("-", maxsplit=1)[1]
    target = output_dir / f"{prefix}-{rest}"
    wheel_info.parse_file_name(target.name)
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
    if terms.sdk is not None and processor not in targets.generic_targets():
        lines.append(f"Requires-Dist: {SDK.name_of('', processor)}=={terms.sdk}")
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def _wheel(host: WheelInfo) -> bytes:
    lines = ["Wheel-Version: 1.0", "Generator: cairn", "Root-Is-Purelib: false"]
    lines += [f"Tag: {tag}" for tag in host.tags]
    lines += [f"Build: {host.build}"] if host.build else []
    return ("\n".join(lines) + "\n").encode()
