"""What commits say, read by GitPython in our environment: `between` gives those of a range.

GitPython starts `git` with the caller's whole environment, and `git.Repo` also reads configuration files and
GIT_* variables by itself. So no `Repo` is made here, and `_isolated` starts the one program that GitPython
needs to read objects, `git cat-file --batch`, in the environment of all other runs of git (`command`). It
shows objects as they were written: no setting of `log`, `i18n`, `color` or `mailmap` takes part. GitPython
cannot read SHA-256 repositories (git/cmd.py, `_parse_object_header`); our mirrors are SHA-1.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import datafile
from cairn.errors import SourceError
from cairn.sources.git import command

if TYPE_CHECKING:
    import git

_ENCODING = re.compile(rb"^encoding (\S+)$", re.MULTILINE)
_SIGNED = re.compile(rb"^(author|committer) (.*)$", re.MULTILINE)


class Commit(datafile.Value):
    """A commit, as a changelog shows it; control characters in it are replaced.

    Attributes:
        id: in full.
        author: the name of who wrote it.
        date: when it was committed, ISO 8601; empty where the commit does not say.
        subject: the first paragraph of its message, in one line.
    """

    id: str
    author: str
    date: str
    subject: str


def between(folder: Path, before: str, after: str) -> tuple[Commit, ...]:
    """The commits that lead to `after` and not to `before`, newest first.

    Args:
        folder: a working tree or a git directory: a worktree, a partial clone or a mirror as well.
        before: a commit, tag or branch in it.
        after: likewise.

    Raises:
        SourceError: there is no such commit.
    """
    ids = command.run(folder, "rev-list", f"{before}..{after}").split()
    if not ids:
        return ()
    reader = _isolated()(str(folder))
    try:
        return tuple(_commit(each, reader.get_object_data(each)[3]) for each in ids)
    except (ValueError, OSError) as error:
        raise SourceError(f"git cat-file in {folder}: {error}", tip="`git fsck` there says more") from error
    finally:
        reader.clear_cache()  # ends the program


@functools.cache
def _isolated() -> type[git.Git]:
    """GitPython's `Git`, loaded when first needed: it takes 50 ms, which a checkout does not spend."""
    # On import it runs `git version`, and fails where GIT_PYTHON_GIT_EXECUTABLE names no git.
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    import git  # noqa: PLC0415

    class Isolated(git.Git):
        def execute(  # type: ignore[override] # the one way in which `get_object_data` calls it
            self, command_line: Sequence[str], istream: int, **_: object
        ) -> git.Git.AutoInterrupt:
            args = ["git", *command_line[1:]]  # the first may be the user's GIT_PYTHON_GIT_EXECUTABLE
            child = subprocess.Popen(
                args,
                cwd=self.working_dir,
                env=command.environment(),
                stdin=istream,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            return self.AutoInterrupt(child, args)

    return Isolated


def _commit(commit: str, raw: bytes) -> Commit:
    """A commit from its object: headers, an empty line, the message (git's `parse_commit_buffer`)."""
    from git.objects.util import from_timestamp, parse_actor_and_date  # noqa: PLC0415 - see `_isolated`

    headers, _, message = raw.partition(b"\n\n")
    # `git.Commit` (3.2.1) takes every commit for UTF-8: it compares ten bytes of the header with `encoding `.
    declared = _ENCODING.search(headers)
    encoding = declared[1].decode("ascii", "replace") if declared else "utf-8"
    signed = {role: _text(line, encoding) for role, line in _SIGNED.findall(headers)}
    name = signed.get(b"author", "").partition("<")[0].strip()
    _, seconds, offset = parse_actor_and_date(f"committer {signed.get(b'committer', '')}")
    try:
        date = from_timestamp(seconds, offset).isoformat() if seconds else ""
    except (ValueError, OverflowError):  # past the year 9999
        date = ""
    paragraph = re.split(r"\n[ \t\r]*\n", _text(message, encoding).strip(), maxsplit=1)[0]
    subject = " ".join(line.rstrip() for line in paragraph.split("\n"))
    return Commit(id=commit, author=_shown(name), date=date, subject=_shown(subject))


def _text(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding, "replace")
    except (LookupError, ValueError):  # no such encoding, or not one of text; git takes the bytes as they are
        return data.decode(errors="replace")


def _shown(text: str) -> str:
    """Text as it may be written to a screen: a commit's author may have put anything into it."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
