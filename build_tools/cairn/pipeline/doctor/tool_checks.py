"""Checks of the programs that a build or a test runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cairn.pipeline.doctor.model import Finding, Machine, Need, install_line, missing, note, ok, warning

_OLDEST_PYTHON = (3, 11)
# Settings in the environment (2.31) and GIT_CONFIG_GLOBAL (2.32), see sources/git/command.py.
_OLDEST_GIT = (2, 32)
_OLDEST_GCC = (9, 3)  # pytorch, CMakeLists.txt: "GCC-9.3 or newer is required to compile PyTorch"
_FROM_PYPI = ("cmake", "ninja")
_CACHES = ("ccache", "sccache")


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparison: `12.2.0-14+deb12u1` is (12, 2, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def python(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check the interpreter's version and kind, and that it can make environments and compile extensions."""
    facts = machine.python
    short = ".".join(facts.version.split(".")[:2])
    description = f"{facts.implementation} {facts.version} at {facts.path}"
    wrong = _wrong_python(machine, need)
    if wrong:
        version = need.pythons[-1] if need.pythons else "3.12"
        yield missing("Python", f"{description}: {wrong}", fix=f"uv python install {version}")
    else:
        yield ok("Python", description)
    if machine.system == "windows" and need.builds and " " in facts.path:
        yield warning(
            "Python",
            "its path has a space, which the build of torchvision does not take (pytorch/vision#9165)",
            fix=rf"uv python install {short} --install-dir C:\py",
        )
    if not facts.venv or not facts.ensurepip:
        # Cairn itself makes environments without pip, and installs into them from outside.
        yield Finding(
            check="Python's venv",
            level="warning" if facts.venv else "missing",
            text="`python -m venv` fails: ensurepip is not there"
            if facts.venv
            else "the module is not there",
            fix=install_line(machine, "python-venv"),
        )
    if not facts.headers and _compiles(need):
        line = install_line(machine, "python-headers")
        if not facts.system:
            line = f"uv python install {short}"
        without = "there is no Python.h"
        if need.builds:
            yield missing("Python's headers", without, fix=line)
        else:
            text = f"{without}: tests that compile with Triton or torch.compile fail"
            yield warning("Python's headers", text, fix=line)


def _wrong_python(machine: Machine, need: Need) -> str | None:
    facts = machine.python
    if numbers(facts.version)[:2] < _OLDEST_PYTHON:
        return "Python 3.11 or newer is needed"
    if facts.implementation != "CPython":
        return "the wheels are for CPython"
    if facts.bits != 64:  # noqa: PLR2004 - bits of a pointer
        return "the wheels are for 64 bits"
    if need.pythons and ".".join(facts.version.split(".")[:2]) not in need.pythons:
        return f"the stack is for {', '.join(need.pythons)}"
    return None


def _compiles(need: Need) -> bool:
    return need.purpose == "test" or (need.builds and need.compiler != "brought")


def git(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check git's version, and its settings that change checked-out files."""
    if not need.builds:
        return
    version = machine.programs.get("git")
    if version is None:
        yield missing("git", "it is not here", fix=install_line(machine, "git"))
        return
    if numbers(version) < _OLDEST_GIT:
        yield missing(
            "git",
            f"{version or 'it does not run'}: 2.32 or newer is needed",
            fix=install_line(machine, "git"),
        )
    else:
        yield ok("git", version)
    for name, value in machine.git_settings.items():
        # Our own calls are isolated from all of these; what a build script of upstream's calls is not.
        fix = f"unset {name}" if name.startswith("GIT_") else f"git config --global --unset {name}"
        yield warning(
            "git", f"{name} is {value}: Cairn does not follow it, but git in a project's build does", fix=fix
        )


def compiler(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check the machine's C++ compiler; the one for device code comes with the ROCm SDK."""
    if not _compiles(need) or machine.system == "windows":
        return
    program = next((name for name in ("c++", "g++", "clang++") if name in machine.programs), None)
    if program is None:
        alone = (
            "the stack is built with it alone"
            if need.compiler == "alone"
            else "host code is compiled with it"
        )
        yield Finding(
            check="C++ compiler",
            level="missing" if need.builds else "warning",
            text=f"there is none, and {alone}"
            if need.builds
            else "there is none: Triton and torch.compile need one",
            fix=install_line(machine, "g++"),
        )
        return
    version = machine.programs.get("g++")
    if need.builds and version and numbers(version)[:2] < _OLDEST_GCC:
        yield missing(
            "C++ compiler",
            f"g++ {version}: PyTorch needs 9.3 or newer",
            fix="cairn image run build_manylinux_x86_64",
        )
        return
    yield ok("C++ compiler", f"{program} {machine.programs[program]}".strip())
    if need.builds and "hipcc" in machine.programs:
        yield note(
            "hipcc", f"{machine.programs['hipcc'] or 'one'} on PATH: a build uses that of its ROCm SDK"
        )


def extras(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check the packages that Cairn needs for the job beside its core."""
    if need.purpose in machine.extras:
        lacking, line = machine.extras[need.purpose]
        yield missing("Cairn", f"its extra {need.purpose} is not installed: {lacking}", fix=line)


def build_tools(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check CMake and ninja, which come with the build requirements, and compiler caches."""
    if not need.builds:
        return
    have = [f"{name} {machine.programs[name]}".strip() for name in _FROM_PYPI if name in machine.programs]
    here = f"; {' and '.join(have)} on PATH stay unused" if have else ""
    yield ok("cmake, ninja", f"from PyPI, for each build{here}")
    caches = [f"{name} {machine.programs[name]}".strip() for name in _CACHES if name in machine.programs]
    yield Finding(
        check="compiler cache",
        level="ok" if caches else "note",
        text=" and ".join(caches) if caches else "none on PATH; --use-ccache takes it from PyPI",
    )
