"""Whether a wheel may be published: every rule is checked and every breach told, in one pass."""

from __future__ import annotations

from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info
from cairn.wheels.verify import contents as verify_contents
from cairn.wheels.verify import elf, extension_modules, installability, metadata, pe
from cairn.wheels.verify.findings import Expectation, Finding

__all__ = ["Expectation", "Finding", "verify"]

_BUILD_AGAIN = "build the wheel again, or fetch it again where it was copied"


def verify(wheel: Path, expected: Expectation) -> tuple[Finding, ...]:
    """Everything that is wrong with a wheel, by member; nothing when it may be published.

    The content is streamed: memory stays bounded whatever the wheel holds.

    Args:
        wheel: the wheel.
        expected: what it was asked to be.
    """
    try:
        name = wheel_info.parse_file_name(wheel.name)
        with Archive.open(wheel) as archive:
            return _verify_archive(archive, name, expected)
    except WheelError as error:
        return (_unreadable("archive", error),)


def _verify_archive(
    archive: Archive, name: wheel_info.FileName, expected: Expectation
) -> tuple[Finding, ...]:
    found: list[Finding] = []
    info = None
    try:
        info = wheel_info.read_archive(archive, name)
        found += metadata.check(info, name, expected)
        found += metadata.check_requirements(info, name, expected)
        found += installability.check(archive, info, name)
        found += verify_contents.check_listing(archive, info)
    except WheelError as error:
        found.append(_unreadable("metadata", error))
    found += extension_modules.check([member.name for member in archive.members], name)
    contents = verify_contents.read(archive, info, expected)
    found += contents.findings
    dlls, broken = pe.read(archive)
    found += [*broken, *pe.check(archive, dlls, name, expected)]
    found += elf.check(contents.libraries, name, expected, dlls=dlls)
    once = dict.fromkeys(found)
    return tuple(sorted(once, key=lambda finding: (finding.member or "", finding.code, finding.reason)))


def _unreadable(code: str, error: WheelError) -> Finding:
    return Finding(code=code, reason=str(error), fix=error.tip or _BUILD_AGAIN)
