"""Copies of a checkout that borrow its objects: a lasting one to build in, and temporary ones.

`copy` gives commits working trees of their own as long as a block runs: hipify and patches work there.

`follow` makes the copy, or brings it up to the checkout: what is edited there is edited here, what is gone
there goes here. Only files that differ by size, time or mode are written, with the time that they have in the
checkout, and what builds have left in the copy stays: to make and ninja it is a tree with a few edits.

Git says the same of both: commit, tags, edits, and what Cairn has noted of the checkout. The checkout is read
alone. What a killed `follow` has left half done, the next one does.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import structs

from cairn import files
from cairn.concurrency import side_by_side
from cairn.errors import SourceError, SystemFailureError
from cairn.output import console
from cairn.sources.git import repository
from cairn.sources.git.repository import ASIDE, Repository, root_at
from cairn.sources.worktree import contents
from cairn.sources.worktree.parts import CommittedPart, Part, walk

_NOTE = "cairn-twin.json"  # in the copy's git directory: the names of all files that come from the checkout
# What a git directory has that is not wanted in the copy: objects are borrowed; the rest is of the checkout
# alone, such as what builds have left there (`cairn.build.inputs.leftovers`).
_NOT_COPIED = frozenset(
    (
        *("objects", "logs", "hooks", "lfs", "rr-cache", "worktrees", "commondir", "gitdir", "gc.pid"),
        *("FETCH_HEAD", ASIDE, "cairn-busy", "cairn-leftovers.json", "cairn-lent.json", _NOTE),
    )
)
# The index has the inodes and the change times of the checkout's files. By size and time alone, those of the
# copy are the same to git, and it need not read them all.
_CONFIG = "\n[core]\n\tcheckStat = minimal\n\ttrustctime = false\n"


def follow(checkout: Path, twin: Path, *, without: Collection[str] = ()) -> None:
    """Make or update `twin` as a copy of the checkout; the caller must have locked both.

    Args:
        checkout: a git checkout.
        twin: the copy's folder; where it is missing, it is made.
        without: files that stay out of the copy, by path from the root.

    Raises:
        SourceError: the name of a file is not UTF-8.
        SystemFailureError: the disk has no room for it.
    """
    root = root_at(checkout)
    parts = walk(root)
    texts = _texts(root, parts, twin)
    sources = {**_of_git(root), **_of_trees(parts)}
    sources = {name: path for name, path in sources.items() if name not in texts and name not in without}
    note = twin / ".git" / _NOTE
    before = _read(note)
    for name in before - sources.keys() - texts.keys():
        _remove(twin, name)
    _write(note, before | sources.keys() | texts.keys())
    differing = [name for name, path in sources.items() if not _is_same(path, twin / name)]
    _require_room(checkout, twin, sum(map(_size, (sources[name] for name in differing))))
    for name in differing:
        with contextlib.suppress(FileNotFoundError):  # the user has removed it meanwhile
            _copy(sources[name], _way_to(twin, name))
    for name, text in texts.items():
        path = twin / name
        if not path.is_file() or path.read_bytes() != text:
            files.write_bytes(_way_to(twin, name), text)
        if name.endswith("/config"):
            (path.parent / "refs").mkdir(exist_ok=True)  # without the folder, it is no repository to git
    _write(note, sources.keys() | texts.keys())


def size_of(checkout: Path) -> int:
    """Return the size in bytes of a new copy of a checkout."""
    root = root_at(checkout)
    paths = {**_of_git(root), **_of_trees(walk(root))}
    return sum(map(_size, paths.values()))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _of_git(root: Repository) -> dict[str, Path]:
    """Return the files of the git directories, by name in the copy: a linked worktree has two."""
    paths: dict[str, Path] = {}
    for git_dir in dict.fromkeys((root.common_dir, root.git_dir)):
        main_only = frozenset(("modules", "index", "HEAD") if git_dir != root.git_dir else ())
        for place, folders, names in os.walk(git_dir):
            inside, skipped = Path(place).relative_to(git_dir), frozenset[str]()
            if "HEAD" in names:  # a git directory: of the root, or of a submodule
                skipped = _NOT_COPIED | (main_only if place == str(git_dir) else frozenset())
                folders[:] = [name for name in folders if name not in skipped]
            for name in names:
                if name not in skipped and not name.endswith(".lock"):
                    paths[f".git/{(inside / name).as_posix()}"] = Path(place, name)
    return paths


def _of_trees(parts: Collection[Part]) -> dict[str, Path]:
    """Every file that git sees, those that it does not see and a build may; folders of submodules."""
    paths: dict[str, Path] = {}
    for part in parts:
        repo = part.repository
        for name in repo.read_entries("ls-files", "--cached", "--others", "--exclude-standard", "-z"):
            path = repo.work_tree / name
            if name.endswith("/"):  # a repository inside that is no submodule: with all that it has
                inner = {p.relative_to(repo.work_tree).as_posix(): p for p in files.walk(path)}
                paths |= {part.path_of(inside): path for inside, path in inner.items()}
            elif os.path.lexists(path):
                paths[part.path_of(name)] = path
            elif "\N{REPLACEMENT CHARACTER}" in name:  # `Repository.read_entries` has lost its bytes
                raise SourceError(
                    f"{path} has a name that is not UTF-8, and cannot be copied to be built beside others",
                    tip="rename it, or build one variant in a run",
                )
    return paths | contents.ignored(parts) | contents.hidden(parts)


def _texts(root: Repository, parts: Collection[Part], twin: Path) -> dict[str, bytes]:
    """Return the files that hold the copy's paths: settings, alternates, and the folders of submodules."""
    contents: dict[str, bytes] = {}
    for part in parts:
        repo, is_root = part.repository, not part.path
        inside = "" if is_root else f"{repo.git_dir.relative_to(root.git_dir).as_posix()}/"
        lender = (root.common_dir if is_root else repo.git_dir) / "objects"
        contents[f".git/{inside}objects/info/alternates"] = os.fsencode(f"{lender}\n")
        config = (root.common_dir if is_root else repo.git_dir) / "config"
        settings = _CONFIG
        if not is_root:
            work_tree = os.path.relpath(twin / part.path, twin / ".git" / inside)
            settings += f"\tworktree = {json.dumps(work_tree, ensure_ascii=False)}\n"
            git_dir = os.path.relpath(twin / ".git" / inside, twin / part.path)
            contents[f"{part.path}/.git"] = os.fsencode(f"gitdir: {git_dir}\n")
        contents[f".git/{inside}config"] = config.read_bytes() + os.fsencode(settings)
    return contents


