"""The compiler of the sample's SDK, without what it has for other systems.

Of the 19,500 files of ziglang, 15,000 are headers and C libraries of systems that no test compiles for, and
pip takes seven seconds for them, with each SDK that is installed. `dev.py quickstart` installs the whole.
"""

from __future__ import annotations

import importlib.metadata
import re
import zipfile
from pathlib import Path

from cairn import files
from helpers.packing import record_hash

_ELSEWHERE = re.compile(
    r"ziglang/lib/(libtsan/|libc/(musl|mingw|wasi|freebsd|netbsd|openbsd|darwin)/"
    r"|libc/include/(?!(any|generic|x86|x86_64|aarch64)-(linux-any|linux-gnu|glibc)/))"
)


def small_wheel(folder: Path) -> Path:
    """The wheel in this folder, made of the installed ziglang unless it is there.

    Its version is a local one (PEP 440): it meets what is required, and is preferred to the whole.
    """
    dist = importlib.metadata.distribution("ziglang")
    version = f"{dist.version}+small"
    tag = re.findall(r"^Tag: (.*)$", dist.read_text("WHEEL") or "", re.MULTILINE)[0]
    path = folder / f"ziglang-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder / "ziglang.lock"):
        if not path.exists():
            part = path.with_suffix(".part")
            _write(part, dist, version, tag)
            part.rename(path)
    return path


def _write(path: Path, dist: importlib.metadata.Distribution, version: str, tag: str) -> None:
    before, about = f"ziglang-{dist.version}.dist-info", f"ziglang-{version}.dist-info"
    metadata = dist.read_text("METADATA") or ""
    own = {
        f"{about}/METADATA": metadata.replace(f"\nVersion: {dist.version}\n", f"\nVersion: {version}\n"),
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = [f"{name},{record_hash(text.encode())},{len(text.encode())}\n" for name, text in own.items()]
    # Little is gained by more, and the compiler alone has 185 MB.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in dist.files or ():
            name = file.as_posix().replace(f"{before}/licenses/", f"{about}/licenses/")
            ours = name.startswith(("ziglang/", f"{about}/licenses/")) and not _ELSEWHERE.match(name)
            if ours and file.hash is not None:  # bytecode has none
                archive.write(file.locate(), name)
                record.append(f"{name},{file.hash.mode}={file.hash.value},{file.size}\n")
        for name, text in own.items():
            archive.writestr(name, text)
        archive.writestr(f"{about}/RECORD", f"{''.join(record)}{about}/RECORD,,\n")
