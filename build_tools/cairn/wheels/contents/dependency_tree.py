"""What the binaries of a wheel need, directly and through each other, as a tree to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cairn.wheels.contents import manylinux, windows_dlls
from cairn.wheels.contents.binaries import Binary, Format


def needed_tree(binaries: Sequence[Binary]) -> Iterator[str]:
    """The lines of the tree, from the binaries that no other binary needs.

    A library of the wheel is shown with its own needs the first time it comes; the others are marked
    `(system)`, on every Windows or every Linux of the newest manylinux tag, or `(elsewhere)`.
    """
    # What a PE file needs is never an ELF file, whatever its name.
    own = {(binary.format, name): binary for binary in binaries for name in binary.names}
    needs = {(binary.format, name) for binary in binaries for name in binary.needed}
    needed = {own[need].path for need in needs & own.keys()}
    shown: set[str] = set()
    roots = [binary for binary in binaries if binary.path not in needed]
    for binary in (*roots, *binaries):  # what no root leads to needs each other in a circle
        if binary.path not in shown:
            yield from _lines(binary, own, shown)


def _lines(root: Binary, own: Mapping[tuple[Format, str], Binary], shown: set[str]) -> Iterator[str]:
    """A binary and all that it needs; adds what the lines show to `shown`."""
    yield root.path
    shown.add(root.path)
    # A stack instead of recursion: a wheel may hold a chain that is longer than Python's own stack.
    open_branches = [(root, [*reversed(root.needed)], "")]
    while open_branches:
        owner, names, indent = open_branches[-1]
        if not names:
            open_branches.pop()
            continue
        name = names.pop()
        last = not names
        library = own.get((owner.format, name))
        mark = ""
        if library is None:
            mark = " (system)" if _on_system(name, owner) else " (elsewhere)"
        elif library.needed and library.path in shown:
            mark = " (above)"
        yield f"{indent}{'└── ' if last else '├── '}{name}{mark}"
        if library is not None and library.path not in shown:
            shown.add(library.path)
            open_branches.append(
                (library, [*reversed(library.needed)], indent + ("    " if last else "│   "))
            )


def _on_system(name: str, owner: Binary) -> bool:
    if owner.format == "pe":
        return windows_dlls.on_system(name, owner.machine)
    return manylinux.newest().has(name)
