"""Debian packages, put together byte by byte."""

from __future__ import annotations

import gzip
import lzma
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import zstandard

from helpers.artifacts import member, tar

_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def write(
    folder: Path,
    name: str,
    files: Mapping[str, bytes | str],
    *,
    version: str = "1.0-1",
    licence: bool = True,
    packing: str = ".xz",
    architecture: str = "amd64",
    installed_size: int = 0,
) -> Path:
    """Write a package with these files below `/usr`; one whose content is text is a link that leads there."""
    members = [member("./usr/", type=tarfile.DIRTYPE)]
    if licence:
        members.append(member(f"./usr/share/doc/{name}/copyright", f"licence of {name}".encode()))
    for path, content in files.items():
        if isinstance(content, str):
            members.append(member(f"./usr/{path}", type=tarfile.SYMTYPE, linkname=content))
        else:
            members.append(member(f"./usr/{path}", content, mode=0o755))
    return write_tar(
        folder,
        name,
        members,
        version=version,
        packing=packing,
        architecture=architecture,
        installed_size=installed_size,
    )


def write_tar(
    folder: Path,
    name: str,
    members: Iterable[tuple[tarfile.TarInfo, bytes]],
    *,
    version: str = "1.0-1",
    packing: str = ".xz",
    architecture: str = "amd64",
    installed_size: int = 0,
) -> Path:
    """Write a package whose data is these members."""
    control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
    control += f"Installed-Size: {installed_size}\n" if installed_size else ""
    control += "Description: made\n for a test\n"
    pack = _PACKERS[packing]
    return write_ar(
        folder / f"{name}_{version}_{architecture}.deb",
        {
            "debian-binary": b"2.0\n",
            f"control.tar{packing}": pack(tar([member("./control", control.encode())])),
            f"data.tar{packing}": pack(tar(members)),
        },
    )


def write_ar(path: Path, members: Mapping[str, bytes], *, sizes: Mapping[str, str] | None = None) -> Path:
    """Write an archive as ar(5) has it; `sizes` are what it says instead of the members' own."""
    data = b"!<arch>\n"
    for name, content in members.items():
        size = (sizes or {}).get(name, str(len(content)))
        data += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode() + content
        data += b"\n" * (len(content) % 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
