"""A file that a build puts into a tree while it runs, and that is taken out again, also after a kill.

It is noted in the git directory before it is written: what the note names, with the content that it names, is
ours to remove, and nothing else is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from cairn import datafile, files
from cairn.errors import SourceError, UsageError
from cairn.sources.git.repository import Repository

_NOTE = "cairn-lent.json"


class Lent(datafile.Value, tag_field="schema", tag="cairn.lent/1"):
    """The note: path from the root to the sha256 of what was written there."""

    files: Mapping[str, str] = msgspec.field(default_factory=dict)


@contextlib.contextmanager
def lent(root: Repository, name: str, text: str) -> Iterator[None]:
    """Have a file in the tree while the block runs.

    Raises:
        SourceError: another file is there.
    """
    take_back(root)
    path = root.work_tree / name
    refuse_other(root, name)
    with files.writing_beside(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
        datafile.write(root.git_dir / _NOTE, Lent(files={name: files.sha256_of(part)}))
    try:
        yield
    finally:
        take_back(root)


def is_out(root: Repository) -> bool:
    """Whether something is lent to the tree: a build is running, or was killed."""
    return (root.git_dir / _NOTE).exists()


def take_back(root: Repository) -> None:
    """Remove what an earlier, killed run lent to the tree; a file that was changed since stays."""
    note = root.git_dir / _NOTE
    if not note.exists():
        return
    with contextlib.suppress(UsageError):  # a note that cannot be read proves nothing
        for name, sha256 in datafile.read(note, Lent).files.items():
            path = root.work_tree / name
            if not path.is_symlink() and path.is_file() and files.sha256_of(path) == sha256:
                path.unlink()
    note.unlink()


def refuse_other(root: Repository, name: str) -> None:
    """Refuse a tree that has a file of its own where one is lent.

    Raises:
        SourceError: it has.
    """
    path = root.work_tree / name
    if path.is_symlink() or path.exists():
        raise SourceError(
            f"{path} is there already, and the build writes a file of that name (or none, for cpu)",
            tip="move it away: the wheel would load the ROCm SDK as that file says",
        )
