"""The journal of a checkout: what was requested and how far the last run came, so that the next can resume.

It is one file in the root's git directory, `cairn.json`, written whole each time; its phase is the one word
that counts. Before files are replaced, it gets what each repository has and what it is to have (`Move`): a
file found after a kill that has neither content, nor the beginning of the new one, was written by someone
else. Who writes it holds the checkout (`cairn.sources.git.lock`).

A second file notes what a build lends to a tree while it runs, so that it goes after a kill too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile, files
from cairn.errors import SourceError, UsageError
from cairn.output import safe_text
from cairn.sources.git.lock import is_temporary
from cairn.sources.git.repository import Repository
from cairn.sources.worktree import contents

_NAME = "cairn.json"
_SCHEMA = "cairn.checkout/"
_LENT = "cairn-lent.json"
# Linux ends a write for SIGKILL between two pages only (mm/filemap.c, generic_perform_write), and git writes
# a file whole.
_PAGE = 4096

Phase = Literal["moving", "placed", "hipifying", "ready"]
"""`moving`: files are being replaced by upstream's. `placed`: those are there, hipify's are not yet.
`hipifying`: hipify's commits arrive. `ready`: all that was asked for is done. A run goes through them in this
order."""


class Move(datafile.Value):
    """The move of a repository from one state to another.

    Attributes:
        before: the commit that was checked out, or the tree of what was there; None for nothing.
        after: the commit that is to be there; None where the working tree is being removed.
    """

    before: str | None
    after: str | None


class Journal(datafile.Value, tag_field="schema", tag=f"{_SCHEMA}1"):
    """The content of a journal.

    Attributes:
        project: the project's name.
        origin: where it came from, without credentials.
        hashtag: what was asked for.
        commit: what that was.
        phase: how far the run came.
        submodules: whether they were asked for.
        hipify: whether it was asked for.
        hipify_committed: whether hipify's edits are a commit.
        moves: while `moving` or `hipifying`, what each repository goes through, by `key`.
        files_digest: where hipify's edits are not committed, the `contents.tree_state` that they led to.
        heads: of earlier versions, which hipified in the tree itself; not written any more.
    """

    project: str
    origin: str
    hashtag: str
    commit: str
    phase: Phase
    submodules: bool = True
    hipify: bool = True
    hipify_committed: bool = msgspec.field(name="committed", default=True)
    moves: Mapping[str, Move] = msgspec.field(default_factory=dict)
    files_digest: str | None = msgspec.field(name="files", default=None)
    heads: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_of_earlier_version(self) -> bool:
        """Whether it was written by a version that noted the files it replaced elsewhere."""
        return self.phase in ("moving", "hipifying") and not self.moves


def read(git_dir: Path) -> Journal | None:
    """Read the journal; None if there is none that we understand, as in a clone made by hand.

    Raises:
        SourceError: a different version of Cairn wrote it, with a schema of its own.
    """
    path = git_dir / _NAME
    if not path.exists():
        return None
    try:
        return datafile.read(path, Journal)
    except UsageError:
        _refuse_other_version(path)
        return None


def _refuse_other_version(path: Path) -> None:
    try:
        document = datafile.parse_json(path.read_bytes(), name=str(path))
    except (OSError, UsageError):
        return
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str) and schema.startswith(_SCHEMA) and schema != f"{_SCHEMA}1":
        raise SourceError(
            f"{path} is of a newer Cairn ({safe_text.mask(schema)[:40]!r}; this one writes {_SCHEMA}1)",
            tip="use the newer Cairn for this checkout, or name a different --checkout-dir",
        )


def write(git_dir: Path, journal: Journal) -> None:
    """Write the journal; a missing git directory is made, so that a killed first run is recognised."""
    datafile.write(git_dir / _NAME, journal)


def key(root: Repository, repo: Repository) -> str:
    """Return a repository's key in the journal: its folder and its git directory, relative to the root's.

    Both, since a different submodule may come to the same place, and one submodule to a different place.
    """
    folder = Path(os.path.relpath(repo.work_tree, root.work_tree)).as_posix()
    return f"{folder}//{Path(os.path.relpath(repo.git_dir, root.git_dir)).as_posix()}"


def written_by_move(repo: Repository, names: Collection[str], move: Move) -> frozenset[str]:
    """Return those of the files differing from HEAD that an unfinished move wrote or removed.

    Git removes a file before it writes the new one (its entry.c, checkout_entry), and a folder may be where a
    file was. One whole file of the two trees, or of HEAD, is nobody's edit, nor is half of a new one.
    """
    head = contents.of_tree(repo, repo.commit_of("HEAD"))
    before, after = contents.of_tree(repo, move.before), contents.of_tree(repo, move.after)
    index, disk = repo.index()[0], contents.on_disk(repo, names)
    ours: set[str] = set()
    rest: list[str] = []
    for name in names:
        old, new = before.get(name), after.get(name)
        allowed = (old, new, head.get(name))
        removed = disk.get(name) is None and old != new
        if index.get(name) in allowed and (removed or disk.get(name) in allowed):
            ours.add(name)
        elif new is not None and old != new:
            rest.append(name)
    if rest and move.after is not None:
        with tempfile.TemporaryDirectory(prefix="cairn-expected-") as folder:
            contents.write_out(repo, move.after, rest, Path(folder))
            ours |= {name for name in rest if _is_half(repo.work_tree / name, Path(folder, name))}
    return frozenset(ours)


def _is_half(path: Path, whole: Path) -> bool:
    """Whether a file's content is the beginning of the other's."""
    if path.is_symlink() or not path.is_file() or whole.is_symlink() or not whole.is_file():
        return False
    size = path.stat().st_size
    if size >= whole.stat().st_size or size % _PAGE:
        return False
    with whole.open("rb") as file:
        return file.read(size) == path.read_bytes()


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
    datafile.write(root.git_dir / _LENT, Lent(files={name: sha256}))
    try:
        files.write_text(root.work_tree / name, text)
        yield
    finally:
        take_back(root)


def is_lent(root: Repository) -> bool:
    """Whether a file is lent to the tree: a build is running, or was killed."""
    return (root.git_dir / _LENT).exists()


def take_back(root: Repository) -> None:
    """Remove the files that a killed run lent to the tree; a file that was changed since stays."""
    note = root.git_dir / _LENT
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
