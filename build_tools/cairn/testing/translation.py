"""TorchDevice beside tests: what says "cuda" runs on a machine without a GPU, and shows nothing of one."""

from __future__ import annotations

import zipfile
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from cairn.errors import UsageError


def name_of(wheel: Path | None) -> str:
    """Whose translation it is, as records name it: `torchdevice 0.1.0`; empty where there is none.

    Raises:
        UsageError: the file is not named as a wheel.
    """
    if wheel is None:
        return ""
    try:
        name, version, *_ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        raise UsageError(str(error), tip="name the wheel of TorchDevice") from error
    return f"{name} {version}"


def put_beside(wheel: Path, folder: Path) -> None:
    """Unpack TorchDevice into a folder that comes last on the path: it is no part of what is tested.

    Raises:
        UsageError: the file is no wheel, or one of something else.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel} is not a wheel that can be read", tip="name TorchDevice's") from error
    if not (folder / "torchdevice" / "pytest_plugin.py").is_file():
        raise UsageError(f"{wheel} has no TorchDevice", tip="see external-builds/torchdevice/README.md")
