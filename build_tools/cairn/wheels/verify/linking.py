"""Checking that the dynamic linker finds every library that a binary needs, once the wheel is installed.

On Linux it looks for each name in DT_NEEDED among the SONAMEs that are loaded, then in the folders of the run
path, then in those of the system (ld.so(8)). On Windows it looks in the folder of the module that is loaded
and in those that were added by AddDllDirectory, then in its own (docs.python.org, `os.add_dll_directory`).
On macOS each is named by a path, which may begin with the folder of the binary or its run paths (dyld(1)).
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import structs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cairn import requirements
from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents.binaries import OF_MACOS, ORIGIN, Binary, run_path_folder, shipped
from cairn.wheels.contents.system_libraries import (
    DRIVERS,
    LOADERS,
    Policy,
    is_of_debug_builds,
    matches,
    newest_policy,
    of_matlab,
    on_windows,
    promise_of,
)
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo, installed_path, platforms_of
from cairn.wheels.metadata.wheel_info import requirement as requirement_of
from cairn.wheels.verify import alternatives, environments, macos
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_ADDS_FOLDERS = re.compile(rb"add_dll_directory|AddDllDirectory|WinDLL")
_LOADS_LIBRARIES = re.compile(rb"CDLL|cdll|PyDLL|dlopen|load_?library|RTLD_|LD_LIBRARY_PATH|LD_PRELOAD")
_LEAVE_OUT = "nothing, where its users are to install that themselves; otherwise leave the plugin out"
_OF_SYSTEM = re.compile(r"/(?:usr/(?:local/)?)?lib(?:32|64|x32)?(?:/|$)")
# `PREFIX/lib`, as counted from `PREFIX/lib/python3.12/site-packages`, with `lib64` on some systems.
_OF_PREFIX = ("../..", "../../../lib")
_PYTHON_OF_IOS = "@rpath/Python.framework/Python"
_OF_PYTHON_DLL = re.compile(r"python(\d\d)\.dll")
# The runtimes that came with Pythons for Windows before 3.5 (devguide.python.org, "Compiler versions").
_OLD_RUNTIMES = dict.fromkeys(("26", "27", "31", "32"), "msvcr90.dll") | dict.fromkeys(
    ("33", "34"), "msvcr100.dll"
)
_SHORT = 3  # letters of a word that says nothing
_PACKAGE_DEPTH = 2  # the __init__.py of a top package, or of one below it


def check(
    archive: Archive,
    info: WheelInfo | None,
    binaries: Sequence[Binary],
    name: FileName,
    expected: Expectation,
) -> Iterator[Finding]:
    """Breaches by binary; code objects are loaded by ROCm's runtime, not by the linker."""
    required = {
        project
        for project, requirement, extras in (_requirements(info) if info else ())
        if not extras and environments.applies(requirement, name, expected.python)
    }
    absent = sorted(required - expected.beside.keys())
    platforms = platforms_of(name.tags)
    # Names of one policy, such as manylinux2014 and manylinux_2_17, are one promise. The oldest comes first.
    by_name = {rule.name: rule for rule in map(promise_of, platforms) if rule}
    rules = sorted(by_name.values(), key=lambda rule: tuple(map(int, rule.name.split("_")[1:])))
    for kind in ("elf", "pe", "macho"):
        of_kind = [binary for binary in binaries if binary.format == kind and not binary.is_device_code]
        shipped_names = shipped(of_kind)
        needed = (_OF_PYTHON_DLL.fullmatch(library) for binary in of_kind for library in binary.needed)
        runtimes = frozenset(_OLD_RUNTIMES.get(match[1], "") for match in needed if match)
        lacking = [
            (binary, libraries, system)
            for binary in of_kind
            for libraries, system in _missing(
                binary, shipped_names, _systems(binary, rules, platforms, runtimes), expected
            )
        ]
        optional = alternatives.optional(archive, of_kind, [(b.path, names) for b, names, _ in lacking])
        started = {binary.path for binary in of_kind if binary.is_module} or {
            binary.path for binary in of_kind
        }
        # Where nothing loads without an extra, it is no extra.
        serves = bool(started.difference(binary.path for binary, _, _ in lacking))
        of_extras = list(_of_extras(info)) if lacking and info else []
        for binary, libraries, system in lacking:
            finding = _needed(binary, libraries, system, absent, optional=binary.path in optional)
            yield _if_of_extra(finding, libraries, of_extras, expected, serves=serves)
        for binary in of_kind:
            if kind == "elf":
                yield from _check_symbols(binary, shipped_names, rules)
                yield from _check_run_paths(binary, shipped_names)
            elif kind == "macho":
                yield from macos.check_minimum(binary, platforms)
        if kind == "macho" and of_kind and any(platform.startswith("macosx") for platform in platforms):
            places = macos.check(archive, of_kind, loads=_LOADS_LIBRARIES)
            yield from (finding for finding in places if finding.member not in optional)
    elves = [binary for binary in binaries if binary.format == "elf" and not binary.is_device_code]
    yield from _check_places(archive, elves, rules, expected.provided_libraries)
    yield from _check_folders(archive, [binary for binary in binaries if binary.format == "pe"])


