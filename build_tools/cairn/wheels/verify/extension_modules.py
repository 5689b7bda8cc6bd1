"""Extension modules must be named for the Python, the ABI and the platform that the tag names.

An interpreter imports `m.so`, `m.abi3.so` and `m.<its own SOABI>.so`, and no other file: a module named for a
different interpreter cannot be imported at all.

Sources: PEP 3149 and `importlib.machinery.EXTENSION_SUFFIXES` of CPython and PyPy, `Python/dynload_win.c`;
for the names of Linux platforms, Debian's multiarch tuples as CPython's configure writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cairn.output import wording
from cairn.wheels.contents.binaries import Binary
from cairn.wheels.metadata.wheel_info import FileName
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
_PYTHON_DLL = re.compile(r"python(3\d+)(t?)\.dll")
_FIX = "build it with the Python and for the platform of the tag: changing the tag alone does not help"
_MUSL_SINCE = 311  # before, CPython named modules for musl as those for glibc (bpo-43112)


@dataclass(frozen=True, kw_only=True)
class ExtensionModule:
    """What the name of an extension module says; None where it says nothing.

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
    """What the name of a module says; None for one that every interpreter imports, and for any other file."""
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


def check(members: Iterable[str], binaries: Iterable[Binary], name: FileName) -> Iterator[Finding]:
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
    for member in members:
        if member.lower().endswith(suffix):
            module = parse(member)
            if module:
                named.setdefault(module.stem, []).append(module)
            else:
                plain.add(member[: -len(suffix)])
    for stem, modules in named.items():
        for module, reason in _problems(modules, tags, everywhere=stem in plain):
            yield Finding(code=FindingCode.MODULE_ABI, member=module.member, reason=reason, fix=_FIX)
    yield from _check_python_dll(binaries, tags)


def _check_python_dll(binaries: Iterable[Binary], tags: Sequence[_Tag]) -> Iterator[Finding]:
    """A plain `m.pyd` is imported by every Python, but each version of Python has its own DLL."""
    for binary in binaries:
        plain = binary.path.lower().endswith(".pyd") and parse(binary.path) is None
        for dll in binary.needed if plain else ():
            match = _PYTHON_DLL.fullmatch(dll)
            fits = match and any(
                tag.python == f"cp{match[1]}" and (tag.abi[-1] == "t") == bool(match[2]) for tag in tags
            )
            # A wheel for several versions may be linked with python3.dll alone, which they all have.
            if match and (not fits or any(tag.is_open for tag in tags)):
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
    """What is wrong with the files of one module.

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
