"""The findings of a check, and the lines to type in the words of the machine's own system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cairn.datafile import Value
from cairn.pipeline.doctor.machine import Machine

Purpose = Literal["build", "install", "test"]
Level = Literal["ok", "note", "warning", "missing"]

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


class Finding(Value):
    """The result of checking one thing.

    Attributes:
        check: the thing, in a word or two.
        level: `missing` for what is needed and not there, `warning` for what will hurt.
        text: what was found.
        fix: a line to type, or what to do where no line does it; None where nothing is to be done.
    """

    check: str
    level: Level
    text: str
    fix: str | None = None


def ok(check: str, text: str) -> Finding:
    """A thing that is as it should be."""
    return Finding(check=check, level="ok", text=text)


def note(check: str, text: str, *, fix: str | None = None) -> Finding:
    """A thing that is good to know."""
    return Finding(check=check, level="note", text=text, fix=fix)


def warning(check: str, text: str, *, fix: str | None = None) -> Finding:
    """A thing that will hurt."""
    return Finding(check=check, level="warning", text=text, fix=fix)


def missing(check: str, text: str, *, fix: str | None = None) -> Finding:
    """A thing that is needed, and missing."""
    return Finding(check=check, level="missing", text=text, fix=fix)


class DoctorReport(Value, tag_field="schema", tag="cairn.doctor/1"):
    """What `cairn doctor --json` prints.

    Attributes:
        purpose: what the machine was checked for.
        machine: all that was judged; `cairn doctor --machine` judges it again, anywhere.
        findings: in the order of the terminal.
    """

    purpose: Purpose
    machine: Machine
    findings: tuple[Finding, ...]


def install_line(machine: Machine, thing: str) -> str:
    """The line that installs a program of the system's."""
    if not machine.packages:
        return f"install {thing} with the package manager of the system"
    version = ".".join(machine.python.version.split(".")[:2])
    package = _PACKAGES.get(thing, {}).get(machine.packages, thing).format(version)
    return as_root(machine, _INSTALL[machine.packages].format(package))


def as_root(machine: Machine, line: str) -> str:
    """A line that only root may type."""
    return line if machine.root or machine.system == "windows" else f"sudo {line}"
