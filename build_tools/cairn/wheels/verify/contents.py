"""Checks made in one pass over all members: RECORD, run bits, secrets, forbidden texts and false libraries.

Source: PyPA's binary distribution format, "The .dist-info directory": RECORD lists every file but itself and
its signatures, with a hash of sha256 or better.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from cairn.errors import WheelError
from cairn.formats import kpack, macho
from cairn.formats.image import Section
from cairn.formats.view import HELD, BytesView, MemberView, View, pieces, read_at_once
from cairn.formats.zip.layout import ArchiveError, Member
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents import system_libraries
from cairn.wheels.contents.binaries import MODULE, Binary, Format, format_of, read_macho, read_view
from cairn.wheels.metadata.record import RecordRow, encode_digest, is_strong
from cairn.wheels.metadata.wheel_info import WheelInfo, installed_path, is_of_tests, platforms_of
from cairn.wheels.verify import python_sources, secrets
from cairn.wheels.verify.device_code import CodeObjectChecker, check_archive, is_named_like_code
from cairn.wheels.verify.findings import Expectation, Finding, FindingCode

_HEAD = 256  # bytes by which a script, or a pointer of Git LFS, is known
_MAGIC = 8  # bytes by which binaries are known
_SMALL = 1 << 18  # bytes of a member that is looked at whole, as nearly all of torch's 12,000 are
_LARGEST_SOURCE = 1 << 24  # of a Python file, which is judged as a text
_POINTER = b"version https://git-lfs.github.com/spec/"
_LARGEST_MODULE = 4 << 20  # bytes of a module that is parsed
_SMALLEST_CODE = 64  # bytes of a code section; one that pads a library of data alone has 4 or 16
_LONGEST_POINTER = 1024  # bytes (git-lfs, docs/spec.md)
_LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|pyd|dll|dylib)$", re.IGNORECASE)
# A script of GNU ld may stand where a linker looks for a library (ld's manual, "Implicit Linker Scripts").
_LINKER_SCRIPT = re.compile(rb"\s*(?:/\*|INPUT|GROUP|OUTPUT_FORMAT|AS_NEEDED)")
# Files whose content is not looked at, by what they begin with.
_UNREAD = {
    b"!<arch>\n": "static libraries",
    b"\0asm": "WebAssembly",
    b"PK\3\4": "archives",
    b"\x1f\x8b": "archives",
    b"\xfd7zXZ\0": "archives",
    b"BZh": "archives",
    b"\x28\xb5\x2f\xfd": "archives",
    b"\x01\xdf": "libraries of AIX",
    b"\x01\xf7": "libraries of AIX",
}
_KNOWN = (*_UNREAD, _POINTER)
# What Windows starts by its ending, so that it needs no run bits even where it begins with `#!`.
_OF_WINDOWS = (".ps1", ".psm1", ".bat", ".cmd")
# A Python with a path of its own, or behind the two lines that pip writes where that is long.
_OF_BUILDER = re.compile(
    rb"#!\s*(?:/bin/sh\r?\n'''exec'\s+)?[\"']?((?!/usr/(?:local/)?bin/|/bin/)(?:/|[A-Za-z]:\\)[^\n\"']*?python[\w.]*)",
)
_PROGRAM_FOLDERS = ("bin", "libexec", "sbin")
_REWRITE = "build the wheel again, or edit it with a tool that rewrites RECORD"


class MemberContents(NamedTuple):
    """The result of reading one member (a tuple: a torch wheel has 12,000).

    Attributes:
        identity: its row in RECORD, checksum, sizes, method and mode: a copy of it has the same.
        parts: what it is as a binary, once for each machine.
        unread: see `Contents`; empty for what is looked into.
        targets: those of a kpack archive that can be read, each with its keys.
        findings: every breach.
    """

    identity: tuple[object, ...]
    parts: tuple[Binary, ...]
    unread: str
    targets: Mapping[str, frozenset[str]] | None
    findings: tuple[Finding, ...]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one pass over all members.

    Attributes:
        binaries: every binary that can be read.
        archived: the path of every kpack archive that can be read, and its targets, each with its keys.
        unread: kind of file to the paths of those that are not looked into.
        findings: every breach.
        members: the same by member.
    """

    binaries: tuple[Binary, ...]
    archived: Mapping[str, Mapping[str, frozenset[str]]]
    unread: Mapping[str, Sequence[str]]
    findings: tuple[Finding, ...]
    members: Mapping[str, MemberContents]


