"""Binaries for another machine than the wheel's, carried on purpose.

A debugger brings what it puts into processes of 32 bits, an installer its launchers for every Windows. Their
names say what they are for, and nothing that Python loads needs them.
"""

from __future__ import annotations

import re

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
_PLAIN = 5  # letters of a mark that can be nothing else at the end of a word: `libportaudioarm64`
_MODULE = re.compile(r"\.(?:cpython|pypy|graalpy|cp|abi3)[^/]*\.so$|\.pyd$")


def says_so(member: str, machine: str) -> bool:
    """Whether the path of a binary names the machine that it is for: `attach_x86.dll`."""
    words = _SEPARATORS.split(_X86_64.sub("amd64", member.lower()))
    marks = _WORDS.get(machine, frozenset((machine,)))
    long = tuple(mark for mark in marks if len(mark) >= _PLAIN)
    return not marks.isdisjoint(words) or any(word.endswith(long) for word in words)


def is_meant(member: str, machine: str, needed: frozenset[str], *, soname: str | None = None) -> bool:
    """Whether a binary for another machine, beside others for the wheel's own, is there on purpose.

    Args:
        member: its path.
        machine: what it is for.
        needed: the libraries that the binaries for the wheel's own machine need.
        soname: the name that others find it by, if it is not its file name.
    """
    names = {member.rpartition("/")[2], soname}
    return needed.isdisjoint(names) and not _MODULE.search(member) and says_so(member, machine)
