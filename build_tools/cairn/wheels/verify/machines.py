"""Checking that each binary is for the machine that the wheel's tag names.

A wheel may carry binaries for other machines on purpose: a debugger brings what it puts into processes of 32
bits, an installer its launchers for every Windows. The paths of these say what they are for, and nothing that
Python loads needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cairn.formats.pe import ANY_MACHINE
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo, is_of_tests, platforms_of
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_ANY = "any"
KNOWN = ("any", "linux", "manylinux", "musllinux", "win", "macosx", "android")
"""How the platforms begin whose tags are known here."""
# The tags of macOS that stand for several machines (packaging.tags, `_mac_binary_formats`).
_UNIVERSAL = {
    "universal2": ("arm64", "x86_64"),
    "universal": ("i386", "ppc", "ppc64", "x86_64"),
    "intel": ("i386", "x86_64"),
    "fat64": ("ppc64", "x86_64"),
    "fat32": ("i386", "ppc"),
    "fat3": ("i386", "ppc", "x86_64"),
    "fat": ("i386", "ppc"),
}
# How file names write each machine.
_WORDS = {
    "i686": frozenset(("x86", "i386", "i486", "i586", "i686", "ia32", "32", "x32", "32bit", "linux32")),
    "x86_64": frozenset(("amd64", "x64", "64", "64bit", "linux64")),
    "aarch64": frozenset(("arm", "arm64", "aarch64", "armv8")),
    "armv7l": frozenset(("arm", "armv6", "armv6l", "armv7", "armv7l", "armhf")),
    "win32": frozenset(("x86", "i386", "i686", "ia32", "32", "x32", "32bit", "win32", "w32", "t32")),
    "win_amd64": frozenset(("amd64", "x64", "64", "64bit", "win64", "w64", "t64")),
    "win_arm64": frozenset(("arm64", "aarch64")),
    "arm64": frozenset(("arm", "arm64", "aarch64")),
}
# What the tags of Android call some machines (PEP 738).
_ANDROID = {"aarch64": "_arm64_v8a", "armv7l": "_armeabi_v7a", "i686": "_x86"}
_OF_ONE_MACHINE = ("linux", "manylinux", "musllinux", "win")  # a file of macOS may be for several
_SDK = "rocm-sdk-"  # how the names of the ROCm SDK's wheels begin
_X86_64 = re.compile(r"x86[-_]64")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_PLAIN = 5  # letters of a word that can be nothing else at the end of a longer one: `libportaudioarm64`


def check(
    archive: Archive,
    info: WheelInfo | None,
    binaries: Sequence[Binary],
    name: FileName,
    expected: Expectation,
) -> Iterator[Finding]:
    """Breaches by binary; code objects are for GPUs, whatever the wheel is for."""
    members = [member.name for member in archive.members if not member.is_dir]
    host = [binary for binary in binaries if not binary.is_device_code]
    platforms = platforms_of(name.tags)
    yield from _check_purity(host, info, members, platforms)
    # PyPI refuses `linux_x86_64`, which does not say which glibc it needs (PEP 513).
    vague = [platform for platform in platforms if platform.startswith("linux_")]
    if vague and expected.require_platform_tag and any(binary.format == "elf" for binary in host):
        reason = f"its tag {', '.join(vague)} says nothing about which systems it runs on"
        fix = "repair it with `cairn wheel repair`"
        if name.distribution.startswith(_SDK):  # whose libraries find each other in other wheels of it
            fix = "package the SDK with `cairn rocm package`, which writes a manylinux tag; allow AMD's"
        yield Finding(code=FindingCode.PLATFORM_TAG, reason=reason, fix=fix)
    fitting = {binary.format for binary in host if any(_fits(binary, platform) for platform in platforms)}
    for kind in ("elf", "pe", "macho"):
        # Beside libraries for its own system, a wheel may bring those of others, which no loader there opens.
        data = bool(fitting) and kind not in fitting
        of_kind = [binary for binary in host if binary.format == kind and (binary.is_module or not data)]
        yield from _check_machine(of_kind, platforms)
    yield from _check_each_machine(host, platforms)
    for binary in host:
        if binary.executable_stack:
            reason = "it asks for a stack that code can be run from: glibc 2.41 and later do not load it"
            fix = "link with -z noexecstack; assembly needs a section .note.GNU-stack"
            yield Finding(code=FindingCode.EXECUTABLE_STACK, member=binary.path, reason=reason, fix=fix)


def _check_purity(
    host: Sequence[Binary], info: WheelInfo | None, members: Sequence[str], platforms: Sequence[str]
) -> Iterator[Finding]:
    """Libraries must be for one platform; programs, and files named for a machine, may be for several."""
    loaded = [
        binary
        for binary in host
        if not binary.is_program and binary.machine != ANY_MACHINE and not is_of_tests(binary.path)
    ]
    if _ANY in platforms:
        # A module says its machine whoever may import it: beside those of other systems alone it is an extra.
        several = len({binary.format for binary in loaded}) > 1
        alone = [lib.path for lib in loaded if not _says_its_machine(lib) or (lib.is_module and not several)]
        if alone:
            reason = (
                f"its tag says that it runs anywhere, and it holds {wording.some(list(dict.fromkeys(alone)))}"
            )
            fix = "build it as a platform wheel (Root-Is-Purelib: false)"
            yield Finding(code=FindingCode.BINARY_IN_PURE_WHEEL, reason=reason, fix=fix)
        return
    libraries = [library.path for library in loaded]
    # Only some Linux systems have two folders; there a library alone in the one for pure Python is lost.
    if info is None or not any("linux" in platform for platform in platforms):
        return
    wrong = [path for path in dict.fromkeys(libraries) if _is_pure(path, info)]
    if wrong and any(_is_pure(member, info) is False for member in members):
        reason = f"it goes to two folders, and that for pure Python gets {wording.some(wrong)}"
        fix = "build it with Root-Is-Purelib: false (setuptools: has_ext_modules), and without .data/purelib"
        yield Finding(code=FindingCode.BINARY_IN_PURE_WHEEL, reason=reason, fix=fix)


def _is_pure(member: str, info: WheelInfo) -> bool | None:
    """Whether a member goes to the folder for pure Python; None where it goes to neither or is metadata."""
    first, _, rest = member.partition("/")
    if first == info.data_folder:
        return {"purelib": True, "platlib": False}.get(rest.partition("/")[0])
    return None if first.endswith(".dist-info") else info.pure


def _check_each_machine(host: Sequence[Binary], platforms: Sequence[str]) -> Iterator[Finding]:
    """Where there is a module for one machine of the tags, there must be one for each; of Linux a library."""
    libraries = [binary for binary in host if not binary.is_program and not is_of_tests(binary.path)]
    loaded = [library for library in libraries if library.is_module] or [
        library for library in libraries if library.format == "elf"
    ]
    on = {
        platform: any(_fits(binary, platform) for binary in loaded)
        for platform in platforms
        if platform.startswith(_OF_ONE_MACHINE)
    }
    without = [platform for platform, has in on.items() if not has]
    if without and any(on.values()):
        kind = "extension module" if loaded[0].is_module else "library"
        reason = f"its tags name {wording.some(without)}, for which it has no {kind}"
        yield Finding(code=FindingCode.MACHINE, reason=reason, fix="build a wheel for each machine")


def _check_machine(binaries: Sequence[Binary], platforms: Sequence[str]) -> Iterator[Finding]:
    """The machines of the binaries of one format."""
    files: dict[str, list[Binary]] = {}  # a universal file of macOS is several
    for binary in binaries:
        files.setdefault(binary.path, []).append(binary)
    wrong = {path: parts for path, parts in files.items() if _is_wrong(parts, platforms)}
    needed = {name for path in files.keys() - wrong.keys() for name in files[path][0].needed}
    for path, parts in wrong.items():
        on_purpose = (
            len(wrong) < len(files)
            and needed.isdisjoint(parts[0].names)
            and not parts[0].is_module
            and _says_its_machine(parts[0])
        )
        if not on_purpose:
            machines = ", ".join(sorted(part.machine for part in parts))
            reason = f"it is for {machines}, the wheel for {', '.join(platforms)}"
            fix = "build it for the machine that the tag names"
            yield Finding(code=FindingCode.MACHINE, member=path, reason=reason, fix=fix)


def _is_wrong(parts: Sequence[Binary], platforms: Sequence[str]) -> bool:
    """Whether a file is for none of the machines of the tags, or a library of macOS not for all of them."""
    if parts[0].format == "macho" and not parts[0].is_program:
        # Installers on both take what is tagged for each, or with the tag that stands for both.
        ends = {platform.split("_", 3)[-1] for platform in platforms if platform.startswith("macosx")}
        both = frozenset(_UNIVERSAL["universal2"])
        promised = both if "universal2" in ends else ends & both
        if len(promised) > 1 and not promised.issubset(part.machine for part in parts):
            return True
    return not any(_fits(part, platform) for part in parts for platform in platforms)


def _fits(binary: Binary, platform: str) -> bool:
    """Whether a platform is on the machine of a binary: `manylinux_2_28_x86_64` on `x86_64`."""
    machine = binary.machine
    if machine == ANY_MACHINE or platform in (machine, _ANY) or not platform.startswith(KNOWN):
        return True
    if platform.startswith("macosx") != (binary.format == "macho"):
        return False
    if platform.startswith("android"):
        return platform.endswith(_ANDROID.get(machine, f"_{machine}"))
    # e_machine is EM_ARM for both, and the tag of a Raspberry Pi 1 is linux_armv6l.
    ends = (f"_{machine}", "_armv6l") if machine == "armv7l" else (f"_{machine}",)
    return platform.endswith(ends) or machine in _UNIVERSAL.get(platform.rpartition("_")[2], ())


def _says_its_machine(binary: Binary) -> bool:
    """Whether the path of a binary names the machine that it is for: `attach_x86.dll`."""
    words = _SEPARATORS.split(_X86_64.sub("amd64", binary.path.lower()))
    marks = _WORDS.get(binary.machine, frozenset((binary.machine,)))
    long = tuple(mark for mark in marks if len(mark) >= _PLAIN)
    return not marks.isdisjoint(words) or any(word.endswith(long) for word in words)
