"""What would keep installers from a wheel, or let them do different things with it.

Sources: the binary distribution format, entry points and core metadata specifications of
packaging.python.org, and what pip and installer refuse.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.output import safe_text
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.verify.findings import Finding, FindingCode

# PyPA's binary distribution format, "The .data directory": where each folder of `{name}-{version}.data` goes.
_SCHEMES = frozenset(("purelib", "platlib", "headers", "scripts", "data"))
_SCRIPTS = ("console_scripts", "gui_scripts")
_SEPARATORS = frozenset("/\\")
# `module:attr.attr`, and extras in brackets, which the entry points specification still lets readers accept.
_FUNCTION = re.compile(r"[\w.]+\s*:\s*[\w.]+\s*(?:\[[^\]]*\])?")
_CASELESS = ("any", "win", "macosx")
_ON_WINDOWS = ("any", "win")
# learn.microsoft.com, "Naming Files, Paths, and Namespaces"; CONIN$ and CONOUT$ are of the console.
_DEVICES = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3])", re.IGNORECASE
)
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*\x00-\x1f]')
_AGAIN = "build the wheel again with a backend that follows the specification"


def check(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Breaches by file."""
    yield from _check_wheel_file(archive, info)
    yield from _check_scripts(info)
    yield from _check_licences(archive, info)
    yield from _check_names(archive, info, name)
    yield from _check_twice(archive, name)


def _check_wheel_file(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    path = f"{info.dist_info}/WHEEL"
    data = archive.read(path)
    headers = parse_headers(data, name="WHEEL")
    try:
        wheel_info.decoded(data, "WHEEL")
    except WheelError as error:
        yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=str(error), fix=_AGAIN)
    for field, allowed in (
        ("Wheel-Version", [("1.0",)]),
        ("Root-Is-Purelib", [("true",), ("false",)]),
        ("Build", [(), (info.build,)]),
    ):
        values = headers.all(field)
        if values not in allowed:
            values_shown = " and ".join(map(repr, values)) or "nothing"
            expected = " or ".join(repr(value[0]) for value in allowed if value and value[0]) or "nothing"
            reason = f"{field} says {values_shown} where it must say {expected}"
            yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=reason, fix=_AGAIN)


def _check_scripts(info: WheelInfo) -> Iterator[Finding]:
    """Installers write a program for each, by its name, into the folder for scripts."""
    path = f"{info.dist_info}/entry_points.txt"
    scripts = [pair for group in _SCRIPTS for pair in info.entry_points.get(group, {}).items()]
    for script, function in scripts:
        problems: list[tuple[str, str]] = []
        if safe_text.UNSEEN.search(script):
            problems.append(
                (f"the name of the script {script!a} is displayed differently", "give it a plain name")
            )
        if not script.strip(".") or _SEPARATORS.intersection(script):
            reason = f"the script {script!r} would be written outside of the folder for scripts"
            problems.append((reason, "give it a plain name"))
        if not _FUNCTION.fullmatch(function):
            reason = f"the script {script!r} names no function: {function!r}"
            problems.append((reason, "write it module:function"))
        for reason, fix in problems:
            yield Finding(code=FindingCode.ENTRY_POINT, member=path, reason=reason, fix=fix)


def _check_licences(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """Since Metadata-Version 2.4 a License-File is in the folder `licenses` of the dist-info (PEP 639)."""
    path = f"{info.dist_info}/METADATA"
    try:
        wheel_info.decoded(info.metadata, "METADATA")
        headers = parse_headers(info.metadata, name="METADATA")
    except WheelError as error:
        yield Finding(code=FindingCode.METADATA_INVALID, member=path, reason=str(error), fix=_AGAIN)
        return
    if info.metadata_version < wheel_info.LICENCES_APART:
        return
    for licence in headers.all("License-File"):
        if f"{info.dist_info}/licenses/{licence}" not in archive:
            reason = f"it names the licence {licence}, which is not in the folder licenses"
            fix = "ship it, or do not name it"
            yield Finding(code=FindingCode.LICENCE_MISSING, member=path, reason=reason, fix=fix)


def _check_names(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """File names that are displayed differently, have no place, or cannot be written."""
    data = info.data_folder
    on_windows = any(platform.startswith(_ON_WINDOWS) for platform in wheel_info.platforms_of(name.tags))
    for path, is_dir in ((member.name, member.is_dir) for member in archive.members):
        if not path.isascii() and safe_text.UNSEEN.search(path):
            reason = f"its name is {path!a}, which is displayed differently"
            yield Finding(code=FindingCode.NAME_DECEIVES, member=path, reason=reason, fix="rename it")
        top, *rest = path.rstrip("/").split("/")
        placed = top == data and len(rest) > 1 and rest[0] in _SCHEMES
        if top.endswith(".data") and not is_dir and not placed:
            reason = f"installers do not know where to put it: only {data}/<scheme>/ is defined"
            fix = f"use one of the schemes {', '.join(sorted(_SCHEMES))}"
            yield Finding(code=FindingCode.DATA_FOLDER, member=path, reason=reason, fix=fix)
        reasons = map(_forbidden, (top, *rest) if on_windows else ())
        if reason := next(filter(None, reasons), ""):
            yield Finding(code=FindingCode.NAME_FORBIDDEN, member=path, reason=reason, fix="rename it")


def _check_twice(archive: Archive, name: FileName) -> Iterator[Finding]:
    """Names that are one where case is ignored: two files, or a file and a folder."""
    if not any(platform.startswith(_CASELESS) for platform in wheel_info.platforms_of(name.tags)):
        return
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in (member.name for member in archive.members if not member.is_dir):
        # NFC, since macOS takes `é` as one letter and as two for the same.
        same = unicodedata.normalize("NFC", path).casefold()
        folder = same
        while (folder := folder.rpartition("/")[0]) and folder not in folders:
            folders[folder] = path
        other = seen.setdefault(same, path)
        if other != path:
            reason = f"it is the same file as {other} on Windows and macOS"
            yield Finding(code=FindingCode.NAME_TWICE, member=path, reason=reason, fix="rename one of them")
    for same in sorted(folders.keys() & seen.keys()):
        reason = f"it is the folder of {folders[same]} on Windows and macOS, too"
        yield Finding(code=FindingCode.NAME_TWICE, member=seen[same], reason=reason, fix="rename one of them")


def _forbidden(part: str) -> str:
    """Why Windows takes no file or folder of that name; empty where it does."""
    if _DEVICES.fullmatch(part.partition(".")[0].rstrip()):
        return f"{part} is the name of a device on Windows"
    if part != part.rstrip(". "):
        return f"Windows drops the end of the name {part!r}"
    if match := _NOT_ON_WINDOWS.search(part):
        return f"Windows allows no {match[0]!r} in a name"
    return ""
