"""The ROCm SDK installed by pip: finding and loading its libraries.

Cairn does not import this folder: `write_packages` copies it into the package `rocm`, as `rocm_sdk`. It reads
what the packager wrote into `_dist.json`; users call `initialize_process` and `rocm-sdk path`. It needs the
standard library only, and has the names of upstream's (ROCm/TheRock,
build_tools/packaging/python/templates/rocm).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path

from . import _dist
from ._dist import RocmSdkError
from ._version import __version__

__all__ = ["RocmSdkError", "__version__", "find_libraries", "initialize_process", "preload_libraries"]

_loaded: dict[str, ctypes.CDLL] = {}


def find_libraries(*shortnames: str) -> list[Path]:
    """Where the libraries of these shortnames (`amdhip64`) are.

    Raises:
        RocmSdkError: an unknown name, or a library whose package is not installed.
    """
    return [_dist.library(name) for name in shortnames]


def preload_libraries(*shortnames: str, rtld_global: bool = True) -> None:
    """Load these libraries, so that what is loaded later finds them by their SONAMEs."""
    # Global by default, as upstream's: what is loaded later may use symbols without naming their library.
    mode = ctypes.RTLD_GLOBAL if rtld_global else ctypes.RTLD_LOCAL
    for name, path in zip(shortnames, find_libraries(*shortnames), strict=True):
        if name not in _loaded:
            _loaded[name] = ctypes.CDLL(str(path), mode=mode)


def initialize_process(
    *,
    preload_shortnames: Sequence[str] = (),
    rtld_global: bool = True,
    env_override: bool = True,
    check_version: str | None = None,
) -> None:
    """Prepare a process for a program that was built against this SDK.

    Args:
        preload_shortnames: libraries to load, in this order.
        rtld_global: make their symbols visible to everything that follows.
        env_override: load those of `ROCM_SDK_PRELOAD_LIBRARIES` (joined by `,` or `;`) too.
        check_version: the version that was built against; `*` stands for anything.

    Raises:
        RocmSdkError: a different version is installed, or a library is unknown or missing.
    """
    if check_version is not None:
        _check_version(check_version)
    # The names of GPUs ("AMD Radeon RX 7900 XTX"), which libdrm looks for in /usr/share unless it is told.
    if names_of_gpus := _dist.names_of_gpus():
        os.environ.setdefault("AMDGPU_ASIC_ID_TABLE_PATHS", str(names_of_gpus.parent))
    more = os.environ.get("ROCM_SDK_PRELOAD_LIBRARIES", "") if env_override else ""
    names = [*preload_shortnames, *(name.strip() for name in re.split("[,;]", more) if name.strip())]
    preload_libraries(*names, rtld_global=rtld_global)


def _check_version(expected: str) -> None:
    pattern = ".*".join(re.escape(part) for part in expected.split("*"))
    if not re.fullmatch(pattern, __version__):
        raise RocmSdkError(
            f"this program was built against ROCm {expected}, but rocm {__version__} is installed; "
            f"pip install 'rocm[libraries]=={expected}'"
        )
