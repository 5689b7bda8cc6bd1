"""The outputs that builds leave in a tree, kept apart by the settings of the build.

A build goes on where the last one in the same tree stopped, so that an edit of one file does not cost an
hour. It must not go on with what a build of *different* settings left: setup.py of torch takes the
CMakeCache.txt that it finds, whatever its variables say, and packs every library in `torch/lib`. So what a
build makes is noted, is moved out of the way (into the git directory) before a build with other settings, and
is moved back when these settings return.

Moved is only what is known to be the build's: what appeared while it ran in a folder that setuptools or
CMake make (`build`, `*.egg-info`), or is a compiler's product, or was packed into the wheel, or is a source
that the project's own hipify wrote. What lay there before stays where it is; the key of the wheel covers it,
as it does all else that git does not see (`cairn.build.plan`). Where no .gitignore names what a build made,
this repository's own list does from then on: it is no local work, for which the next checkout would stop.

The note's life: `exchange` writes it with `ended` false before the build and with `ended` true after it.
Where a kill comes between, the next build finds it open: all that is new since then may be the killed
build's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import files
from cairn.output import console, wording
from cairn.sources.git.repository import ASIDE, Repository
from cairn.sources.worktree import contents
from cairn.sources.worktree.parts import walk

_NOTE = "cairn-leftovers.json"  # in the git directory, as is ASIDE
# What compilers and linkers write and no one writes by hand; `.so.` as in libtorch.so.2.9.
_PRODUCT = re.compile(r"\.(?:a|dll|dylib|exp|lib|o|obj|pyc|pyd|so)\Z|\.so\.[^/]*\Z")
_SPECIAL = re.compile(r"[\\*?\[\]!# ]")  # of a pattern in gitignore(5)

IsOutput = Callable[[str], "re.Match[str] | None"]
"""Whether a file, by its path from the root, is in a folder of setuptools or CMake, which it matches."""


@dataclass(kw_only=True)
class RunningBuild:
    """A build under way in a tree; the build itself sets the last three before it ends.

    Attributes:
        ours: what lies in the tree and builds of its settings left there.
        wheel: as the backend made it; None until then.
        source_dir: where the backend is called, from the root.
        hipified: the files that the project's own hipify wrote, by path from the root.
    """

    ours: frozenset[str] = frozenset()
    wheel: Path | None = None
    source_dir: str = "."
    hipified: Collection[str] = ()


class TreeLeftovers(msgspec.Struct, frozen=True, kw_only=True):
    """The ignored and untracked files of a tree, for the key of a build.

    Attributes:
        unseen: a digest of what no build of these settings is known to have left; None for nothing.
        resumed_from: a digest of the leftovers that the build would go on with; None where it begins anew.
        cmake: the path of a CMakeCache.txt that no build of Cairn made, whose settings are not known.
    """

    unseen: str | None = None
    resumed_from: str | None = None
    cmake: str | None = None


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the last build in a tree.

    Attributes:
        flavour: the digest of its settings (the file has it by this name).
        ended: it came to its end, and `files` is all that it left.
        before: what git did not see when it began, besides what earlier builds of its settings had left.
        files: what builds of these settings left, with the mark of each file.
        movable: those of them that may be moved out of the way.
    """

    flavour: str
    ended: bool
    before: tuple[str, ...] = ()
    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    movable: tuple[str, ...] = ()

    def has(self, name: str, path: Path, is_output: IsOutput) -> bool:
        """Whether builds of these settings are known to have left a file just as it is."""
        if self.ended:
            return name in self.files and self.files[name] == contents.mark(path)
        # It was killed: what it wrote since is not in the note.
        return name in self.files or (name not in self.before and _is_made(name, is_output))

    def movable_of(self, present: Mapping[str, Path], is_output: IsOutput) -> list[str]:
        """Those of the files that may be moved out of the way."""
        if self.ended:
            return [
                n for n in self.movable if n in present and contents.mark(present[n]) == self.files.get(n)
            ]
        new = (n for n in present if n not in self.before and _is_made(n, is_output))
        return sorted({*new, *(n for n in self.movable if n in present)})


