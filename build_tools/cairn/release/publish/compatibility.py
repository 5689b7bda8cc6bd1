"""Which files can be installed where: for a Python, a system and a machine that may differ from this one."""

from __future__ import annotations

import functools
import platform as this_platform
import re
import sys
import sysconfig

import msgspec
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from cairn import requirements
from cairn.errors import UsageError
from cairn.release.index.generation import FileEntry
from cairn.wheels.metadata.wheel_info import split_label

_PYTHON = re.compile(r"[0-9]\.[0-9]{1,3}")
# The names that uv has for where markers are evaluated. It has none for Linux on other machines
# (ppc64le, s390x, i686; uv 0.13): for those, a set is resolved on such a machine.
_UV_PLATFORMS = {
    ("linux", "x86_64"): "x86_64-unknown-linux-gnu",
    ("linux", "aarch64"): "aarch64-unknown-linux-gnu",
    ("linux", "riscv64"): "riscv64-unknown-linux",
    ("macosx", "x86_64"): "x86_64-apple-darwin",
    ("macosx", "arm64"): "aarch64-apple-darwin",
    ("macosx", "universal2"): "aarch64-apple-darwin",
    ("win", "amd64"): "x86_64-pc-windows-msvc",
    ("win", "arm64"): "aarch64-pc-windows-msvc",
    ("win", "win32"): "i686-pc-windows-msvc",
}
# The parts of wheel tags that installers know (PEP 425, 513, 571, 599, 600 and 656, `packaging.tags`).
_INTERPRETER = re.compile(r"(py|cp|pp|graalpy)[0-9]{1,4}")
_ABI = re.compile(r"none|abi3t?|cp[0-9]{2,3}[dmut]*|(pypy|graalpy)[0-9]{2,3}_[a-z0-9_]+")
_MACHINE = "(x86_64|i686|aarch64|armv6l|armv7l|ppc64|ppc64le|s390x|riscv64|loongarch64)"
_PLATFORM = re.compile(
    rf"any|linux_{_MACHINE}|manylinux(1|2010|2014|_[0-9]{{1,2}}_[0-9]{{1,2}})_{_MACHINE}"
    rf"|musllinux_[0-9]{{1,2}}_[0-9]{{1,2}}_{_MACHINE}|win32|win_(amd64|arm64)"
    r"|macosx_[0-9]{1,2}_[0-9]{1,2}_(x86_64|arm64|universal2|universal|intel|i386)"
)
_RELEASES = tuple(f"3.{minor}" for minor in range(6, 31))  # of Python, and some to come
# What Python calls each system: os.name, sys.platform, platform.system().
_MARKERS = {
    "linux": ("posix", "linux", "Linux"),
    "macosx": ("posix", "darwin", "Darwin"),
    "win": ("nt", "win32", "Windows"),
}
# What platform.machine() says, where it is not the word of the tag.
_MACHINES = {("win", "amd64"): "AMD64", ("win", "arm64"): "ARM64", ("win", "win32"): "x86"}


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """The Python, system and machine that wheels are to be installed on.

    Attributes:
        python: such as `3.11`.
        tag: such as `linux_x86_64` or `manylinux_2_28_x86_64`; only its system and machine count.
    """

    python: str
    tag: str

    def __post_init__(self) -> None:
        if not _PYTHON.fullmatch(self.python):
            raise UsageError(
                f"{requirements.shown(self.python)} is not a version of Python", tip="write 3.11"
            )

    @classmethod
    def here(cls) -> Platform:
        """The platform of this interpreter on this machine."""
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return cls(python=f"{sys.version_info.major}.{sys.version_info.minor}", tag=tag)

    def __str__(self) -> str:
        return f"Python {self.python} on {self.tag}"

    def is_same_machine(self, machine: Platform) -> bool:
        """Whether both platforms have the same system and machine."""
        return _place(self.tag) == _place(machine.tag)

    def may_run_on(self, machine: Platform) -> bool:
        """Whether an interpreter of this platform may be on such a machine: on one of its own system."""
        system, of_machine = (_place(tag)[0].removeprefix("musl") for tag in (self.tag, machine.tag))
        return system == of_machine

    def uv_options(self, *, anywhere: bool = False) -> tuple[str, ...]:
        """The options that make uv resolve for this platform.

        Args:
            anywhere: say everything, so that each machine resolves alike; without, nothing is said of what uv
                finds by itself, such as the exact version of our Python.

        Raises:
            UsageError: uv has no name for it.
        """
        here = Platform.here()
        options: tuple[str, ...] = ()
        if anywhere or self.python != here.python:
            options += ("--python-version", self.python)
        if anywhere or _place(self.tag) != _place(here.tag):
            name = _UV_PLATFORMS.get(_place(self.tag))
            if name is None:
                raise UsageError(
                    f"what a set for {requirements.shown(self.tag)} needs can be resolved only there",
                    tip="publish the set from a machine of that platform",
                )
            options += ("--python-platform", name)
        return options

    def markers(self) -> dict[str, str]:
        """The marker environment of this platform (PEP 508), as of its Python version's first release."""
        system, machine = _place(self.tag)
        os_name, sys_platform, platform_system = _MARKERS.get(system, _MARKERS["linux"])
        return {
            "os_name": os_name,
            "sys_platform": sys_platform,
            "platform_system": platform_system,
            "platform_machine": _MACHINES.get((system, machine), machine),
            "platform_release": "",
            "platform_version": "",
            "platform_python_implementation": "CPython",
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
        }

    def fits(self, file: FileEntry) -> bool:
        """Whether a file of an index can be installed here; see `takes`."""
        return self.takes(file.filename, file.requires_python)

    def takes(self, filename: str, requires_python: str | None) -> bool:
        """Whether a file of this name can be installed here; an sdist counts, though only a build can tell.

        A wheel variant does not count: it depends on the GPU, and no resolution of a set uses one.
        """
        if requires_python:
            exact = self.python == Platform.here().python
            python = this_platform.python_version() if exact else f"{self.python}.0"
            try:
                if not requirements.specifiers(requires_python).contains(python, prereleases=True):
                    return False
            except ValueError:
                return False  # published before such a thing was refused; one file must not spoil every set
        if not filename.endswith(".whl"):
            return True
        plain, label = split_label(filename)
        return label is None and any(self._accepts(tag) for tag in parse_wheel_filename(plain)[3])

    def _accepts(self, tag: Tag) -> bool:
        # Only system and machine of a platform tag count: which glibc (PEP 600) or macOS a wheel needs is a
        # matter of the machine that installs it. Python and ABI are those of PEP 425, also abi3 and `py3`.
        if tag.platform != "any" and _place(tag.platform) != _place(self.tag):
            return False
        return (tag.interpreter, tag.abi) in _interpreters(self.python)


