"""What Cairn notes in a git directory, so that the run after a killed one knows who wrote what.

`cairn.json` says what a checkout is of and how far the last run came (`State`). Before a working tree is
moved, `cairn.placing.json` gets the trees before and after (`Placing`): a file found later that has neither
content, nor the beginning of the new one, was written by someone else. Where hipify was at work, what comes
after is found by running it once more in a copy: it gives the same for the same tree. `cairn-lent.json` names
the file that a build puts into the tree while it runs (`Lent`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cairn import datafile, files, platforms
from cairn.errors import SourceError, UsageError
from cairn.sources.git.repository import Repository, is_part
from cairn.sources.worktree import contents
from cairn.sources.worktree.contents import Entry

_NAME = "cairn.json"
_PLACING = "cairn.placing.json"
_LENT = "cairn-lent.json"
_LOCK_WAIT = 4 * 3600.0  # seconds; the other run may be at the first fetch of a big repository
# Linux ends a write for SIGKILL between two pages only (mm/filemap.c, generic_perform_write), and git writes
# a file whole.
_PAGE = 4096

Phase = Literal["moving", "placed", "hipifying", "ready"]
"""`moving`: files are being replaced. `placed`: upstream's files are there. `hipifying`: differences from
`heads` may be hipify's. `ready`: all that was asked for is done. A run goes through them in this order."""


class State(datafile.Value, tag_field="schema", tag="cairn.checkout/1"):
    """The note of a checkout.

    Attributes:
        project: the project's name.
        origin: where it came from, without credentials.
        hashtag: what was asked for.
        commit: what that was.
        phase: how far the run came.
        submodules: whether they were asked for.
        hipify: whether it was asked for.
        committed: whether hipify's edits are a commit.
        heads: while hipifying, the commit each repository had before, by path (empty for the root).
        files: where hipify's edits are not committed, the state of the files that they led to.
    """

    project: str
    origin: str
    hashtag: str
    commit: str
    phase: Phase
    submodules: bool = True
    hipify: bool = True
    committed: bool = True
    heads: Mapping[str, str] = msgspec.field(default_factory=dict)
    files: str | None = None


def read(git_dir: Path) -> State | None:
    """The note; None where there is none that we understand, as in a clone made by hand."""
    path = git_dir / _NAME
    if not path.exists():
        return None
    try:
        return datafile.read(path, State)
    except UsageError:
        return None


def write(git_dir: Path, state: State) -> None:
    """Write the note; the git directory is made when missing, so that a killed first run is recognised."""
    datafile.write(git_dir / _NAME, state)


@contextlib.contextmanager
def alone(checkout_dir: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a checkout against other runs of Cairn; `on_wait` is called where there is one.

    What is started in the block ends with us, also where we are killed: git and hipify would go on writing
    over what somebody edits then.
    """
    key = hashlib.sha256(os.fsencode(checkout_dir.resolve())).hexdigest()[:16]
    lock = files.cache_dir() / "checkouts" / f"{key}.lock"
    with files.locked(lock, timeout=_LOCK_WAIT, on_wait=on_wait), platforms.here.guarding():
        yield


class Placing(datafile.Value, tag_field="schema", tag="cairn.placing/1"):
    """The note of a working tree that is being moved.

    Attributes:
        before: the tree of what was there; None where there was nothing.
        after: the commit that is to be there; None where the working tree is being removed.
    """

    before: str | None
    after: str | None


@contextlib.contextmanager
def placing(own: Repository, *, before: str | None, after: str | None) -> Iterator[None]:
    """Note what is under way while the block runs; the note stays where the block does not end."""
    datafile.write(own.git_dir / _PLACING, Placing(before=before, after=after))
    yield
    (own.git_dir / _PLACING).unlink(missing_ok=True)


def read_placing(own: Repository) -> Placing | None:
    """The note of an unfinished move; None where there is none that can be read."""
    path = own.git_dir / _PLACING
    if not path.exists():
        return None
    try:
        return datafile.read(path, Placing)
    except UsageError:
        return None


def written_by_placing(own: Repository, names: Collection[str]) -> frozenset[str]:
    """Of files that differ from HEAD, those that an unfinished run left so; none where none is noted."""
    note = read_placing(own) if names else None
    if note is None:
        return frozenset()
    before, after = contents.of_tree(own, note.before), contents.of_tree(own, note.after)
    known = _known(own, names, before, after)
    if note.after is None:
        return known
    rest = [name for name in names if name not in known and name in after and before.get(name) != after[name]]
    with tempfile.TemporaryDirectory(prefix="cairn-expected-") as folder:
        if rest:
            contents.write_out(own, note.after, rest, Path(folder))
        halves = {name for name in rest if _is_half(own.work_tree / name, Path(folder, name), step=_PAGE)}
    return known | halves


def written_by_hipify(own: Repository, names: Sequence[str], *, head: str, hipified: Repository) -> set[str]:
    """The same, where hipify was at work on a commit.

    Args:
        own: the root or a submodule.
        names: of files that differ from HEAD, and of ignored ones that are new.
        head: what hipify began with.
        hipified: a copy of it, with what hipify makes of it committed.
    """
    before, after = contents.of_tree(own, head), contents.of_tree(hipified, "HEAD")
    known = set(_known(own, names, before, after))
    rest = [n for n in names if n not in known and n in after and before.get(n) != after[n]]
    halves = [n for n in rest if _is_half(own.work_tree / n, hipified.work_tree / n, step=1)]
    # It writes one file after the other, so one may be half there. Of several, any may be an edit.
    return known | (set(halves) if len(halves) == 1 else set())


def _known(
    own: Repository, names: Collection[str], before: Mapping[str, Entry], after: Mapping[str, Entry]
) -> frozenset[str]:
    """Names of which neither the index nor the disk has anything but these two trees, or HEAD, have."""
    head = contents.of_tree(own, own.commit_of("HEAD"))
    index, disk = contents.of_index(own), contents.on_disk(own, names)

    def is_ours(name: str) -> bool:
        old, new = before.get(name), after.get(name)
        allowed = (old, new, head.get(name))
        # Git removes a file before it writes the new one (its entry.c, checkout_entry), and a folder may be
        # where a file was.
        removed = disk.get(name) is None and old != new
        return index.get(name) in allowed and (removed or disk.get(name) in allowed)

    return frozenset(name for name in names if is_ours(name))


def _is_half(path: Path, whole: Path, *, step: int) -> bool:
    """Whether a file is the beginning of the other one."""
    if path.is_symlink() or not path.is_file() or whole.is_symlink() or not whole.is_file():
        return False
    size = path.stat().st_size
    if size >= whole.stat().st_size or size % step:
        return False
    with whole.open("rb") as file:
        return file.read(size) == path.read_bytes()


class Lent(datafile.Value, tag_field="schema", tag="cairn.lent/1"):
    """The note of a file that a build puts into a tree while it runs.

    Written before the file is: a file that has this name and this content is Cairn's to remove, no other is.

    Attributes:
        files: path from the root to the sha256 of what was written there.
    """

    files: Mapping[str, str] = msgspec.field(default_factory=dict)


@contextlib.contextmanager
def lent(root: Repository, name: str, text: str) -> Iterator[None]:
    """Have a file in the tree while the block runs; it is removed afterwards, by the next run after a kill.

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
    """Whether something is lent to the tree: a build is running, or was killed."""
    return (root.git_dir / _LENT).exists()


def take_back(root: Repository) -> None:
    """Remove what an earlier, killed run lent to the tree; a file that was changed since stays."""
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
                if is_part(part.name):
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
