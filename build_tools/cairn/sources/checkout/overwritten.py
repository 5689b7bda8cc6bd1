"""Find untracked files that moving the working tree would overwrite."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from cairn.sources.git.lock import is_temporary
from cairn.sources.git.repository import GITLINK, Entry, Repository, root_at
from cairn.sources.hipify import run
from cairn.sources.worktree import contents
from cairn.sources.worktree.parts import Part


class MovingPart(Part, frozen=True, kw_only=True):
    """A part of the checkout, and the commit that it is moved to.

    Attributes:
        is_moving: it moves to a different commit or is removed; otherwise it is only inspected.
        commit: what it moves to; None if it is removed.
        mirror: the mirror, or repository, whose objects have the commit.
        adds: the files that the commit adds to HEAD, which is its parent; None where it need not be.
    """

    is_moving: bool = False
    commit: str | None = None
    mirror: Path | None = None
    adds: tuple[str, ...] | None = None


def by_move(
    part: MovingPart, index: Mapping[str, Entry], *, within: Collection[Path], coming: Collection[str]
) -> Iterator[str]:
    """Yield the untracked files, ignored ones too, that moving a part would overwrite or remove.

    Bytecode, which Python makes again, is not among those that are removed.

    Args:
        part: what moves.
        index: the entries of its index.
        within: working trees of the parts that are there, which look after themselves.
        coming: paths where submodules are to be that are not there yet.
    """
    repo = part.repository
    links = _empty_links(index, repo, within)
    if part.commit is None or part.mirror is None:
        ignored = repo.read_entries("ls-files", "--others", "--ignored", "--exclude-standard", "-z")
        yield from (name for name in ignored if not run.is_byproduct(name))
        yield from _at_places(repo, links, index, within)
        return
    entries = _new_in(repo, part) if part.adds is None else dict.fromkeys(part.adds, ("", ""))
    obstacles = tuple(_InTheWay(repo, index, within).among(entries))
    if obstacles and part.adds is not None:
        entries = _new_in(repo, part)
    disk = contents.on_disk(repo, obstacles)
    yield from (name for name in obstacles if name not in entries or disk.get(name) != entries[name])
    # Git does not look into the folder of a submodule, and leaves it where the commit has the submodule too.
    links = [name for name in links if name not in coming]
    stay = {name for name in _links_of(repo, part, links) if is_below(repo.work_tree, name)}
    yield from _at_places(repo, {*coming, *links} - stay, index, within)


def is_below(folder: Path, name: str) -> bool:
    """Whether there is a folder at this path, reached without following a link."""
    return (folder / name).is_dir() and (folder / name).resolve() == folder.resolve() / name


def _empty_links(index: Mapping[str, Entry], repo: Repository, within: Collection[Path]) -> list[str]:
    """Return the paths of submodules that are not checked out."""
    links = [name for name, (mode, _) in index.items() if mode == GITLINK]
    return [name for name in links if repo.work_tree / name not in within]


def _links_of(repo: Repository, part: MovingPart, names: Collection[str]) -> list[str]:
    """Return those of the paths at which the part's commit also has submodules."""
    if not names:
        return []
    entries = repo.read_entries("ls-tree", "-z", part.commit or "", "--", *names, env=_lent(part))
    return [entry.partition("\t")[2] for entry in entries if entry.startswith(GITLINK)]


def _at_places(
    repo: Repository, places: Collection[str], index: Mapping[str, Entry], within: Collection[Path]
) -> Iterator[str]:
    """Yield untracked files at, below or on the way to places where submodules are to be or were.

    What a link leads to is left alone. A repository is named by its folder, with a slash at the end.
    """
    for place in map(PurePosixPath, places):
        for name in _at_place(repo, place, within):
            if index.get(name, (GITLINK, ""))[0] == GITLINK:
                yield name


