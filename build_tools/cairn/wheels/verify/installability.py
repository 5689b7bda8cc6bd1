"""What would keep installers from a wheel, or let them do different things with it.

Entry points must lead to something: a module of the wheel, and in that what they name. A wheel's requirements
may bring modules too, and Python may make names while it runs. Only what cannot be there counts: a module
missing from a package whose files are all in the wheel, a name that nothing in the text of its module can
define. A script that leads nowhere is a finding; a plugin may never be asked for.

Sources: the binary distribution format, entry points and core metadata specifications of
packaging.python.org, and what pip and installer refuse.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterator, Sequence

from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.output import safe_text, wording
from cairn.platforms import windows
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.record import has_odd_line_end
from cairn.wheels.metadata.wheel_info import (
    LICENCES_APART,
    FileName,
    WheelInfo,
    decoded,
    installed_path,
    is_of_tests,
    platforms_of,
)
from cairn.wheels.verify import environments, python_sources
from cairn.wheels.verify.findings import Finding, FindingCode

# PyPA's binary distribution format, "The .data directory": where each folder of `{name}-{version}.data` goes.
_SCHEMES = frozenset(("purelib", "platlib", "headers", "scripts", "data"))
_SEPARATORS = frozenset("/\\")
# `module:attr.attr`, and extras in brackets, of which pip reads fewer than there are (distlib, `ENTRY_RE`).
_FUNCTION = re.compile(r"([\w.]+):([\w.]+)\s*(?:\[\s*[\w-]+(?:=\w+)?(?:,\s*\w+(?:=\w+)?)*\s*\])?")
# Names of programs that uv reserves, with `.exe` behind them, too (astral-sh/uv,
# crates/uv-install-wheel/src/wheel.rs at 26a9dd4, `reserved_script_name`).
_PYTHON = re.compile(
    r"(?:pythonw?|python3(?:\.\d{1,3}t?)?|pythonw3\.\d{1,3}t|graalpy|pypy[23]?)(?:\.py)?", re.IGNORECASE
)
# Where installers put them: scripts, and what they merge into the folders of programs.
_PROGRAMS = ("scripts/", "data/bin/", "data/scripts/")
_CASELESS = ("any", "win", "macosx")
_ON_WINDOWS = ("any", "win")
# Characters that are left of MAX_PATH and its NUL (learn.microsoft.com, "Maximum Path Length Limitation") by
# one of the shortest folders that Python is installed into.
_LONGEST = 259 - len("C:\\Python312\\Lib\\site-packages\\")
# Where Python looks for modules, as a build lays it out below a prefix; elsewhere a Python may be bundled.
_IN_SITE = re.compile(
    r"(?:usr/(?:local/)?)?lib(?:64)?/(?:python[\d.]+t?/)?(?:site|dist)-packages/", re.IGNORECASE
)
# Where builds leave packages: those of sources, of setuptools, and of an sdist.
_UNPACKED = re.compile(r"src/|build/lib[^/]*/|[A-Za-z]\w*-\d[^/]*/")
_AGAIN = "build the wheel again with a backend that follows the specification"
_IN_SCRIPTS = 2  # slashes in the path of a script: demo-1.0.data/scripts/tool
_LONGEST_SCRIPT = 255 - len("-script.pyw")  # bytes of a file name, with what installers put behind it
SCRIPTS = ("console_scripts", "gui_scripts")
_REQUIRED = re.compile(r"\s*([\w.-]+)(?!.*;.*\bextra\b)")  # not for an extra alone; valid or not
_REFERENCE = re.compile(
    r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*(?::\s*([A-Za-z_]\w*)[\w.]*)?\s*(?:\[[^\]]*\])?"
)
# The numbers that begin bytecode: from Python 3.11 on 50 for each version (CPython,
# Include/internal/pycore_magic_number.h), tens of them before.
_MAGIC = {340: 8, 341: 8, 342: 9, 343: 10}
_MAGIC_OF_0 = 2900
_STRAYS = frozenset(
    ("tests", "test", "docs", "doc", "examples", "example", "scripts", "build", "dist", "src")
)


def check(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Breaches by file."""
    yield from _check_content(archive, info)
    yield from _check_wheel_file(archive, info)
    yield from _check_scripts(info, name)
    yield from _check_licences(archive, info)
    yield from _check_names(archive, info, name)
    yield from _check_misplaced(archive, info)
    yield from _check_twice(archive, info, name)
    yield from _check_strays(archive, name)
    yield from _check_bytecode(archive, info, name)
    yield from _check_required_packages(archive, info)


