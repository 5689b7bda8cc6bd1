"""The tags of a wheel's file name (PEP 425, 600, 656) in words, for pages and messages."""

from __future__ import annotations

import functools
import re

from cairn.wheels.metadata.wheel_info import split_label

# The names that manylinux had before PEP 600 gave it the version of glibc.
_OLD_MANYLINUX = {
    "manylinux1": "manylinux_2_5",
    "manylinux2010": "manylinux_2_12",
    "manylinux2014": "manylinux_2_17",
}
_LIBRARIES = {"manylinux": "glibc", "musllinux": "musl"}
_INTERPRETERS = {"cp": "CPython", "pp": "PyPy", "py": "Python"}
_SYSTEMS = {"linux": "Linux", "win": "Windows"}
_MACHINES = {
    "x86_64": "x86-64",
    "amd64": "x86-64",
    "aarch64": "Arm 64-bit",
    "arm64": "Arm 64-bit",
    "universal2": "x86-64 and Arm 64-bit",
    "i686": "x86 32-bit",
}
_PLATFORM = re.compile(
    r"(?P<system>manylinux|musllinux|macosx|linux|win)(?:_(?P<version>[0-9]+_[0-9]+))?"
    rf"_(?P<machine>{'|'.join(_MACHINES)}|[a-z0-9]+)"
)
_PYTHON = re.compile(r"(?P<name>cp|pp|py)(?P<major>[0-9])(?P<minor>[0-9]*)")


def of_file(file_name: str) -> str:
    """What a distribution installs on, such as `CPython 3.12, Linux x86-64, glibc 2.28 or newer`."""
    if not file_name.endswith(".whl"):
        return "source"
    plain, label = split_label(file_name)
    python, abi, platform = plain.removesuffix(".whl").rsplit("-", 3)[-3:]
    words = f"{python_words(python, abi)}, {platform_words(platform)}"
    return words if label is None else f"{words}, wheel variant {label}"


@functools.cache
def python_words(python: str, abi: str) -> str:
    """The Python that a wheel with these two tags needs; what is not known stands as it is written."""
    names = python.split(".")
    matches = [match for name in names if (match := _PYTHON.fullmatch(name))]
    if len(matches) < len(names):
        return f"{python}-{abi}"
    lowest = min(matches, key=lambda match: (int(match["major"]), int(match["minor"] or 0)))
    name, version = _INTERPRETERS[lowest["name"]], lowest["major"]
    version += f".{lowest['minor']}" if lowest["minor"] else ""
    if lowest["name"] == "py" and not lowest["minor"]:
        return "any Python" if len(names) > 1 else f"any Python {version}"
    # A wheel for the stable ABI runs on all that follow (PEP 384), and so does one for a `py` of any version.
    newer = " or newer" if "abi3" in abi.split(".") or lowest["name"] == "py" else ""
    free = ", free-threaded" if re.fullmatch(r"cp[0-9]+t", abi) else ""
    return f"{name} {version}{newer}{free}"


@functools.cache
def platform_words(platform: str) -> str:
    """The system and machine of a platform tag, or of several; what is not known stands as it is."""
    # Of several tags the first in order asks for the least: manylinux_2_17 and manylinux2014 come together.
    return min(map(_platform, platform.split(".")))[1]


def _platform(tag: str) -> tuple[tuple[int, ...], str]:
    """The minimum version that a platform tag asks for, to be compared, and the platform in words."""
    if tag == "any":
        return (), "any system"
    name, _, rest = tag.partition("_")
    match = _PLATFORM.fullmatch(f"{_OLD_MANYLINUX.get(name, name)}_{rest}")
    if match is None or bool(match["version"]) == (match["system"] in _SYSTEMS):
        return (0,), "Windows x86 32-bit" if tag == "win32" else tag
    system, machine = match["system"], _MACHINES.get(match["machine"], match["machine"])
    if system in _SYSTEMS:
        return (0,), f"{_SYSTEMS[system]} {machine}"
    version = match["version"].replace("_", ".")
    requested = tuple(map(int, version.split(".")))
    if system == "macosx":
        return requested, f"macOS {version} or newer, {machine}"
    return requested, f"Linux {machine}, {_LIBRARIES[system]} {version} or newer"