def look(
    root: Repository, settings_digest: str, sources: Collection[str], *, clean: bool = False
) -> TreeLeftovers:
    """Return the leftovers that the next build of these settings would find in a tree; changes nothing.

    Args:
        root: the tree.
        settings_digest: of the build: one text for all settings that are the same.
        sources: folders that the build backend may be called in, by path from the root.
        clean: the build begins with `clear`.
    """
    parts, is_output = walk(root), _output_matcher(sources)
    note, ignored = _read(root), contents.ignored(parts)
    if not clean and note is not None and note.flavour == settings_digest:
        ours = {n for n, path in ignored.items() if note.has(n, path, is_output)}
        resumed_from = _identity({n: ignored[n] for n in ours})
    else:
        ours = set(note.movable_of(ignored, is_output) if note else ())
        aside = root.git_dir / ASIDE / settings_digest
        resumed_from = _identity({path.relative_to(aside).as_posix(): path for path in files.walk(aside)})
    if clean:
        ours, resumed_from = ours | set(filter(is_output, ignored)), None
    foreign = {name: path for name, path in ignored.items() if name not in ours}
    cmake = next((n for n in foreign if n.endswith("build/CMakeCache.txt") and is_output(n)), None)
    unseen = contents.digest(foreign | contents.hidden(parts))
    return TreeLeftovers(unseen=unseen, resumed_from=resumed_from, cmake=cmake)


@contextlib.contextmanager
def exchange(root: Repository, settings_digest: str, sources: Collection[str]) -> Iterator[RunningBuild]:
    """Run a build in the tree with the leftovers of its own settings, and without those of others."""
    is_output = _output_matcher(sources)
    _change_settings(root, settings_digest, is_output)
    note, present = _read(root), _untracked(root, is_output)
    last_note = _Note(flavour=settings_digest, ended=True)
    if note is not None and note.flavour == settings_digest:
        last_note = note
    before = {n: contents.mark(p) for n, p in present.items() if not last_note.has(n, p, is_output)}
    _write(root, structs.replace(last_note, ended=False, before=tuple(sorted(before))))
    running = RunningBuild(ours=frozenset(present.keys() - before.keys()))
    on_disk = {*_list_ignored(root)}
    try:
        yield running
    finally:
        if root.has_commit():
            fresh = {
                n: root.work_tree / n
                for n in _list_ignored(root)
                if n not in on_disk and n[-1:] not in ("", "/")
            }
            present = _untracked(root, is_output) | fresh
            marks = {name: contents.mark(path) for name, path in present.items()}
            # A file that was there before counts as left by the build only where it is in an output folder
            # and was rewritten; even then it is not moved.
            left = {
                name: mark
                for name, mark in marks.items()
                if mark and (name not in before or (mark != before[name] and is_output(name)))
            }
            new = left.keys() - before.keys()
            movable = {n for n in new if n in last_note.movable or _is_made(n, is_output)}
            movable |= new.intersection(running.hipified) | _packed(root, running, new - movable)
            # What git lists and the build cannot be shown to have made may be the user's.
            left = {name: mark for name, mark in left.items() if name in movable or name not in fresh}
            ended = _Note(flavour=settings_digest, ended=True, files=left, movable=tuple(sorted(movable)))
            _write(root, ended)
            _ignore(root, movable, is_output)


def movable(root: Repository, sources: Collection[str]) -> frozenset[str]:
    """Return the leftovers of the last build that a copy of the tree does not need."""
    note, is_output = _read(root), _output_matcher(sources)
    return frozenset(note.movable_of(_untracked(root, is_output), is_output) if note else ())


def clear(root: Repository, sources: Collection[str]) -> None:
    """Remove the leftovers of all settings: movable files, and all ignored files in `build`."""
    is_output, note = _output_matcher(sources), _read(root)
    present, ignored = _untracked(root, is_output), contents.ignored(walk(root))
    for name in {*(note.movable_of(present, is_output) if note else ()), *filter(is_output, ignored)}:
        present[name].unlink(missing_ok=True)
        _prune(present[name].parent, root.work_tree)
    shutil.rmtree(root.git_dir / ASIDE, ignore_errors=True)
    (root.git_dir / _NOTE).unlink(missing_ok=True)


