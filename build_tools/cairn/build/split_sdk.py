"""The packages of a ROCm SDK whose libraries have their device code in packages of their own.

`rocm-sdk-libraries` then serves all targets, and `rocm-sdk-device-<processor>` has what only one needs: the
code of the libraries as kpack archives, and the databases of rocBLAS, hipBLASLt and MIOpen.
"""

from __future__ import annotations

import dataclasses
import json
import tarfile
import tempfile
from pathlib import Path

from cairn.errors import WheelError
from cairn.rocm import package as sdk
from cairn.rocm.package import PackageRequest, WrittenPackage
from cairn.wheels.metadata import wheel_info
from cairn.wheels.split.device_wheel import SDK
from cairn.wheels.split.split import split

_LIBRARIES = "rocm-sdk-libraries"


def package(request: PackageRequest) -> tuple[WrittenPackage, ...]:
    """Make the packages of an SDK, the device code of its libraries in packages of its own.

    Args:
        request: with `libraries_for_all`.

    Raises:
        UsageError: the tree, its description, the version or the targets make no sense.
        WheelError: a file needs a library that nothing provides, or the libraries lack the code for a target.
    """
    request.output_dir.mkdir(parents=True, exist_ok=True)
    # All are made before one is moved into place: an SDK that lacks a part is none, and what an earlier run
    # has left stays whole.
    with tempfile.TemporaryDirectory(prefix=".split.", dir=request.output_dir) as scratch:
        packages: list[WrittenPackage] = []
        whole = sdk.package(dataclasses.replace(request, output_dir=Path(scratch)))
        for item in whole:
            if item.distribution != _LIBRARIES:
                packages.append(item)
                continue
            host, *devices = split(item.path, Path(scratch, "parts"), SDK)
            _require_all(host, whole[-1].path)
            parts = [
                sdk.written(path, wheel_info.read(path).name, 0, dry_run=False) for path in (host, *devices)
            ]
            packages += [dataclasses.replace(parts[0], files=item.files), *parts[1:]]
        places = [item.path.replace(request.output_dir / item.path.name) for item in packages]
    return tuple(dataclasses.replace(item, path=path) for item, path in zip(packages, places, strict=True))


def _require_all(host: Path, sdist: Path) -> None:
    """The package `rocm` offers an extra for each target; there must be a device wheel for it."""
    with tarfile.open(sdist) as archive:
        name = next(name for name in archive.getnames() if name.endswith("/rocm_sdk/_dist.json"))
        described = archive.extractfile(name)
        assert described is not None  # noqa: S101 - it is a file
        targets = json.load(described)["devices"].keys()
    if missing := sorted(targets - set(wheel_info.read(host).extras)):
        raise WheelError(
            f"the ROCm libraries have no code for {', '.join(missing)}",
            tip="name the targets that they were compiled for: --targets",
        )