def _check_symbols(
    binary: Binary, shipped_names: frozenset[str], rules: Sequence[Policy]
) -> Iterator[Finding]:
    for rule in rules:
        wrong = rule.objections(binary, shipped_names) if binary.machine in rule.versions else ()
        if wrong:
            reason = f"{rule.name} does not promise {wording.some(wrong)}"
            fix = "build on an older system, or repair with the tag that the symbols justify"
            yield Finding(code=FindingCode.SYMBOLS_TOO_NEW, member=binary.path, reason=reason, fix=fix)
            return  # a newer policy allows more: what breaks it breaks this one too


def _missing(
    binary: Binary,
    shipped_names: frozenset[str],
    systems: Iterable[tuple[str, Callable[[str], bool]]],
    expected: Expectation,
) -> Iterator[tuple[tuple[str, ...], str]]:
    """What neither the wheel has nor what it requires, and the first system of the tag without it."""
    provided = (*expected.provided_libraries, *DRIVERS, *of_matlab(binary.needed))
    if binary.format == "elf":
        provided = (*provided, *LOADERS)
    elif binary.format == "pe":
        provided = tuple(pattern.lower() for pattern in provided)
    foreign = []
    for library in binary.needed:
        name = library.rpartition("/")[2] if binary.format == "macho" else library
        if name not in shipped_names and not matches(name, provided) and not _is_for_debugging(binary, name):
            foreign.append(library)
    for system, has in systems:
        if names := tuple(library for library in foreign if not has(library)):
            yield names, system
            return


def _needed(
    binary: Binary, missing: Sequence[str], system: str, absent: Sequence[str], *, optional: bool
) -> Finding:
    beside = "a wheel given beside it"
    if absent:
        beside += f" (not given: {wording.some(absent)}, which it requires)"
    reason = f"it needs {wording.some(missing)}: not in the wheel, not {system}, not in {beside}"
    if optional:
        return Finding(code=FindingCode.OPTIONAL_PLUGIN, member=binary.path, reason=reason, fix=_LEAVE_OUT)
    fix = _how_to_bring(missing, binary)
    return Finding(code=FindingCode.NEEDED, member=binary.path, reason=reason, fix=fix)


def _requirements(info: WheelInfo) -> Iterator[tuple[str, Requirement, set[str]]]:
    """The projects that a wheel requires, each with its requirement, and the extras that it is for alone."""
    for text in info.requires_dist:
        with contextlib.suppress(WheelError):  # which `metadata` reports
            requirement = requirement_of(text)
            yield str(canonicalize_name(requirement.name)), requirement, requirements.extras_of(requirement)


