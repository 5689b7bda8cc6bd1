"""Contract: the environment's compilers, targets and flags are obeyed, and nothing is compiled twice.

Shared by torch's own setup.py, which uses it before torch exists (so it needs the standard library only), and by its
extensions. Each object remembers the command and the files it came from.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

DEFAULT_ARCHS = "gfx90a;gfx942;gfx1100"
HEADERS = (".h", ".cuh", ".hpp")
_COMMON = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")


def fail(message: str) -> SystemExit:
    """What to raise when a build cannot go on: one line for the user."""
    return SystemExit(f"error: {message}")


def rocm_home() -> Path | None:
    """The ROCm installation: $ROCM_HOME, $ROCM_PATH, or where `hipcc` on PATH lies."""
    for name in ("ROCM_HOME", "ROCM_PATH"):
        if os.environ.get(name):
            return Path(os.environ[name])
    hipcc = shutil.which("hipcc")
    return Path(hipcc).parent.parent if hipcc else None


def rocm_archs() -> list[str]:
    """The targets of $PYTORCH_ROCM_ARCH (separated by `;`), or a default few."""
    return [arch for arch in os.environ.get("PYTORCH_ROCM_ARCH", DEFAULT_ARCHS).split(";") if arch]


def max_jobs() -> int:
    """How many compilers may run at once: $MAX_JOBS, or the number of cores."""
    value = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
    if not value.isdecimal() or int(value) < 1:
        raise fail(f"MAX_JOBS must be a positive number, not {value!r}")
    return int(value)


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The compilers of one build. `hipcc` is None in a build without ROCm."""

    cxx: tuple[str, ...]
    hipcc: Path | None = None
    rocm: Path | None = None
    archs: tuple[str, ...] = ()

    def compiler_for(self, source: Path, flags: Sequence[str]) -> list[str]:
        """The command that compiles this kind of source, less its own name."""
        if source.suffix == ".hip":
            if self.hipcc is None:
                raise fail(f"{source}: a HIP source in a build without ROCm")
            offload = [f"--offload-arch={arch}" for arch in self.archs]
            return [*_launcher("HIP"), str(self.hipcc), *_COMMON, *offload, *flags]
        extra = shlex.split(os.environ.get("CXXFLAGS", ""))
        return [*_launcher("CXX"), *self.cxx, *_COMMON, "-Wall", *extra, *flags]

    def hip_libraries(self) -> list[str]:
        """Linker arguments for the HIP runtime; the name found is the one its SONAME gives."""
        if self.rocm is None:
            return []
        for folder in (self.rocm / "lib", self.rocm / "lib64", self.rocm / "lib" / _multiarch()):
            for library in [folder / "libamdhip64.so", *sorted(folder.glob("libamdhip64.so.*"))]:
                if library.exists():
                    return [str(library)]
        raise fail(f"{self.rocm} holds no libamdhip64.so: install the ROCm SDK's development files")


def find_toolchain(*, use_rocm: bool) -> Toolchain:
    """The compilers to use, by environment. Raises SystemExit with one line when one is missing."""
    rocm = rocm_home()
    cxx = _find_cxx(rocm)  # the SDK's for code of the CPU too: there may be no other, and one ABI serves all
    if not use_rocm:
        return Toolchain(cxx=cxx)
    if rocm is None:
        raise fail("USE_ROCM=1 but no ROCm SDK was found: set ROCM_HOME to where it lies")
    hipcc = rocm / "bin" / "hipcc"
    if not hipcc.exists():
        raise fail(f"no hipcc in {hipcc.parent}: set ROCM_HOME to a ROCm SDK with its compiler")
    if not rocm_archs():
        raise fail("PYTORCH_ROCM_ARCH is empty: name at least one target, such as gfx942")
    return Toolchain(cxx=cxx, hipcc=hipcc, rocm=rocm, archs=tuple(rocm_archs()))


def _find_cxx(rocm: Path | None) -> tuple[str, ...]:
    if os.environ.get("CXX"):
        return tuple(shlex.split(os.environ["CXX"]))
    bundled = rocm / "lib" / "llvm" / "bin" / "clang++" if rocm else None
    if bundled and bundled.exists():
        return (str(bundled),)
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return (found,)
    raise fail("no C++ compiler was found: install g++ or clang++, or set CXX")