def _is_same(source: Path, target: Path) -> bool:
    try:
        ours, here = source.lstat(), target.lstat()
    except OSError:
        return False
    if stat.S_IFMT(ours.st_mode) != stat.S_IFMT(here.st_mode):
        return False
    if stat.S_ISDIR(ours.st_mode):
        return True
    if stat.S_ISLNK(ours.st_mode):
        return source.readlink() == target.readlink()
    return (ours.st_size, ours.st_mtime_ns, ours.st_mode) == (here.st_size, here.st_mtime_ns, here.st_mode)


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        target.mkdir()
    else:
        files.copy_into(source, target)
        # Last: one that a kill has cut short has a different time, and is written again.
        shutil.copystat(source, target)


def _way_to(twin: Path, name: str) -> Path:
    """Make room for a file in the copy: its folder exists afterwards, the path itself does not."""
    path = twin / name
    for parent in PurePosixPath(name).parents:
        place = twin / parent
        if place != twin and (place.is_symlink() or place.is_file()):
            place.unlink()  # a file, or a link, where there is a folder now
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


def _remove(twin: Path, name: str) -> None:
    path = twin / name
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except (IsADirectoryError, PermissionError):  # the folder of a submodule
        shutil.rmtree(path, ignore_errors=True)
    for folder in _above(path.parent, twin):
        try:
            folder.rmdir()
        except OSError:  # it is not empty
            break


def _above(folder: Path, root: Path) -> Iterator[Path]:
    while folder not in (root, root / ".git"):
        yield folder
        folder = folder.parent