def check_listing(archive: Archive, info: WheelInfo) -> Iterator[Finding]:
    """RECORD must list every member, and nothing else but their folders, which installers pass over."""
    missing, absent = info.unmatched({member.name for member in archive.members if not member.is_dir})
    for path in missing:
        reason = "RECORD does not list it"
        yield Finding(code=FindingCode.RECORD_MISSING, member=path, reason=reason, fix=_REWRITE)
    names = [member.name for member in archive.members] if absent else []
    for path in absent:
        if path.endswith("/") and any(name.startswith(path) for name in names):
            continue
        reason = "RECORD lists it, but it is not in the wheel"
        yield Finding(code=FindingCode.RECORD_ABSENT, member=path, reason=reason, fix=_REWRITE)


def read(
    archive: Archive,
    info: WheelInfo | None,
    expected: Expectation,
    *,
    before: Iterable[Contents] = (),
    only: Collection[str] | None = None,
) -> Contents:
    """Stream every member once and check it.

    Args:
        archive: the wheel.
        info: what it says about itself.
        expected: what it was asked to be.
        before: what was read of the wheels that it was made of, with the same expectation and for the same
            kind of platform and ABI: their members that were copied are not read again.
        only: the members to read; all by default.
    """
    rows = {row.path: row for row in info.record} if info else {}
    unlisted = info.unlisted if info else frozenset()
    packages = {member.name.rpartition("/")[0] for member in archive.members if _is_package(member.name)}
    for_windows = info is not None and all(name.startswith("win") for name in platforms_of(info.tags))
    read: list[Binary] = []
    archived: dict[str, Mapping[str, frozenset[str]]] = {}
    unread: dict[str, list[str]] = {}
    findings: list[Finding] = []
    limited = info is not None and any(tag.split("-")[1] == "abi3" for tag in info.tags)
    needles = {text: os.fsencode(text) for text in expected.forbidden_strings if text}
    known = {name: contents for each in before for name, contents in each.members.items()}
    members: dict[str, MemberContents] = {}
    for member in archive.members:
        if member.is_dir or (only is not None and member.name not in only):
            continue
        row = rows.get(member.name)
        identity = (row, member.crc, member.size, member.compressed_size, member.method, member.external)
        contents = known.get(member.name)
        if contents is None or contents.identity != identity:
            reader = _MemberReader(member, row, needles)
            parts = reader.read(archive, limited=limited, packages=packages)
            problems = [
                *reader.findings,
                *(_check_row(row, member, reader, is_unlisted=member.name in unlisted) if row else ()),
                *(() if for_windows else _check_run_bit(member, reader.head, parts)),
            ]
            if info and "/scripts/" in member.name and member.name.startswith(f"{info.data_folder}/scripts/"):
                problems += _check_interpreter(member, reader.head)
            is_kpack = member.name.endswith(kpack.SUFFIX)
            targets, more = check_archive(archive, member) if is_kpack else (None, ())
            problems += more
            contents = MemberContents(identity, parts, reader.unread, targets, tuple(problems))
        members[member.name] = contents
        read += contents.parts
        findings += contents.findings
        if contents.unread:
            unread.setdefault(contents.unread, []).append(member.name)
        if contents.targets is not None:
            archived[member.name] = contents.targets
    return Contents(
        binaries=tuple(read), archived=archived, unread=unread, findings=tuple(findings), members=members
    )


