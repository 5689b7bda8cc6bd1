"""RECORD, run bits and forbidden texts, checked while every member streams by once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.offload import code_object
from cairn.formats.offload import container as offload_container
from cairn.formats.offload.unpack import Forward, ViewReader
from cairn.formats.view import MemberView
from cairn.formats.zip.layout import Member
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents import manylinux
from cairn.wheels.contents.binaries import Library, read_library
from cairn.wheels.metadata.record import UNLISTED, RecordRow, encode_digest, is_strong
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.verify.device_code import Checker
from cairn.wheels.verify.findings import Expectation, Finding
from cairn.wheels.verify.secrets import Scanner

_HEAD = 256
_SHEBANG = b"#!"
_PROGRAM_FOLDERS = ("bin", "libexec", "sbin")
_REWRITE = "build the wheel again, or edit it with a tool that rewrites RECORD"


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What one pass over all members found.

    Attributes:
        libraries: every ELF file.
        findings: every breach.
    """

    libraries: tuple[Library, ...]
    findings: tuple[Finding, ...]


def check_listing(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """RECORD must list every member, and nothing else."""
    own = {f"{info.dist_info}/{name}" for name in UNLISTED}
    listed = {row.path for row in info.record}
    there = {member.name for member in archive.members if not member.is_dir}
    for path in sorted(((there - own) | {f"{info.dist_info}/RECORD"}) - listed):
        yield Finding(code="record-missing", member=path, reason="RECORD does not list it", fix=_REWRITE)
    for path in sorted(listed - there):
        yield Finding(code="record-absent", member=path, reason="RECORD lists it in vain", fix=_REWRITE)


def read(archive: Archive, info: WheelInfo | None, expected: Expectation) -> Contents:
    """Stream every member once and judge it."""
    rows = {row.path: row for row in info.record} if info else {}
    own = {f"{info.dist_info}/{name}" for name in UNLISTED} if info else set()
    modes = info is None or not all(tag.split("-")[2].startswith("win") for tag in info.tags)
    libraries: list[Library] = []
    findings: list[Finding] = []
    for member in archive.members:
        if not member.is_dir:
            row = None if member.name in own else rows.get(member.name)
            reader = _Reader(member, row, expected.forbidden_strings)
            library = reader.read(archive)
            libraries += [library] if library else []
            findings += reader.findings
            findings += _check_run_bit(member, reader.head, library) if modes else ()
            findings += _check_row(row, member, reader) if row else ()
            findings += check(archive, member)
    return Contents(libraries=tuple(libraries), findings=tuple(findings))


class _Reader:
    """One member on its way through: hashed, searched, and read as a binary when it is one."""

    def __init__(self, member: Member, row: RecordRow | None, forbidden: Sequence[str]) -> None:
        self.head = b""
        self.findings: list[Finding] = []
        self.complete = False
        algorithm = row.algorithm if row and row.algorithm else ""
        self.hash = hashlib.new(algorithm if is_strong(algorithm) else "sha256")
        self._member = member
        self._needles = {text: os.fsencode(text) for text in forbidden if text}
        self._overlap = max((len(needle) for needle in self._needles.values()), default=1) - 1
        self._tail = b""
        self._hit: set[str] = set()
        self._secrets = Scanner(member.name)

    def read(self, archive: Archive) -> Library | None:
        """Stream the member; its content as a library when it is one."""
        library = None
        view = MemberView(archive, self._member, observer=self._observe)
        try:
            head = view.read(0, min(len(elf.MAGIC), self._member.size))
            checker = Checker(self._member.name)
            if elf.is_elf(head):
                library = self._read_library(view, checker)
            if (library and library.elf.machine == code_object.MACHINE) or _is_code(self._member):
                checker.look_at_file(view)
            self.findings += checker.findings
            view.drain()
            self.complete = True
        except WheelError as error:
            self._find("content", str(error), "fetch or build the wheel again")
        self._secrets.finish()
        for text in sorted(self._hit):
            self._find("forbidden-text", f"it contains {text!r}", "build so that no path or secret gets in")
        for kind in sorted(self._secrets.found):
            self._find("secret", f"it contains what looks like {kind}", "take it out and have it revoked")
        return library

    def _read_library(self, view: MemberView, checker: Checker) -> Library | None:
        try:
            return read_library(view, self._member, look_for=manylinux.watched_symbols(), checker=checker)
        except WheelError as error:
            self._find("binary-malformed", str(error), "build it again")
            return None

    def _observe(self, piece: bytes) -> None:
        if len(self.head) < _HEAD:  # a piece may be a single byte
            self.head += piece[: _HEAD - len(self.head)]
        self.hash.update(piece)
        self._secrets.feed(piece)
        if self._needles:
            text = self._tail + piece
            self._hit |= {name for name, needle in self._needles.items() if needle in text}
            self._tail = text[-self._overlap :] if self._overlap else b""

    def _find(self, code: str, reason: str, fix: str) -> None:
        self.findings.append(Finding(code=code, member=self._member.name, reason=reason, fix=fix))


def _is_code(member: Member) -> bool:
    """Whether a name says that a file is device code; `.co` may be anything where no target is named."""
    name = member.name.rpartition("/")[2].lower()
    return name.endswith(".hsaco") or (name.endswith(".co") and "gfx" in name)


def _check_row(row: RecordRow, member: Member, reader: _Reader) -> Iterator[Finding]:
    if row.size is not None and row.size != member.size:
        reason = f"RECORD gives it {row.size} bytes, it has {member.size}"
        yield Finding(code="record-size", member=row.path, reason=reason, fix=_REWRITE)
    if row.algorithm is None:
        yield Finding(code="record-hash", member=row.path, reason="RECORD gives it no hash", fix=_REWRITE)
    elif not is_strong(row.algorithm):
        reason = f"RECORD uses {row.algorithm}, which is not trusted"
        yield Finding(code="record-hash", member=row.path, reason=reason, fix=_REWRITE)
    elif reader.complete and encode_digest(reader.hash.digest()) != row.digest:
        reason = "its content does not match its hash in RECORD"
        yield Finding(code="record-hash", member=row.path, reason=reason, fix=_REWRITE)


def _check_run_bit(member: Member, head: bytes, library: Library | None) -> Iterator[Finding]:
    """A program that cannot be run has lost its bits on the way."""
    folders = member.name.split("/")[:-1]
    script = head.startswith(_SHEBANG) and any(name in _PROGRAM_FOLDERS for name in folders)
    program = library is not None and library.elf.is_program
    if (script or program) and not member.executable:
        yield Finding(
            code="not-executable",
            member=member.name,
            reason="it is a program without its run bits",
            fix="pack the wheel with a tool that keeps modes",
        )


_AGAIN = "split the wheel again"


def check(archive: Archive, member: Member) -> Iterator[Finding]:
    """Breaches of a container; nothing for any other member."""
    if not member.name.endswith(offload_container.SUFFIX):
        return
    view = MemberView(archive, member)
    reader = ViewReader(view, 0, view.size)
    try:
        container = offload_container.parse(reader, member.name)
    except WheelError as error:
        yield Finding(code="container-malformed", member=member.name, reason=str(error), fix=_AGAIN)
        return
    room = view.size - reader.at
    if any(
        blob.at < 0 or blob.size < 0 or blob.at + blob.size > room
        for blob in offload_container.blobs(container)
    ):
        reason = "its index names bytes that it does not have"
        yield Finding(code="container-malformed", member=member.name, reason=reason, fix=_AGAIN)
    else:
        yield from _check_codes(container, view, reader.at, member.name)
    if (
        member.name.rpartition("/")[2]
        != f"{container.library}.{container.processor}{offload_container.SUFFIX}"
    ):
        reason = f"its name is not that of the code of {container.library} for {container.processor}"
        yield Finding(code="container-name", member=member.name, reason=reason, fix=_AGAIN)
    empty = sorted({code.id for part in container.parts for code in part.codes if not code.blob.size})
    if empty:
        reason = f"its code for {', '.join(empty)} is empty"
        yield Finding(code="code-object-empty", member=member.name, reason=reason, fix=_AGAIN)


def _check_codes(
    container: offload_container.Container, view: MemberView, base: int, member: str
) -> Iterator[Finding]:
    codes = [code for part in container.parts for code in part.codes if code.blob.size]
    checker, content = Checker(member), Forward(ViewReader(view, base, view.size))
    seen: set[int] = set()
    for code in sorted(codes, key=lambda code: code.blob.at):
        if code.blob.at not in seen:
            seen.add(code.blob.at)
            checker.look_at(content, code.blob.at, code.blob.size, code.id)
    yield from checker.findings
