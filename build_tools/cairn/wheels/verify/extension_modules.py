"""Extension modules must fit the Python, the ABI and the platform that the tag names.

By their names: an interpreter imports `m.so`, `m.abi3.so` and `m.<its own SOABI>.so`, and no other file. A
module named for a different interpreter cannot be imported at all. By their content: each has its init
function, and uses only that of Python's C API which its ABI promises.

Sources: PEP 3149 and `importlib.machinery.EXTENSION_SUFFIXES` of CPython and PyPy, `Python/dynload_win.c`;
for the names of Linux platforms, Debian's multiarch tuples as CPython's configure writes them;
docs.python.org, "Defining extension modules" (PyInit_, and PyInitU_ of PEP 489) and "C API Stability";
abi3info, which has CPython's own list of what is in the limited API, and since when.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import msgspec

from cairn.errors import PrerequisiteError
from cairn.formats.zip.reader import Archive
from cairn.output import wording
from cairn.wheels.contents import system_libraries
from cairn.wheels.contents.binaries import OF_MACOS, Binary, shipped
from cairn.wheels.metadata.wheel_info import FileName, installed_path, is_of_tests
from cairn.wheels.verify.findings import Finding, FindingCode

ABI3 = "abi3"
_UNIX = re.compile(
    r"(?P<stem>.+)\.(?:"
    r"cpython-(?P<cp>3\d+)(?P<flags>[a-z]*)(?:-(?P<cp_on>[\w-]+))?"
    r"|pypy(?P<pp>3\d+)-(?P<pp_abi>pp\d+)(?:-(?P<pp_on>[\w-]+))?"
    r"|(?P<abi3>abi3))\.so"
)
_WINDOWS = re.compile(
    r"(?P<stem>.+)\.(?:cp(?P<cp>3\d+)(?P<flags>t?)-(?P<cp_on>\w+)"
    r"|pypy(?P<pp>3\d+)-(?P<pp_abi>pp\d+)-(?P<pp_on>\w+))\.pyd",
    re.IGNORECASE,
)
_MACHINES = {
    "i386": ("i686", "i386"),
    "powerpc64le": ("ppc64le",),
    "powerpc64": ("ppc64",),
    "arm": ("armv7l", "armv6l"),
    "x86": ("i686",),  # this and the next as PyPy has them (maturin, `Target::get_python_ext_arch`)
    "ppc_64": ("ppc64le", "ppc64"),
}
_DIGITS = re.compile(r"\d+")
_PYTHON_DLL = re.compile(r"python(3\d+)(t?)\.dll")
_FIX = "build it with the Python and for the platform of the tag: changing the tag alone does not help"
_MUSL_SINCE = 311  # before, CPython named modules for musl as those for glibc (bpo-43112)
_PYTHON_3 = re.compile(r"(?:cp|pp|py|graalpy)3")
_ABI3_SINCE = re.compile(r"cp3(\d+)-abi3-")
_OF_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_INIT = ("PyInit_", "PyInitU_")
_MISNAMED = (".dll", ".dylib")
_DEBUG = "_d"  # what a debug build of Python for Windows adds to the names of modules
# How Python code opens a file as a library instead of importing it.
_OPENS = re.compile(rb"CDLL|WinDLL|PyDLL|dlopen|LoadLibrary|load_library|ExtensionFileLoader")


class ExtensionModule(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the name of an extension module; None where it has none such.

    Attributes:
        member: its path.
        stem: the path without what names the interpreter.
        python: the interpreter as tags write it, `cp312` or `pp310`; None for the stable ABI.
        abi: its ABI as tags write it: `cp312`, `cp313t`, `pypy310_pp73` or `abi3`.
        platform: such as `x86_64-linux-gnu`, `darwin` or `win_amd64`.
    """

    member: str
    stem: str
    python: str | None
    abi: str
    platform: str | None


def parse(member: str) -> ExtensionModule | None:
    """Parse the name of a module; None for one that every interpreter imports, and for any other file."""
    match = (_UNIX if member.endswith(".so") else _WINDOWS).fullmatch(member)
    if match is None:
        return None
    parts = match.groupdict()
    if parts.get("abi3"):
        return ExtensionModule(member=member, stem=parts["stem"], python=None, abi=ABI3, platform=None)
    if parts["cp"]:
        python = f"cp{parts['cp']}"
        # `t` is free-threaded, `d` a debug build; `m` was in every name before 3.8 and means nothing.
        abi, platform = f"{python}{parts['flags'].replace('m', '')}", parts["cp_on"]
    else:
        python = f"pp{parts['pp']}"
        abi, platform = f"pypy{parts['pp']}_{parts['pp_abi']}", parts["pp_on"]
    return ExtensionModule(
        member=member, stem=parts["stem"], python=python, abi=abi.lower(), platform=platform
    )


