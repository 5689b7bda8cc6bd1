"""The file that a build lends to a tree while it runs, and a note of it, so that it goes after a kill too."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from cairn import datafile, files
from cairn.errors import SourceError, UsageError
from cairn.sources.git.repository import Repository, is_temporary

_NAME = "cairn-lent.json"


class Lent(datafile.Value, tag_field="schema", tag="cairn.lent/1"):
    """The note of a file that a build puts into a tree while it runs.

    It is written first: only a file that has this name and this content is Cairn's to remove.

    Attributes:
        files: path from the root to the sha256 of what was written there.
    """

    files: Mapping[str, str] = msgspec.field(default_factory=dict)


@contextlib.contextmanager
def lend(root: Repository, name: str, text: str) -> Iterator[None]:
    """Put a file into the tree while the block runs; after a kill, the next run removes it.

    Raises:
        SourceError: a different file is there.
    """
    take_back(root)
    refuse_other(root, name)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    datafile.write(root.git_dir / _NAME, Lent(files={name: sha256}))
    try:
        files.write_text(root.work_tree / name, text)
        yield
    finally:
        take_back(root)


def is_lent(root: Repository) -> bool:
    """Whether a file is lent to the tree: a build is running, or was killed."""
    return (root.git_dir / _NAME).exists()


def take_back(root: Repository) -> None:
    """Remove the files that a killed run lent to the tree; a file that was changed since stays."""
    note = root.git_dir / _NAME
    if not note.exists():
        return
    with contextlib.suppress(UsageError):  # a note that cannot be read proves nothing
        for name, sha256 in datafile.read(note, Lent).files.items():
            path = root.work_tree / name
            if not path.is_symlink() and path.is_file() and files.sha256_of(path) == sha256:
                path.unlink()
            # A run that was killed while it wrote the file left what `cairn.files` writes first.
            for part in path.parent.glob(".*.part"):
                if is_temporary(part.name):
                    part.unlink()
    note.unlink()


def refuse_other(root: Repository, name: str) -> None:
    """Refuse a tree that has a file of its own where a build puts one.

    Raises:
        SourceError: it has.
    """
    path = root.work_tree / name
    if path.is_symlink() or path.exists():
        raise SourceError(
            f"{path} is there already, and the build writes a file of that name (or none, for cpu)",
            tip="move it away: the wheel would load the ROCm SDK as that file says",
        )