def _require_room(checkout: Path, twin: Path, needed: int) -> None:
    parent = next(folder for folder in (twin, *twin.parents) if folder.is_dir())
    if (free := shutil.disk_usage(parent).free) < needed:
        raise SystemFailureError(
            f"a copy of {checkout} to build in takes {console.size(needed)}; {console.size(free)} are free",
            tip="free some space there, or build fewer variants in one run",
        )


def _read(note: Path) -> frozenset[str]:
    try:
        return frozenset(json.loads(note.read_bytes()))
    except (OSError, ValueError):
        return frozenset()


def _write(note: Path, names: Collection[str] | Mapping[str, object]) -> None:
    # Not by `datafile`: it refuses names that are not UTF-8, which a file system may well have.
    files.write_text(note, json.dumps(sorted(names)))


_REMOVERS = 8
_RECHECK = "check the project out again"


@contextlib.contextmanager
def copy(parts: Sequence[CommittedPart]) -> Iterator[tuple[CommittedPart, ...]]:
    """Yield copies of the parts with working trees of their own, each at its commit, until the block ends.

    Each copy has its git directory inside. Every part's parent is among the parts.
    """
    with _folder() as folder:
        tree = folder / "tree"
        copies = {
            part.path: structs.replace(part, repository=repository.root_at(tree / part.path))
            for part in parts
        }

        def depth(part: CommittedPart) -> int:
            return bool(part.path) + sum(part.path.startswith(f"{above.path}/") for above in parts)

        def make(part: CommittedPart) -> None:
            _make(copies[part.path], part.repository, root=tree)

        # Level by level: a parent makes the folders of its submodules.
        for _, level in itertools.groupby(sorted(parts, key=depth), key=depth):
            side_by_side(make, level, jobs=os.cpu_count() or 1)
        yield tuple(copies.values())


def bring_back(part: CommittedPart, copied: Repository, commit: str) -> None:
    """Fetch a commit made in a copy, on top of the one that the copy was placed at, into its repository."""
    repo = part.repository
    # In the repository itself: git renames the pack, and the copy may be on a different file system.
    pack = repo.common_dir / "objects" / "pack" / "pack"
    options = ("--revs", "--quiet", "--non-empty", "--window=0")
    lent = contents.lent(copied.git_dir / "objects")
    repo.run("pack-objects", *options, str(pack), env=lent, stdin=f"{commit}\n^{part.commit}\n".encode())


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder in the cache until the block ends; those that killed runs left are removed first."""
    home = files.cache_dir() / "scratch"
    for lock in home.glob("*.lock"):
        # Locked: its run is alive.
        with contextlib.suppress(SystemFailureError), files.locked(lock, timeout=0):
            _remove_folder(lock.with_suffix(""))
            lock.unlink(missing_ok=True)
    folder = home / secrets.token_hex(8)
    lock = folder.with_suffix(".lock")
    with files.locked(lock):
        folder.mkdir()
        try:
            yield folder
        finally:
            _remove_folder(folder)
            lock.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    """Remove a large folder, with several subfolders at once, as most of the time is spent on disk access."""
    folders = [path for path in folder.glob("tree/*/*") if path.is_dir() and not path.is_symlink()]
    side_by_side(functools.partial(shutil.rmtree, ignore_errors=True), folders, jobs=_REMOVERS)
    shutil.rmtree(folder, ignore_errors=True)


def _make(copied: CommittedPart, original: Repository, *, root: Path) -> None:
    """Check out the copy of one part; a submodule goes into the folder that its parent's copy has for it."""
    repo = copied.repository
    if not copied.path:
        repository.create(repo)
    else:
        # Git makes an empty folder for a submodule; with files in it, it is one of the parent's own.
        is_place = repo.work_tree.is_dir() and repo.work_tree.resolve() == root.resolve() / copied.path
        if not is_place or any(repo.work_tree.iterdir()):
            raise SourceError(f"{copied.path} is in no commit that is to be copied", tip=_RECHECK)
        # As `git init` has made the root's; running it for each takes longer.
        repository.lay_out(repo.git_dir, (root / ".git" / "config").read_bytes())
    repository.borrow_objects(repo, original.common_dir)
    # Of many that are placed side by side, each is faster on one core.
    repository.place(repo, copied.commit, alone=not copied.path)
