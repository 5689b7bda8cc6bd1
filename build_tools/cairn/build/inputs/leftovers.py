"""What builds leave in a tree, kept apart by the settings of the build.

A build goes on where the last one in the same tree stopped, so that an edit of one file does not cost an
hour. It must not go on with what a build of *other* settings left: setup.py of torch takes the
CMakeCache.txt that it finds whatever it is told, and packs every library that lies in `torch/lib`. So what a
build makes is noted, is moved out of the way (into the git directory) before a build with other settings, and
is moved back when these settings return.

Moved is only what can be told to be the build's: what appeared while it ran in a folder that setuptools or
CMake make (`build`, `*.egg-info`), or is a compiler's product, or was packed into the wheel. What lay there
before stays where it is; the key of the wheel covers it, as it does all else that git does not see
(`cairn.build.plan`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cairn import files
from cairn.output import console, wording
from cairn.sources.git.repository import ASIDE, Repository
from cairn.sources.worktree import unseen

_NOTE = "cairn-leftovers.json"
# What compilers and linkers write and nobody writes by hand.
_PRODUCTS = (".a", ".dll", ".dylib", ".exp", ".lib", ".o", ".obj", ".pyd", ".so")


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """The note.

    Attributes:
        flavour: of the build that was last in the tree: what its settings were.
        ended: it came to its end, and `files` is all that it left.
        before: what git did not see when it began, besides what earlier builds of its flavour had left.
        files: what builds of this flavour left, with the mark of each file.
        movable: those of them that may be moved out of the way.
    """

    flavour: str
    ended: bool
    before: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    movable: tuple[str, ...] = ()


@dataclass(kw_only=True)
class Kept:
    """What a running build knows, and tells: the wheel it made, and where in the tree its members come from.

    Attributes:
        ours: what lies in the tree and builds of its flavour left there.
        wheel: as the backend made it; None until then.
        source_dir: where the backend is called, from the root.
    """

    ours: frozenset[str] = frozenset()
    wheel: Path | None = None
    source_dir: str = "."


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What lies in a tree beside what git sees, for the key of a build.

    Attributes:
        foreign: a digest of what no build of this flavour is known to have left; None for nothing.
        start: names the leftovers that the build would go on with; None where it begins anew.
        cmake: the CMakeCache.txt of a build that was not ours, whose settings are not known.
    """

    foreign: str | None = None
    start: str | None = None
    cmake: str | None = None


def look(root: Repository, flavour: str, sources: Collection[str], *, clean: bool = False) -> Seen:
    """What the next build of a flavour would find in a tree; changes nothing.

    Args:
        root: the tree.
        flavour: of the build: one text for all settings that are the same.
        sources: folders that the build backend may be called in, by path from the root.
        clean: the build begins with `clear`.
    """
    parts = unseen.parts(root)
    note, ignored = _read(root), unseen.ignored(parts)
    if clean:
        ours = {*_movable(note, ignored, sources), *(n for n in ignored if _is_output(n, sources))}
        start = None
    elif note is not None and note.flavour == flavour:
        ours = {n for n, path in ignored.items() if _is_known(note, n, path, sources)}
        start = _identity({n: ignored[n] for n in ours})
    else:
        ours = set(_movable(note, ignored, sources))
        aside = root.git_dir / ASIDE / flavour
        start = _identity({path.relative_to(aside).as_posix(): path for path in files.walk(aside)})
    foreign = {name: path for name, path in ignored.items() if name not in ours}
    cmake = next((n for n in foreign if n.endswith("build/CMakeCache.txt") and _is_output(n, sources)), None)
    return Seen(foreign=unseen.digest(foreign | unseen.hidden(parts)), start=start, cmake=cmake)


@contextlib.contextmanager
def kept(root: Repository, flavour: str, sources: Collection[str]) -> Iterator[Kept]:
    """Run a build in the tree with what builds of its flavour left, and without what others left."""
    _change(root, flavour, sources)
    note, found = _read(root), _found(root, sources)
    known = note if note is not None and note.flavour == flavour else Leftovers(flavour=flavour, ended=True)
    before = {n: unseen.mark(p) for n, p in found.items() if not _is_known(known, n, p, sources)}
    begun = dataclasses.replace(known, ended=False, before=tuple(sorted(before)))
    _write(root, begun)
    told = Kept(ours=frozenset(found.keys() - before.keys()))
    try:
        yield told
    finally:
        if root.exists():
            _end(root, begun, before, told, sources)


def clear(root: Repository, sources: Collection[str]) -> None:
    """Remove what builds of all flavours left: what may be moved, and all in `build` that git ignores."""
    found, ignored = _found(root, sources), unseen.ignored(unseen.parts(root))
    for name in {*_movable(_read(root), found, sources), *(n for n in ignored if _is_output(n, sources))}:
        found[name].unlink(missing_ok=True)
        _prune(found[name].parent, root.work_tree)
    shutil.rmtree(root.git_dir / ASIDE, ignore_errors=True)
    (root.git_dir / _NOTE).unlink(missing_ok=True)


