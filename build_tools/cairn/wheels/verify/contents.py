"""RECORD, run bits, secrets and forbidden texts, checked while every member streams by once.

Source: PyPA's binary distribution format, "The .dist-info directory": RECORD lists every file but itself and
its signatures, with a hash of sha256 or better.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.errors import ArchiveError
from cairn.formats.kpack import archive as kpack
from cairn.formats.view import MemberView
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import binaries, manylinux
from cairn.wheels.contents.binaries import Binary, Format
from cairn.wheels.metadata.record import UNLISTED, RecordRow, encode_digest, is_strong
from cairn.wheels.metadata.wheel_info import WheelInfo, platforms_of
from cairn.wheels.verify import device_code
from cairn.wheels.verify.device_code import CodeObjectChecker
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode
from cairn.wheels.verify.secrets import Scanner

_HEAD = 2  # bytes by which a script is known: `#!`
_PROGRAM_FOLDERS = ("bin", "libexec", "sbin")
_REWRITE = "build the wheel again, or edit it with a tool that rewrites RECORD"


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What one pass over all members found.

    Attributes:
        binaries: every binary that can be read.
        archived: the path of every kpack archive that can be read, and its targets.
        findings: every breach.
    """

    binaries: tuple[Binary, ...]
    archived: Mapping[str, tuple[str, ...]]
    findings: tuple[Finding, ...]


