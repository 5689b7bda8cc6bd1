"""Checking that the loader of macOS finds each library of a wheel where the wheel puts it.

Each library is named by a path (dyld(1)). `@loader_path` is the folder of the binary that needs it, `@rpath`
each LC_RPATH of that and of what loads it, `@executable_path` the folder of the program: for an extension
module that of Python. What was loaded before under the same install name is taken.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents.binaries import OF_MACOS, Binary, shipped
from cairn.wheels.metadata.wheel_info import installed_path
from cairn.wheels.verify.findings import Finding, FindingCode

_TAG = re.compile(r"macosx_(\d+)_(\d+)_(\w+)")
_OF_DATA = re.compile(r"[^/]+\.data/(data|scripts)/")
# Where installers put files, as counted from the folder of the Python.
_SITE = "lib/python/site-packages/"
_DATA_FOLDERS = {"data": "", "scripts": "bin/"}
_LOADER, _EXECUTABLE, _RPATH = "@loader_path", "@executable_path", "@rpath"
_MANAGERS = ("/opt/homebrew/", "/usr/local/", "/opt/local/")
"""Where Homebrew and MacPorts install for their users."""


def check(archive: Archive, binaries: Sequence[Binary], *, loads: re.Pattern[bytes]) -> Iterator[Finding]:
    """Breaches by binary.

    Args:
        archive: the wheel.
        binaries: all of macOS in it.
        loads: what Python code that loads libraries by itself has in it.
    """
    lost: dict[str, list[str]] = {}
    places = _Places(archive, binaries)
    for binary in binaries:
        problems = list(_check_run_paths(binary, places))
        yield from problems
        for library in places.lost(binary):
            if not (problems and library.startswith(_RPATH)):
                lost.setdefault(binary.path, []).append(library)
    if not lost:
        return
    # Python code loads a library by its path; all that need it by its install name take that.
    sources = (member.name for member in archive.members if member.name.endswith(".py"))
    taken = {binary.soname for binary in binaries} if _any_has(archive, sources, loads) else set()
    for path, libraries in lost.items():
        if left := [library for library in dict.fromkeys(libraries) if library not in taken]:
            reason = f"it needs {wording.some(left)}, which is in the wheel where that does not lead"
            fix = "name it by @loader_path (install_name_tool -change), or bundle it by delocate-wheel"
            yield Finding(code=FindingCode.NEEDED, member=path, reason=reason, fix=fix)


class _Places:
    """Where the files of a wheel are installed."""

    def __init__(self, archive: Archive, binaries: Sequence[Binary]) -> None:
        # The usual file systems of macOS take upper and lower case for the same.
        self._files = {_place(member.name).casefold() for member in archive.members}
        self._names = shipped(binaries)
        programs = {posixpath.dirname(_place(binary.path)) for binary in binaries if binary.is_program}
        # `@executable_path` is the folder of whatever program of the wheel loads it.
        self._starts = {_EXECUTABLE: programs}
        self._starts[_RPATH] = {
            folder for binary in binaries for path in binary.run_paths for folder in self.led(binary, path)
        }

    def led(self, binary: Binary, path: str) -> set[str]:
        """The folders or files that a path of a binary may lead to."""
        start, _, rest = path.partition("/")
        starts = {posixpath.dirname(_place(binary.path))} if start == _LOADER else self._starts.get(start, ())
        return {posixpath.normpath(posixpath.join(folder, rest)) for folder in starts}

    def lost(self, binary: Binary) -> Iterator[str]:
        """The libraries of the wheel that a binary needs by a path that leads to none of its files."""
        for library in binary.needed:
            named = library.rpartition("/")[2] in self._names and not library.startswith(OF_MACOS)
            if named and all(path.casefold() not in self._files for path in self.led(binary, library)):
                yield library


def _place(member: str) -> str:
    """Where installers put a member."""
    match = _OF_DATA.match(member)
    return _DATA_FOLDERS[match[1]] + member[match.end() :] if match else _SITE + installed_path(member)


def _any_has(archive: Archive, members: Iterable[str], pattern: re.Pattern[bytes]) -> bool:
    return any(archive.search(name, pattern) for name in members)


def _check_run_paths(binary: Binary, places: _Places) -> Iterator[Finding]:
    if len(set(binary.rpath)) < len(binary.rpath):
        twice = [path for path, count in Counter(binary.rpath).items() if count > 1]
        reason = f"it has the run path {wording.some(twice)} twice, which newer loaders of macOS refuse"
        fix = "delete one of them (install_name_tool -delete_rpath)"
        yield Finding(code=FindingCode.RPATH, member=binary.path, reason=reason, fix=fix)
    if not any(path.startswith(_RPATH) for path in binary.needed):
        return
    problems: dict[str, list[str]] = {}
    relative = [number for number, path in enumerate(binary.rpath) if path.startswith("@")]
    for number, path in enumerate(binary.rpath):
        if path.startswith("/"):
            # Where users install what the wheel lacks, behind the folders of the wheel.
            last = path.startswith(_MANAGERS) and number > max(relative, default=-1)
            problem = "" if last or path.startswith(OF_MACOS) else "an absolute path outside of the wheel"
        else:
            folders = places.led(binary, path) if path.startswith(_LOADER) else ()
            away = any(folder != "lib" and not f"{folder}/".startswith(_SITE) for folder in folders)
            problem = "which is outside of site-packages" if away else ""
        if problem:
            problems.setdefault(problem, []).append(path)
    for problem, paths in problems.items():
        reason = f"it looks for libraries in {wording.some(paths)}, {problem}"
        fix = "link with run paths relative to @loader_path (install_name_tool -delete_rpath)"
        yield Finding(code=FindingCode.RPATH, member=binary.path, reason=reason, fix=fix)


def check_minimum(binary: Binary, platforms: Sequence[str]) -> Iterator[Finding]:
    """The tag names the oldest macOS; since 11 the first number alone counts (packaging.tags)."""
    tags = [(platform, match) for platform in platforms if (match := _TAG.fullmatch(platform))]
    fitting = [(p, m) for p, m in tags if m[3] == binary.machine or m[3] not in ("arm64", "x86_64")]
    if tags and len(tags) == len(platforms) and binary.systems and "macOS" not in binary.systems:
        reason = f"it is for {wording.some(sorted(binary.systems))}, the wheel for macOS"
        yield Finding(code=FindingCode.MACHINE, member=binary.path, reason=reason, fix="build it for macOS")
    if binary.minimum_macos is None or not fitting:
        return
    platform, oldest = min(fitting, key=lambda pair: (int(pair[1][1]), int(pair[1][2])))
    promised = (int(oldest[1]), int(oldest[2]))
    if promised == (10, 16):  # what tools from before macOS 11 call that
        promised = (11, 0)
    if binary.machine == "arm64":
        promised = max(promised, (11, 0))  # there is none before
    says = binary.minimum_macos
    if (says[0], 0) > promised if promised[0] > 10 else says > promised:  # noqa: PLR2004 - macOS 10
        reason = f"it says that it needs macOS {says[0]}.{says[1]}, and the tag is {platform}"
        fix = "build with MACOSX_DEPLOYMENT_TARGET as in the tag, or tag the wheel for the newer macOS"
        yield Finding(code=FindingCode.MACOS_TOO_NEW, member=binary.path, reason=reason, fix=fix)
