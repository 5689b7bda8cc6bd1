"""A difference in words: what the terminal and the page both show, section by section."""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from cairn.output.console import size
from cairn.wheels.interface.changes import Delta, KernelChange, TargetChange
from cairn.wheels.interface.difference import Difference, LibraryChange

Sign = Literal["-", "+", "~", ">", ""]
"""What happened: gone, new, changed, renamed, or no more than a figure."""
_LONGEST_NAME = 1 << 14
_SMALL_SIZE = 1 << 16  # bytes that a wheel may grow by before that is worth a line; or 1%


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One change.

    Attributes:
        sign: what happened.
        text: to what.
    """

    sign: Sign
    text: str


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one kind.

    Attributes:
        title: which kind.
        kind: what stands before each of them where there is no title.
        lines: them.
    """

    title: str
    kind: str
    lines: tuple[Line, ...]

    def count(self, sign: Sign) -> int:
        """How many of its lines have that sign."""
        return sum(line.sign == sign for line in self.lines)


def sections(difference: Difference) -> tuple[Section, ...]:
    """What differs, what breaks others first; nothing where nothing does."""
    made = (
        *_metadata(difference),
        *_interface(difference),
        *_device_code(difference),
        *_content(difference),
        Section(
            title="Not read", kind="not read", lines=tuple(Line(sign="", text=t) for t in difference.unread)
        ),
    )
    return tuple(section for section in made if section.lines)


def _metadata(difference: Difference) -> Iterator[Section]:
    fields = difference.fields.items()
    values = tuple(Line(sign="", text=f"{name}: {a or '-'} -> {b or '-'}") for name, (a, b) in fields)
    yield Section(title="Metadata", kind="", lines=values)
    yield signed("Requirements", "requires", difference.requirements)
    yield signed("Entry points", "entry point", difference.entry_points)


def _interface(difference: Difference) -> Iterator[Section]:
    if python := difference.python:
        lines = [
            *(Line(sign="-", text=path) for path in python.removed),
            *(
                Line(sign="-", text=f"{path} (unless made when imported, inherited, or compiled)")
                for path in python.perhaps
            ),
            *(Line(sign="+", text=path) for path in python.added),
        ]
        yield Section(title="Public Python names", kind="Python name", lines=tuple(lines))
        for title, texts in (("that break callers", python.breaking), ("that break nobody", python.other)):
            yield Section(
                title=f"Python signatures {title}",
                kind="Python signature",
                lines=tuple(Line(sign="~", text=text) for text in texts),
            )
    yield signed("Operators", "operator", difference.operators)
    yield signed("Exported symbols of the wheel", "exported symbol", _demangled(difference.exports))
    lines = [line for library in difference.libraries for line in _library(library)]
    yield Section(title="Libraries", kind="", lines=tuple(lines))
    yield signed("Compilers", "compiler", difference.compilers)


def _library(library: LibraryChange) -> Iterator[Line]:
    if library.before:
        yield Line(sign=">", text=f"{library.before} -> {library.member}")
    for name in ("soname", "needed", "run_paths", "targets", "version_needs"):
        kind = f"{library.member}: {name.replace('_', ' ')}"
        yield from signed("", "", getattr(library, name), before=f"{kind} ").lines
    for name in ("exports", "weak_exports", "imports"):
        if delta := getattr(library, name):
            words = name.replace("_", " ")
            counts = f"{len(delta.removed)} gone, {len(delta.added)} new"
            yield Line(sign="", text=f"{library.member}: {words}: {counts}")


def _device_code(difference: Difference) -> Iterator[Section]:
    yield signed("Targets", "target", difference.targets)
    for change in difference.kernels:
        yield Section(
            title=f"Kernels for {change.target}",
            kind=f"{change.target} kernel",
            lines=tuple(_kernels(change)),
        )
    lines: list[Line] = []
    for archive in difference.archives:
        lines += signed("", "", archive.targets, before=f"{archive.member}: target ").lines
        where = f"code in {archive.member}: "
        lines += [Line(sign="-", text=f"{where}{text}") for text in _counted(archive.code.removed)]
        lines += [Line(sign="+", text=f"{where}{text}") for text in _counted(archive.code.added)]
        of = archive.same + len(archive.changed)
        lines += [Line(sign="~", text=f"{where}{text}, of {of}") for text in _counted(archive.changed)]
    yield Section(title="Archives of device code", kind="", lines=tuple(lines))