def hip_version(rocm: Path) -> str:
    """`6.4.2`, from the SDK's own header."""
    header = rocm / "include" / "hip" / "hip_version.h"
    if not header.exists():
        raise fail(f"{header} is missing: install the ROCm SDK's development files")
    text = header.read_text(encoding="utf-8")
    found = dict(re.findall(r"#define\s+HIP_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)", text))
    if "MAJOR" not in found:
        raise fail(f"{header} states no HIP_VERSION_MAJOR")
    return ".".join(found.get(part, "0") for part in ("MAJOR", "MINOR", "PATCH"))


def python_include() -> list[str]:
    """The folder of Python's headers, when this Python has them."""
    folder = Path(sysconfig.get_paths()["include"])
    if (folder / "Python.h").exists() and not _is_multiarch(folder):
        return [str(folder)]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise fail("a free-threaded Python needs its headers: install its development package")
    return []


def _is_multiarch(folder: Path) -> bool:
    """Whether `pyconfig.h` includes the system's, as Debian's does; a compiler with its own libc has none."""
    config = folder / "pyconfig.h"
    return config.exists() and f"<{_multiarch()}/" in config.read_text(encoding="utf-8")


def compile_all(
    sources: Iterable[Path],
    *,
    root: Path,
    build_dir: Path,
    toolchain: Toolchain,
    include_dirs: Sequence[str] = (),
    defines: Sequence[str] = (),
) -> list[Path]:
    """Compile the sources (relative to `root`) into `build_dir`, several at once.

    Raises SystemExit with one line after the compiler's own output when one fails.
    """
    flags = [*(f"-D{name}" for name in defines), *(f"-I{folder}" for folder in include_dirs)]
    headers = _digest_of_headers(root, include_dirs)
    with ThreadPoolExecutor(max_jobs()) as pool:
        jobs = [
            pool.submit(_compile, source, root, build_dir, toolchain, flags, headers) for source in sources
        ]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _compile(
    source: Path,
    root: Path,
    build_dir: Path,
    toolchain: Toolchain,
    flags: Sequence[str],
    headers: str,
) -> Path:
    target = (build_dir / source).with_suffix(".o")
    key_file = target.with_suffix(".key")
    command = [*toolchain.compiler_for(source, flags), "-c", source.as_posix(), "-o"]
    text = (root / source).read_bytes()
    key = hashlib.sha256("\0".join([*command, headers]).encode() + text).hexdigest()
    if target.exists() and key_file.exists() and key_file.read_text() == key:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    key_file.unlink(missing_ok=True)
    run([*command, str(target.resolve())], cwd=root)
    key_file.write_text(key)
    return target


def link(
    target: Path,
    objects: Sequence[Path],
    *,
    toolchain: Toolchain,
    libraries: Sequence[str] = (),
    rpaths: Sequence[str] = (),
    soname: str | None = None,
) -> None:
    """Link a shared library or, without a soname, a Python extension module."""
    target.parent.mkdir(parents=True, exist_ok=True)
    options = [f"-Wl,-soname,{soname}", "-Wl,-z,defs"] if soname else []
    if rpaths:
        options.append(f"-Wl,-rpath,{':'.join(rpaths)}")
    extra = shlex.split(os.environ.get("LDFLAGS", ""))
    # --as-needed drops the C++ runtime that a C++ driver adds and nothing here uses.
    command = [*toolchain.cxx, "-shared", "-Wl,--as-needed", "-Wl,-s", *options, *extra]
    run([*command, *map(str, objects), *libraries, "-o", str(target)])


def run(command: Sequence[str], cwd: Path | None = None) -> None:
    """Run a compiler, showing the command; its output goes where ours goes."""
    sys.stdout.write(f"{shlex.join(command)}\n")  # in one piece: several threads write
    sys.stdout.flush()
    # hipcc would take NVIDIA's compiler where it finds one.
    environment = {**os.environ, "HIP_PLATFORM": "amd"}
    try:
        status = subprocess.run(command, cwd=cwd, env=environment, check=False).returncode
    except OSError as error:
        raise fail(f"cannot run {command[0]}: {error.strerror}") from error
    if status:
        raise fail(f"{Path(command[0]).name} ended with exit status {status}: {command[-1]}")


def _launcher(language: str) -> list[str]:
    """A compiler cache in front of the compiler, as CMake's own variables name it."""
    return shlex.split(os.environ.get(f"CMAKE_{language}_COMPILER_LAUNCHER", ""))


def _multiarch() -> str:
    return sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"


def _digest_of_headers(root: Path, include_dirs: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for folder in include_dirs:
        # Python's and the system's headers do not change under a build.
        if Path(folder, "Python.h").exists():
            continue
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in HEADERS and "build" not in path.relative_to(root / folder).parts:
                digest.update(path.relative_to(root / folder).as_posix().encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()
