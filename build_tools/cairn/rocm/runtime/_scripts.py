"""The commands of one SDK package on PATH: each starts the program of its name in the installed tree.

`write_packages` copies this file into the package's folder and adds a function for each command. It needs the
standard library only; where `rocm_sdk` is installed, that tells where the development files are.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Both are set behind the functions.
VERSION = ""
"""ROCm's version."""
PREPEND: Mapping[str, Sequence[str]] = {}
"""Variables to folders, from this package's, that are put in front of their value."""
_HERE = Path(__file__).parent
_MISSING = 127  # what a shell returns for a command that it does not find


def start(name: str, path: str, file: str, *, development: bool, in_devel: bool) -> int:
    """Become the program of a command; return only where that is not possible.

    Args:
        name: the command.
        path: the program in a ROCm tree.
        file: the file of this package that stands for it; empty where the package has none.
        development: whether the program works on the development files, where they are installed.
        in_devel: whether the development files have it.
    """
    # Wheels hold no links. So `amdclang++`, a link to clang, starts clang under its own name, by which that
    # knows which language it compiles.
    program, shown = _HERE / file, _HERE / path
    if development or not file:
        tree = _development_files(name)
        if tree is not None and (tree / path).exists():
            program = shown = tree / path
            file = path
    if not file:
        if in_devel:
            return _fail(f"{name}: it is a development file; pip install 'rocm[devel]=={VERSION}'")
        return _fail(f"{name}: this build of ROCm {VERSION} has no {path}")
    for variable, folders in PREPEND.items():
        places = [os.path.normpath(_HERE / folder) for folder in folders]
        values = [*filter(os.path.isdir, places), *os.environ.get(variable, "").split(os.pathsep)]
        os.environ[variable] = os.pathsep.join(dict.fromkeys(filter(None, values)))
    arguments = [str(shown), *sys.argv[1:]]
    try:
        os.execv(program, arguments)  # noqa: S606 - no shell
    except OSError as error:
        return _fail(f"{name}: cannot start {program}: {error.strerror}")


def _development_files(name: str) -> Path | None:
    if importlib.util.find_spec("rocm_sdk_devel") is None or importlib.util.find_spec("rocm_sdk") is None:
        return None
    try:
        root: Path = importlib.import_module("rocm_sdk._devel").root()
    except RuntimeError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return None
    return root


def _fail(message: str) -> int:
    sys.stderr.write(f"{message}\n")
    return _MISSING
