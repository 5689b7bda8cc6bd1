"""What a host wheel does when it is imported: `device_check`, called behind what loads the ROCm libraries.

torch imports `torch._rocm_init` and calls `initialize()` before anything else (pytorch's torch/__init__.py).
A few lines at the end of that module make it call the check too, whoever built the wheel. They hold nothing
that follows from the version, so that a host wheel can be given a different one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from importlib import resources

from cairn import targets
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata.wheel_info import WheelInfo
from cairn.wheels.rewrite.wheel import Edit

_LOADER, _CHECK = "_rocm_init.py", "_rocm_device_check.py"
_MARK = b"\n\n# Added by `cairn wheel split`; `cairn wheel join` takes it out again.\n"
# Whatever goes wrong with the check is no reason for an import to fail.
_CALL = """\
_load_rocm = initialize


def initialize():
    _load_rocm()
    try:
        from . import _rocm_device_check

        _rocm_device_check.check({own!r}, {build!r}, {archives!r}, {generic!r})
    except Exception:
        pass
"""


def added(archive: Archive, info: WheelInfo, archives: Iterable[str], build: str) -> Edit:
    """What puts the check into each package of a wheel that loads the ROCm libraries.

    Args:
        archive: the wheel.
        info: its metadata.
        archives: paths of the archives that its libraries look for, with `@GFXARCH@` for the target.
        build: what these archives call the build that their code is of.
    """
    # What is not in site-packages is found by no path that counts from there.
    names = tuple(sorted({path for path in archives if not path.startswith(".data/")}))
    generic = dict(targets.generic_targets())  # all, since it speaks for other host wheels too
    own = info.dist_info.partition("-")[0]
    call = _MARK + _CALL.format(own=own, build=build, archives=names, generic=generic).encode()
    loaders = {
        name: source
        for name, source in _loaders(archive).items()
        if names and _MARK not in source and _can_be_wrapped(source)
    }
    check = resources.files(__package__).joinpath("device_check.py").read_bytes()
    return Edit(
        add_files={_beside(name): check for name in loaders},
        replace_files={name: source + call for name, source in loaders.items()},
    )


def removed(archive: Archive) -> Edit:
    """What takes it out of a host wheel again, to the byte."""
    loaders = {name: source.partition(_MARK) for name, source in _loaders(archive).items() if _MARK in source}
    return Edit(
        replace_files={name: before for name, (before, _, _) in loaders.items()},
        remove_files=tuple(_beside(name) for name in loaders if _beside(name) in archive),
    )


def _loaders(archive: Archive) -> dict[str, bytes]:
    """The modules of that name right below a package, and their source."""
    loaders = (m.name for m in archive.members if m.name.count("/") == 1 and m.name.endswith(f"/{_LOADER}"))
    return {name: archive.read(name) for name in loaders}


def _beside(loader: str) -> str:
    return f"{loader.partition('/')[0]}/{_CHECK}"


def _can_be_wrapped(source: bytes) -> bool:
    """Whether a module defines `initialize()`, to be called without arguments."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "initialize"]
    return bool(functions) and not ast.unparse(functions[-1].args)