def _change_settings(root: Repository, settings_digest: str, is_output: IsOutput) -> None:
    """Move the last build's leftovers aside if its settings were different; bring back those of these."""
    note = _read(root)
    if note is not None and note.flavour != settings_digest:
        present, place = _untracked(root, is_output), root.git_dir / ASIDE / note.flavour
        names = note.movable_of(present, is_output)
        if names and not note.ended:  # what is new since may be the user's: no one noted who wrote it
            console.current().warn(
                f"a build of other settings was killed in {root.work_tree}: {wording.some(names)} "
                f"moved to {place}, where they stay until such a build runs again or --clean is given"
            )
        for name in names:
            _move(present[name], place / name)
            _prune(present[name].parent, root.work_tree)
    aside = root.git_dir / ASIDE / settings_digest
    if not aside.is_dir():
        return
    put_aside = {path.relative_to(aside).as_posix(): path for path in files.walk(aside)}
    fits = {n: p for n, p in put_aside.items() if not os.path.lexists(root.work_tree / n)}
    marks = dict(note.files) if note is not None and note.flavour == settings_digest else {}
    marks |= {n: contents.mark(p) or "" for n, p in fits.items()}
    # Noted before they are moved: those that a kill leaves aside are brought back by the next run.
    _write(root, _Note(flavour=settings_digest, ended=True, files=marks, movable=tuple(sorted(marks))))
    for name, path in fits.items():
        _move(path, root.work_tree / name)
    shutil.rmtree(aside)


def _packed(root: Repository, running: RunningBuild, names: Collection[str]) -> set[str]:
    """Return the files that the wheel has at the same path with the same content (size and CRC-32)."""
    if running.wheel is None:
        return set()
    prefix = "" if running.source_dir == "." else f"{running.source_dir}/"
    with zipfile.ZipFile(running.wheel) as archive:
        members = {prefix + info.filename: (info.file_size, info.CRC) for info in archive.infolist()}
    packed = set()
    for name in members.keys() & set(names):
        path, size, crc = root.work_tree / name, 0, 0
        if path.is_symlink() or not path.is_file():
            continue
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                size, crc = size + len(piece), zlib.crc32(piece, crc)
        if (size, crc) == members[name]:
            packed.add(name)
    return packed


def _output_matcher(sources: Collection[str]) -> IsOutput:
    folders = "|".join(re.escape(f"{folder}/") for folder in sources if folder != ".")
    return re.compile(rf"(?:{folders})?(?:build|[^/]*\.egg-info)/").match


def _is_made(name: str, is_output: IsOutput) -> bool:
    return bool(is_output(name) or _PRODUCT.search(name))


def _ignore(root: Repository, names: Collection[str], is_output: IsOutput) -> None:
    """Have git ignore, in this repository alone, those of these files that nothing ignores yet."""
    places = {
        match[0] if (match := is_output(name)) else name for name in _list_ignored(root) if name in names
    }
    if places:
        own_list = root.work_tree / root.run("rev-parse", "--git-path", "info/exclude").strip()
        text = own_list.read_bytes() if own_list.is_file() else b""  # the user's, in any encoding
        lines = [f"/{_SPECIAL.sub(lambda special: chr(92) + special[0], place)}" for place in sorted(places)]
        own_lines = [*text.splitlines(), *map(os.fsencode, lines)]
        files.write_bytes(own_list, b"".join(line + b"\n" for line in own_lines))


def _list_ignored(root: Repository) -> list[str]:
    """Return the untracked files that nothing ignores; none where there is no commit that could track any."""
    if not root.has_commit():
        return []
    return root.run("ls-files", "--others", "--exclude-standard", "-z").split("\0")


def _untracked(root: Repository, is_output: IsOutput) -> dict[str, Path]:
    """Return the ignored files of a tree, and the untracked ones that only build tools make."""
    ignored = contents.ignored(walk(root))
    made = [name for name in _list_ignored(root) if _is_made(name, is_output) and not name.endswith("/")]
    return ignored | {name: root.work_tree / name for name in made}


def _identity(present: Mapping[str, Path]) -> str | None:
    marks = sorted((name, contents.mark(path)) for name, path in present.items())
    return hashlib.sha256(json.dumps(marks).encode()).hexdigest() if marks else None


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)  # with its times, by which ninja and make tell what is up to date


def _prune(folder: Path, root: Path) -> None:
    with contextlib.suppress(OSError):  # it is not empty
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _read(root: Repository) -> _Note | None:
    """Read the note; None if that fails, in which case every file in the tree counts as not ours."""
    try:
        data = json.loads((root.git_dir / _NOTE).read_bytes())
        return _Note(
            flavour=str(data["flavour"]),
            ended=bool(data["ended"]),
            before=tuple(data["before"]),
            files=dict(data["files"]),
            movable=tuple(data["movable"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(root: Repository, note: _Note) -> None:
    # Not by `datafile`: it refuses names that are not UTF-8, which a file system may well have.
    files.write_text(root.git_dir / _NOTE, json.dumps(structs.asdict(note)))
