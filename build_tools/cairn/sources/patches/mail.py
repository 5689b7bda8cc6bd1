"""A patch file as git reads it: who wrote it, and what it changes, hunk by hunk."""

from __future__ import annotations

import email.utils
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import UsageError
from cairn.sources.git.repository import Repository

Identity = tuple[str, str, int, str]
"""Name and address of the author, seconds since 1970, subject."""

_DIFF = b"diff --git "
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
# How lines of the old file and of the new one begin. An editor may strip the space of an empty line.
_OLD = (b" ", b"-", b"", b"\r")
_NEW = (b" ", b"+", b"", b"\r")
_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """One hunk.

    Attributes:
        header: its line with the `@@`, without the name of the function behind them.
        line: where it begins in the file it is made for, from 1.
        before: the lines that must be there, without their line feeds.
    """

    header: bytes
    line: int
    before: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class FileDiff:
    """What a patch does to one file.

    Attributes:
        name: the file that must be there; for one that is made, the new one.
        is_new: the patch makes it.
        hunks: in the patch's order; none of a binary file, or where only the mode changes.
    """

    name: str
    is_new: bool
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A patch file.

    Attributes:
        path: where it is.
        identity: who wrote it and when, and its subject.
        diff: what it changes, as text: from the first `diff --git` to the last line of the last hunk.
        files: the same, read.
    """

    path: Path
    identity: Identity
    diff: bytes
    files: tuple[FileDiff, ...]


def read(own: Repository, path: Path) -> Mail:
    """Read a patch file, by git's own reading of the mail.

    Raises:
        UsageError: it is none.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-mail-") as folder:
        message, patch = Path(folder, "message"), Path(folder, "patch")
        listed = own.run("mailinfo", "-b", "--no-scissors", str(message), str(patch), stdin=path.read_bytes())
        text = patch.read_bytes()
    fields = dict(line.split(": ", 1) for line in listed.splitlines() if ": " in line)
    try:
        written = int(email.utils.parsedate_to_datetime(fields["Date"]).timestamp())
        identity = (fields["Author"], fields["Email"], written, fields["Subject"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is not a patch of git format-patch", tip="make it with git format-patch"
        ) from error
    diff = _diff(text)
    return Mail(path=path, identity=identity, diff=diff, files=tuple(files_of(diff)))


def files_of(diff: bytes) -> Iterator[FileDiff]:
    """The files of a diff, in its order."""
    for section in re.split(rb"^(?=diff --git )", diff, flags=re.MULTILINE):
        if section.startswith(_DIFF):
            yield _file(section.split(b"\n"))


def _in_hunks(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is within a hunk: a hunk's first line says how many there are."""
    old = new = 0  # still to come
    for line in lines:
        inside = old > 0 or new > 0
        if inside:
            old -= line[:1] in _OLD
            new -= line[:1] in _NEW
        elif match := _HUNK.match(line):
            old, new = int(match[2] or 1), int(match[3] or 1)
        yield line, inside


def _diff(text: bytes) -> bytes:
    """The diff in a mail: without the summary before it, and the signature after it (`-- `, a version)."""
    lines = text.split(b"\n")
    start = next((number for number, line in enumerate(lines) if line.startswith(_DIFF)), len(lines))
    kept: list[bytes] = []
    for line, inside in _in_hunks(lines[start:]):
        if not inside and line.rstrip(b"\r") == b"-- ":
            break
        kept.append(line)
    return b"\n".join(kept).rstrip(b"\n") + b"\n" if kept else b""


def _file(lines: list[bytes]) -> FileDiff:
    name, is_new = _name_of_header(lines[0]), False
    hunks: list[tuple[bytes, int, list[bytes]]] = []
    for line, inside in _in_hunks(lines[1:]):
        if inside:
            if line[:1] in _OLD:
                hunks[-1][2].append(line if line[:1] == b"\r" else line[1:])
        elif match := _HUNK.match(line):
            hunks.append((match[0], int(match[1]), []))
        elif line.startswith(b"new file mode"):
            is_new = True
        elif line.startswith(b"--- ") and not line.startswith(b"--- /dev/null"):
            name = _unquoted(line[4:].rstrip(b"\r\t"))[2:].decode(errors="surrogateescape")
    read = (Hunk(header=header, line=start, before=tuple(before)) for header, start, before in hunks)
    return FileDiff(name=name, is_new=is_new, hunks=tuple(read))


def _name_of_header(line: bytes) -> str:
    """The second name of `diff --git a/NAME b/NAME`, where both are the same or none is quoted."""
    rest = line[len(_DIFF) :].rstrip(b"\r")
    if rest.endswith(b'"'):
        name = _unquoted(rest[rest.rindex(b'"b/') :])
    else:
        half = (len(rest) - 1) // 2
        same = rest[:half][2:] == rest[half + 1 :][2:]
        name = rest[half + 1 :] if same else rest[rest.rindex(b" b/") + 1 :]
    return name[2:].decode(errors="surrogateescape")


def _unquoted(name: bytes) -> bytes:
    """A name that git has quoted, as C does."""
    if not (name.startswith(b'"') and name.endswith(b'"')):
        return name

    def plain(match: re.Match[bytes]) -> bytes:
        text = match[1]
        return bytes([int(text, 8)]) if len(text) > 1 else _ESCAPES.get(text, text)

    return _QUOTED.sub(plain, name[1:-1])
