"""Finding zig, and running the compilers inside it."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

TOOLS = Path(__file__).resolve().parents[1]  # <prefix>/lib/llvm/bin
PREFIX = TOOLS.parents[2]
_GLIBC = "2.28"  # what manylinux_2_28 allows


def die(message: str, code: int = 1) -> NoReturn:
    """One line on standard error, then out."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: error: {message}\n")
    raise SystemExit(code)


@functools.cache
def program() -> str:
    """The zig program: `ZIG`, the ziglang beside this SDK, the importable one, or the one on PATH."""
    if chosen := os.environ.get("ZIG"):
        return chosen
    for folder in _candidates():
        if (folder / "zig").is_file():
            return str(folder / "zig")
    return shutil.which("zig") or die("no zig found; `pip install ziglang` next to the ROCm SDK")


def _candidates() -> list[Path]:
    # Installed, the SDK lies at site-packages/_rocm_sdk_devel and ziglang at site-packages/ziglang.
    beside = [parent / "ziglang" for parent in TOOLS.parents]
    spec = importlib.util.find_spec("ziglang")
    return beside + ([Path(spec.origin).parent] if spec and spec.origin else [])


@functools.cache
def library() -> Path:
    """The folder with zig's C, C++ and clang headers."""
    beside = Path(program()).resolve().parent / "lib"
    if (beside / "libcxx").is_dir():
        return beside
    shown = subprocess.run([program(), "env"], capture_output=True, text=True, check=False).stdout
    try:
        return Path(json.loads(shown)["lib_dir"])
    except (ValueError, KeyError):
        # Newer ones print Zig's own notation: .lib_dir = "...",
        lines = [line for line in shown.splitlines() if ".lib_dir" in line]
        return Path(lines[0].split('"')[1]) if lines else die(f"{program()} has no lib folder")


def machine() -> str:
    """The host's architecture as target triples name it."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())


def clang_triple() -> str:
    """The host triple for clang."""
    return f"{machine()}-unknown-linux-gnu"


def zig_target() -> str:
    """The host target for `zig cc`: an old glibc, so that binaries run on every manylinux_2_28 system."""
    return f"{machine()}-linux-gnu.{_GLIBC}"


def system_headers(*, cplusplus: bool) -> list[str]:
    """Flags that make the C (and C++) library headers inside zig the only system headers."""
    lib, libc = library(), library() / "libc" / "include"
    arch = machine()
    short = "x86" if arch == "x86_64" else arch
    folders = [lib / "libcxx" / "include", lib / "libcxxabi" / "include"] if cplusplus else []
    folders += [lib / "include"]
    folders += [libc / f"{name}-linux-gnu" for name in (arch, short)]
    folders += [libc / "generic-glibc"]
    folders += [libc / f"{name}-linux-any" for name in (arch, short)]
    folders += [libc / "any-linux-any"]
    flags = ["-nostdinc", f"-D__GLIBC_MINOR__={_GLIBC.split('.')[1]}"]
    for folder in dict.fromkeys(folders):
        if folder.is_dir():
            flags += ["-isystem", str(folder)]
    return flags + (_libcxx_configuration() if cplusplus else [])


def _libcxx_configuration() -> list[str]:
    # What libc++'s __config_site would define; header-only use is all that is meant here.
    return [
        "-D_LIBCPP_ABI_VERSION=1",
        "-D_LIBCPP_ABI_NAMESPACE=__1",
        "-D_LIBCPP_HAS_THREADS=1",
        "-D_LIBCPP_HAS_MONOTONIC_CLOCK",
        "-D_LIBCPP_HAS_TERMINAL",
        "-D_LIBCPP_HAS_MUSL_LIBC=0",
        "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0",
        "-D_LIBCPP_HAS_FILESYSTEM=1",
        "-D_LIBCPP_HAS_RANDOM_DEVICE",
        "-D_LIBCPP_HAS_LOCALIZATION",
        "-D_LIBCPP_HAS_UNICODE",
        "-D_LIBCPP_HAS_WIDE_CHARACTERS",
        "-D_LIBCPP_HAS_NO_STD_MODULES",
        "-D_LIBCPP_HAS_TIME_ZONE_DATABASE",
        "-D_LIBCPP_PSTL_BACKEND_SERIAL",
        "-D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE",
        "-D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE",
    ]


def run(tool: str, arguments: list[str]) -> int:
    """Run one of the programs inside zig (`clang`, `cc`, `ld.lld`) and give its exit code."""
    try:
        done = subprocess.run([program(), tool, *arguments], env=_environment(), check=False)
    except OSError as error:
        die(f"cannot run {program()}: {error.strerror}")
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def replace(tool: str, arguments: list[str]) -> NoReturn:
    """Become one of the programs inside zig."""
    try:
        os.execve(program(), [program(), tool, *arguments], _environment())  # noqa: S606 - no shell is meant
    except OSError as error:
        die(f"cannot run {program()}: {error.strerror}")


def _environment() -> dict[str, str]:
    # clang starts our lld under the first python3 on PATH, which may not be the one that has ziglang.
    env = dict(os.environ, ZIG=program())
    # zig keeps its C runtime in the user's cache folder; where there is none it needs to be told one.
    if not env.get("ZIG_GLOBAL_CACHE_DIR") and not _has_cache_folder(env):
        env["ZIG_GLOBAL_CACHE_DIR"] = f"{tempfile.gettempdir()}/zig-cache-{os.getuid()}"
    return env


def _has_cache_folder(env: dict[str, str]) -> bool:
    chosen = env.get("XDG_CACHE_HOME") or (env["HOME"] + "/.cache" if env.get("HOME") else "")
    if not chosen:
        return False
    folder = Path(chosen, "zig")
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return os.access(there, os.W_OK)