def _of_extras(info: WheelInfo) -> Iterator[tuple[str, str, set[str]]]:
    """The wheels that extras alone require: extra, wheel, and words of its name that say what it has."""
    always = {name for name, _, extras in _requirements(info) if not extras}
    common = {word for name in (*always, info.distribution) for word in name.split("-")}
    for name, _, extras in _requirements(info):
        if extras and name not in always and not requirements.is_sdk(name):
            yield min(extras), name, {word for word in {*name.split("-")} - common if len(word) > _SHORT}


def _if_of_extra(
    finding: Finding,
    missing: Sequence[str],
    of_extras: Iterable[tuple[str, str, set[str]]],
    expected: Expectation,
    *,
    serves: bool,
) -> Finding:
    """A finding on missing libraries, as a note where wheels that extras name bring them.

    Kivy's module for GStreamer needs gstreamer-1.0-0.dll and what comes with it, and kivy-deps.gstreamer is
    of its extra `media`: without that it is never loaded. Of a wheel that is there its files count. One that
    is not has a name alone: what it brings is not checked, which the note says.
    """
    left = {name.rpartition("/")[2].lower() for name in missing}
    sources = []
    for extra, name, words in of_extras:
        libraries = {library.lower() for library in expected.in_wheels.get(name, ())}
        if name in expected.in_wheels:
            sources += [f"its extra {extra} names {name}, which has it"] if left & libraries else []
            left -= libraries
        elif any(library.removeprefix("lib").startswith(tuple(words)) for library in left if words):
            sources.append(f"its extra {extra} names {name}, which was not given: not checked")
            left.clear()
    if finding.code is not FindingCode.NEEDED or left or not sources:
        return finding
    reason = f"{finding.reason}; {', '.join(dict.fromkeys(sources))}"
    if not serves:
        reason = f"{reason}, and no module is loaded without"
        return structs.replace(finding, reason=reason, fix="require that wheel always")
    fix = "give that wheel to the same command; require it always, if anything is loaded without it"
    return structs.replace(finding, code=FindingCode.OPTIONAL_PLUGIN, reason=reason, fix=fix)


def _how_to_bring(missing: Sequence[str], binary: Binary) -> str:
    if all(map(is_of_debug_builds, missing)):
        return "build it for release: only Visual Studio, or a debug Python, brings these DLLs"
    tool = "delocate-wheel" if binary.format == "macho" else "`cairn wheel repair`"
    return f"bundle it by {tool}, or give the required wheel that has it to the same command"


def _is_for_debugging(binary: Binary, library: str) -> bool:
    """Whether it is a module that a debug build of Python alone imports, `m_d.pyd`, and needs such a DLL."""
    return binary.path.lower().endswith("_d.pyd") and is_of_debug_builds(library)


def _systems(
    binary: Binary, rules: Sequence[Policy], platforms: Sequence[str], runtimes: frozenset[str]
) -> Iterator[tuple[str, Callable[[str], bool]]]:
    """The systems that a binary must run on, in words, and whether each has a library.

    `runtimes` are the DLLs that come with the Pythons that the wheel is linked with.
    """
    if binary.format == "elf":
        for rule in rules or (newest_policy(),):
            yield f"on every system of {rule.name}", rule.has
    elif binary.format == "pe":
        yield (
            "a part of Windows or of Python",
            lambda name: name in runtimes or on_windows(name, machine=binary.machine),
        )
    elif all(platform.startswith("ios") for platform in platforms):
        # PEP 730: an app brings Python as a framework, with which each module is linked.
        yield "a part of iOS or of Python", lambda path: path.startswith(OF_MACOS) or path == _PYTHON_OF_IOS
    else:
        yield "a part of macOS", lambda path: path.startswith(OF_MACOS)


