"""How symbols are found: in the libraries that a binary needs, and in those that they need in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cairn.formats.image import Symbol
from cairn.wheels.contents.binaries import Binary

Symbols = Mapping[str, frozenset[str]]
"""The symbols of a library, each with its versions, of which the empty one is of a symbol without any."""


class Linkage:
    """Libraries that are installed together, by the names that binaries find them by."""

    def __init__(self, binaries: Iterable[Binary]) -> None:
        self._by_name: dict[str, Binary] = {}
        self._symbols: dict[str, Symbols] = {}
        for binary in binaries:
            for name in () if binary.is_device_code or binary.is_program else binary.names:
                self._by_name.setdefault(name, binary)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Binary | None:
        """The library of that name."""
        return self._by_name.get(name)

    def binding(self, binary: Binary, symbol: Symbol) -> Binary | None:
        """The library that gives a symbol to a binary; None where none of those that it needs has it.

        As ld.so does it: breadth first in what is needed. A version that is asked for must be there, unless
        the library has no versions at all, of which the loader only warns.
        """
        for library in self._needed(binary, symbol):
            versions = self._symbols_of(library).get(symbol.name)
            if versions is not None and (symbol.version in {"", *versions} or versions == {""}):
                return library
        return None

    def _needed(self, binary: Binary, symbol: Symbol) -> Iterator[Binary]:
        # In Windows a symbol is of one DLL; on Linux a version is of one library, but where that has moved to
        # another one, the name of the first is not looked at.
        queue = [symbol.library] if binary.format == "pe" else list(binary.needed)
        seen: set[str] = set()
        while queue:
            name = queue.pop(0)
            library = None if name in seen else self._by_name.get(name)
            seen.add(name)
            if library is not None:
                yield library
                queue += library.needed if binary.format != "pe" else ()

    def _symbols_of(self, library: Binary) -> Symbols:
        if library.path not in self._symbols:
            versions: dict[str, set[str]] = {}
            for symbol in library.exports:
                versions.setdefault(symbol.name, set()).add(symbol.version)
            self._symbols[library.path] = {name: frozenset(those) for name, those in versions.items()}
        return self._symbols[library.path]
