"""Lines to type, in the words of the machine's own system."""

from __future__ import annotations

from collections.abc import Mapping

from cairn.pipeline.doctor.machine import Machine

_INSTALL = {
    "apt": "apt install {}",
    "dnf": "dnf install {}",
    "zypper": "zypper install {}",
    "pacman": "pacman -S {}",
    "apk": "apk add {}",
    "winget": "winget install {}",
}
# A package's name where it is not the program's.
_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "g++": {
        "dnf": "gcc-c++",
        "zypper": "gcc-c++",
        "pacman": "gcc",
        "winget": "Microsoft.VisualStudio.2022.BuildTools",
    },
    "git": {"winget": "Git.Git"},
    "python-venv": {"apt": "python{}-venv", "dnf": "python3", "zypper": "python3", "pacman": "python"},
    "python-headers": {
        "apt": "python{}-dev",
        "dnf": "python{}-devel",
        "zypper": "python3-devel",
        "pacman": "python",
        "apk": "python3-dev",
    },
}


def install(machine: Machine, thing: str) -> str:
    """The line that installs a program of the system's."""
    if not machine.packages:
        return f"install {thing} with the package manager of the system"
    version = ".".join(machine.python.version.split(".")[:2])
    package = _PACKAGES.get(thing, {}).get(machine.packages, thing).format(version)
    return as_root(machine, _INSTALL[machine.packages].format(package))


def as_root(machine: Machine, line: str) -> str:
    """A line that only root may type."""
    return line if machine.root or machine.system == "windows" else f"sudo {line}"
