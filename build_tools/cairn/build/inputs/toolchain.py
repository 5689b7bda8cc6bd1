"""The compilers of the machine: which they are, and whether they are there."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
from collections.abc import Mapping

from cairn import isolation, process
from cairn.errors import PrerequisiteError, ProcessError
from cairn.formats.zip import deflate
from cairn.interpreters import Interpreter


def identity(
    python: Interpreter, *, host_compiler: bool, named: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The identity of the toolchain in cache keys.

    Args:
        python: the interpreter that builds.
        host_compiler: ask the machine's own C++ compiler too; a build with the ROCm SDK brings one.
        named: the variables that the user gives to the build; `CXX` may be among them.
    """
    identity = isolation.compiler_variables()
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):  # of members that Cairn itself adds to a wheel
        identity["SOURCE_DATE_EPOCH"] = epoch
    identity["python"] = python.release
    # What is linked against a newer one does not load with an older one (PEP 600); containers share a cache.
    identity["libc"] = " ".join(platform.libc_ver())
    return identity | {"c++": _version(_compiler(named))} if host_compiler else identity


def of_manifest(
    python: Interpreter, *, host_compiler: bool, named: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Like `identity`, with the deflate library: it changes a wheel's bytes, but must not cause a rebuild."""
    return identity(python, host_compiler=host_compiler, named=named) | {"deflate": deflate.engine()}


def require_host_compiler(named: Mapping[str, str] | None = None) -> str:
    """The machine's C++ compiler; `named` as in `identity`.

    Raises:
        PrerequisiteError: there is none.
    """
    compiler = _compiler(named)
    if shutil.which(shlex.split(compiler)[0]) is None:
        raise PrerequisiteError(
            f"this stack is built with the machine's C++ compiler, and there is no {compiler}",
            tip="install one, on Debian and Ubuntu: apt install g++",
        )
    return compiler


def _compiler(named: Mapping[str, str] | None) -> str:
    return (named or {}).get("CXX") or "g++"


@functools.cache
def _version(compiler: str) -> str:
    try:
        env = isolation.variables(isolation.Isolation.TOOL)
        return process.run([*shlex.split(compiler), "--version"], env=env).output.partition("\n")[0]
    except (PrerequisiteError, ProcessError):
        return "none"
