"""Whether the loader is led to the libraries of required wheels: to be installed is not to be found.

It takes a library that is loaded already by its name, and looks in the run paths of the binary and of those
that opened it (ld.so(8)). ROCm's packages are preloaded by the names in `_rocm_init.py`, which
`initialize_process` of rocm_sdk opens: a library that is not among them, and where no run path leads, is
missed (pytorch/pytorch#188454), and so are all of them without that file (ROCm/TheRock#6965).

Source: ROCm/TheRock 89553ce, build_tools/packaging/python/templates/rocm/src/rocm_sdk/__init__.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cairn.formats.zip.reader import Archive
from cairn.wheels.contents.binaries import Binary, run_path_folder
from cairn.wheels.metadata.wheel_info import installed_path
from cairn.wheels.verify.findings import Finding, FindingCode
from cairn.wheels.verify.symbols import Program

_PRELOADED = re.compile(rb"preload_shortnames\s*=\s*[\[(](.*?)[\])]", re.DOTALL)
_NAME = re.compile(rb"""["']([\w.+-]+)["']""")
_INIT = "_rocm_init.py"
_OF_SDK = re.compile(r"_?rocm_sdk")
_LOADS = re.compile(rb"CDLL|cdll|PyDLL|dlopen|load_?library|RTLD_|LD_LIBRARY_PATH|LD_PRELOAD")


def check(
    program: Program, binaries: Iterable[Binary], wheel: Path, beside: Iterable[Path]
) -> Iterator[Finding]:
    """Breaches by binary of a wheel: what it needs of the wheels beside it, and no loader finds.

    Args:
        program: the libraries of all of them.
        binaries: those of the wheel.
        wheel: the file.
        beside: the wheels that are installed with it.
    """
    lost: dict[str, list[str]] = {}
    of_wheel = {id(binary) for binary in binaries}
    for binary in program.binaries:
        for name in binary.needed if id(binary) in of_wheel else ():
            libraries = program.libraries_for(binary, name)
            if libraries and not any(
                id(library) in of_wheel or _is_led(program, library) for library in libraries
            ):
                lost.setdefault(name, []).append(binary.path)
    if not lost:
        return
    wheels = {wheel, *beside}
    preloaded = [name for path in wheels for name in _preloaded(path)]
    loads = any(map(_loads, wheels))
    for name, paths in lost.items():
        stem = name.removeprefix("lib").lower()
        of_sdk = any(_OF_SDK.match(library.path) for library in program.named(name))
        if any(stem.startswith(short) for short in preloaded) or (loads and not of_sdk):
            continue
        for path in paths:
            reason = f"it needs {name} of a wheel that it requires, where no run path and no preload leads"
            fix = f"link with a run path that leads there, or preload it in {_INIT}"
            yield Finding(code=FindingCode.NEEDED, member=path, reason=reason, fix=fix)


def _loads(wheel: Path) -> bool:
    """Whether code of a wheel opens libraries."""
    with Archive.open(wheel) as archive:
        names = (member.name for member in archive.members if member.name.endswith((".py", ".pth")))
        return any(archive.search(name, _LOADS) for name in names)


def _is_led(program: Program, library: Binary) -> bool:
    """Whether a run path of any that needs a library, or of those that open these, leads to it."""
    folder = installed_path(library.path).rpartition("/")[0]
    return ".data/data/" in library.path or any(  # which lies beside site-packages, who knows how far
        run_path_folder(installed_path(user.path), path) == folder
        for user in program.users(library)
        for path in user.run_paths
    )


def _preloaded(wheel: Path) -> Iterator[str]:
    """The names by which the code of a wheel has libraries of ROCm's packages loaded, in lower case."""
    with Archive.open(wheel) as archive:
        for member in archive.members:
            if member.name.endswith(f"/{_INIT}"):
                for names in _PRELOADED.findall(archive.read(member.name)):
                    yield from (name.decode().lower() for name in _NAME.findall(names))
