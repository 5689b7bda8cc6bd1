"""What a run that did not come to its end wrote itself, told from what a person did since.

Before a working tree is moved, the trees before and after are noted beside it. Whatever is found later and is
neither, nor git's first half of it, somebody else wrote. Where hipify was at work, what comes after is found
out by running it once more in a copy: it gives the same for the same tree.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from cairn import datafile
from cairn.errors import UsageError
from cairn.sources.git.repository import Repository
from cairn.sources.worktree import contents
from cairn.sources.worktree.contents import Entry

_NAME = "cairn.placing.json"
# Linux ends a write for SIGKILL between two pages only (generic_perform_write), and git writes a file whole.
_PAGE = 4096


class Placing(datafile.Value, tag_field="schema", tag="cairn.placing/1"):
    """A working tree on its way.

    Attributes:
        before: the tree of what was there; None where there was nothing.
        after: the commit that is to be there; None where the working tree is being removed.
    """

    before: str | None
    after: str | None


@contextlib.contextmanager
def placing(own: Repository, *, before: str | None, after: str | None) -> Iterator[None]:
    """Note what is under way while the block runs; the note stays where the block does not end."""
    datafile.write(own.git_dir / _NAME, Placing(before=before, after=after))
    yield
    (own.git_dir / _NAME).unlink(missing_ok=True)


def read(own: Repository) -> Placing | None:
    """What is under way; None where nothing is, or nothing can be said to be."""
    path = own.git_dir / _NAME
    if not path.exists():
        return None
    try:
        return datafile.read(path, Placing)
    except UsageError:
        return None


def written(own: Repository, names: Collection[str]) -> frozenset[str]:
    """Of files that differ from HEAD, those that an unfinished run left so; none where none is noted."""
    note = read(own) if names else None
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
    # It writes one file after the other, so one may be half there. Of several, who knows which.
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
        # Git removes a file before it writes the new one, and a folder may be where a file was.
        gone = disk.get(name) is None and old != new
        return index.get(name) in allowed and (gone or disk.get(name) in allowed)

    return frozenset(name for name in names if is_ours(name))


def _is_half(path: Path, whole: Path, *, step: int) -> bool:
    """Whether a file is the beginning of another one."""
    if path.is_symlink() or not path.is_file() or whole.is_symlink() or not whole.is_file():
        return False
    size = path.stat().st_size
    if size >= whole.stat().st_size or size % step:
        return False
    with whole.open("rb") as file:
        return file.read(size) == path.read_bytes()
