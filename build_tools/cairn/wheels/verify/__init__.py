"""Verifying that a wheel may be published: every rule is checked, and every breach reported.

`verify` takes a wheel and the expected properties and returns the findings; `judge` returns notes and
unchecked contents as well. `findings.apply_allowed` separates findings that a reviewed file allows. Codes:
docs/reference/findings.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cairn.errors import WheelError
from cairn.formats.offload import SPLIT_RECORD, code_object
from cairn.formats.zip.reader import Archive, collector_paused
from cairn.output import wording
from cairn.wheels.contents import system_libraries
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata import wheel_info
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify import (
    archives,
    contents,
    device_code,
    extension_modules,
    installability,
    linking,
    machines,
    metadata,
    python_sources,
    reach,
    symbols,
)
from cairn.wheels.verify.findings import NOTES, Expectation, Finding, FindingCode, Verdict

__all__ = [
    "Expectation",
    "Finding",
    "FindingCode",
    "Verdict",
    "judge",
    "judge_alone",
    "judge_archive",
    "judge_together",
    "verify",
]


def verify(wheel: Path, expected: Expectation) -> tuple[Finding, ...]:
    """Everything that is wrong with a wheel, by member; nothing when it may be published. See `judge`."""
    return judge(wheel, expected).findings


def judge(wheel: Path, expected: Expectation) -> Verdict:
    """The findings on a wheel, the notes, and what was not looked at.

    The content is streamed: memory stays bounded whatever the wheel holds.

    Args:
        wheel: the wheel.
        expected: what it was asked to be.
    """
    return judge_together({wheel: judge_alone(wheel, expected)}, {})[wheel]


def judge_together(
    verdicts: Mapping[Path, Verdict], beside: Mapping[Path, Sequence[Path]]
) -> dict[Path, Verdict]:
    """Add to the verdicts on wheels what is found where they are loaded together, as one program.

    Args:
        verdicts: what `judge_alone` has found in each wheel.
        beside: for each wheel those of the others that are installed with it; wheels for another Python or C
            library among them do not count.
    """
    programs: dict[frozenset[Path], symbols.Program] = {}
    judged: dict[Path, Verdict] = {}
    for path, verdict in verdicts.items():
        wheels = {wheel for wheel in beside.get(path, ()) if symbols.go_together(path.name, wheel.name)}
        key = frozenset(verdicts.keys() & {path, *wheels})
        if key not in programs:
            programs[key] = symbols.Program(
                binary for wheel in sorted(key) for binary in verdicts[wheel].binaries
            )
        findings, unknown = symbols.check(programs[key], verdict.binaries, path)
        lost = reach.check(programs[key], verdict.binaries, path, key - {path}) if len(key) > 1 else ()
        of_code, without = archives.check_with_host(verdict.archived, programs[key].binaries)
        if without and not any(verdicts[wheel].split for wheel in key):  # a record tells
            unknown += (f"whether the {without} wrappers without code in its archives ever had any",)
        judged[path] = dataclasses.replace(
            verdict,
            findings=_sorted((*verdict.findings, *findings, *of_code, *lost)),
            not_checked=(*verdict.not_checked, *unknown),
        )
    return judged


def judge_alone(wheel: Path, expected: Expectation) -> Verdict:
    """Like `judge`, without what `judge_together` adds."""
    try:
        wheel_info.parse_file_name(wheel.name, variants_too=True)
        with collector_paused(), Archive.open(wheel) as archive:
            return judge_archive(archive, expected)[0]
    except WheelError as error:
        return Verdict(findings=(_unreadable(FindingCode.ARCHIVE, error),))


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(
            dict.fromkeys(findings), key=lambda finding: (finding.member or "", finding.code, finding.reason)
        )
    )


def judge_archive(
    archive: Archive,
    expected: Expectation,
    *,
    before: Iterable[contents.Contents] = (),
    only: Collection[str] | None = None,
) -> tuple[Verdict, contents.Contents]:
    """Like `judge_alone`, for a wheel that is open; also what was read of its members.

    For `before` and `only` see `contents.read`.

    Raises:
        WheelError: its file name is not that of a wheel.
    """
    name = wheel_info.parse_file_name(archive.path.name, variants_too=True)
    findings: list[Finding] = []
    elsewhere: tuple[str, ...] = ()
    # What the wheel says about itself. Where that cannot be read, its files are looked at all the same.
    info = None
    try:
        info = wheel_info.read_archive(archive, variants_too=True)
        findings += metadata.check(info, name, expected)
        findings += metadata.check_requirements(info, name, expected)
        findings += installability.check(archive, info, name)
        modules = python_sources.Modules(archive)
        points, elsewhere = installability.check_entry_points(modules, info)
        findings += (*points, *contents.check_listing(archive, info))
    except WheelError as error:
        findings.append(_unreadable(FindingCode.METADATA, error))
    # What is in it: every member is unpacked once, from front to back, and all binaries are read on the way.
    read = contents.read(archive, info, expected, before=before, only=only)
    findings += read.findings
    # What the loader and the interpreter will make of the binaries, once they are installed.
    findings += extension_modules.check([member.name for member in archive.members], read.binaries, name)
    of_modules, unknown = extension_modules.check_content(archive, read.binaries, name)
    findings += of_modules
    findings += machines.check(archive, info, read.binaries, name, expected)
    findings += linking.check(archive, info, read.binaries, name, expected)
    findings += device_code.check_targets(read.binaries, read.archived, info.extras if info else (), expected)
    findings += (*archives.check(read.archived), *_undelivered(archive, expected))
    supported = device_code.built_for(archive, read.binaries)
    findings += device_code.check_databases(archive, read.binaries, read.archived, supported, expected)
    if info is not None:
        findings += archives.check_host(read.binaries, info.extras)
        of_extras, absent = archives.check_extras(info, name, expected)
        findings, elsewhere = [*findings, *of_extras], (*elsewhere, *absent)
        findings += metadata.check_variant(archive, info, name, read.archived)
        findings += device_code.check_split(archive, info, read.binaries, expected)
        lost, left = python_sources.check_imports(modules, info, name, findings, every=_is_bare(read, name))
        findings, elsewhere = [*findings, *lost], (*elsewhere, *left)
    ordered, judged = _sorted(findings), {*filter(supported.get, supported)}
    verdict = Verdict(
        findings=tuple(finding for finding in ordered if finding.code not in NOTES),
        notes=tuple(finding for finding in ordered if finding.code in NOTES),
        not_checked=(*elsewhere, *unknown, *_not_checked(read, name, findings, judged)),
        split=any(member.name.endswith(f".dist-info/{SPLIT_RECORD}") for member in archive.members),
        binaries=read.binaries,
        archived=read.archived,
    )
    return verdict, read


def _undelivered(archive: Archive, expected: Expectation) -> Iterator[Finding]:
    """The files that a stack declares of a wheel, and that it does not have."""
    for path in (path for path in expected.members if path not in archive):
        reason = f"it has no {path}, which its stack declares"
        fix = "look at what the build back end leaves out of the wheel"
        yield Finding(code=FindingCode.MEMBER_MISSING, reason=reason, fix=fix)


def _is_bare(read: contents.Contents, name: FileName) -> bool:
    """Whether the tag names a platform and an ABI of Python, and nothing in the wheel would need them."""
    native = all(abi != "none" and on != "any" for _, abi, on in (tag.split("-") for tag in name.tags))
    return native and not (read.binaries or read.archived or read.unread)


def _not_checked(
    read: contents.Contents, name: FileName, findings: Iterable[Finding], judged: Collection[str]
) -> Iterator[str]:
    """The contents of this wheel that no rule checks, but for the data of libraries that were judged."""
    formats = {binary.format for binary in read.binaries if not binary.is_device_code}
    for kind, paths in read.unread.items():
        yield f"what is in {len(paths)} {kind}: {wording.some(paths)}"
    data = code_object.unjudged(read.members, judged)
    if data:
        yield f"whether {wording.some(data)} have data for each target"
    # An author may tag a wheel so by mistake that never had one, and stubs lead to different wheels.
    if _is_bare(read, name) and all(f.code is not FindingCode.MEMBER_MISSING for f in findings):
        yield "whether it should have an extension module: its tag names an ABI of Python"
    systems = {platform.split("_")[0] for platform in wheel_info.platforms_of(name.tags)}
    if unknown := sorted(system for system in systems if not system.startswith(machines.KNOWN)):
        yield f"the libraries of {wording.some(unknown)}, and the machines that they are for"
    yield from _of_others(read.binaries)
    yield from contents.unjudged(read.binaries)
    if "macho" in formats:
        yield "who signed its code, and whether the oldest macOS of the tag has every symbol"
    if "pe" in formats:
        yield "which symbols its DLLs take from each other, and from which Windows on"


def _of_others(binaries: Sequence[Binary]) -> Iterator[str]:
    """What drivers and programs have to bring that no wheel brings."""
    libraries = {library for binary in binaries for library in binary.needed}
    if drivers := sorted(n for n in libraries if system_libraries.matches(n, system_libraries.DRIVERS)):
        yield f"whether the machine has {wording.some(drivers)}, of the driver of a device"
    if of_matlab := {name for binary in binaries for name in system_libraries.of_matlab(binary.needed)}:
        yield f"whether the MATLAB that loads it has {wording.some(sorted(of_matlab))}"


def _unreadable(code: FindingCode, error: WheelError) -> Finding:
    fix = error.tip or "build the wheel again, or fetch it again where it was copied"
    return Finding(code=code, reason=str(error), fix=fix)
