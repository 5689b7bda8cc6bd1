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
from cairn.output import escaping
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.fields import parse_headers
from cairn.wheels.metadata.wheel_info import FileName, WheelInfo
from cairn.wheels.verify.findings import Finding, FindingCode

_FORMAT = "1.0"
_SCHEMES = frozenset(("purelib", "platlib", "headers", "scripts", "data"))
_SCRIPTS = ("console_scripts", "gui_scripts")
_SEPARATORS = frozenset("/\\")
_FUNCTION = re.compile(r"[\w.]+\s*:\s*[\w.]+\s*(?:\[[^\]]*\])?")
_CASELESS = ("any", "win", "macosx")
_AGAIN = "build the wheel again with a backend that follows the specification"


def check(archive: Archive, info: WheelInfo, name: FileName) -> Iterator[Finding]:
    """Breaches by file."""
    yield from _check_wheel(archive, info)
    yield from _check_letters(archive)
    yield from _check_data(archive, info)
    yield from _check_scripts(info)
    yield from _check_licences(archive, info)
    if any(tag.split("-")[2].startswith(_CASELESS) for tag in name.tags):
        yield from _check_case(archive)


def _check_wheel(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    path = f"{info.dist_info}/WHEEL"
    data = archive.read(path)
    found = parse_headers(data, name="WHEEL")
    try:
        wheel_info.decoded(data, "WHEEL")
    except WheelError as error:
        yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=str(error), fix=_AGAIN)
    for field, allowed in (
        ("Wheel-Version", [(_FORMAT,)]),
        ("Root-Is-Purelib", [("true",), ("false",)]),
        ("Build", [(), (info.build,)]),
    ):
        values = found.all(field)
        if values not in allowed:
            told = " and ".join(map(repr, values)) or "nothing"
            meant = " or ".join(repr(value[0]) for value in allowed if value and value[0]) or "nothing"
            reason = f"{field} says {told} where it must say {meant}"
            yield Finding(code=FindingCode.WHEEL_HEADER, member=path, reason=reason, fix=_AGAIN)


def _check_letters(archive: Archive) -> Iterator[Finding]:
    for member in archive.members:
        if not member.name.isascii() and escaping.UNSEEN.search(member.name):
            yield Finding(
                code=FindingCode.NAME_DECEIVES,
                member=member.name,
                reason=f"its name is {member.name!a}, which is shown as another one",
                fix="rename it",
            )


def _check_data(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    own = f"{info.dist_info.removesuffix('.dist-info')}.data"
    for member in archive.members:
        top, *rest = member.name.rstrip("/").split("/")
        if not top.endswith(".data") or member.is_dir:
            continue
        if top != own or len(rest) < 2 or rest[0] not in _SCHEMES:  # noqa: PLR2004 - a scheme and a file
            yield Finding(
                code=FindingCode.DATA_FOLDER,
                member=member.name,
                reason=f"no installer knows where it goes: only {own}/<scheme>/ has a place",
                fix=f"use one of the schemes {', '.join(sorted(_SCHEMES))}",
            )


def _check_scripts(info: WheelInfo) -> Iterator[Finding]:
    path = f"{info.dist_info}/entry_points.txt"
    for group in _SCRIPTS:
        for script, function in info.entry_points.get(group, {}).items():
            if escaping.UNSEEN.search(script):
                reason = f"the name of the script {script!a} is shown as another one"
                yield Finding(
                    code=FindingCode.ENTRY_POINT, member=path, reason=reason, fix="give it a plain name"
                )
            if not script.strip(".") or _SEPARATORS.intersection(script):
                reason = f"the script {script!r} would be written outside of the folder for scripts"
                yield Finding(
                    code=FindingCode.ENTRY_POINT, member=path, reason=reason, fix="give it a plain name"
                )
            if not _FUNCTION.fullmatch(function):
                reason = f"the script {script!r} names no function: {function!r}"
                yield Finding(
                    code=FindingCode.ENTRY_POINT, member=path, reason=reason, fix="write it module:function"
                )


def _check_licences(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
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
            yield Finding(
                code=FindingCode.LICENCE_MISSING, member=path, reason=reason, fix="ship it, or do not name it"
            )


def _check_case(archive: Archive) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for member in archive.members:
        other = seen.setdefault(unicodedata.normalize("NFC", member.name).casefold(), member.name)
        if other != member.name:
            yield Finding(
                code=FindingCode.NAME_TWICE,
                member=member.name,
                reason=f"it is the same file as {other} on Windows and macOS",
                fix="rename one of them",
            )
