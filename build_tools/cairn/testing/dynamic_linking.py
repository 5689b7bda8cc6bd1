"""Whether installed libraries give each other what they need, as their files say, without loading one.

That they load (`builtin_smoke.probe`) shows it for this machine. Here a library of the system counts where
every system of the newest manylinux policy has it, and a symbol where a library has it that is linked
(ld.so(8)), not one that another import happened to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cairn.formats import elf
from cairn.wheels.contents import binaries, system_libraries
from cairn.wheels.contents.binaries import Binary


def read(paths: Iterable[Path]) -> tuple[Binary, ...]:
    """ELF files on disk, without their device code.

    Raises:
        WheelError: one is malformed, or not an ELF file.
    """
    return tuple(binaries.read_file(path, "elf", device_code=False) for path in paths)


def missing_libraries(library: Binary, installed: Iterable[Binary]) -> tuple[str, ...]:
    """The libraries that one needs, and that neither the environment nor every manylinux system has."""
    here, promised = binaries.shipped(installed), system_libraries.newest_policy()
    return tuple(name for name in library.needed if name not in here and not promised.has(name))


def missing_symbols(
    libraries: Sequence[Binary], *, around: Iterable[Binary], program: Path
) -> Mapping[str, tuple[str, ...]]:
    """By path, the symbols that libraries import and that none of the libraries they are linked to exports.

    Args:
        libraries: those to look at. One that is linked to a missing library is passed over: its symbols are
            not known.
        around: all that the loader may find, of the environment and of the system.
        program: the interpreter. Its symbols, and those of its own libraries, are there for all.
    """
    named: dict[str, list[Binary]] = {}
    for binary in around:
        for name in binary.names:
            named.setdefault(name, []).append(binary)
    interpreter = read([program])[0]
    for_all = [interpreter.path, *(_linked(interpreter, named) or ())]
    imports = {library.path: elf.imports(Path(library.path)) for library in libraries}
    among = frozenset(symbol for symbols in imports.values() for symbol in symbols)
    exports: dict[str, frozenset[bytes]] = {}
    missing: dict[str, tuple[str, ...]] = {}
    for library in libraries:
        linked = _linked(library, named)
        if linked is None:
            continue
        left = set(imports[library.path])
        for path in (*for_all, *linked):
            if path not in exports:
                exports[path] = elf.exports(Path(path), among)
            left -= exports[path]
        if left:
            missing[library.path] = tuple(sorted(name.decode("utf-8", "backslashreplace") for name in left))
    return missing


def _linked(start: Binary, named: Mapping[str, Sequence[Binary]]) -> Iterable[str] | None:
    """The paths of all libraries that one needs, directly or not; None where one of them is missing.

    Of several libraries of one name all count: which of them is loaded first is not known here.
    """
    linked: dict[str, Binary] = {}
    waiting = [start]
    while waiting:
        for name in waiting.pop().needed:
            if name not in named:
                return None
            fresh = {other.path: other for other in named[name] if other.path not in linked}
            linked |= fresh
            waiting += fresh.values()
    return linked.keys()