class _MemberReader:
    """One member on its way through: hashed, searched, and read as a binary when it is one.

    Attributes:
        head: its first bytes.
        unread: what kind of file it is, where that is one that is not looked into.
        findings: what is wrong with its content.
        digest: its hash, of the kind that RECORD uses for it; None where it could not be unpacked to the end.
    """

    def __init__(self, member: Member, row: RecordRow | None, needles: Mapping[str, bytes]) -> None:
        self.head = b""
        self.unread = ""
        self.findings: list[Finding] = []
        self.digest: bytes | None = None
        algorithm = row.algorithm if row and row.algorithm else ""
        self._hash = getattr(hashlib, algorithm if is_strong(algorithm) else "sha256")()
        self._member = member
        self._needles = needles
        self._overlap = max(map(len, needles.values())) - 1 if needles else 0
        self._tail = b""
        self._library = bool(_LIBRARY.search(member.name))
        self._blank = self._library  # nothing but zeros, as far as it was read
        self._hit: set[str] = set()
        self._secrets = secrets.Scanner(member.name)

    def read(self, archive: Archive, *, limited: bool, packages: Collection[str]) -> tuple[Binary, ...]:
        """Stream the member; what it is as a binary, once for each machine that it is for.

        Args:
            archive: the wheel.
            limited: whether it promises to keep within Python's limited API.
            packages: the folders that Python imports modules from.
        """
        parts: tuple[Binary, ...] = ()
        name, size = self._member.name, self._member.size
        try:
            most = _LARGEST_SOURCE if name.endswith(".py") else _SMALL
            view = self._whole(archive) if size <= most else self._streamed(archive)
            head = view.read(0, min(_MAGIC, size))
            kind = format_of(name, size, head)
            binary = bool(kind) or macho.is_macho(head)
            if binary:
                checker = CodeObjectChecker(name)
                parts = self._read_binary(view, kind, checker, limited=limited)
                self.findings += checker.findings
            if is_named_like_code(name) or (parts and any(part.is_device_code for part in parts)):
                checker = CodeObjectChecker(name)
                checker.look_at_file(view)
                self.findings += checker.findings
            if isinstance(view, MemberView):
                view.drain()
            self.digest = self._hash.digest()
            if not binary:
                self._judge_content()
                self._judge_source(view, in_package=name.rpartition("/")[0] in packages)
            self._secrets.finish()
            self._judge_urls(archive)
        except WheelError as error:
            self._find(FindingCode.CONTENT, str(error), "fetch or build the wheel again")
            self._secrets.finish()
        for text in sorted(self._hit):
            fix = "build so that no path or secret gets in"
            self._find(FindingCode.FORBIDDEN_TEXT, f"it contains {text!r}", fix)
        for secret in sorted(self._secrets.matches):
            self._find(FindingCode.SECRET, f"it contains what looks like {secret}", "remove and revoke it")
        return parts

    def _streamed(self, archive: Archive) -> MemberView:
        return MemberView(archive, self._member, observer=self._observe)

    def _whole(self, archive: Archive) -> BytesView:
        data = read_at_once(archive, self._member)
        pieces = []
        for piece in archive.stream(self._member) if data is None else (data,):
            self._observe(piece)
            pieces.append(piece)
        return BytesView(b"".join(pieces))

    def _read_binary(
        self, view: View, kind: Format | None, checker: CodeObjectChecker, *, limited: bool
    ) -> tuple[Binary, ...]:
        watched = system_libraries.watched_symbols()
        name = self._member.name
        # Python may import these; of a large library the symbols would take long to read.
        file = name.rpartition("/")[2]
        module = MODULE.search(file) or (file.endswith(".so") and not file.startswith("lib"))
        misnamed = file.lower().endswith((".dll", ".dylib")) and view.size <= HELD
        python = limited or bool(module) or misnamed
        try:
            if kind is not None:
                binary = read_view(
                    view, name, kind, look_for=watched, python=python, linkage=True, checker=checker
                )
                if self._library and binary.type in ("relocatable", "core") and not binary.is_device_code:
                    reason = f"it is named as a library, and is a {binary.type} file, which no loader takes"
                    self._find(FindingCode.BINARY_MALFORMED, reason, "link it as a shared library")
                self._judge_loading(view, binary)
                return (binary,)
            parts = read_macho(view, name, python=python)
        except ArchiveError:  # nothing is known of the binary: its member does not unpack
            raise
        except WheelError as error:
            self._find(FindingCode.BINARY_MALFORMED, str(error), "build it again")
            return ()
        # The symbols of a library for debuggers lie in a folder of its own, under its name.
        if self._library and not parts and ".dSYM/" not in name:
            reason = "it is named as a library, and is a Mach-O file of another kind"
            self._find(FindingCode.BINARY_MALFORMED, reason, "build it again")
        for part in parts:
            self._judge_loading(view, part)
        return parts

    def _judge_loading(self, view: View, binary: Binary) -> None:
        if binary.refusal and self._library:
            reason = f"no loader takes it: {binary.refusal}"
            fix = "build it again, and change it by patchelf last"
            if binary.format == "macho":
                fix = "build it again, and sign it last (codesign --force --sign -)"
            self._find(FindingCode.BINARY_MALFORMED, reason, fix)
        code = code_section(binary)
        if code is None or code.offset > HELD or not self._library:
            return
        end = min(code.offset + code.size, view.size)
        if not any(piece.strip(b"\0") for piece in pieces(view, code.offset, end)):
            reason = "its code is nothing but zeros, which end the process that calls any of it"
            self._find(FindingCode.BINARY_MALFORMED, reason, "fetch or build that file again")

    def _judge_urls(self, archive: Archive) -> None:
        """A password in a URL is an example where it stands in docstrings alone."""
        urls = self._secrets.urls
        small = self._member.size <= _LARGEST_MODULE
        if urls and small and not secrets.outside_docstrings(archive.read(self._member.name), urls):
            self._secrets.matches.discard(secrets.PASSWORD)

    def _judge_content(self) -> None:
        """What is not a binary may be named as one, or stand in place of a file that was never fetched."""
        member = self._member
        # Cheap questions first: a torch wheel has 12,000 members, and nearly all are text.
        known = self.head.startswith(_KNOWN)
        if not (self._library or known) or is_of_tests(member.name):
            return
        self.unread = next((kind for magic, kind in _UNREAD.items() if self.head.startswith(magic)), "")
        # A library may be packed, for a program to unpack; what Python imports may not.
        problem, is_module = None, MODULE.search(member.name)
        if self.head.startswith(_POINTER) and member.size <= _LONGEST_POINTER:
            problem = "it is a pointer of Git LFS, not the file that this stands for"
        elif self._library and not (self.unread and not is_module) and not _LINKER_SCRIPT.match(self.head):
            is_what = f"begins with {self.head[:_MAGIC]!r}"
            is_what = "is empty" if not member.size else "is nothing but zeros" if self._blank else is_what
            problem = f"it is named as a library and {is_what}: no system loads it"
        if problem:
            self._find(FindingCode.BINARY_MALFORMED, problem, "fetch or build that file again")

    def _judge_source(self, view: View, *, in_package: bool) -> None:
        name = self._member.name
        if not name.endswith(".py") or is_of_tests(name) or not isinstance(view, BytesView):
            return
        if problem := python_sources.problem(view.read(0, view.size), in_package=in_package):
            self._find(FindingCode.PYTHON_SOURCE, problem, "build it again from a whole source tree")

    def _observe(self, piece: bytes) -> None:
        if len(self.head) < _HEAD:  # a piece may be a single byte
            self.head += piece[: _HEAD - len(self.head)]
        if self._blank and piece.strip(b"\0"):
            self._blank = False
        self._hash.update(piece)
        self._secrets.feed(piece)
        if self._needles:
            # A text may lie across two pieces, so each is searched with the end of the one before it.
            text = self._tail + piece
            self._hit |= {name for name, needle in self._needles.items() if needle in text}
            self._tail = text[-self._overlap :] if self._overlap else b""

    def _find(self, code: FindingCode, reason: str, fix: str) -> None:
        self.findings.append(Finding(code=code, member=self._member.name, reason=reason, fix=fix))


