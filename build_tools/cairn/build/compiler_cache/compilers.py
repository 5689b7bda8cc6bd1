"""The compilers that a build finds on PATH, and their identities.

A compiler cache knows a compiler by its file, and by default by that file's time. That is too much, since the
same compiler in another container is not found again, and too little: `g++` only starts `cc1plus`, and
clang is a small program over libclang-cpp.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from cairn import files, isolation, process
from cairn.errors import CairnError

# `g++`, `x86_64-linux-gnu-gcc-12`, `clang++-19`; not `gcc-ar`, `gcov`, `clang-format`.
_NAME = re.compile(
    r"(?:[a-z0-9_]+(?:-[a-z0-9_]+)*-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[0-9][0-9.]*)?"
)
_CLANG = re.compile(r"clang(?:\+\+)?(?:-[0-9][0-9.]*)?")
# Programs that the driver starts, and that make the object file; clang, where a script stands before it.
_PARTS = ("cc1", "cc1plus", "as", "clang")
_OF_CLANG = re.compile(r"=> (\S*/lib(?:LLVM|clang)\S*)")  # in what ldd(1) prints
_TIMEOUT = 60.0  # seconds


def on_path(path: str) -> dict[str, Path]:
    """Find the compilers on a PATH: the first file of each name."""
    compilers: dict[str, Path] = {}
    for folder in filter(None, path.split(os.pathsep)):
        with contextlib.suppress(OSError):  # PATH may name folders that are not there
            for file in Path(folder).iterdir():
                if (
                    _NAME.fullmatch(file.name)
                    and file.name not in compilers
                    and os.access(file, os.X_OK)
                    and file.is_file()
                ):
                    compilers[file.name] = file
    return compilers


def is_clang(name: str) -> bool:
    """Whether a file name is that of a clang driver."""
    return _CLANG.fullmatch(name) is not None


def hip_clang(variables: Mapping[str, str], sdk_root: Path | None) -> Path | None:
    """Return the folder of the clang that hipcc calls; None without hipcc.

    Args:
        variables: of the build.
        sdk_root: of the ROCm SDK.
    """
    if named := variables.get("HIP_CLANG_PATH"):
        return Path(named)
    for place in ("lib/llvm/bin", "llvm/bin"):  # since ROCm 6, and before
        if sdk_root is not None and (sdk_root / place / "clang++").exists():
            return sdk_root / place
    home = variables.get("ROCM_HOME") or variables.get("ROCM_PATH")
    hipconfig = Path(home, "bin", "hipconfig") if home else Path("hipconfig")
    try:
        result = process.run(
            [hipconfig, "--hipclangpath"],
            env=variables,
            timeout=_TIMEOUT,
            separate_stderr=True,
        )
    except CairnError:
        return None
    folder = Path(result.output.strip())
    return folder if folder.is_absolute() and folder.is_dir() else None


def device_libraries(variables: Mapping[str, str], sdk_root: Path | None) -> Path | None:
    """Return the folder of the bitcode that clang links into device code by default."""

    def named(*names: str) -> list[Path]:
        return [Path(variables[name]) for name in names if variables.get(name)]

    homes = [*filter(None, [sdk_root]), *named("ROCM_PATH", "ROCM_HOME"), Path("/usr")]
    below = ("lib/llvm/amdgcn/bitcode", "amdgcn/bitcode", "lib/*/amdgcn/bitcode")  # ROCm 6, before, Debian
    by_default = (path for home in homes for place in below for path in sorted(home.glob(place)))
    return next(
        (
            path
            for path in (*named("HIP_DEVICE_LIB_PATH", "DEVICE_LIB_PATH"), *by_default)
            if any(path.glob("*.bc"))
        ),
        None,
    )


def keeps_device_code(compiler: Path) -> bool:
    """Whether a compiler's device code may be cached.

    That takes a clang whose preprocessor says all that there is to know, for host and targets alike. A script
    counts as one where it says which clang it starts.
    """
    if not _is_script(compiler):
        return True
    started = Path(_output([str(compiler), "-print-prog-name=clang"]).strip())
    return started.is_absolute() and started.is_file() and not _is_script(started)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


@functools.cache
def digest_of(compiler: Path) -> str:
    """Return a digest of a compiler's files: its driver, the programs that it starts, their libraries."""
    real = compiler.resolve()
    # `c++` and `x86_64-linux-gnu-g++-12` are one file. (A ccache that is called so is a different matter.)
    if real != compiler and _NAME.fullmatch(real.name):
        return digest_of(real)
    parts = {real}
    for name in _PARTS:
        path = Path(_output([str(compiler), f"-print-prog-name={name}"]).strip())
        parts |= {path.resolve()} if path.is_absolute() and path.is_file() else set()
    ours = (part for part in sorted(parts) if "clang" in part.name or "llvm" in part.name)
    linked = (_OF_CLANG.findall(_output(["ldd", str(part)])) for part in ours)
    parts |= {Path(library).resolve() for libraries in linked for library in libraries}
    digests = sorted(f"{path.name} {_sha256(path)}" for path in parts)
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


@functools.cache
def _sha256(path: Path) -> str:
    return files.sha256_of(path)


def _output(command: list[str]) -> str:
    try:
        with isolation.own_home() as home:  # a package of the build may have brought it
            return process.run(
                command,
                env=isolation.variables(isolation.Isolation.BUILD, home),
                check=False,
                timeout=_TIMEOUT,
                separate_stderr=True,
            ).output
    except CairnError:  # no such program, or it may not be run
        return ""