def _at_place(repo: Repository, place: PurePosixPath, within: Collection[Path]) -> Iterator[str]:
    for name in reversed((place, *place.parents)):
        path = repo.work_tree / name
        if path.is_symlink() or not path.is_dir():
            if os.path.lexists(path):
                yield name.as_posix()
            return
    folder = repo.work_tree / place
    if (root_at(folder).git_dir / "HEAD").exists():
        yield f"{place}/"
    else:
        yield from (
            f"{place}/{name}" for name in files_below(folder, within) if not is_temporary(Path(name).name)
        )


def files_below(folder: Path, within: Collection[Path] = ()) -> Iterator[str]:
    """Yield the files and links below a folder, except those of other parts and of git itself.

    A repository that is not a part is named by its folder, with a slash at the end.
    """
    for here, folders, names in os.walk(folder):
        at = Path(here)
        if at != folder and ".git" in (*folders, *names):
            yield f"{at.relative_to(folder).as_posix()}/"
            folders.clear()
            continue
        links = [name for name in folders if (at / name).is_symlink()]
        folders[:] = [f for f in folders if f != ".git" and f not in links and at / f not in within]
        for name in (*names, *links):
            if name != ".git":
                yield (at / name).relative_to(folder).as_posix()


def _new_in(repo: Repository, part: MovingPart) -> Mapping[str, Entry]:
    """Return the entries of the part's commit whose paths are not in the index."""
    options = ("--cached", "--no-renames", "--diff-filter=D", "--raw", "--no-abbrev", "-z")
    entries = repo.run("diff-index", *options, part.commit or "", "--", env=_lent(part)).split("\0")
    pairs = zip(entries[::2], entries[1::2], strict=False)  # the last one is empty
    # `:mode mode id id status`, of the commit and of the index (git-diff-index(1), raw output).
    return {name: (head.split()[0][1:], head.split()[2]) for head, name in pairs}


def _lent(part: MovingPart) -> Mapping[str, str]:
    return contents.lent((part.mirror or part.repository.common_dir) / "objects")


class _InTheWay:
    """Finds files in the way of a checkout; caches the folders it has looked at."""

    def __init__(self, repo: Repository, tracked: Collection[str], within: Collection[Path]) -> None:
        self._own = repo
        self._tracked = tracked
        self._within = within
        self._spellings: dict[str, str] | None = None
        self._folders: dict[str, bool] = {"": True}
        self._blocking: dict[str, None] = {}

    def among(self, entries: Mapping[str, Entry]) -> Iterator[str]:
        """Yield the files at these places, below them, or where a parent folder must go."""
        for name, (mode, _) in entries.items():
            path = self._own.work_tree / name
            if not self._is_folder(name.rpartition("/")[0]) or not os.path.lexists(path):
                continue
            if mode != GITLINK or path.is_symlink() or not path.is_dir():
                yield from self._at(name, path)
        yield from self._blocking

    def _at(self, name: str, path: Path) -> Iterator[str]:
        if path.is_symlink() or not path.is_dir():
            if not self._is_tracked(name, path):
                yield name
        elif path not in self._within:
            if (path / ".git").exists():
                yield f"{name}/"
                return
            below = (f"{name}/{inner}" for inner in files_below(path, self._within))
            yield from (inner for inner in below if inner not in self._tracked)

    def _is_folder(self, name: str) -> bool:
        """Whether files can be created in this folder, or it belongs to a different part."""
        if name not in self._folders:
            path = self._own.work_tree / name
            is_folder = self._is_folder(name.rpartition("/")[0]) and path.is_dir() and not path.is_symlink()
            self._folders[name] = is_folder and path not in self._within
            if not is_folder and os.path.lexists(path) and not self._is_tracked(name, path):
                self._blocking[name] = None
        return self._folders[name]

    def _is_tracked(self, name: str, path: Path) -> bool:
        """Whether git tracks the file, possibly in different case: some file systems ignore case."""
        if name in self._tracked:
            return True
        if self._spellings is None:
            self._spellings = {name.casefold(): name for name in self._tracked}
        spelling = self._spellings.get(name.casefold())
        target = self._own.work_tree / spelling if spelling else None
        if target is None or not os.path.lexists(target) or not target.samefile(path):
            return False
        # Hard links are one file under two names; here it is to be two spellings of one name.
        return path not in path.parent.iterdir()