def _check_row(
    row: RecordRow, member: Member, reader: _MemberReader, *, is_unlisted: bool
) -> Iterator[Finding]:
    if row.size != member.size and not is_unlisted and (row.size, row.algorithm) != (None, None):
        size = "no size" if row.size is None else f"{row.size} bytes"
        reason = f"RECORD gives it {size}, it has {member.size} bytes"
        yield Finding(code=FindingCode.RECORD_SIZE, member=row.path, reason=reason, fix=_REWRITE)
    reason = ""
    if is_unlisted:
        reason = "RECORD has a hash or size of itself" if row.algorithm or row.size is not None else ""
    elif row.algorithm is None:
        reason = "RECORD gives it no hash"
    elif not is_strong(row.algorithm):
        reason = f"RECORD uses {row.algorithm}, which is not trusted"
    elif reader.digest and encode_digest(reader.digest) != row.digest:
        reason = "its content does not match its hash in RECORD"
        if row.digest == reader.digest.hex():
            reason = "RECORD has its hash in hexadecimal digits, not in base64: installer refuses it"
    if reason:
        yield Finding(code=FindingCode.RECORD_HASH, member=row.path, reason=reason, fix=_REWRITE)


def code_section(binary: Binary) -> Section | None:
    """The section of the host's code, unless it is so small that it may be padding."""
    code = binary.section("__text" if binary.format == "macho" else ".text")
    return code if code and code.size >= _SMALLEST_CODE and not binary.is_device_code else None


