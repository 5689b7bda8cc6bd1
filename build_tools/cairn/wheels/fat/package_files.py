"""How a fat wheel loads its ROCm libraries, and the hook in the package that makes it do so.

torch imports `torch._rocm_init` and calls `initialize()` before anything else (pytorch's torch/__init__.py).
In a linked wheel that module asks the SDK packages for the libraries, in a fat wheel it loads its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from cairn.errors import WheelError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata.wheel_info import WheelInfo, parsed_version

MODULE = "_rocm_init.py"
_ANCHOR = "_rocm_init"
_MARK = "fat"

# RTLD_GLOBAL, as rocm_sdk.initialize_process() has it: libraries that are opened by name later must find the
# symbols of these. What is loaded and added is kept, so that nothing unloads or closes it.
_TEMPLATE = '''\
"""Loads the ROCm libraries that this wheel carries. Written by `cairn wheel fat`; do not edit."""

import ctypes
import os

_LIBRARIES = {libraries}
_kept = []


def initialize():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    if hasattr(os, "add_dll_directory"):
        _kept.append(os.add_dll_directory(folder))
    for name in _LIBRARIES:
        _kept.append(ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL))
'''


def module_text(libraries: Sequence[str]) -> str:
    """The source of the module.

    Args:
        libraries: file names in the folder `lib`, in the order they are loaded.
    """
    names = "".join(f"\n    {name!r}," for name in libraries)
    return _TEMPLATE.format(libraries=f"({names}\n)" if names else "()")


def package_of(archive: Archive, info: WheelInfo) -> str:
    """The package that gets the libraries: the one with `_rocm_init.py`, or the one named like the project.

    Raises:
        WheelError: there is no such package.
    """
    names = [member.name for member in archive.members]
    # A wheel of torch has torch, torchgen and functorch: the hook says which, or the name of the project.
    packages = sorted({name.split("/")[0] for name in names if name.endswith("/__init__.py")})
    hooked = [package for package in packages if f"{package}/{MODULE}" in archive]
    same = [package for package in packages if package.lower() == info.distribution.replace("-", "_")]
    for members in (hooked, same, packages):
        if len(members) == 1:
            return members[0]
    raise WheelError(
        f"{info.file_name} has no package {info.distribution.replace('-', '_')} to put libraries into",
        tip="a fat wheel is made from a wheel with one package that has an __init__.py",
    )


def is_hooked(archive: Archive, package: str, *, needed: bool) -> bool:
    """Whether the package calls `_rocm_init` when it is imported.

    Args:
        archive: the wheel.
        package: the package.
        needed: whether the libraries cannot be found without it, as on Windows.

    Raises:
        WheelError: it does not, although it has the module or needs it.
    """
    member = f"{package}/__init__.py"
    if member in archive and _ANCHOR.encode() in archive.read(member):
        return True
    if needed or f"{package}/{MODULE}" in archive:
        raise WheelError(
            f"{member} of {archive.path.name} does not import {_ANCHOR}, so nothing would load the libraries",
            tip=f"let {package}/__init__.py import {_ANCHOR} and call its initialize() where there is one",
        )
    return False


def preloads(archive: Archive, package: str) -> tuple[str, ...]:
    """The shortnames of the libraries that the linked wheel's module loads; none when it has no module.

    Raises:
        WheelError: the module does not call `initialize_process(preload_shortnames=[…])`.
    """
    member = f"{package}/{MODULE}"
    if member not in archive:
        return ()
    try:
        # Parsed, not run: it is the code of a wheel that is not trusted yet.
        names = list(_shortnames(ast.parse(archive.read(member))))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise WheelError(f"{member} is not valid Python: {error}") from error
    if not names:
        raise WheelError(
            f"{member} does not say preload_shortnames=[…], so the libraries to load are unknown",
            tip="start from a wheel that `cairn build` wrote",
        )
    return tuple(names[0])


def _shortnames(tree: ast.AST) -> Iterator[list[str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "preload_shortnames":
            try:
                value = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                continue
            if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
                yield list(value)


def fat_version(version: str) -> str:
    """The version of the fat wheel of a linked one: `2.9.0+fat.rocm7.10.0` of `2.9.0+rocm7.10.0`.

    `fat` comes first: ROCm versions after it still compare in their order, and where an index has both kinds,
    pip prefers the linked wheel, since `fat` sorts below `rocm`.

    Raises:
        WheelError: it is the version of a fat wheel already.
    """
    parsed = parsed_version(version)
    local = parsed.local or ""
    if _MARK in local.split("."):
        raise WheelError(
            f"{version} is the version of a fat wheel already", tip="start from the linked wheel"
        )
    return f"{parsed.public}+{'.'.join(part for part in (_MARK, local) if part)}"


def version_file(archive: Archive, package: str, old: str, new: str) -> dict[str, bytes]:
    """Path in the wheel to the new content of the package's version.py, where it says `__version__ = "…"`.

    Args:
        archive: the wheel.
        package: the package.
        old: the version so far; a file that says a different one is left alone.
        new: the version to say.
    """
    member = f"{package}/version.py"
    if member not in archive:
        return {}
    source = archive.read(member)
    try:
        nodes = [node for node in ast.parse(source).body if _says(node, old)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {}
    # Edited as text, so that comments and everything else stay as they are.
    lines = source.splitlines(keepends=True)
    for node in nodes:
        line = lines[node.lineno - 1]
        lines[node.lineno - 1] = line.replace(old.encode(), new.encode(), 1)
    return {member: b"".join(lines)} if nodes else {}


def _says(node: ast.stmt, version: str) -> bool:
    """Whether a statement on one line is `__version__ = "…"` of that version."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.lineno != node.end_lineno:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    named = any(isinstance(target, ast.Name) and target.id == "__version__" for target in targets)
    return named and isinstance(node.value, ast.Constant) and node.value.value == version
