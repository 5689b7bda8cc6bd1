"""Whether each binary is for the machine that the wheel's tag names.

A wheel may carry binaries for other machines on purpose: a debugger brings what it puts into processes of 32
bits, an installer its launchers for every Windows. The paths of these say what they are for, and nothing that
Python loads needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cairn.output import wording
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_ANY = "any"
# How file names write each machine.
_WORDS = {
    "i686": frozenset(("x86", "i386", "i486", "i586", "i686", "ia32", "32", "x32", "32bit", "linux32")),
    "x86_64": frozenset(("amd64", "x64", "64", "64bit", "linux64")),
    "aarch64": frozenset(("arm64", "aarch64", "armv8")),
    "armv7l": frozenset(("arm", "armv6", "armv6l", "armv7", "armv7l", "armhf")),
    "win32": frozenset(("x86", "i386", "i686", "ia32", "32", "x32", "32bit", "win32", "w32", "t32")),
    "win_amd64": frozenset(("amd64", "x64", "64", "64bit", "win64", "w64", "t64")),
    "win_arm64": frozenset(("arm64", "aarch64")),
}
_X86_64 = re.compile(r"x86[-_]64")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_PLAIN = 5  # letters of a word that can be nothing else at the end of a longer one: `libportaudioarm64`
_MODULE = re.compile(r"\.(?:cpython|pypy|graalpy|cp|abi3)[^/]*\.so$|\.pyd$", re.IGNORECASE)


def check(binaries: Sequence[Binary], name: FileName, expected: Expectation) -> Iterator[Finding]:
    """Breaches by binary; code objects are for GPUs, whatever the wheel is for."""
    host = [binary for binary in binaries if not binary.is_device_code]
    platforms = wheel_info.platforms_of(name.tags)
    if _ANY in platforms:
        # Libraries are for one platform; programs, and what says what it is for, may be there for several.
        libraries = [b.path for b in host if not b.is_program and not _says_its_machine(b)]
        if libraries:
            yield Finding(
                code=FindingCode.BINARY_IN_PURE_WHEEL,
                reason=f"its tag says that it runs anywhere, and it holds {wording.some(libraries)}",
                fix="build it as a platform wheel (Root-Is-Purelib: false)",
            )
    # PyPI refuses `linux_x86_64`, which does not say which glibc it needs (PEP 513).
    vague = [platform for platform in platforms if platform.startswith("linux_")]
    if vague and expected.require_platform_tag and any(binary.format == "elf" for binary in host):
        yield Finding(
            code=FindingCode.PLATFORM_TAG,
            reason=f"its tag {', '.join(vague)} says nothing about which systems it runs on",
            fix="repair it with `cairn wheel repair`",
        )
    for kind in ("elf", "pe"):
        yield from _check_machine([binary for binary in host if binary.format == kind], platforms)


def _check_machine(binaries: Sequence[Binary], platforms: Sequence[str]) -> Iterator[Finding]:
    """The machines of the binaries of one format."""
    at_home = [binary for binary in binaries if _fits(binary.machine, platforms)]
    needed = {name for binary in at_home for name in binary.needed}
    for binary in binaries:
        on_purpose = (
            at_home
            and needed.isdisjoint(binary.names)
            and not _MODULE.search(binary.path)
            and _says_its_machine(binary)
        )
        if not on_purpose and not _fits(binary.machine, platforms):
            yield Finding(
                code=FindingCode.MACHINE,
                member=binary.path,
                reason=f"it is for {binary.machine}, the wheel for {', '.join(platforms)}",
                fix="build it for the machine that the tag names",
            )


def _fits(machine: str, platforms: Sequence[str]) -> bool:
    """Whether one of the platforms is on that machine: `manylinux_2_28_x86_64` on `x86_64`."""
    # e_machine is EM_ARM for both, and the tag of a Raspberry Pi 1 is linux_armv6l.
    machines = (machine, "armv6l") if machine == "armv7l" else (machine,)
    ends = tuple(f"_{name}" for name in machines)
    return any(platform in (_ANY, machine) or platform.endswith(ends) for platform in platforms)


def _says_its_machine(binary: Binary) -> bool:
    """Whether the path of a binary names the machine that it is for: `attach_x86.dll`."""
    words = _SEPARATORS.split(_X86_64.sub("amd64", binary.path.lower()))
    marks = _WORDS.get(binary.machine, frozenset((binary.machine,)))
    long = tuple(mark for mark in marks if len(mark) >= _PLAIN)
    return not marks.isdisjoint(words) or any(word.endswith(long) for word in words)