def _change(root: Repository, flavour: str, sources: Collection[str]) -> None:
    """Move what the last build left out of the way where it was of another flavour; bring back this one's."""
    note = _read(root)
    if note is not None and note.flavour != flavour:
        found, place = _found(root, sources), root.git_dir / ASIDE / note.flavour
        names = _movable(note, found, sources)
        if names and not note.ended:  # what is new since may be a person's: nobody noted who wrote it
            console.current().warn(
                f"a build of other settings was killed in {root.work_tree}: {wording.some(names)} "
                f"moved to {place}, where they stay until such a build runs again or --clean is given"
            )
        for name in names:
            _move(found[name], place / name)
            _prune(found[name].parent, root.work_tree)
    aside = root.git_dir / ASIDE / flavour
    if aside.is_dir():
        there = {path.relative_to(aside).as_posix(): path for path in files.walk(aside)}
        fits = {n: p for n, p in there.items() if not os.path.lexists(root.work_tree / n)}
        earlier = note if note is not None and note.flavour == flavour else None
        marks = {**(earlier.files if earlier else {}), **{n: unseen.mark(p) or "" for n, p in fits.items()}}
        # Before they are moved: those that a kill leaves there are brought back by the next run.
        noted = Leftovers(flavour=flavour, ended=True, files=marks, movable=tuple(sorted(marks)))
        _write(root, noted)
        for name, path in fits.items():
            _move(path, root.work_tree / name)
        shutil.rmtree(aside)


def _end(
    root: Repository,
    begun: Leftovers,
    before: Mapping[str, str | None],
    told: Kept,
    sources: Collection[str],
) -> None:
    marks = {name: unseen.mark(path) for name, path in _found(root, sources).items()}
    left = {
        name: mark
        for name, mark in marks.items()
        if mark and (name not in before or (mark != before[name] and _is_output(name, sources)))
    }
    new = left.keys() - before.keys()
    packed = _packed(root, told, new)
    movable = {n for n in new if n in packed or _is_output(n, sources) or _is_product(n)}
    movable |= set(begun.movable) & new
    ended = Leftovers(flavour=begun.flavour, ended=True, files=left, movable=tuple(sorted(movable)))
    _write(root, ended)


def _packed(root: Repository, told: Kept, names: Collection[str]) -> set[str]:
    """Those of the files that the wheel has under the same path, with the same content."""
    if told.wheel is None:
        return set()
    prefix = "" if told.source_dir == "." else f"{told.source_dir}/"
    with zipfile.ZipFile(told.wheel) as archive:
        members = {prefix + info.filename: (info.file_size, info.CRC) for info in archive.infolist()}
    return {name for name in names if name in members and _checksum(root.work_tree / name) == members[name]}


def _checksum(path: Path) -> tuple[int, int] | None:
    if path.is_symlink() or not path.is_file():
        return None
    size = crc = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def _found(root: Repository, sources: Collection[str]) -> dict[str, Path]:
    """What git ignores, and what it does not know in the folders that build tools make."""
    found = unseen.ignored(unseen.parts(root))
    listed = root.run("ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return found | {n: root.work_tree / n for n in listed if _is_output(n, sources) and not n.endswith("/")}


def _is_output(name: str, sources: Collection[str]) -> bool:
    """Whether a file is in a folder that setuptools or CMake make."""
    for folder in {".", *sources}:
        inner = (
            name
            if folder == "."
            else name.removeprefix(f"{folder}/")
            if name.startswith(f"{folder}/")
            else ""
        )
        first, slash, _ = inner.partition("/")
        if slash and (first == "build" or first.endswith(".egg-info")):
            return True
    return False


def _is_product(name: str) -> bool:
    base = name.rpartition("/")[2]
    return base.endswith(_PRODUCTS) or ".so." in base


def _is_known(note: Leftovers, name: str, path: Path, sources: Collection[str]) -> bool:
    """Whether builds of the note's flavour are known to have left a file just as it is."""
    if note.ended:
        return name in note.files and note.files[name] == unseen.mark(path)
    # It was killed: what it wrote since is not in the note.
    return name in note.files or (
        name not in note.before and (_is_output(name, sources) or _is_product(name))
    )


def _movable(note: Leftovers | None, found: Mapping[str, Path], sources: Collection[str]) -> list[str]:
    if note is None:
        return []
    if note.ended:
        return [n for n in note.movable if n in found and unseen.mark(found[n]) == note.files.get(n)]
    new = (n for n in found if n not in note.before and (_is_output(n, sources) or _is_product(n)))
    return sorted({*new, *(n for n in note.movable if n in found)})


def _identity(found: Mapping[str, Path]) -> str | None:
    marks = sorted((name, unseen.mark(path)) for name, path in found.items())
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest() if marks else None


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)  # with its times, by which ninja and make tell what is up to date


def _prune(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # it is not empty
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _read(root: Repository) -> Leftovers | None:
    """The note; None where there is none that can be read: then all that lies there counts as not ours."""
    try:
        data = json.loads((root.git_dir / _NOTE).read_bytes())
        return Leftovers(
            flavour=str(data["flavour"]),
            ended=bool(data["ended"]),
            before=tuple(data["before"]),
            files=dict(data["files"]),
            movable=tuple(data["movable"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(root: Repository, note: Leftovers) -> None:
    # Not by `jsonfile`, which sees to every one of what may be fifty thousand names.
    files.write_text(root.git_dir / _NOTE, json.dumps(dataclasses.asdict(note)))