def _kernels(change: TargetChange) -> Iterator[Line]:
    (a, b), (x, y), (s, t) = change.count, change.size, change.spilling
    yield Line(
        sign="", text=f"{a} -> {b} kernels, {size(x)} -> {size(y)} of code, {s} -> {t} spill registers"
    )
    if a and b:  # of a target that came or went, all of them
        yield from (Line(sign="-", text=demangled(name)) for name in change.removed)
        yield from (Line(sign="+", text=demangled(name)) for name in change.added)
        yield from (Line(sign="~", text=_kernel(kernel)) for kernel in change.changed if kernel.measures)
        same = sum(not kernel.measures for kernel in change.changed)
        if same:
            yield Line(sign="", text=f"{same} more with other code in the same registers")


def _kernel(kernel: KernelChange) -> str:
    measures = (f"{name.replace('_', ' ')} {a} -> {b}" for name, (a, b) in kernel.measures.items())
    return f"{demangled(kernel.name)}: {', '.join(measures)}"


def _content(difference: Difference) -> Iterator[Section]:
    (a, b), (x, y) = difference.size, difference.unpacked_size
    if abs(y - x) > max(_SMALL_SIZE, x // 100):
        text = f"{size(a)} -> {size(b)}, {size(x)} -> {size(y)} unpacked ({y - x:+,} bytes)"
        yield Section(title="Size", kind="size", lines=(Line(sign="", text=text),))
    moved = tuple(Line(sign=">", text=f"{old} -> {new}") for old, new in difference.renamed.items())
    files = (*signed("", "", difference.files).lines, *moved)
    files += tuple(Line(sign="~", text=path) for path in difference.changed)
    yield Section(title="Files", kind="file", lines=files)
    yield signed("Licences", "licence", difference.licences)
    modes = tuple(Line(sign="~", text=path) for path in difference.modes)
    yield Section(title="Run bits", kind="run bit", lines=modes)


def signed(title: str, kind: str, change: Delta, *, before: str = "") -> Section:
    """A section of what is gone and what is new, each behind the text `before`."""
    gone = (Line(sign="-", text=f"{before}{text}") for text in change.removed)
    new = (Line(sign="+", text=f"{before}{text}") for text in change.added)
    return Section(title=title, kind=kind, lines=(*gone, *new))


def _demangled(change: Delta) -> Delta:
    return Delta(removed=tuple(map(demangled, change.removed)), added=tuple(map(demangled, change.added)))


def _counted(places: Iterable[str]) -> list[str]:
    """Code objects by library, since a library may have hundreds: `lib/libtorch_hip.so for gfx942: 12`."""
    libraries = Counter((name.rpartition("#")[0], arch) for name, arch in (p.rsplit(" ", 1) for p in places))
    return [f"{name} for {arch}: {count}" for (name, arch), count in sorted(libraries.items())]


def demangled(symbol: str) -> str:
    """A symbol of C++ as it is written in a source file, where the C++ library is here that can tell.

    Source: the Itanium C++ ABI, chapter 3.4.
    """
    name, at, version = symbol.partition("@")
    demangle = _demangler()
    if demangle is None or not name.startswith("_Z") or len(name) > _LONGEST_NAME:
        return symbol
    status = ctypes.c_int()
    pointer = demangle(name.encode(), None, None, ctypes.byref(status))
    if not pointer:
        return symbol
    try:
        text = (ctypes.string_at(pointer)).decode("utf-8", "backslashreplace")
    finally:
        _free()(pointer)
    return text + at + version


@functools.cache
def _demangler() -> ctypes._NamedFuncPointer | None:
    try:
        function: ctypes._NamedFuncPointer = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return function


@functools.cache
def _free() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None).free
    function.argtypes = (ctypes.c_void_p,)
    function.restype = None
    return function