def _check_places(
    archive: Archive, elves: Sequence[Binary], rules: Sequence[Policy], provided: Sequence[str]
) -> Iterator[Finding]:
    """A library that an extension module needs, by way of others too, must lie where the loader looks.

    The run path of any file that needs it will do, since what is loaded already is taken by its name, and so
    will DT_RPATH of a file that loads it, by way of others too (ld.so(8)); DT_RUNPATH will not. So will
    Python code that loads libraries, and a folder of which it is not known where it will be.
    """
    files: dict[str, dict[str, Binary]] = {}
    for binary in elves:
        folder, _, file = installed_path(binary.path).rpartition("/")
        files.setdefault(folder, {})[file] = binary
    paths = {elf.path: _folders(elf) for elf in elves}
    by_name = _by_name(elves)
    inherited = _inherited(elves, paths, by_name)
    # By the name of its file it is found, and from then on by the other one, too.
    reached: set[str] = set()
    for elf in elves:
        for folder in inherited[elf.path] | paths[elf.path]:
            near = files.get(folder, {})
            reached |= {name for needed in elf.needed if needed in near for name in near[needed].names}
    # What installers put beside site-packages, and what the loader alone puts in the place of `$LIB`.
    beside = [binary for folder in files if ".data/" in f"{folder}/" for binary in files[folder].values()]
    modules = [binary for binary in elves if binary.is_module]
    reached = reached.union(*(module.names for module in (*modules, *beside)))
    lost = shipped(elves) - reached
    unclear = any("$" in folder.replace(ORIGIN, "") for folders in paths.values() for folder in folders)
    far = {
        user.path: [
            name
            for name in user.needed
            if name in lost
            and not matches(name, (*provided, *LOADERS))
            and not all(rule.has(name) for rule in rules or (newest_policy(),))
        ]
        for user in (() if unclear else _loaded(modules, by_name))
    }
    sources = (member.name for member in archive.members if member.name.endswith((".py", ".pth")))
    if not any(far.values()) or any(archive.search(name, _LOADS_LIBRARIES) for name in sources):
        return
    for path, needed in far.items():
        if needed:
            reason = f"it needs {wording.some(needed)}, which is in the wheel where no run path leads"
            fix = "link with a run path relative to $ORIGIN that leads there, or `cairn wheel repair`"
            yield Finding(code=FindingCode.NEEDED, member=path, reason=reason, fix=fix)


def _folders(binary: Binary) -> frozenset[str]:
    """Where the run paths of a binary lead; one that is not relative to it is left as it is.

    The loader passes over DT_RPATH where there is a DT_RUNPATH (ld.so(8)).
    """
    run_paths = binary.runpath or binary.rpath
    pairs = ((path, run_path_folder(installed_path(binary.path), path)) for path in run_paths)
    return frozenset(path if folder is None else folder for path, folder in pairs)


def _by_name(elves: Iterable[Binary]) -> Mapping[str, Sequence[Binary]]:
    by_name: dict[str, list[Binary]] = {}
    for elf in elves:
        for name in elf.names:
            by_name.setdefault(name, []).append(elf)
    return by_name


def _inherited(
    elves: Sequence[Binary], paths: Mapping[str, frozenset[str]], by_name: Mapping[str, Sequence[Binary]]
) -> dict[str, frozenset[str]]:
    """The folders of DT_RPATH of all that load a file, by way of others too; none for one with DT_RUNPATH."""
    passed = {elf.path: frozenset() if elf.runpath else paths[elf.path] for elf in elves}
    queue = deque(elf for elf in elves if passed[elf.path])
    while queue:
        user = queue.popleft()
        for library in (library for name in user.needed for library in by_name.get(name, ())):
            if not passed[user.path] <= passed[library.path]:
                passed[library.path] |= passed[user.path]
                queue.append(library)
    return {elf.path: frozenset() if elf.runpath else passed[elf.path] for elf in elves}


def _loaded(modules: Sequence[Binary], by_name: Mapping[str, Sequence[Binary]]) -> Sequence[Binary]:
    """Extension modules and the libraries of the wheel that they need, by way of others too."""
    loaded = {module.path: module for module in modules}
    queue = deque(modules)
    while queue:
        for library in (library for name in queue.popleft().needed for library in by_name.get(name, ())):
            if library.path not in loaded:
                loaded[library.path] = library
                queue.append(library)
    return list(loaded.values())