def check(members: Iterable[str], binaries: Sequence[Binary], name: FileName) -> Iterator[Finding]:
    """Breaches by module: those that no Python of the tags imports, or only one of several.

    Args:
        members: all paths in the wheel, to be judged by their names.
        binaries: the binaries among them, to be judged by what they are linked with.
        name: the file name of the wheel.
    """
    tags = [_Tag(*tag.split("-")) for tag in name.tags]
    suffix = ".pyd" if any(tag.platform.startswith("win") for tag in tags) else ".so"
    named: dict[str, list[ExtensionModule]] = {}
    plain = set()
    libraries = {binary.path for binary in binaries if not _has_init(binary)}  # see `check_content`
    for member in members:
        if member.lower().endswith(suffix) and member not in libraries:
            module = parse(member)
            if module:
                named.setdefault(module.stem, []).append(module)
            else:
                plain.add(member[: -len(suffix)])
    for stem, modules in named.items():
        for module, reason in _problems(modules, tags, everywhere=stem in plain):
            yield Finding(code=FindingCode.MODULE_ABI, member=module.member, reason=reason, fix=_FIX)
    if not plain:
        yield from _check_each_python([module for group in named.values() for module in group], tags)
    yield from _check_python_dll(binaries, tags)


def _check_each_python(modules: Sequence[ExtensionModule], tags: Sequence[_Tag]) -> Iterator[Finding]:
    """Where there is a module for one Python of the tags, there must be one for each."""
    has = {
        f"{tag.python}-{tag.abi}": any(_fits_python(module, tag) for module in modules)
        for tag in tags
        # Compressed tags stand for all combinations, of which most are no Python's (PEP 425).
        if not tag.is_open and tag.abi.startswith((tag.python, "pypy", "none"))
    }
    if without := [python for python, served in has.items() if not served and any(has.values())]:
        reason = f"its tags name {wording.some(without)}, for which it has no extension module"
        yield Finding(code=FindingCode.MODULE_ABI, reason=reason, fix="build a wheel for each Python")


def _check_python_dll(binaries: Iterable[Binary], tags: Sequence[_Tag]) -> Iterator[Finding]:
    """Each version of Python has its own DLL; a plain `m.pyd` is imported by all of them."""
    modules = [binary for binary in binaries if binary.path.lower().endswith(".pyd")]
    versions = Counter(_DIGITS.sub("", binary.path) for binary in modules)
    for binary in modules:
        module = parse(binary.path)
        for dll in binary.needed:
            match = _PYTHON_DLL.fullmatch(dll)
            # `m_py38.pyd` beside `m_py39.pyd`: Python code takes the one for its version.
            if (
                match
                and versions[_DIGITS.sub("", binary.path)] > 1
                and f"{match[1]}{match[2]}" in binary.path
            ):
                continue
            fits = match and any(
                python == f"cp{match[1]}" and (abi[-1] == "t") == bool(match[2])
                for python, abi in ([(module.python, module.abi)] if module else [tag[:2] for tag in tags])
            )
            # A wheel for several versions may be linked with python3.dll alone, which they all have.
            if match and (not fits or (module is None and any(tag.is_open for tag in tags))):
                reason = f"it is linked with {dll}, the wheel is for {_pythons(tags)}"
                yield Finding(code=FindingCode.MODULE_ABI, member=binary.path, reason=reason, fix=_FIX)


class _Tag(NamedTuple):
    python: str
    abi: str
    platform: str

    @property
    def is_open(self) -> bool:
        """Whether it is for more than one version of Python."""
        return self.abi == ABI3 or self.python.startswith("py")


def _problems(
    modules: Sequence[ExtensionModule], tags: Sequence[_Tag], *, everywhere: bool
) -> Iterator[tuple[ExtensionModule, str]]:
    """The problems of the files of one module.

    Args:
        modules: those whose name says what they are for.
        tags: of the wheel.
        everywhere: whether there is one for any Python as well.
    """
    is_open = any(tag.is_open for tag in tags)
    for module in modules:
        if not any(_fits_platform(module, tag.platform) for tag in tags):
            platforms = wording.some(sorted({tag.platform for tag in tags}))
            yield module, f"its name is for {module.platform}, the wheel for {platforms}"
        elif not is_open and not any(_fits_python(module, tag) for tag in tags):
            yield module, f"its name is for {module.abi}, the wheel for {_pythons(tags)}"
    # Several for one Python each are there on purpose; only Requires-Python says which.
    alone = is_open and len(modules) == 1 and not everywhere
    if alone and not all(_fits_python(modules[0], tag) for tag in tags):
        yield modules[0], f"its name is for {modules[0].abi} alone, the wheel for {_pythons(tags)}"


def _pythons(tags: Sequence[_Tag]) -> str:
    return wording.some(sorted({f"{tag.python}-{tag.abi}" for tag in tags}))


def _fits_python(module: ExtensionModule, tag: _Tag) -> bool:
    if module.python is None:
        # What uses the stable ABI does not know the objects of a free-threaded Python (PEP 703).
        return not (tag.abi.startswith("cp") and tag.abi.endswith("t"))
    abi = tag.abi.removesuffix("m")  # of CPython before 3.8
    return not tag.is_open and tag.python == module.python and abi in (module.abi, "none")


