"""The closure of what the binaries of a wheel need, as a tree for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cairn.wheels.contents import manylinux, windows_dlls
from cairn.wheels.contents.summary import LibrarySummary, Summary

_WINDOWS = "win"


def needed_tree(summary: Summary) -> Iterator[str]:
    """The closure as lines of a tree, from the binaries that no other one needs.

    A library of the wheel stands with its own needs the first time it comes; the others are marked
    `(system)`, on every Windows or every Linux of the newest manylinux tag, or `(elsewhere)`.
    """
    tree = _Tree(summary.libraries)
    inner = {found.member for library in summary.libraries for found in tree.inside(library)}
    for library in summary.libraries:
        if library.member not in inner:
            yield from tree.lines(library)
    # What is left needs each other in a circle.
    for library in summary.libraries:
        if library.member not in tree.told:
            yield from tree.lines(library)


class _Tree:
    """How the binaries of a wheel find each other.

    Attributes:
        told: the members that stand in the tree already.
    """

    def __init__(self, libraries: Sequence[LibrarySummary]) -> None:
        self.told: set[str] = set()
        self._own = {(_on_windows(lib), name): lib for lib in libraries for name in _names(lib)}

    def inside(self, library: LibrarySummary) -> Iterator[LibrarySummary]:
        """The binaries of the wheel that this one needs."""
        keys = ((_on_windows(library), name) for name in library.needed)
        return (self._own[key] for key in keys if key in self._own)

    def lines(self, root: LibrarySummary) -> Iterator[str]:
        """A binary and all that it needs."""
        yield root.member
        self.told.add(root.member)
        # A stack of our own: a wheel may hold a chain that is longer than Python's.
        open_branches = [(root, iter(_marked(root)), "")]
        while open_branches:
            owner, names, indent = open_branches[-1]
            name, last = next(names, (None, False))
            if name is None:
                open_branches.pop()
                continue
            found = self._own.get((_on_windows(owner), name))
            yield f"{indent}{'└── ' if last else '├── '}{name}{self._mark(owner, name, found)}"
            if found is not None and found.member not in self.told:
                self.told.add(found.member)
                open_branches.append((found, iter(_marked(found)), indent + ("    " if last else "│   ")))

    def _mark(self, owner: LibrarySummary, name: str, found: LibrarySummary | None) -> str:
        if found is None:
            return " (system)" if _on_system(name, owner) else " (elsewhere)"
        return " (above)" if found.needed and found.member in self.told else ""


def _marked(library: LibrarySummary) -> list[tuple[str, bool]]:
    """What it needs, each with whether it is the last."""
    return [(name, number == len(library.needed)) for number, name in enumerate(library.needed, start=1)]


def _on_system(name: str, owner: LibrarySummary) -> bool:
    if _on_windows(owner):
        return windows_dlls.on_system(name, owner.machine)
    return manylinux.newest().has(name)


def _on_windows(library: LibrarySummary) -> bool:
    return library.machine.startswith(_WINDOWS)


def _names(library: LibrarySummary) -> set[str]:
    name = library.member.rpartition("/")[2]
    return {name.lower() if _on_windows(library) else name, *filter(None, [library.soname])}
