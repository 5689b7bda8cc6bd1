"""The Python and platform that a set is for: which markers hold there and which wheels fit."""

from __future__ import annotations

import platform as this_platform
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from cairn import requirements
from cairn.errors import StoreError, UsageError
from cairn.release.state import FileEntry

# From the end of a platform tag to what platform.machine() says there.
_MACHINES = {"amd64": "AMD64", "arm64": "ARM64", "win32": "x86"}
_PYTHON = re.compile(r"[0-9]\.[0-9]{1,3}")
_SYSTEMS = {
    "win": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    "macosx": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
}


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Where wheels are to be installed.

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
        """The Python that runs us, on this machine."""
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return cls(python=f"{sys.version_info.major}.{sys.version_info.minor}", tag=tag)

    def environment(self) -> Mapping[str, str]:
        """The values of the marker variables of the dependency specifiers specification."""
        here = default_environment()
        machine = _machine(self.tag)
        same = here["python_version"] == self.python
        return {
            **{name: str(value) for name, value in here.items()},
            **_SYSTEMS[_system(self.tag)],
            "platform_machine": _MACHINES.get(machine, machine),
            "python_version": self.python,
            "python_full_version": this_platform.python_version() if same else f"{self.python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }

    def wants(self, requirement: Requirement, extras: frozenset[str] = frozenset()) -> bool:
        """Whether a requirement counts here, for a distribution asked for with these extras."""
        if requirement.marker is None:
            return True
        environment, marker = self.environment(), requirement.marker
        try:
            return any(requirements.holds(marker, {**environment, "extra": e}) for e in ("", *extras))
        except ValueError as error:
            raise StoreError(f"{requirements.shown(str(requirement))}: {error}") from error

    def fits(self, file: FileEntry) -> bool:
        """Whether a file can be installed here; an sdist can, as far as anybody knows before trying."""
        if file.requires_python and not self._python_is_in(file.requires_python):
            return False
        if not file.filename.endswith(".whl"):
            return True
        tags = parse_wheel_filename(file.filename)[3]
        return any(self._accepts(tag) for tag in tags)

    def _python_is_in(self, text: str) -> bool:
        try:
            wanted = requirements.specifiers(text)
        except ValueError:
            return False  # published before such a thing was refused; one file must not spoil every set
        return wanted.contains(self.environment()["python_full_version"], prereleases=True)

    def _accepts(self, tag: Tag) -> bool:
        if tag.platform != "any" and (_system(tag.platform), _machine(tag.platform)) != (
            _system(self.tag),
            _machine(self.tag),
        ):
            return False
        return (tag.interpreter, tag.abi) in self._interpreters()

    def _interpreters(self) -> frozenset[tuple[str, str]]:
        major, minor = (int(part) for part in self.python.split("."))
        version = (major, minor)
        exact = cpython_tags(version, platforms=["any"])
        general = compatible_tags(version, f"cp{major}{minor}", platforms=["any"])
        return frozenset((tag.interpreter, tag.abi) for tag in (*exact, *general))


def _system(tag: str) -> str:
    if tag.startswith("win"):
        return "win"
    return "macosx" if tag.startswith("macosx") else "linux"


def _machine(tag: str) -> str:
    machines = ("x86_64", "aarch64", "universal2", "amd64", "arm64", "win32", "i686", "ppc64le", "s390x")
    return next((name for name in machines if tag.endswith(name)), tag.rpartition("_")[2])