def _fits_platform(module: ExtensionModule, platform: str) -> bool:
    named_platform = module.platform
    if named_platform is None:
        return True
    if platform.startswith("macosx"):
        return named_platform == "darwin"
    if platform.startswith("win"):
        return named_platform.lower() == platform
    if "linux" not in platform:
        return True
    machine, system, libc = (*named_platform.split("-"), "", "")[:3]
    on_machine = platform.endswith(tuple(f"_{name}" for name in _MACHINES.get(machine, (machine,))))
    return system == "linux" and on_machine and _fits_libc(module, libc, platform)


def _fits_libc(module: ExtensionModule, libc: str, platform: str) -> bool:
    if platform.startswith("musllinux"):
        version = int((module.python or "cp0")[2:])
        return libc.startswith("musl") or version < _MUSL_SINCE or module.abi.startswith("pypy")
    return not (platform.startswith("manylinux") and libc.startswith("musl"))


def check_content(
    archive: Archive, binaries: Sequence[Binary], name: FileName
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Breaches by module, and what is not known of some."""
    if not any(_PYTHON_3.match(tag) for tag in name.tags):
        return (), ()
    modules = {_stem(binary.path) for binary in binaries if binary.path.lower().endswith((".pyd", ".so"))}
    suspects = [
        binary
        for binary in binaries
        if not is_of_tests(binary.path)
        and (
            _has_init(binary) and _stem(binary.path) not in modules
            if binary.path.lower().endswith(_MISNAMED)
            else binary.is_module and not _has_init(binary)
        )
    ]
    needed = {name.rpartition("/")[2] for binary in binaries for name in binary.needed}
    alone = dict.fromkeys(suspect.path for suspect in suspects if needed.isdisjoint(suspect.names))
    opening = _opening_packages(archive, _OPENS) if alone else set()
    findings, unknown = [], []
    for path in alone:
        package, stem = installed_path(path).split("/")[0], _stem(path)
        # `f"_inject.{abi}.so"`, which memray gives to a debugger.
        as_file = re.compile(rb"[\"'/]%s\.[^\"'\n]{0,80}(?:so|dll|dylib)\b" % re.escape(stem.encode()))
        opened = (
            package in opening or stem.startswith("lib") or package in _opening_packages(archive, as_file)
        )
        if path.lower().endswith(_MISNAMED) and not opened:
            reason = f"it is the module {stem}, and Python imports no file that ends so"
            fix = "name it .pyd for Windows, .so for macOS"
            findings.append(Finding(code=FindingCode.MODULE_ABI, member=path, reason=reason, fix=fix))
        elif opened:
            lacks = f"no {_INIT[0]}"
            if path.lower().endswith(_MISNAMED):
                lacks = f"{_INIT[0]} and no suffix of a module"
            unknown.append(f"whether {path}, which has {lacks}, is opened as a library")
        else:
            reason = f"it has no {_INIT[0]}{_stem(path)}, so that no Python can import it"
            fix = "name it as the module that it defines; a library needs no suffix of a module"
            findings.append(Finding(code=FindingCode.MODULE_INIT, member=path, reason=reason, fix=fix))
    return (*findings, *_beyond_abi3(binaries, name)), tuple(unknown)


def _opening_packages(archive: Archive, pattern: re.Pattern[bytes]) -> set[str]:
    """The packages with Python code that opens files as libraries, as a pattern says."""
    packages = set()
    for name in (member.name for member in archive.members if member.name.endswith(".py")):
        if archive.search(name, pattern):
            packages.add(installed_path(name).split("/")[0])
    return packages


def _stem(path: str) -> str:
    *folders, file = installed_path(path).split("/")
    stem = file.split(".")[0]
    return folders[-1] if stem == "__init__" and folders else stem


def _has_init(binary: Binary) -> bool:
    return any(init in binary.python_defined for init in _names_of_init(binary.path))


def _names_of_init(path: str) -> Iterator[str]:
    """The names that the init function may have."""
    stem = _stem(path)
    for name in (stem, stem.removesuffix(_DEBUG), path.rpartition("/")[2].split(".")[0]):
        if name.isascii():
            yield f"{_INIT[0]}{name}"
        else:
            yield f"{_INIT[1]}{name.encode('punycode').decode('ascii').replace('-', '_')}"


def _beyond_abi3(binaries: Sequence[Binary], name: FileName) -> Iterator[Finding]:
    """Uses of the C API beyond the limited API of the oldest version, in a wheel of the stable ABI."""
    since = [int(match[1]) for tag in name.tags if (match := _ABI3_SINCE.match(tag))]
    if len(since) < len(name.tags):
        return  # for one version too: only Requires-Python says which files are for which
    limited = _limited_api()
    defined = {symbol for binary in binaries for symbol in binary.python_defined}
    names = shipped(binaries)
    for binary in binaries:
        symbols = sorted(
            symbol
            for symbol in binary.python_wanted - defined
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
    return name in own or library.startswith(OF_MACOS) or system_libraries.newest_policy().has(name)


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
