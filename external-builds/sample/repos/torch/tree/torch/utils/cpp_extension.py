"""Contract: `CppExtension`, `CUDAExtension` and `BuildExtension`, by which siblings build against an installed torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

import torch
from torch.utils import _native
from torch.utils.hipify import hipify_python

__all__ = [
    "IS_HIP_EXTENSION",
    "ROCM_HOME",
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "library_paths",
]

_PACKAGE = Path(torch.__file__).resolve().parent
_home = _native.rocm_home()
ROCM_HOME: str | None = str(_home) if _home else None
IS_HIP_EXTENSION: bool = torch.version.hip is not None and ROCM_HOME is not None


def include_paths() -> list[str]:
    """Where torch's headers lie."""
    return [str(_PACKAGE / "include")]


def library_paths() -> list[str]:
    """Where torch's libraries lie."""
    return [str(_PACKAGE / "lib")]


def CppExtension(name: str, sources: Sequence[str], **options: Any) -> Extension:  # noqa: N802
    """An extension of C++ sources that runs on the CPU."""
    return Extension(name, list(sources), **options)


def CUDAExtension(name: str, sources: Sequence[str], **options: Any) -> Extension:  # noqa: N802
    """An extension with device code: C++ and HIP sources; `.cu` sources are hipified first."""
    if not IS_HIP_EXTENSION:
        raise _native.fail("this torch was built without ROCm, or ROCM_HOME is not set")
    hip_sources = _hipify([source for source in sources if source.endswith(".cu")])
    macros = [*options.pop("define_macros", []), ("USE_ROCM", None)]
    replaced = [hip_sources.get(source, source) for source in sources]
    return Extension(name, replaced, define_macros=macros, **options)


def _hipify(sources: Sequence[str]) -> dict[str, str]:
    if not sources:
        return {}
    root = Path.cwd()
    results = hipify_python.hipify(str(root), includes=sources, is_pytorch_extension=True)
    answer = {}
    for source in sources:
        path = results[str((root / source).resolve())].hipified_path or source
        answer[source] = os.path.relpath(path, root)
    return answer


class BuildExtension(build_ext):
    """`build_ext` that compiles with torch's flags, in parallel, and links torch's libraries."""

    def build_extension(self, ext: Extension) -> None:
        root = Path.cwd()
        macros = ext.define_macros
        with_hip = any(name == "USE_ROCM" for name, _ in macros)
        toolchain = _native.find_toolchain(use_rocm=with_hip)
        objects = _native.compile_all(
            [Path(source) for source in ext.sources],
            root=root,
            build_dir=Path(self.build_temp) / ext.name,
            toolchain=toolchain,
            include_dirs=[*ext.include_dirs, *include_paths(), *_native.python_include()],
            defines=[name if value is None else f"{name}={value}" for name, value in macros],
        )
        target = Path(self.get_ext_fullpath(ext.name))
        # Linked beside and moved, so that no half-written module is ever found.
        part = Path(self.build_temp) / target.name
        _native.link(
            part,
            objects,
            toolchain=toolchain,
            libraries=[*_torch_libraries(with_hip), *toolchain.hip_libraries()],
            rpaths=_rpaths(ext.name, with_hip),
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(part, target)


def _torch_libraries(with_hip: bool) -> list[str]:
    names = ["c10", "torch_cpu", *(["torch_hip"] if with_hip else [])]
    return [*(f"-L{folder}" for folder in library_paths()), *(f"-l{name}" for name in names)]


def _rpaths(name: str, with_hip: bool) -> list[str]:
    """From the module's own folder to its siblings in site-packages."""
    up = "/".join(["$ORIGIN", *[".."] * name.count(".")])
    return [f"{up}/torch/lib", *([f"{up}/_rocm_sdk_core/lib"] if with_hip else [])]