def _check_run_paths(binary: Binary, shipped_names: frozenset[str]) -> Iterator[Finding]:
    problems: dict[str, list[str]] = {}
    system = _behind_own(binary, shipped_names)
    for path in dict.fromkeys(binary.run_paths):
        # The linker puts the folder of the binary in place of `$ORIGIN` (ld.so(8)). Packages lie side by side
        # in site-packages, and may find each other there: beyond that, only what `.data/data` becomes.
        folder = run_path_folder(installed_path(binary.path), path)
        problem = "which counts from the folder that the program is started in"  # also an empty path: `::`
        if folder is not None:
            away = folder.split("/")[0] == ".." and folder not in _OF_PREFIX
            problem = "which is outside of site-packages" if away else ""
        elif path.startswith("/"):
            problem = "" if path in system else "an absolute path outside of the wheel"
        if problem:
            problems.setdefault(problem, []).append(repr(path))
    for problem, paths in problems.items():
        reason = f"it looks for libraries in {', '.join(paths)}, {problem}"
        fix = "link with run paths relative to $ORIGIN"
        yield Finding(code=FindingCode.RPATH, member=binary.path, reason=reason, fix=fix)


def _behind_own(binary: Binary, shipped_names: frozenset[str]) -> frozenset[str]:
    """The run paths that change nothing: folders of the system for libraries, behind those of the wheel.

    The system's administrator alone writes there, and what the wheel has is found before. torch has some
    such, since MKL's CMake files write `$MKLROOT/lib/intel64` even where they know no MKLROOT.
    """
    relative = [number for number, path in enumerate(binary.run_paths) if not path.startswith("/")]
    if not relative and not shipped_names.isdisjoint(binary.needed):
        return frozenset()
    behind = binary.run_paths[relative[-1] + 1 if relative else 0 :]
    return frozenset(path for path in behind if _OF_SYSTEM.match(posixpath.normpath(path)))


def _check_folders(archive: Archive, dlls: Sequence[Binary]) -> Iterator[Finding]:
    """A DLL in a different folder from its extension module is found only where Python adds that folder.

    How other DLLs are loaded is not for Python to say: a plugin finds those of its program in memory.
    """
    folders: dict[str, dict[str, Binary]] = {}
    for dll in dlls:
        folder, _, name = installed_path(dll.path).rpartition("/")
        folders.setdefault(name.lower(), {})[folder] = dll
    away = _away(dlls, folders)
    far = {dll.path: away[dll.path] for dll in dlls if dll.path in away and dll.path.lower().endswith(".pyd")}
    sources = (
        member.name
        for member in archive.members
        if member.name.endswith(".py") and installed_path(member.name).count("/") <= _PACKAGE_DEPTH
    )
    if not far or any(archive.search(name, _ADDS_FOLDERS) for name in sources):
        return
    for path, name in far.items():
        reason = f"it needs {name} from a different folder, where nothing makes Windows look"
        fix = "call os.add_dll_directory() before it is loaded, as delvewheel's patch does"
        yield Finding(code=FindingCode.DLL_FOLDER, member=path, reason=reason, fix=fix)


def _away(dlls: Sequence[Binary], folders: Mapping[str, Mapping[str, Binary]]) -> dict[str, str]:
    """Path to the DLL that lies in other folders alone, of those that are loaded with what is there."""
    # What lies beside a DLL is loaded with it, and what that needs is looked for in the same folders.
    away: dict[str, str] = {}
    users: dict[str, list[str]] = {}
    for dll in dlls:
        here = installed_path(dll.path).rpartition("/")[0]
        for name in dll.needed:
            beside = folders.get(name, {}).get(here)
            if beside is not None:
                users.setdefault(beside.path, []).append(dll.path)
            elif name in folders:
                away.setdefault(dll.path, name)
    near = deque(away)
    while near:
        path = near.popleft()
        for user in users.get(path, ()):
            if user not in away:
                away[user] = away[path]
                near.append(user)
    return away
