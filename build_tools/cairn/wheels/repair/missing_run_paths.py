"""The run paths that binaries lack: to libraries of the same wheel, and to those of an installed ROCm SDK.

Some projects load their libraries from Python before what needs them (torchaudio its `libtorchaudio.so`), and
give no run paths. That works, but only Python knows of it: to auditwheel the library is nowhere.

In site-packages the packages of the SDK are the neighbours of the wheel's own, so that paths which count from
the binary (`$ORIGIN/../../_rocm_sdk_core/lib`) lead there in every environment. Each binary that needs one of
the SDK's libraries gets all folders that have any: the libraries open others by name, as libamdhip64 does
libamd_comgr, and no DT_NEEDED names those.

Source of the SDK's folders: pytorch, .ci/manywheel/build_rocm.sh, where ROCM_HOME lies in `_rocm_sdk_*`.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.wheels.contents import run_paths
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


def to_own_libraries(binaries: Collection[Binary]) -> dict[str, BinaryEdit]:
    """For each binary that needs a library of its wheel and does not look where it is: its run paths.

    They come after those that it has. A library of which the wheel has several, in different folders, could
    be any of them, and is left alone.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for binary in binaries:
        folders[posixpath.basename(binary.path)].add(posixpath.dirname(binary.path))
    edits: dict[str, BinaryEdit] = {}
    for binary in binaries:
        reached = {run_paths.folder_of(binary.path, path) for path in binary.run_paths}
        targets = [folders[name] for name in binary.needed if name in folders]
        missing = dict.fromkeys(min(each) for each in targets if len(each) == 1 and each.isdisjoint(reached))
        if missing:
            paths = (run_paths.to_folder(binary.path, folder) for folder in missing)
            edits[binary.path] = BinaryEdit(run_path=(*binary.run_paths, *paths))
    return edits


def sdk_libraries(site_packages: Path) -> SdkLibraries:
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


def to_sdk(binaries: Iterable[Binary], sdk: SdkLibraries) -> dict[str, BinaryEdit]:
    """For each binary that needs the SDK, by its path: the run paths to the SDK, before those that it has."""
    edits: dict[str, BinaryEdit] = {}
    for binary in binaries:
        if binary.is_device_code or sdk.names.isdisjoint(binary.needed):
            continue
        paths = [run_paths.to_folder(binary.path, folder) for folder in sdk.folders]
        change = BinaryEdit(run_path=tuple(dict.fromkeys((*paths, *binary.run_paths))))
        if change.changes(binary):
            edits[binary.path] = change
    return edits
