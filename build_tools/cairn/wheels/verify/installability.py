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
_AGAIN = "build the wheel again with a backend that follows the specification"


def check(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Breaches by file."""
    yield from _check_wheel_file(archive, info)
    yield from _check_scripts(info)
    yield from _check_licences(archive, info)
    yield from _check_names(archive, info, name)


def _check_wheel_file(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    path = f"{info.dist_info}/WHEEL"
    data = archive.read(path)
    found = parse_headers(data, name="WHEEL")
    try:
        wheel_info.decoded(data, "WHEEL")
    except WheelError as error:
        yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=str(error), fix=_AGAIN)
    for field, allowed in (
        ("Wheel-Version", [("1.0",)]),
        ("Root-Is-Purelib", [("true",), ("false",)]),
        ("Build", [(), (info.build,)]),
    ):
        values = found.all(field)
        if values not in allowed:
            said = " and ".join(map(repr, values)) or "nothing"
            meant = " or ".join(repr(value[0]) for value in allowed if value and value[0]) or "nothing"
            reason = f"{field} says {said} where it must say {meant}"
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
    """File names that are displayed differently, have no place, or are one file where case is ignored."""
    data = f"{info.dist_info.removesuffix('.dist-info')}.data"
    caseless = any(platform.startswith(_CASELESS) for platform in wheel_info.platforms_of(name.tags))
    seen: dict[str, str] = {}
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
        # NFC, since macOS takes `é` as one letter and as two for the same.
        other = seen.setdefault(unicodedata.normalize("NFC", path).casefold(), path) if caseless else path
        if other != path:
            reason = f"it is the same file as {other} on Windows and macOS"
            yield Finding(code=FindingCode.NAME_TWICE, member=path, reason=reason, fix="rename one of them")
