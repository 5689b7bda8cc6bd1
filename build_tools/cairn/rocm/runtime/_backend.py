"""The build backend (PEP 517) of `rocm`: a wheel whose dependencies suit the machine it is built on.

`rocm` is an sdist because a wheel cannot choose: extras such as `libraries` mean a different package for each
family of GPUs. Standard library only, so that an index with nothing but ROCm is enough to install from.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from . import _dist

_TREE = Path(__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of ZIP: the same tree gives the same bytes
_ENTRY_POINTS = "[console_scripts]\nrocm-sdk = rocm_sdk._cli:main\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: rocm_sdk\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Write the wheel; PEP 517."""
    del config_settings, metadata_directory
    name = f"rocm-{_version()}-py3-none-any.whl"
    family = _dist.choose_family(os.environ, _dist.found_targets())
    # The backend itself stays out: what it does is done once it has run.
    files = {
        f"rocm_sdk/{path.name}": path.read_bytes()
        for path in sorted(_TREE.iterdir())
        if path.suffix in (".py", ".json") and path.name != "_backend.py"
    }
    files[f"rocm_sdk/{_dist.CHOSEN}"] = f"{family}\n".encode()
    files |= {f"{_dist_info()}/{name}": text.encode() for name, text in _metadata(family).items()}
    with zipfile.ZipFile(Path(wheel_directory, name), "w") as archive:
        for path, data in [*files.items(), (f"{_dist_info()}/RECORD", _record(files))]:
            info = zipfile.ZipInfo(path, _EPOCH)
            info.external_attr = 0o100644 << 16  # a regular file, rw-r--r--
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return name


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    """Write the metadata alone; PEP 517."""
    del config_settings
    family = _dist.choose_family(os.environ, _dist.found_targets())
    folder = Path(metadata_directory, _dist_info())
    folder.mkdir()
    for name, text in _metadata(family).items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder.name


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Write this tree as an sdist again; PEP 517."""
    del config_settings
    top = f"rocm-{_version()}"
    with tarfile.open(Path(sdist_directory, f"{top}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(_TREE.parent.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                data = path.read_bytes()
                info = tarfile.TarInfo(f"{top}/{path.relative_to(_TREE.parent).as_posix()}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return f"{top}.tar.gz"


def _version() -> str:
    return str(_dist.load()["version"])


def _dist_info() -> str:
    return f"rocm-{_version()}.dist-info"


def _metadata(family: str) -> dict[str, str]:
    lines = ["Metadata-Version: 2.1", "Name: rocm", f"Version: {_version()}", "Requires-Python: >=3.10"]
    for extra, requirements in _dist.requirements(family).items():
        lines += [f"Provides-Extra: {extra}"] if extra else []
        marker = f'; extra == "{extra}"' if extra else ""
        lines += [f"Requires-Dist: {requirement}{marker}" for requirement in requirements]
    return {"METADATA": "\n".join(lines) + "\n", "WHEEL": _WHEEL, "entry_points.txt": _ENTRY_POINTS}


def _record(files: dict[str, bytes]) -> bytes:
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    return "\n".join([*rows, f"{_dist_info()}/RECORD,,", ""]).encode()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
