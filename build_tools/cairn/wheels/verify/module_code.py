"""What is in an extension module: its init function, and only that of Python's C API which its ABI promises.

Sources: docs.python.org, "Defining extension modules" (PyInit_, and PyInitU_ of PEP 489) and "C API
Stability"; abi3info, which has CPython's own list of what is in the limited API, and since when.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType

from cairn.errors import PrerequisiteError
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents import manylinux
from cairn.wheels.contents.binaries import OF_MACOS, Binary, shipped
from cairn.wheels.metadata import places
from cairn.wheels.metadata.wheel_info import FileName
from cairn.wheels.verify.findings import Finding, FindingCode

_PYTHON_3 = re.compile(r"(?:cp|pp|py|graalpy)3")
_ABI3_SINCE = re.compile(r"cp3(\d+)-abi3-")
_OF_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_INIT = ("PyInit_", "PyInitU_")
_DEBUG = "_d"  # what a debug build of Python for Windows adds to the names of modules
# How Python code opens a file as a library instead of importing it.
_OPENS = (b"CDLL", b"WinDLL", b"PyDLL", b"dlopen", b"LoadLibrary", b"load_library")


def check(
    archive: Archive, binaries: Sequence[Binary], name: FileName
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Breaches by module, and what is not known of some."""
    if not any(_PYTHON_3.match(tag) for tag in name.tags):
        return (), ()
    without, opened = _without_init(archive, binaries)
    problems = [
        Finding(
            code=FindingCode.MODULE_INIT,
            member=path,
            reason=f"it has no {_INIT[0]}{_stem(path)}, so that no Python can import it",
            fix="name it as the module that it defines; a library needs no suffix of a module",
        )
        for path in without
    ]
    unknown = [f"whether {path}, which has no {_INIT[0]}, is opened as a library" for path in opened]
    return (*problems, *_beyond_abi3(binaries, name)), tuple(unknown)


def _without_init(archive: Archive, binaries: Sequence[Binary]) -> tuple[list[str], list[str]]:
    """The modules that cannot be imported, and those that may not be meant to be."""
    suspects = [
        binary
        for binary in binaries
        if binary.is_module
        and not places.is_of_tests(binary.path)
        and not any(init in binary.python_defined for init in _names_of_init(binary.path))
    ]
    needed = {name.rpartition("/")[2] for binary in binaries for name in binary.needed}
    alone = [one.path for one in suspects if needed.isdisjoint(one.names)]
    if not alone:
        return [], []
    sources = [member.name for member in archive.members if member.name.endswith(".py")]
    opening = {
        places.installed(name).split("/")[0]
        for name in sources
        if any(mark in (text := archive.read(name)) for mark in _OPENS) and text
    }
    wrong: list[str] = []
    opened: list[str] = []
    for path in dict.fromkeys(alone):
        top = places.installed(path).split("/")[0]
        (opened if top in opening or _stem(path).startswith("lib") else wrong).append(path)
    return wrong, opened


def _stem(path: str) -> str:
    *folders, file = places.installed(path).split("/")
    stem = file.split(".")[0]
    return folders[-1] if stem == "__init__" and folders else stem


def _names_of_init(path: str) -> Iterator[str]:
    """What the init function may be called."""
    stem = _stem(path)
    for name in (stem, stem.removesuffix(_DEBUG), path.rpartition("/")[2].split(".")[0]):
        if name.isascii():
            yield f"{_INIT[0]}{name}"
        else:
            yield f"{_INIT[1]}{name.encode('punycode').decode('ascii').replace('-', '_')}"


def _beyond_abi3(binaries: Sequence[Binary], name: FileName) -> Iterator[Finding]:
    """What a wheel of the stable ABI uses of Python that is not in the limited API of its oldest version."""
    since = [int(match[1]) for tag in name.tags if (match := _ABI3_SINCE.match(tag))]
    if len(since) < len(name.tags):
        return  # for one version too: only Requires-Python says which files are for which
    limited = _limited_api()
    own = {symbol for binary in binaries for symbol in binary.python_defined}
    names = shipped(binaries)
    for binary in binaries:
        symbols = sorted(
            symbol
            for symbol in binary.python_wanted - own
            if _OF_PYTHON.fullmatch(symbol) and not symbol.startswith(_INIT)
        )
        # A library of a different wheel may have what only begins like Python's own.
        known = all(_is_known(library, binary, names) for library in binary.needed)
        outside = [symbol for symbol in symbols if symbol not in limited] if known else []
        later = [f"{s} (3.{limited[s]})" for s in symbols if limited.get(s, 0) > min(since)]
        reason = ""
        if outside:
            reason = f"it uses {wording.some(outside)}, which the limited API does not have"
        elif later:
            reason = f"it uses {wording.some(later)}, and the wheel is for Python 3.{min(since)}"
        if reason:
            fix = "build it with Py_LIMITED_API set to the oldest Python of the tag"
            yield Finding(code=FindingCode.MODULE_ABI, member=binary.path, reason=reason, fix=fix)


def _is_known(library: str, binary: Binary, own: frozenset[str]) -> bool:
    """Whether a library that a binary needs is in the wheel or a part of the system."""
    if binary.format == "pe":
        return True  # which says of each symbol where it comes from
    name = library.rpartition("/")[2]
    return name in own or library.startswith(OF_MACOS) or manylinux.newest().has(name)


@functools.cache
def _limited_api() -> Mapping[str, int]:
    """Name to the minor version of Python 3 that brought it into the limited API."""
    try:
        known: ModuleType = importlib.import_module(
            "abi3info"
        )  # takes 50 ms, for wheels of the stable ABI alone
    except ModuleNotFoundError as error:
        raise PrerequisiteError("abi3info is not installed", tip="pip install abi3info") from error
    entries = (*known.FUNCTIONS.values(), *known.DATAS.values())
    return {entry.symbol.name: entry.added.minor for entry in entries}
