"""Artifacts as a run of TheRock's CI uploads them: archives, and a sha256sum beside each."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import zstandard

from cairn.rocm.fetch.unpack import MANIFEST


def member(
    name: str, content: bytes = b"", *, mode: int = 0o644, **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    """One member of a tar; `fields` are those of TarInfo."""
    info = tarfile.TarInfo(name)
    info.mode, info.size = mode, len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A plain tar of some members, whatever they are."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def compressed(data: bytes, name: str) -> bytes:
    """Bytes as an archive of this name has them."""
    return zstandard.compress(data) if name.endswith(".zst") else lzma.compress(data)


def write(folder: Path, name: str, files: Mapping[str, bytes], *, sidecar: bool = True) -> Path:
    """Write an artifact with some files in its one base folder; `name` has its ending."""
    base = f"base/{name.partition('.')[0]}/stage"
    members = [member(MANIFEST, f"{base}\n".encode())]
    members += [member(f"{base}/{path}", content, mode=0o755) for path, content in files.items()]
    return write_bytes(folder, name, compressed(tar(members), name), sidecar=sidecar)


def write_bytes(folder: Path, name: str, data: bytes, *, sidecar: bool = True) -> Path:
    """Write an archive and the file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    if sidecar:
        (folder / f"{name}.sha256sum").write_text(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    return path


def pack(folder: Path, name: str, artifact: Path) -> Path:
    """Write an artifact from its unpacked folder; `name` has its ending."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in (artifact / MANIFEST, *sorted(p for p in artifact.iterdir() if p.name != MANIFEST)):
            archive.add(path, path.name)
    return write_bytes(folder, name, compressed(data.getvalue(), name))