def _check_content(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """A wheel for a platform has a file, or requires something (TensorFlow's for Windows), or has scripts."""
    folder = f"{info.dist_info}/"
    pure = "any" in platforms_of(info.tags)  # which may hold a name
    if not (pure or info.requires_dist or info.entry_points) and all(
        member.name.startswith(folder) for member in archive.members
    ):
        reason = "it is for one platform, and installs nothing: it has no file, requirement or entry point"
        fix = "look at what the build back end leaves out of the wheel"
        yield Finding(code=FindingCode.MEMBER_MISSING, reason=reason, fix=fix)
    paths = [installed_path(member.name) for member in archive.members if not member.is_dir]
    if not any(path.endswith(".pth") for path in paths) and (
        place := _misplaced(archive, paths, info, pure=pure)
    ):
        reason = f"its modules lie in {place}, below the folder that Python looks in"
        fix = "pack what is in that folder, at the root of the wheel"
        yield Finding(code=FindingCode.MEMBER_MISSING, reason=reason, fix=fix)


def _misplaced(archive: Archive, paths: Sequence[str], info: WheelInfo, *, pure: bool) -> str:
    """The folder that all modules are in where Python imports none of them; an empty text where it does."""
    data = f"{info.data_folder}/data/"
    modules = [path for path in paths if path.endswith(python_sources.MODULE_FILES) and ".data/" not in path]
    if not modules and pure:  # what one Python finds there, no other does
        in_data = [path for path in paths if path.endswith(".py") and path.startswith(data)]
        modules = [path.removeprefix(data) for path in in_data]
    else:
        data = ""
    if modules and all(map(_IN_SITE.match, modules)):
        return f"{data}{_IN_SITE.match(modules[0])[0]}"  # type: ignore[index]
    sources = [path for path in modules if path.endswith(".py")]
    package = info.distribution.replace("-", "_")
    unpacked = _UNPACKED.match(sources[0]) if sources else None
    folder = unpacked[0] if unpacked else f"{package}/"
    place = f"{folder}{package}"
    if f"{folder}__init__.py" in paths or not {f"{place}.py", f"{place}/__init__.py"}.intersection(paths):
        return ""
    if unpacked:
        return folder if all(path.startswith(folder) for path in sources) else ""
    alone = all(path.startswith(f"{place}/") for path in modules)
    return folder if alone and not _is_named(archive, f"{package}.{package}") else ""


def _is_named(archive: Archive, module: str) -> bool:
    """Whether Python code or METADATA name a module: one below a folder of its name is meant to be there."""
    pattern = re.compile(rb"\b%s\b" % re.escape(module.encode()))
    files = [member.name for member in archive.members if member.name.endswith((".py", "/METADATA", ".txt"))]
    return any(archive.search(name, pattern) for name in files)


def _check_wheel_file(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    path = f"{info.dist_info}/WHEEL"
    data = archive.read(path)
    headers = parse_headers(data, name="WHEEL")
    try:
        odd = has_odd_line_end(decoded(data, "WHEEL"))
        reason = "WHEEL has line ends in which its readers differ" if odd else ""
    except WheelError as error:
        reason = str(error)
    if reason:
        yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=reason, fix=_AGAIN)
    for field, allowed in (
        ("Wheel-Version", [("1.0",)]),
        ("Root-Is-Purelib", [("true",), ("false",)]),
        ("Build", [(), (info.build,)]),
    ):
        # Installers take `False` for false: pip compares in lower case, uv and installer ask for `true`.
        values = tuple("false" if value == "False" else value for value in headers.all(field))
        if values not in allowed:
            values_shown = " and ".join(map(repr, values)) or "nothing"
            expected = " or ".join(repr(value[0]) for value in allowed if value and value[0]) or "nothing"
            reason = f"{field} says {values_shown} where it must say {expected}"
            yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=reason, fix=_AGAIN)