def unjudged(binaries: Iterable[Binary]) -> Iterator[str]:
    """What is not known of libraries since it lies behind what is held of a file."""
    libraries = [binary for binary in binaries if _LIBRARY.search(binary.path)]
    if paths := list(dict.fromkeys(binary.path for binary in libraries if binary.is_signature_unread)):
        yield f"whether {wording.some(paths)} was changed after it was signed"
    far = {binary.path: None for binary in libraries if (c := code_section(binary)) and c.offset > HELD}
    if far:
        yield f"whether the code of {wording.some(list(far))} is nothing but zeros"


def _is_package(path: str) -> bool:
    return path.endswith("/__init__.py") or "/" not in installed_path(path)


def _check_interpreter(member: Member, head: bytes) -> Iterator[Finding]:
    """Installers put their Python in place of `#!python` alone (binary distribution format, "Scripts")."""
    if match := _OF_BUILDER.match(head):
        reason = f"it is run by {match[1].decode(errors='replace')!r}, which was the builder's"
        fix = "begin it with `#!python`, or make it an entry point"
        yield Finding(code=FindingCode.SCRIPT_INTERPRETER, member=member.name, reason=reason, fix=fix)


def _check_run_bit(member: Member, head: bytes, parts: Sequence[Binary]) -> Iterator[Finding]:
    """A program of Linux or macOS that cannot be run has lost its mode bits on the way."""
    if not (parts or head.startswith(b"#!")) or member.executable:
        return
    program = any(part.format != "pe" and part.is_program for part in parts)
    script = head.startswith(b"#!") and not member.name.lower().endswith(_OF_WINDOWS)
    if program or (script and any(folder in _PROGRAM_FOLDERS for folder in member.name.split("/")[:-1])):
        reason = "it is a program without its run bits"
        fix = "pack the wheel with a tool that keeps modes"
        yield Finding(code=FindingCode.NOT_EXECUTABLE, member=member.name, reason=reason, fix=fix)
