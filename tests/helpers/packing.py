"""How the tests pack wheels: with the standard library alone, so that our writer is never its own judge.

A build backend that a test writes begins with the text of this module: see `backend`.
"""

import base64
import hashlib
import stat
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def pack(
    path: Path,
    members: Mapping[str, str | bytes],
    executables: Sequence[str] = (),
    *,
    record: bool = True,
) -> Path:
    """Write the members into a wheel, with a RECORD of them at its end unless they have one."""
    content = {name: data.encode() if isinstance(data, str) else data for name, data in members.items()}
    if record:
        about = next(name.partition("/")[0] for name in content if name.endswith(".dist-info/WHEEL"))
        content.setdefault(f"{about}/RECORD", _record(about, content))
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            member = zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10))
            kind = stat.S_IFDIR if name.endswith("/") else stat.S_IFREG
            member.external_attr = (kind | (0o755 if name in executables else 0o644)) << 16
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)
    return path


def _record(about: str, content: Mapping[str, bytes]) -> bytes:
    quoted = {name: f'"{name}"' if "," in name else name for name in content}
    rows = [f"{quoted[name]},{record_hash(data)},{len(data)}\n" for name, data in content.items()]
    return f"{''.join(rows)}{about}/RECORD,,\n".encode()


def write_wheel(
    folder: Path | str,
    name: str,
    version: str,
    members: Mapping[str, str | bytes],
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    executables: Sequence[str] = (),
) -> Path:
    """Write a wheel of the members, and of METADATA, WHEEL and RECORD where they are not among them."""
    stem = name.replace("-", "_")
    about = f"{stem}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {text}\n" for text in requires)
    pure = str(tag.endswith("-any")).lower()
    whole = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: {pure}\nTag: {tag}\n",
    }
    return pack(Path(folder, f"{stem}-{version}-{tag}.whl"), {**whole, **members}, executables)


def backend(text: str) -> str:
    """The text of a build backend that calls `write_wheel`."""
    return Path(__file__).read_text(encoding="utf-8") + text
