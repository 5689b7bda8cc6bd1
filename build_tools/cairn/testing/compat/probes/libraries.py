"""ROCm's libraries: which are there, and of which version."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from .harness import Answer, NotMeasurableError, require, runs

_SYSTEM = Path("/opt/rocm")
_CMAKE_VERSION = re.compile(r'set\( *PACKAGE_VERSION +"?(?P<version>[0-9.]+)"?')


@runs("host")
def version(answer: Answer, library: str, package: str) -> None:
    """A library of the installed ROCm SDK, or of a fat wheel, or of the system's ROCm for want of both.

    Args:
        answer: what is found.
        library: the stem of its file name, `hipblas`; `-` for one that is headers only.
        package: what CMake calls it.
    """
    roots = list(_roots())
    if not roots:
        raise NotMeasurableError("no ROCm is installed here")
    files = [path for root in roots for path in _libraries(root, library)]
    versions = [version for root in roots for version in _cmake_versions(root, package)]
    if library == "-" and not versions and not any((root / "include" / "hip").is_dir() for root in roots):
        raise NotMeasurableError("it is headers only, and the ROCm here has none: they are in rocm[devel]")
    with answer.check("it is there"):
        require(files or versions, "the ROCm here does not have it")
    if fact := _own_version(files) or next(iter(versions), "") or next((path.name for path in files), ""):
        answer.fact(fact)
    if files:
        with answer.check("it loads"):
            ctypes.CDLL(str(files[0]))


def _roots() -> Iterator[Path]:
    packages = [
        root for place in sys.path for root in sorted(Path(place).glob("_rocm_sdk_*")) if root.is_dir()
    ]
    yield from packages
    # torch itself is not imported where it need not be: there are twenty of these rows.
    torch = importlib.util.find_spec("torch")
    torch_dir = Path(torch.origin).parent if torch is not None and torch.origin else Path()
    if any(torch_dir.glob("lib/libamdhip64*")):
        yield torch_dir
    elif not packages and _SYSTEM.is_dir() and importlib.import_module("torch").version.hip is not None:
        yield _SYSTEM


def _libraries(root: Path, library: str) -> list[Path]:
    if library == "-":
        return []
    # The SDK has each library under its SONAME; a development package adds a link without a number.
    paths = [
        *root.glob(f"lib/lib{library}.so*"),
        *root.glob(f"bin/{library}.dll"),
        *root.glob(f"bin/lib{library}.dll"),
    ]
    return sorted(paths, key=lambda path: len(path.name), reverse=True)


def _cmake_versions(root: Path, package: str) -> Iterator[str]:
    for path in sorted(root.glob(f"lib/cmake/{package}/*[vV]ersion.cmake")):
        if match := _CMAKE_VERSION.search(path.read_text(encoding="utf-8", errors="replace")):
            yield match["version"]


def _own_version(files: list[Path]) -> str:
    """The version that a library itself tells without a GPU.

    MIOpen (`miopen.h`) and RCCL (`rccl.h`) do. Those of hipFFT and hipRAND tell the version of rocFFT and
    rocRAND, and others want a handle, which wants a GPU.
    """
    importlib.import_module("torch")  # which loads what they need
    for path in files:
        name = path.name.lower()
        try:
            if "miopen" in name:
                numbers = [ctypes.c_size_t() for _ in range(3)]
                if not ctypes.CDLL(str(path)).miopenGetVersion(*map(ctypes.byref, numbers)):
                    return ".".join(str(number.value) for number in numbers)
            elif "rccl" in name:
                code = ctypes.c_int()
                if not ctypes.CDLL(str(path)).ncclGetVersion(ctypes.byref(code)):
                    # nccl.h: 10,000 for each major version since 2.9.
                    return f"{code.value // 10000}.{code.value // 100 % 100}.{code.value % 100}"
        except (OSError, AttributeError):
            continue
    return ""
