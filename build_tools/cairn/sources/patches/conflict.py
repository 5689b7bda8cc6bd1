"""Why a patch does not apply: which file, which hunk, which line, and whether line ends are all of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cairn.errors import SourceError
from cairn.sources.git.repository import Repository
from cairn.sources.patches.mail import FileDiff, Hunk, Mail

_SHOWN = 4
_CRLF_PATCH = "{file} has LF line ends and the patch CRLF"
_CRLF_FILE = "{file} has CRLF line ends and the patch LF"


def reasons(copied: Repository, mail: Mail) -> tuple[str, ...]:
    """What in a patch does not fit a working tree, which is left as it was.

    Args:
        copied: the repository whose tree the patch was tried on, with nothing edited.
        mail: the patch.
    """
    rejected = _rejected(copied, mail)
    found = [reason for file in mail.files for reason in _of_file(copied, file, rejected)]
    return tuple(dict.fromkeys(found))


def tip(found: tuple[str, ...], mail: Mail) -> str:
    """What to do about it."""
    if any("and the patch CRLF" in reason for reason in found):
        return f"convert the patch: sed -i 's/\\r$//' '{mail.path}'"
    if any("has CRLF line ends" in reason for reason in found):
        return "make the patch again from that file, without core.autocrlf"
    return "nothing was changed; rebase the commits where they were made, and export them again"


def _of_file(copied: Repository, file: FileDiff, rejected: dict[str, frozenset[bytes]]) -> Iterator[str]:
    path = copied.work_tree / file.name
    if file.is_new:
        if path.exists() or path.is_symlink():
            yield f"{file.name} exists already, and the patch makes it"
        return
    if not path.is_file():
        yield f"there is no {file.name}"
        return
    headers = rejected.get(file.name, frozenset())
    content = path.read_bytes().split(b"\n")
    for number, hunk in enumerate(file.hunks, 1):
        if hunk.header in headers:
            where = f"{file.name}, hunk {number} of {len(file.hunks)}, line {hunk.line}"
            yield _line_ends(file.name, hunk, content) or f"{where}: what it changes is not there"


def _line_ends(name: str, hunk: Hunk, content: list[bytes]) -> str | None:
    """What is said where a hunk would apply if nobody had touched the ends of lines."""
    wanted = [line.removesuffix(b"\r") for line in hunk.before]
    plain = [line.removesuffix(b"\r") for line in content]
    size = len(wanted)
    starts = (at for at, line in enumerate(plain) if size and line == wanted[0])
    if not any(plain[at : at + size] == wanted for at in starts):
        return None
    said = _CRLF_PATCH if any(line.endswith(b"\r") for line in hunk.before) else _CRLF_FILE
    return said.format(file=name) + f" (line {hunk.line})"


def _rejected(copied: Repository, mail: Mail) -> dict[str, frozenset[bytes]]:
    """The headers of the hunks that do not apply, by file: git writes them into `FILE.rej`."""
    with contextlib.suppress(SourceError):  # it does not apply: that is why we are here
        copied.run("apply", "--reject", "--whitespace=nowarn", "-", stdin=mail.diff)
    listed = copied.run("ls-files", "--others", "-z").split("\0")
    found: dict[str, frozenset[bytes]] = {}
    for name in (name for name in listed if name.endswith(".rej")):
        lines = (copied.work_tree / name).read_bytes().split(b"\n")
        heads = (line[: line.index(b"@@", 2) + 2] for line in lines if line.startswith(b"@@ -"))
        found[name.removesuffix(".rej")] = frozenset(heads)
    copied.run("reset", "--quiet", "--hard")
    copied.run("clean", "--quiet", "-ffdx")
    return found


def in_words(found: tuple[str, ...]) -> str:
    """The reasons in one line."""
    return "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
