"""Which binaries of a wheel may lack libraries: those that it has an alternative for, in the same folder.

A program goes on where one of its back ends does not load and a different one does the same work: Qt has a
plugin for each database, casadi one for each solver, numba one for each way to run threads. What a binary is
called, or which folder it is in, decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from cairn.formats.view import MemberView
from cairn.formats.zip.reader import Archive
from cairn.wheels.contents.binaries import Binary, read_macho, read_view

_VERSION = re.compile(r"[\d._-]+")
_WORDS = re.compile(r"[A-Za-z0-9]+")


def optional(
    archive: Archive, binaries: Sequence[Binary], lacking: Iterable[tuple[str, Collection[str]]]
) -> frozenset[str]:
    """The paths of those that no program needs to load, and of what only they need.

    Args:
        archive: the wheel.
        binaries: those of one format.
        lacking: paths, each with libraries that are not there for it.
    """
    missing: dict[str, set[str]] = {}
    for path, libraries in lacking:  # of a universal file one for each machine
        missing.setdefault(path, set()).update(libraries)
    if not missing:
        return frozenset()
    needs = Needs(binaries)
    broken = needs.users_of(missing)
    rivals = _Rivals(archive, binaries, missing, needs)
    programs = {binary.path for binary in binaries if binary.is_program}
    free = {path for path in needs.names if not needs.is_used(path)} - programs
    roots = [path for path in free & broken if rivals.has_one(path, free)]
    return needs.only_for(roots, started=programs | {binary.path for binary in binaries if binary.is_module})


class Needs:
    """Who needs whom among the binaries of one format.

    Attributes:
        names: path to the names by which others find it.
    """

    def __init__(self, binaries: Sequence[Binary]) -> None:
        self.names: dict[str, set[str]] = {}
        self._needed: dict[str, set[str]] = {}
        for binary in binaries:  # of a universal file one for each machine
            self.names.setdefault(binary.path, set()).update(binary.names)
            needed = self._needed.setdefault(binary.path, set())
            needed.update(name.rpartition("/")[2] for name in binary.needed)
        self._named, self._users = _inverted(self.names), _inverted(self._needed)

    def is_used(self, path: str) -> bool:
        """Whether a different binary needs it."""
        return any(
            len(users) > (path in users) for name in self.names[path] if (users := self._users.get(name))
        )

    def users_of(self, paths: Collection[str]) -> set[str]:
        """These, and all that cannot be loaded without one of them."""
        seen, queue = set(paths), list(paths)
        while queue:
            # A name that several files have is there as long as one of them is.
            names = (name for name in self.names[queue.pop()] if self._named[name] <= seen)
            new = {user for name in names for user in self._users.get(name, ())} - seen
            seen |= new
            queue += new
        return seen

    def needed_by(self, path: str) -> set[str]:
        """It, and all of the wheel that is loaded with it."""
        seen, queue = {path}, [path]
        while queue:
            names = self._needed[queue.pop()]
            new = {path for name in names for path in self._named.get(name, ())} - seen
            seen |= new
            queue += new
        return seen

    def only_for(self, roots: Collection[str], *, started: Collection[str]) -> frozenset[str]:
        """The roots, and the libraries that nothing but them needs; `started` are loaded anyway."""
        users = {name: set(paths) for name, paths in self._users.items()}  # less those that are known
        already = frozenset(started)
        optional: set[str] = set()
        new = list(roots)
        while new:
            path = new.pop()
            if path in optional:
                continue
            optional.add(path)
            for name in self._needed[path]:
                left = users[name]
                left.discard(path)
                # The last one may need its own name; else all with the name lose their last user at once.
                if len(left) <= 1:
                    these = self._named.get(name, set()) - already
                    free = left & these if left else these
                    new += [path for path in free if not self._is_wanted(path, users)]
        return frozenset(optional)

    def _is_wanted(self, path: str, users: Mapping[str, set[str]]) -> bool:
        return any(len(users.get(n, ())) > (path in users.get(n, ())) for n in self.names[path])


class _Rivals:
    """What the files of a folder have in common, read where it is asked for."""

    def __init__(
        self,
        archive: Archive,
        binaries: Sequence[Binary],
        missing: Mapping[str, Collection[str]],
        needs: Needs,
    ) -> None:
        self._archive = archive
        self._kinds = {binary.path: binary.format for binary in binaries}
        self._missing = missing
        self._needs = needs
        self._lacking: dict[str, frozenset[str]] = {}
        self._exports: dict[str, frozenset[str]] = {}

    def has_one(self, path: str, paths: Collection[str]) -> bool:
        """Whether one of the paths is loaded in its place."""
        folder = path.rpartition("/")[0]
        beside = (rival for rival in paths if rival != path and rival.rpartition("/")[0] == folder)
        return any(
            self._is_same_module(path, rival)
            or (self._lacks(rival) < self._lacks(path) and self._does_the_same(path, rival))
            or self._is_for_another_version(path, rival)
            for rival in sorted(beside)
        )

    def _lacks(self, path: str) -> frozenset[str]:
        """The libraries that are not there for a binary, and for what it needs of the wheel."""
        if path not in self._lacking:
            loaded = self._needs.needed_by(path)
            self._lacking[path] = frozenset(name for path in loaded for name in self._missing.get(path, ()))
        return self._lacking[path]

    def _is_same_module(self, path: str, peer: str) -> bool:
        """Whether two define one module for one Python: Python code loads the one for an MPI (mpi4py)."""
        same_python = path.split(".")[-2:] == peer.split(".")[-2:]
        return same_python and not _inits(self._read(path)).isdisjoint(_inits(self._read(peer)))

    def _does_the_same(self, path: str, peer: str) -> bool:
        """Whether a different one has all functions of C that it has, but for what names the two apart."""
        # Names of C++ begin with `_` or `?`, as do those that linkers and compilers define.
        functions, rival = ({n for n in self._read(library) if n[:1].isalpha()} for library in (path, peer))
        functions -= _inits(functions)
        words = (_WORDS.findall(library.rpartition("/")[2].removeprefix("lib")) for library in (path, peer))
        apart = [(word, its_word) for word, its_word in zip(*words, strict=False) if word != its_word]
        shared = {name for name in functions if name in rival or _renamed(name, apart) in rival}
        return bool(shared) and all(any(word in name for word, _ in apart) for name in functions - shared)

    def _is_for_another_version(self, path: str, peer: str) -> bool:
        """Whether two lack the same libraries, each in its version: a user has that of one of them."""
        lacking, rivals = (set(self._missing.get(library, ())) for library in (path, peer))
        neutral = [
            {_VERSION.sub("", name) for name in names} for names in (lacking - rivals, rivals - lacking)
        ]
        if neutral[0].isdisjoint(neutral[1]):
            return False
        exports, rival = self._read(path), self._read(peer)
        return 2 * len(exports & rival) >= len(exports | rival) > 0

    def _read(self, path: str) -> frozenset[str]:
        if path not in self._exports:
            view, kind = MemberView(self._archive, self._archive.member(path)), self._kinds[path]
            if kind == "macho":
                parts = read_macho(view, path, symbols=True)
            else:
                parts = (read_view(view, path, kind, device_code=False, symbols=True),)
            self._exports[path] = frozenset(symbol.name for part in parts for symbol in part.exports)
        return self._exports[path]


def _inits(names: Collection[str]) -> set[str]:
    return {name for name in names if name.startswith("PyInit_")}


def _renamed(name: str, words: Iterable[tuple[str, str]]) -> str:
    for word, its_word in words:
        name = name.replace(word, its_word)
    return name


def _inverted(names: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Name to the paths that have it."""
    paths: dict[str, set[str]] = {}
    for path, those in names.items():
        for name in those:
            paths.setdefault(name, set()).add(path)
    return paths
