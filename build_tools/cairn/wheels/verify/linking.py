"""Whether the dynamic linker will find what each binary needs, once the wheel is installed.

On Linux it looks for each name in DT_NEEDED among the SONAMEs that are loaded, then in the folders of the run
path, then in those of the system (ld.so(8)). On Windows it looks in the folder of the module that is loaded
and in those that were added by AddDllDirectory, then in its own (docs.python.org, `os.add_dll_directory`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents import manylinux, windows_dlls
from cairn.wheels.contents.binaries import Binary, shipped
from cairn.wheels.contents.manylinux import Policy
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_ORIGIN = ("$ORIGIN", "${ORIGIN}")
_ADDS_FOLDERS = (b"add_dll_directory", b"AddDllDirectory", b"WinDLL")
_PACKAGE_DEPTH = 2  # the __init__.py of a top package, or of one below it


def check(
    archive: Archive, binaries: Sequence[Binary], name: FileName, expected: Expectation
) -> Iterator[Finding]:
    """Breaches by binary; code objects are loaded by ROCm's runtime, not by the linker."""
    elves = [binary for binary in binaries if binary.format == "elf" and not binary.is_device_code]
    # Names of one policy, such as manylinux2014 and manylinux_2_17, are one promise. The oldest comes first.
    promises = map(manylinux.promise_of, wheel_info.platforms_of(name.tags))
    found = {rule.name: rule for rule in promises if rule}
    rules = sorted(found.values(), key=lambda rule: tuple(map(int, rule.name.split("_")[1:])))
    own = shipped(elves)
    for binary in elves:
        yield from _check_symbols(binary, own, rules)
        yield from _check_needed(binary, own, rules, expected)
        yield from _check_run_paths(binary)
    dlls = [binary for binary in binaries if binary.format == "pe"]
    own = shipped(dlls)
    for binary in dlls:
        yield from _check_imports(binary, own, expected)
    yield from _check_folders(archive, dlls)


def _check_symbols(binary: Binary, own: frozenset[str], rules: Sequence[Policy]) -> Iterator[Finding]:
    for rule in rules:
        wrong = rule.objections(binary, own) if binary.machine in rule.versions else ()
        if wrong:
            yield Finding(
                code=FindingCode.SYMBOLS_TOO_NEW,
                member=binary.path,
                reason=f"{rule.name} does not promise {wording.some(wrong)}",
                fix="build on an older system, or repair with the tag that the symbols justify",
            )
            return  # a newer policy allows more: what breaks it breaks this one too


def _check_needed(
    binary: Binary, own: frozenset[str], rules: Sequence[Policy], expected: Expectation
) -> Iterator[Finding]:
    elsewhere = (*expected.provided_libraries, *manylinux.LOADERS)
    wanted = [name for name in binary.needed if name not in own and not manylinux.matches(name, elsewhere)]
    for rule in rules or (manylinux.newest(),):
        missing = [name for name in wanted if not rule.has(name)]
        if missing:
            yield _missing(binary, missing, f"on every system of {rule.name}", expected)
            return


def _check_imports(binary: Binary, own: frozenset[str], expected: Expectation) -> Iterator[Finding]:
    provided = [pattern.lower() for pattern in expected.provided_libraries]
    missing = [
        name
        for name in binary.needed
        if name not in own
        and not manylinux.matches(name, provided)
        and not windows_dlls.on_system(name, binary.machine)
    ]
    if missing:
        yield _missing(binary, missing, "a part of Windows or of Python", expected)


def _missing(binary: Binary, names: Sequence[str], system: str, expected: Expectation) -> Finding:
    beside = "a wheel given beside it"
    if expected.unread:
        beside += f" (not given: {wording.some(expected.unread)}, which it requires)"
    return Finding(
        code=FindingCode.NEEDED,
        member=binary.path,
        reason=f"it needs {wording.some(names)}: not in the wheel, not {system}, not in {beside}",
        fix="bundle it by `cairn wheel repair`, or give the required wheel that has it to the same command",
    )


def _check_run_paths(binary: Binary) -> Iterator[Finding]:
    problems: dict[str, list[str]] = {}
    for path in dict.fromkeys(binary.run_paths):
        problem = _problem_of(binary.path, path)
        if problem:
            problems.setdefault(problem, []).append(repr(path))
    for problem, paths in problems.items():
        yield Finding(
            code=FindingCode.RPATH,
            member=binary.path,
            reason=f"it looks for libraries in {', '.join(paths)}, {problem}",
            fix="link with run paths relative to $ORIGIN",
        )


def _problem_of(member: str, path: str) -> str | None:
    """What is wrong with a run path; None where it leads into site-packages.

    The linker puts the folder of the binary in place of `$ORIGIN` (ld.so(8)). An empty path, as `::` leaves
    one, is the current folder.
    """
    head, _, rest = path.partition("/")
    if head not in _ORIGIN:
        if path.startswith("/"):
            return "an absolute path outside of the wheel"
        return "which counts from the folder that the program is started in"
    # Packages lie side by side in site-packages, and may find each other there: beyond that nothing is ours.
    place = posixpath.normpath(posixpath.join(posixpath.dirname(member), rest))
    return "which is outside of site-packages" if place.split("/")[0] == ".." else None


def _check_folders(archive: Archive, dlls: Sequence[Binary]) -> Iterator[Finding]:
    """A DLL in a different folder is found only where Python code adds that folder."""
    folders: dict[str, set[str]] = {}
    for dll in dlls:
        folder, _, name = dll.path.rpartition("/")
        folders.setdefault(name.lower(), set()).add(folder)
    far: dict[str, str] = {}
    for dll in dlls:
        here = dll.path.rpartition("/")[0]
        away = [name for name in dll.needed if name in folders and here not in folders[name]]
        if away:
            far[dll.path] = away[0]
    sources = (
        member.name
        for member in archive.members
        if member.name.endswith(".py") and member.name.count("/") <= _PACKAGE_DEPTH
    )
    if not far or any(mark in archive.read(name) for name in sources for mark in _ADDS_FOLDERS):
        return
    for member, name in far.items():
        yield Finding(
            code=FindingCode.DLL_FOLDER,
            member=member,
            reason=f"it needs {name} from a different folder, where nothing makes Windows look",
            fix="call os.add_dll_directory() before it is loaded, as delvewheel's patch does",
        )
