"""The compilers of the machine: which they are, and whether they are there."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil

from cairn import process
from cairn.errors import PrerequisiteError, ProcessError
from cairn.formats.zip import deflate
from cairn.interpreters import Interpreter

# Compilers, their flags and search paths (GCC manual, "Environment Variables"; hipcc's own), and the switches
# of torch's setup.py that reach builds from the caller's environment.
_VARIABLES = (
    *("CC", "CXX", "HIPCXX", "AR", "LD", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "HIPFLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CCC_OVERRIDE_OPTIONS"),
    *("HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND", "DEBUG", "REL_WITH_DEB_INFO"),
)


def identity(python: Interpreter, *, host_compiler: bool) -> dict[str, str]:
    """What names the toolchain in cache keys.

    Args:
        python: the interpreter that builds.
        host_compiler: ask the machine's own C++ compiler too; a build with the ROCm SDK brings one.
    """
    found = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    found["python"] = python.release
    # What is linked against a newer one does not load with an older one (PEP 600); containers share a cache.
    found["libc"] = " ".join(platform.libc_ver())
    return found | {"c++": _version(_compiler())} if host_compiler else found


def of_manifest(python: Interpreter, *, host_compiler: bool) -> dict[str, str]:
    """Like `identity`, with what deflates wheels: it changes their bytes, but must not cause a rebuild."""
    return identity(python, host_compiler=host_compiler) | {"deflate": deflate.engine()}


def require_host_compiler() -> str:
    """The machine's C++ compiler.

    Raises:
        PrerequisiteError: there is none.
    """
    if shutil.which(shlex.split(_compiler())[0]) is None:
        raise PrerequisiteError(
            f"this stack is built with the machine's C++ compiler, and there is no {_compiler()}",
            tip="install one, on Debian and Ubuntu: apt install g++",
        )
    return _compiler()


def _compiler() -> str:
    return os.environ.get("CXX") or "g++"


@functools.cache
def _version(compiler: str) -> str:
    try:
        return process.run([*shlex.split(compiler), "--version"]).output.partition("\n")[0]
    except (PrerequisiteError, ProcessError):
        return "none"