def _check_scripts(info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Installers write a program for each, by its name, into the folder for scripts."""
    on_windows = any(platform.startswith(_ON_WINDOWS) for platform in platforms_of(name.tags))
    path = f"{info.dist_info}/entry_points.txt"
    scripts = [pair for group in SCRIPTS for pair in info.entry_points.get(group, {}).items()]
    for script, function in scripts:
        problems: list[tuple[str, str]] = []
        if safe_text.UNSEEN.search(script):
            problems.append(
                (f"the name of the script {script!a} is displayed differently", "give it a plain name")
            )
        if reason := _unwritable(script, on_windows=on_windows):
            problems.append((reason, "give it a plain name"))
        if _PYTHON.fullmatch(script):
            reason = f"the script {script!r} would take the place of the interpreter"
            problems.append((reason, "give it a name of its own"))
        if not _is_function(function):
            reason = f"the script {script!r} names no function that pip can read: {function!r}"
            problems.append((reason, "write it module:function"))
        for reason, fix in problems:
            yield Finding(code=FindingCode.ENTRY_POINT, member=path, reason=reason, fix=fix)


def _unwritable(script: str, *, on_windows: bool) -> str:
    """Why no program can be written for the name of a script; an empty text where one can."""
    if not script.strip(".") or _SEPARATORS.intersection(script):
        return f"the script {script!r} would be written outside of the folder for scripts"
    if "[" in script or "]" in script:
        return f"pip cannot read the name of the script {script!r}"
    if len(script.encode()) > _LONGEST_SCRIPT:
        return f"the name of the script {script[:50]!r}… is longer than file systems take"
    reason = windows.forbidden(script) if on_windows else ""
    return f"the script {script!r} cannot be written: {reason}" if reason else ""


def _is_function(reference: str) -> bool:
    """Whether a script can be written for it: `from module import name`."""
    match = _FUNCTION.fullmatch(reference)
    words = f"{match[1]}.{match[2]}".split(".") if match else [""]
    return all(word.isidentifier() and not keyword.iskeyword(word) for word in words)


def _check_licences(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """Since Metadata-Version 2.4 a License-File is in the folder `licenses` of the dist-info (PEP 639)."""
    path = f"{info.dist_info}/METADATA"
    try:
        decoded(info.metadata, "METADATA")
        headers = parse_headers(info.metadata, name="METADATA")
    except WheelError as error:
        yield Finding(code=FindingCode.METADATA_INVALID, member=path, reason=str(error), fix=_AGAIN)
        return
    if info.metadata_version < LICENCES_APART:
        return
    for licence in headers.all("License-File"):
        if f"{info.dist_info}/licenses/{licence}" not in archive:
            reason = f"it names the licence {licence}, which is not in the folder licenses"
            fix = "ship it, or do not name it"
            yield Finding(code=FindingCode.LICENCE_MISSING, member=path, reason=reason, fix=fix)


def _check_names(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """File names that are displayed differently, have no place, or cannot be written."""
    data = info.data_folder
    platforms = platforms_of(name.tags)
    on_windows = any(platform.startswith(_ON_WINDOWS) for platform in platforms)
    only_windows = all(platform.startswith("win") for platform in platforms)
    for path, is_file in ((member.name, not member.is_dir) for member in archive.members):
        if not path.isascii() and safe_text.UNSEEN.search(path):
            reason = f"its name is {path!a}, which is displayed differently"
            yield Finding(code=FindingCode.NAME_DECEIVES, member=path, reason=reason, fix="rename it")
        if not (on_windows or ".data" in path):
            continue
        top, *rest = path.rstrip("/").split("/")
        placed = top == data and len(rest) > is_file and rest[0] in _SCHEMES
        if top.endswith(".data") and (is_file or rest) and not placed:
            reason = f"installers do not know where to put it: only {data}/<scheme>/ is defined"
            fix = f"use one of the schemes {', '.join(sorted(_SCHEMES))}"
            yield Finding(code=FindingCode.DATA_FOLDER, member=path, reason=reason, fix=fix)
        folder = next(filter("/".join(rest).lower().startswith, _PROGRAMS), "") if placed else ""
        program = "/".join(rest)[len(folder) :].lower().removesuffix(".exe")
        if folder and _PYTHON.fullmatch(program):
            reason = "it would take the place of the interpreter"
            yield Finding(code=FindingCode.DATA_FOLDER, member=path, reason=reason, fix="rename it")
        reasons = map(windows.forbidden, (top, *rest) if on_windows else ())
        reason = next(filter(None, reasons), "")
        if only_windows and (length := len(installed_path(path).encode("utf-16-le")) // 2) > _LONGEST:
            reason = (
                f"Windows takes paths of 259 characters by default; it has {length}, and Python's before it"
            )
        if reason:
            yield Finding(code=FindingCode.NAME_FORBIDDEN, member=path, reason=reason, fix="rename it")


def _check_misplaced(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """Metadata of other distributions, which Python takes for installed, and folders below scripts."""
    folders: set[str] = set()
    for path in (member.name for member in archive.members if not member.is_dir):
        if path.startswith(f"{info.data_folder}/scripts/") and path.count("/") > _IN_SCRIPTS:
            reason = "it is in a folder below scripts, which uv refuses"
            fix = "put it into scripts itself"
            yield Finding(code=FindingCode.DATA_FOLDER, member=path, reason=reason, fix=fix)
        if "-info/" in path:
            folders.add(installed_path(path).partition("/")[0])
    for folder in sorted(folders - {info.dist_info}):
        if folder.endswith((".dist-info", ".egg-info")):
            reason = f"{folder} makes pip and importlib.metadata take that distribution for installed"
            yield Finding(code=FindingCode.OVERWRITES, reason=reason, fix="leave it out")


def _check_twice(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Files that are written in one place, which `installer` refuses, or would be where case is ignored."""
    caseless = any(platform.startswith(_CASELESS) for platform in platforms_of(name.tags))
    paths = [member.name for member in archive.members if not member.is_dir]
    scripts = (script for group in SCRIPTS for script in info.entry_points.get(group, ()))
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in (*paths, *(f"{info.data_folder}/scripts/{script}" for script in scripts)):
        same = installed_path(path)
        if caseless:  # NFC, since macOS takes `é` as one letter and as two for the same.
            same = unicodedata.normalize("NFC", same).casefold()
        folder = same
        while (folder := folder.rpartition("/")[0]) and folder not in folders:
            folders[folder] = path
        if same in seen:
            where = "" if installed_path(path) == installed_path(seen[same]) else " on Windows and macOS"
            reason = f"it is the same file as {seen[same]}{where}"
            yield Finding(code=FindingCode.NAME_TWICE, member=path, reason=reason, fix="rename one of them")
        seen.setdefault(same, path)
    for same in sorted(folders.keys() & seen.keys()):
        inside = installed_path(folders[same]).startswith(f"{installed_path(seen[same])}/")
        where = "" if inside else " on Windows and macOS"
        reason = f"it is the folder of {folders[same]}{where}, too"
        yield Finding(code=FindingCode.NAME_TWICE, member=seen[same], reason=reason, fix="rename one of them")


def check_entry_points(
    own: python_sources.Modules, info: WheelInfo
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Breaches by entry point, and those that a requirement would have to bring."""
    if any(path.endswith(".pth") and "/" not in path for path in own.files):
        return (), ()  # site.py may find modules anywhere
    findings, elsewhere = [], []
    for group, points in info.entry_points.items():
        for name, text in points.items():
            match = _REFERENCE.fullmatch(text.strip())
            if match is None:
                continue  # a script's is judged by `installability`; other groups may have any text
            problem = python_sources.module_problem(own, info, match[1], match[2])
            if problem is None:
                continue
            if problem:
                reason = f"{name} of {group} leads to {text.strip()}: {problem}"
                fix = "name what is there, or ship the module"
                path = f"{info.dist_info}/entry_points.txt"
                code = FindingCode.ENTRY_POINT if group in SCRIPTS else FindingCode.OPTIONAL_PLUGIN
                findings.append(Finding(code=code, member=path, reason=reason, fix=fix))
            else:
                elsewhere.append(match[1].split(".")[0])
    unknown = [
        f"whether a requirement has {top}, which entry points name" for top in dict.fromkeys(elsewhere)
    ]
    return tuple(findings), tuple(unknown)


def _check_required_packages(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """A wheel must not bring the package of a project that it requires: the last one installed would win.

    Projects that share a package leave its own file out, empty, or have one that looks elsewhere (PEP 420).
    Those of one release, required in its version, know which has the package: of wheels that are named
    together files are compared anyway.
    """
    of_release = re.compile(rf"==\s*{re.escape(info.version)}(?![\w.])")
    texts = (text for text in info.requires_dist if not of_release.search(text))
    required = {match[1].lower() for match in map(_REQUIRED.match, texts) if match is not None}
    modules = {re.sub(r"[-.]+", "_", name): name for name in required}
    for member in archive.members:
        match = python_sources.PACKAGE.fullmatch(installed_path(member.name))
        project = modules.get(match[1]) if match else None
        if project is None or canonicalize_name(project) == info.distribution or not member.size:
            continue
        compiled = not member.name.endswith(".py")
        text = archive.read(member.name) if member.size <= python_sources.LARGEST_MODULE else b""
        if (compiled or text.strip()) and not any(mark in text for mark in python_sources.FINDS_ELSEWHERE):
            reason = f"it is the package of {project}, which it requires: one of the two would be overwritten"
            fix = "leave it out, or do not require the project"
            yield Finding(code=FindingCode.OVERWRITES, member=member.name, reason=reason, fix=fix)


def _check_strays(archive: Archive, name: FileName) -> Iterator[Finding]:
    """What a build swept in; as W001 and W005 of check-wheel-contents."""
    paths = [member.name for member in archive.members if not member.is_dir]
    tops = dict.fromkeys(
        installed_path(path).partition("/")[0] for path in paths if "/" in installed_path(path)
    )
    bytecode = [path for path in paths if path.endswith((".pyc", ".pyo"))]
    strays = [top for top in tops if top in _STRAYS and top != name.distribution]
    for what, which in (("bytecode", bytecode), ("folders that many projects have", strays)):
        if which:
            reason = f"it has {what}: {wording.some(which)}"
            fix = "leave them out of what the build packs (its `packages` or `exclude`)"
            yield Finding(code=FindingCode.STRAY_FILES, member=which[0], reason=reason, fix=fix)


def _check_bytecode(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Python takes bytecode without a source in place of that, and of its own version alone (PEP 3147)."""
    members = {installed_path(member.name): member.name for member in archive.members}
    modules = [path for path in members if path.endswith(python_sources.MODULE_FILES)]
    placed = [path for path in modules if "__pycache__/" not in path]
    if modules and not placed:
        reason = "all of its modules are bytecode in __pycache__, which Python takes beside a source alone"
        fix = "ship the sources"
        yield Finding(code=FindingCode.MEMBER_MISSING, member=members[modules[0]], reason=reason, fix=fix)
    stems = {path.partition(".")[0] for path in placed if not path.endswith(".pyc")}
    packages = {"", *(path.rpartition("/")[0] for path in placed if "/__init__." in path)}
    for path in placed:
        alone = path.endswith(".pyc") and path.partition(".")[0] not in stems and not is_of_tests(path)
        if not alone or path.rpartition("/")[0] not in packages:
            continue
        head = archive.read(members[path])[:4]
        magic = int.from_bytes(head[:2], "little")
        minor = _MAGIC.get(magic // 10, (magic - _MAGIC_OF_0) // 50)
        others = [n for n in range(8, 30) if n != minor and _is_for(info, name, f"3.{n}")]
        if head.endswith(b"\r\n") and others:
            reason = (
                f"it is bytecode of Python 3.{minor} without a source, and the wheel is for 3.{others[0]}"
            )
            fix = "ship the source, or tag the wheel for that Python alone"
            yield Finding(code=FindingCode.MODULE_ABI, member=members[path], reason=reason, fix=fix)


def _is_for(info: WheelInfo, name: FileName, python: str) -> bool:
    return environments.allows(info, python) and any(environments.fits(tag, python) for tag in name.tags)