def overlap(name: str, other_name: str) -> bool:
    """Whether there is a platform on which an installer could take either of two files of one version.

    An sdist is taken where no wheel fits: beside wheels it is not a second choice. Wheel variants of
    different labels, and the plain wheel beside them, are meant to lie beside each other.
    """
    wheels = name.endswith(".whl"), other_name.endswith(".whl")
    if not all(wheels):
        return not any(wheels)
    (name, label), (other_name, other_label) = split_label(name), split_label(other_name)
    return label == other_label and any(
        _same_place(first.platform, second.platform)
        and (
            (first.interpreter, first.abi) == (second.interpreter, second.abi)
            or not _pythons(first.interpreter, first.abi).isdisjoint(_pythons(second.interpreter, second.abi))
        )
        for first in parse_wheel_filename(name)[3]
        for second in parse_wheel_filename(other_name)[3]
    )


def unknown_tags(filename: str) -> tuple[str, ...]:
    """The tags of a wheel that no known platform accepts, sorted."""
    parts = {
        (part, pattern)
        for tag in parse_wheel_filename(split_label(filename)[0])[3]
        for part, pattern in (
            (tag.interpreter, _INTERPRETER),
            (tag.abi, _ABI),
            (tag.platform, _PLATFORM),
        )
    }
    return tuple(sorted(part for part, pattern in parts if not pattern.fullmatch(part)))


def _same_place(first: str, second: str) -> bool:
    if "any" in (first, second):
        return True
    (system, machine), (other_system, other_machine) = _place(first), _place(second)
    machines = {machine, other_machine}
    universal = system == "macosx" and "universal2" in machines
    return system == other_system and (len(machines) == 1 or universal)


@functools.cache
def _pythons(interpreter: str, abi: str) -> frozenset[str]:
    """The versions of CPython that accept a wheel with these tags."""
    return frozenset(python for python in _RELEASES if (interpreter, abi) in _interpreters(python))


@functools.cache
def _interpreters(python: str) -> frozenset[tuple[str, str]]:
    """The interpreter and ABI tags that a CPython version accepts, cached for thousands of files."""
    version = tuple(int(part) for part in python.split("."))
    exact = cpython_tags(version, platforms=["any"])
    general = compatible_tags(version, f"cp{python.replace('.', '')}", platforms=["any"])
    return frozenset((tag.interpreter, tag.abi) for tag in (*exact, *general))


def _place(tag: str) -> tuple[str, str]:
    """The system and machine of a platform tag; musl (PEP 656) is a system of its own beside glibc."""
    system = next((name for name in ("win", "macosx", "musllinux") if tag.startswith(name)), "linux")
    machines = ("x86_64", "aarch64", "universal2", "amd64", "arm64", "win32", "i686", "ppc64le", "s390x")
    machine = next((name for name in machines if tag.endswith(name)), tag.rpartition("_")[2])
    return system, machine
