"""Patch files: which repository of a checkout each is for, who wrote it, what it changes."""

from __future__ import annotations

import email.utils
import re
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.errors import SourceError, UsageError
from cairn.sources.git.repository import Repository

Identity = tuple[str, str, int, str]
"""Name and address of the author, seconds since 1970, subject."""

_STAGES = ("base", "hipified")
_DIFF = b"diff --git "
# A count that is left out is 1 (POSIX, diff: "Diff -u Output Format").
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
# How lines of the old file and of the new one begin. An editor may strip the space of an empty line. What
# begins with a backslash (`\ No newline at end of file`) is a line of neither.
_OLD = (b" ", b"-", b"", b"\r")
_NEW = (b" ", b"+", b"", b"\r")
# How git quotes file names (git's quote.c, `quote_c_style`).
_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


@dataclass(frozen=True, kw_only=True)
class Series:
    """The patch files for one repository, in the order in which they apply.

    Attributes:
        base: for upstream's own files: they go beneath hipify's commit.
        hipified: for what hipify made of them.
    """

    base: tuple[Path, ...] = ()
    hipified: tuple[Path, ...] = ()


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
        name: the file that must be there; for one that the patch creates, its name.
        is_new: the patch creates it.
        hunks: in the patch's order; none of a binary file, or where only the mode changes.
    """

    name: str
    is_new: bool
    hunks: tuple[Hunk, ...]


@dataclass(frozen=True, kw_only=True)
class PatchFile:
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


def find(
    folder: Path, *, parts: Collection[str], root_names: Collection[str], is_hipified: bool
) -> Mapping[str, Series]:
    """Every `*.patch` below a folder, by the path of its repository (empty for the root).

    Two layouts are read. That of `cairn patches export`: the root's patches in the folder itself, those of a
    submodule in a folder of its path. And that of ROCm/TheRock (external-builds/pytorch/patches, one patch
    set): `NAME/base` and `NAME/hipified`, where NAME is that of the root's repository or the path of a
    submodule.

    Args:
        folder: of the patches.
        parts: the paths of the repositories in the checkout.
        root_names: what the root's repository may be called.
        is_hipified: patches that do not say when they apply are for a hipified tree.

    Raises:
        UsageError: there are no patches.
        SourceError: there are patches for a submodule that is not there.
    """
    found: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.patch")):
        parent = path.parent.relative_to(folder).as_posix()
        owner, stage = ("" if parent == "." else parent), ""
        above, _, last = owner.rpartition("/")
        # A submodule may itself be called `base`: what is in the checkout comes first.
        if owner not in parts and last in _STAGES:
            owner, stage = ("" if above in root_names and above not in parts else above), last
        found[owner, stage or ("hipified" if is_hipified else "base")].append(path)
    if not found:
        raise UsageError(
            f"{folder} has no *.patch",
            tip="name a folder that `cairn patches export` made, or one of TheRock's",
        )
    owners = sorted({owner for owner, _ in found})
    if unknown := [owner for owner in owners if owner not in parts]:
        raise _unknown(folder, unknown[0], root_names)
    return {
        owner: Series(base=tuple(found[owner, "base"]), hipified=tuple(found[owner, "hipified"]))
        for owner in owners
    }


def _unknown(folder: Path, owner: str, root_names: Collection[str]) -> SourceError:
    first, _, rest = owner.partition("/")
    if rest in root_names or rest.startswith("third_party/"):
        return SourceError(
            f"{folder} has several patch sets, such as {first}", tip=f"name one of them: {folder / first}"
        )
    return SourceError(
        f"the checkout has no submodule {owner}, for which {folder} has patches",
        tip="check it out with its submodules, or remove their folder; the root's own patches belong in "
        f"the folder itself, or below {' or '.join(sorted(root_names))}",
    )


def read(own: Repository, path: Path) -> PatchFile:
    """Read a patch file, by git's own reading of the mail.

    Raises:
        UsageError: it is not a patch file.
    """
    with tempfile.TemporaryDirectory(prefix="cairn-mail-") as folder:
        message, patch = Path(folder, "message"), Path(folder, "patch")
        # -b removes `[PATCH 1/2]` from a subject and keeps all other [brackets] (git-mailinfo(1)).
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
    return PatchFile(path=path, identity=identity, diff=diff, files=tuple(files_of(diff)))


def files_of(diff: bytes) -> Iterator[FileDiff]:
    """The files of a diff, in its order."""
    for section in re.split(rb"^(?=diff --git )", diff, flags=re.MULTILINE):
        if section.startswith(_DIFF):
            yield _file(section.split(b"\n"))


def _in_hunks(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is within a hunk: a hunk's first line says how many there are.

    Without counting, a removed line `-- x` would read as the header `--- x`, or as the end of the patch.
    """
    old = new = 0  # lines of the old and of the new file that the hunk still has
    for line in lines:
        inside = old > 0 or new > 0
        if inside:
            old -= line[:1] in _OLD
            new -= line[:1] in _NEW
        elif match := _HUNK.match(line):
            old, new = int(match[2] or 1), int(match[3] or 1)
        yield line, inside


def _diff(text: bytes) -> bytes:
    """The diff in a mail: without the summary before it, and the signature after it.

    A signature is a line `-- `, followed by the version of git (RFC 3676, section 4.3).
    """
    lines = text.split(b"\n")
    start = next((number for number, line in enumerate(lines) if line.startswith(_DIFF)), len(lines))
    kept: list[bytes] = []
    for line, inside in _in_hunks(lines[start:]):
        if not inside and line.rstrip(b"\r") == b"-- ":
            break
        kept.append(line)
    return b"\n".join(kept).rstrip(b"\n") + b"\n" if kept else b""


def _file(lines: list[bytes]) -> FileDiff:
    """One file's part of a diff: `diff --git`, extended headers, `---`, `+++`, hunks (git-diff(1))."""
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
            # A name with spaces ends in a tab here, for the sake of GNU patch.
            name = _unquoted(line[4:].rstrip(b"\r\t"))[2:].decode(errors="surrogateescape")
    read = (Hunk(header=header, line=start, before=tuple(before)) for header, start, before in hunks)
    return FileDiff(name=name, is_new=is_new, hunks=tuple(read))


def _name_of_header(line: bytes) -> str:
    """The second name of `diff --git a/NAME b/NAME`, where both are the same or none is quoted.

    Names may hold spaces, and nothing separates them: as git does, take both for the same where the halves
    are (git's apply.c, `git_header_name`). With different names there are other headers to read.
    """
    rest = line[len(_DIFF) :].rstrip(b"\r")
    if rest.endswith(b'"'):
        name = _unquoted(rest[rest.rindex(b'"b/') :])
    else:
        half = (len(rest) - 1) // 2
        same = rest[:half][2:] == rest[half + 1 :][2:]
        name = rest[half + 1 :] if same else rest[rest.rindex(b" b/") + 1 :]
    return name[2:].decode(errors="surrogateescape")


def _unquoted(name: bytes) -> bytes:
    if not (name.startswith(b'"') and name.endswith(b'"')):
        return name

    def plain(match: re.Match[bytes]) -> bytes:
        text = match[1]
        return bytes([int(text, 8)]) if len(text) > 1 else _ESCAPES.get(text, text)

    return _QUOTED.sub(plain, name[1:-1])
