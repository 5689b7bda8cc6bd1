"""The wheel that carries the device code of one processor for a host wheel of exactly its version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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


def name_of(host: str, processor: str) -> str:
    """The project name of a device wheel."""
    return f"{host}-device-{processor}"


def extra_of(processor: str) -> str:
    """The extra of the host wheel that asks for it."""
    return f"device-{processor}"


def requirement_of(host: WheelInfo, processor: str) -> str:
    """How the host wheel requires it."""
    return f'{name_of(host.name, processor)}=={host.version} ; extra == "{extra_of(processor)}"'


def common_path(info: WheelInfo, path: str) -> str:
    """A path in a wheel with `.data` for the name of its data folder, which differs in each wheel."""
    own = f"{info.dist_info.removesuffix('.dist-info')}.data/"
    return f".data/{path.removeprefix(own)}" if path.startswith(own) else path


def data_path(info: WheelInfo, path: str) -> str:
    """The path in a wheel that `common_path` was made of."""
    own = f"{info.dist_info.removesuffix('.dist-info')}.data/"
    return own + path.removeprefix(".data/") if path.startswith(".data/") else path


def write(host: WheelInfo, processor: str, content: Mapping[str, Path], output_dir: Path) -> Path:
    """Write the device wheel of a processor.

    Args:
        host: the wheel that was split.
        processor: such as `gfx942`.
        content: path in the host wheel, beside which the code belongs, to the file.
        output_dir: where to write.
    """
    # In a file name dashes separate parts, so those of gfx9-4-generic are escaped (PEP 427).
    prefix = f"{host.file_name.split('-', maxsplit=1)[0]}_device_{processor.replace('-', '_')}"
    old = host.dist_info.removesuffix(".dist-info")
    new = f"{prefix}-{old.rpartition('-')[2]}"
    entries = [
        New(name=path.replace(f"{old}.data/", f"{new}.data/", 1), content=file, executable=False)
        for path, file in sorted(content.items())
    ]
    about = f"{new}.dist-info"
    entries += _licences(host, about)
    entries.append(New(name=f"{about}/METADATA", content=_metadata(host, processor)))
    entries.append(New(name=f"{about}/WHEEL", content=_wheel(host)))
    rows = [*map(row_for, entries), RecordRow(path=f"{about}/RECORD")]
    entries.append(New(name=f"{about}/RECORD", content=format_record(rows).encode()))
    rest = host.file_name.split("-", maxsplit=1)[1]
    target = output_dir / f"{prefix}-{rest}"
    wheel_info.parse_file_name(target.name)
    writer.write(target, entries)
    return target


def _metadata(host: WheelInfo, processor: str) -> bytes:
    old = parse_headers(host.metadata, name="METADATA")
    kind = next(iter(old.all("Metadata-Version")), "2.1")
    lines = [f"Metadata-Version: {kind}", f"Name: {name_of(host.name, processor)}"]
    lines += [f"Version: {host.version}", f"Summary: Device code of {host.name} for {processor}"]
    lines += [f"{field}: {value}" for field in _KEPT_FIELDS for value in old.all(field)]
    lines.append(f"Requires-Dist: {host.name}=={host.version}")
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def _wheel(host: WheelInfo) -> bytes:
    lines = ["Wheel-Version: 1.0", "Generator: cairn", "Root-Is-Purelib: false"]
    lines += [f"Tag: {tag}" for tag in host.tags]
    lines += [f"Build: {host.build}"] if host.build else []
    return ("\n".join(lines) + "\n").encode()


def _licences(host: WheelInfo, about: str) -> list[New]:
    folder = f"{host.dist_info}/licenses/"
    with Archive.open(host.path) as archive:
        return [
            New(
                name=f"{about}/licenses/{member.name.removeprefix(folder)}", content=archive.read(member.name)
            )
            for member in archive.members
            if member.name.startswith(folder) and not member.is_dir
        ]
