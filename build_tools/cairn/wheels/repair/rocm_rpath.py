"""Where an installed ROCm SDK keeps its libraries, and the run paths by which linked wheels find them there.

In site-packages the packages of the SDK are the neighbours of the wheel's own, so that paths which count from
the binary (`$ORIGIN/../../_rocm_sdk_core/lib`) lead there in every environment. Each binary that needs one of
the SDK's libraries gets all folders that have any: the libraries open others by name, as libamdhip64 does
libamd_comgr, and no DT_NEEDED names those.

Source of the folders: pytorch, .ci/manywheel/build_rocm.sh, where ROCM_HOME lies in `_rocm_sdk_*`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.rewrite.elf import BinaryEdit

_PACKAGES = ("_rocm_sdk_core", "_rocm_sdk_libraries*")  # libraries, or libraries_<family> before multi-arch
# Its own libraries, its copies of those of the system (renamed librocm_sysdeps_*), OpenBLAS.
_FOLDERS = ("lib", "lib/rocm_sysdeps/lib", "lib/host-math/lib")


@dataclass(frozen=True, kw_only=True)
class SdkLibraries:
    """The libraries of an SDK.

    Attributes:
        folders: where they are, counted from site-packages: core before libraries.
        names: their file names.
    """

    folders: tuple[str, ...]
    names: frozenset[str]


def read(site_packages: Path) -> SdkLibraries:
    """The libraries of the SDK packages installed in a site-packages folder.

    Raises:
        UsageError: there are none.
    """
    packages = [folder for pattern in _PACKAGES for folder in sorted(site_packages.glob(pattern))]
    folders: dict[str, set[str]] = {}
    for folder in (package / name for package in packages for name in _FOLDERS):
        names = {path.name for path in folder.glob("*.so*")}
        if names:
            folders[folder.relative_to(site_packages).as_posix()] = names
    if not folders:
        raise UsageError(
            f"no ROCm SDK is installed in {site_packages}",
            tip="name the site-packages folder into which rocm[libraries] was installed",
        )
    return SdkLibraries(
        folders=tuple(folders), names=frozenset(name for names in folders.values() for name in names)
    )


def edits(binaries: Iterable[Binary], sdk: SdkLibraries) -> dict[str, BinaryEdit]:
    """For each binary that needs the SDK, by its path: the run paths to the SDK, before those that it has."""
    edits: dict[str, BinaryEdit] = {}
    for binary in binaries:
        if binary.is_device_code or sdk.names.isdisjoint(binary.needed):
            continue
        here = posixpath.dirname(binary.path)
        paths = [f"$ORIGIN/{posixpath.relpath(folder, here or '.')}" for folder in sdk.folders]
        change = BinaryEdit(run_path=tuple(dict.fromkeys((*paths, *binary.run_paths))))
        if change.changes(binary):
            edits[binary.path] = change
    return edits
