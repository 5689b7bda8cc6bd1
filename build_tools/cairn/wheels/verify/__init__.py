"""Whether a wheel may be published: every rule is checked, and every breach reported.

`verify` takes a wheel and what it was asked to be, and gives its findings; `allowed.judge` separates those
that a reviewed file lets through. Their codes: docs/reference/findings.md.
"""

from __future__ import annotations

from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify import (
    contents,
    device_code,
    extension_modules,
    installability,
    linking,
    machines,
    metadata,
    variant,
)
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

__all__ = ["Expectation", "Finding", "FindingCode", "verify"]


def verify(wheel: Path, expected: Expectation) -> tuple[Finding, ...]:
    """Everything that is wrong with a wheel, by member; nothing when it may be published.

    The content is streamed: memory stays bounded whatever the wheel holds.

    Args:
        wheel: the wheel.
        expected: what it was asked to be.
    """
    try:
        name = wheel_info.parse_file_name(wheel.name, variants_too=True)
        with Archive.open(wheel) as archive:
            found = dict.fromkeys(_verify_archive(archive, name, expected))
    except WheelError as error:
        return (_unreadable(FindingCode.ARCHIVE, error),)
    return tuple(sorted(found, key=lambda finding: (finding.member or "", finding.code, finding.reason)))


def _verify_archive(archive: Archive, name: FileName, expected: Expectation) -> list[Finding]:
    found: list[Finding] = []
    # What the wheel says about itself. Where that cannot be read, its files are looked at all the same.
    info = None
    try:
        info = wheel_info.read_archive(archive, name)
        found += metadata.check(info, name, expected)
        found += metadata.check_requirements(info, name, expected)
        found += installability.check(archive, info, name)
        found += contents.check_listing(archive, info)
    except WheelError as error:
        found.append(_unreadable(FindingCode.METADATA, error))
    # What is in it: every member is unpacked once, from front to back, and all binaries are read on the way.
    read = contents.read(archive, info, expected)
    found += read.findings
    # What the loader and the interpreter will make of the binaries, once they are installed.
    found += extension_modules.check([member.name for member in archive.members], read.binaries, name)
    found += machines.check(read.binaries, name, expected)
    found += linking.check(archive, read.binaries, name, expected)
    extras = info.extras if info else ()
    found += device_code.check_targets(read.binaries, read.archived, extras, expected)
    if info is not None:
        found += variant.check(archive, info, name, read.archived)
        found += device_code.check_split(archive, info, read.binaries, expected)
    return found


def _unreadable(code: FindingCode, error: WheelError) -> Finding:
    fix = error.tip or "build the wheel again, or fetch it again where it was copied"
    return Finding(code=code, reason=str(error), fix=fix)