def check_listing(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """RECORD must list every member, and nothing else."""
    own = {f"{info.dist_info}/{name}" for name in UNLISTED}
    listed = {row.path for row in info.record}
    there = {member.name for member in archive.members if not member.is_dir}
    for path in sorted(((there - own) | {f"{info.dist_info}/RECORD"}) - listed):
        reason = "RECORD does not list it"
        yield Finding(code=FindingCode.RECORD_MISSING, member=path, reason=reason, fix=_REWRITE)
    for path in sorted(listed - there):
        reason = "RECORD lists it, but it is not in the wheel"
        yield Finding(code=FindingCode.RECORD_ABSENT, member=path, reason=reason, fix=_REWRITE)


def read(archive: Archive, info: WheelInfo | None, expected: Expectation) -> Contents:
    """Stream every member once and judge it."""
    rows = {row.path: row for row in info.record} if info else {}
    own = {f"{info.dist_info}/{name}" for name in UNLISTED} if info else set()
    for_windows = info is not None and all(name.startswith("win") for name in platforms_of(info.tags))
    found: list[Binary] = []
    archived: dict[str, tuple[str, ...]] = {}
    findings: list[Finding] = []
    for member in archive.members:
        if not member.is_dir:
            row = None if member.name in own else rows.get(member.name)
            reader = _MemberReader(member, row, expected.forbidden_strings)
            binary = reader.read(archive)
            found += [binary] if binary else []
            findings += reader.findings
            findings += _check_row(row, member, reader) if row else ()
            findings += () if for_windows else _check_run_bit(member, reader.head, binary)
            if member.name.endswith(kpack.SUFFIX):
                archived[member.name], problems = device_code.check_archive(archive, member)
                findings += problems
    return Contents(binaries=tuple(found), archived=archived, findings=tuple(findings))


class _MemberReader:
    """One member on its way through: hashed, searched, and read as a binary when it is one.

    Attributes:
        head: its first bytes.
        findings: what is wrong with its content.
        digest: its hash, of the kind that RECORD uses for it; None where it could not be unpacked to the end.
    """

    def __init__(self, member: Member, row: RecordRow | None, forbidden: Sequence[str]) -> None:
        self.head = b""
        self.findings: list[Finding] = []
        self.digest: bytes | None = None
        algorithm = row.algorithm if row and row.algorithm else ""
        self._hash = hashlib.new(algorithm if is_strong(algorithm) else "sha256")
        self._member = member
        self._needles = {text: os.fsencode(text) for text in forbidden if text}
        self._overlap = max((len(needle) for needle in self._needles.values()), default=1) - 1
        self._tail = b""
        self._hit: set[str] = set()
        self._secrets = Scanner(member.name)

    def read(self, archive: Archive) -> Binary | None:
        """Stream the member; what it is as a binary, where it is one that can be read."""
        binary = None
        view = MemberView(archive, self._member, observer=self._observe)
        name = self._member.name
        try:
            head = view.read(0, min(len(elf.MAGIC), self._member.size))
            checker = CodeObjectChecker(name)
            kind = binaries.format_of(name, self._member.size, head)
            if kind:
                binary = self._read_binary(view, kind, checker)
            if (binary and binary.is_device_code) or device_code.is_named_like_code(name):
                checker.look_at_file(view)
            self.findings += checker.findings
            view.drain()
            self.digest = self._hash.digest()
        except WheelError as error:
            self._find(FindingCode.CONTENT, str(error), "fetch or build the wheel again")
        self._secrets.finish()
        for text in sorted(self._hit):
            fix = "build so that no path or secret gets in"
            self._find(FindingCode.FORBIDDEN_TEXT, f"it contains {text!r}", fix)
        for secret in sorted(self._secrets.found):
            self._find(FindingCode.SECRET, f"it contains what looks like {secret}", "remove and revoke it")
        return binary

    def _read_binary(self, view: MemberView, kind: Format, checker: CodeObjectChecker) -> Binary | None:
        watched = manylinux.watched_symbols()
        try:
            return binaries.read_view(view, self._member.name, kind, look_for=watched, checker=checker)
        except ArchiveError:  # nothing is known of the binary: its member does not unpack
            raise
        except WheelError as error:
            self._find(FindingCode.BINARY_MALFORMED, str(error), "build it again")
            return None

    def _observe(self, piece: bytes) -> None:
        if len(self.head) < _HEAD:  # a piece may be a single byte
            self.head += piece[: _HEAD - len(self.head)]
        self._hash.update(piece)
        self._secrets.feed(piece)
        if self._needles:
            # A text may lie across two pieces, so each is searched with the end of the one before it.
            text = self._tail + piece
            self._hit |= {name for name, needle in self._needles.items() if needle in text}
            self._tail = text[-self._overlap :] if self._overlap else b""

    def _find(self, code: FindingCode, reason: str, fix: str) -> None:
        self.findings.append(Finding(code=code, member=self._member.name, reason=reason, fix=fix))


def _check_row(row: RecordRow, member: Member, reader: _MemberReader) -> Iterator[Finding]:
    if row.size is not None and row.size != member.size:
        reason = f"RECORD gives it {row.size} bytes, it has {member.size}"
        yield Finding(code=FindingCode.RECORD_SIZE, member=row.path, reason=reason, fix=_REWRITE)
    reason = ""
    if row.algorithm is None:
        reason = "RECORD gives it no hash"
    elif not is_strong(row.algorithm):
        reason = f"RECORD uses {row.algorithm}, which is not trusted"
    elif reader.digest and encode_digest(reader.digest) != row.digest:
        reason = "its content does not match its hash in RECORD"
    if reason:
        yield Finding(code=FindingCode.RECORD_HASH, member=row.path, reason=reason, fix=_REWRITE)


def _check_run_bit(member: Member, head: bytes, binary: Binary | None) -> Iterator[Finding]:
    """A program of Linux that cannot be run has lost its mode bits on the way."""
    in_bin = any(folder in _PROGRAM_FOLDERS for folder in member.name.split("/")[:-1])
    program = binary is not None and binary.format == "elf" and binary.is_program
    if ((in_bin and head.startswith(b"#!")) or program) and not member.executable:
        yield Finding(
            code=FindingCode.NOT_EXECUTABLE,
            member=member.name,
            reason="it is a program without its run bits",
            fix="pack the wheel with a tool that keeps modes",
        )
