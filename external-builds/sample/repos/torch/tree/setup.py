"""Contract: torch's wheel is what the environment asks for (README.md lists the variables), hipified tree or not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def load_native() -> ModuleType:
    """torch.utils._native by its path: torch itself cannot be imported before it is built."""
    spec = importlib.util.spec_from_file_location("_native", ROOT / "torch/utils/_native.py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name.
    sys.modules["_native"] = module
    spec.loader.exec_module(module)
    return module


native = load_native()
INCLUDES = (".", "aten/src", "third_party/cudakit/include")
ROCM_RPATH = "$ORIGIN/../../_rocm_sdk_core/lib"


def flag(name: str, default: bool) -> bool:
    value = os.environ.get(name, "").upper()
    return value in {"1", "ON", "YES", "TRUE", "Y"} if value else default


def is_hipified() -> bool:
    return not any(ROOT.glob("c10/cuda/*.cu"))


def use_rocm() -> bool:
    """USE_ROCM; where it is not said, a hipified tree is built for ROCm."""
    if flag("USE_CUDA", False):
        raise native.fail("this torch has no CUDA build: set USE_CUDA=0")
    wanted = flag("USE_ROCM", is_hipified())
    if wanted and not is_hipified():
        raise native.fail("this tree is not hipified: run tools/amd_build/build_amd.py first")
    return wanted


def git_version() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "Unknown"
    return found.stdout.strip() if found.returncode == 0 else "Unknown"


def torch_version() -> str:
    """PYTORCH_BUILD_VERSION (with .postN from build number 2 on), else version.txt and the commit."""
    version = os.environ.get("PYTORCH_BUILD_VERSION")
    if version:
        number = os.environ.get("PYTORCH_BUILD_NUMBER") or "1"
        if not number.isdecimal():
            raise native.fail(f"PYTORCH_BUILD_NUMBER must be a number, not {number!r}")
        return version if int(number) < 2 else f"{version}.post{int(number)}"
    base = (ROOT / "version.txt").read_text(encoding="utf-8").strip()
    commit = git_version()
    return base if commit == "Unknown" else f"{base}+git{commit[:7]}"


def requirements() -> list[str]:
    extra = os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "")
    return [item.strip() for item in extra.split("|") if item.strip()]


def version_module() -> str:
    rocm = native.rocm_home() if use_rocm() else None
    hip = native.hip_version(rocm) if rocm else None
    return (
        f"__version__ = {torch_version()!r}\n"
        f"debug = False\n"
        f"cuda = None\n"
        f"git_version = {git_version()!r}\n"
        f"hip = {hip!r}\n"
    )


class BuildPython(build_py):
    def run(self) -> None:
        # What is missing is said before anything is done.
        native.find_toolchain(use_rocm=use_rocm())
        native.max_jobs()
        # A file that left the sources must not live on in the wheel of a second build.
        shutil.rmtree(Path(self.build_lib) / "torch", ignore_errors=True)
        super().run()
        package = Path(self.build_lib) / "torch"
        (package / "version.py").write_text(version_module(), encoding="utf-8")
        self._copy_headers(package / "include")

    def _copy_headers(self, target: Path) -> None:
        for base, pattern in ((".", "c10/**/*"), ("aten/src", "ATen/**/*"), (".", "torch/csrc/*")):
            for path in sorted((ROOT / base).glob(pattern)):
                if path.suffix in native.HEADERS:
                    copy = target / path.relative_to(ROOT / base)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, copy)


class BuildLibraries(build_ext):
    """Builds the C++ libraries into torch/lib, then the module that uses them."""

    def build_extension(self, ext: Extension) -> None:
        rocm = use_rocm()
        toolchain = native.find_toolchain(use_rocm=rocm)
        module = Path(self.get_ext_fullpath(ext.name))
        lib = module.parent / "lib"
        self.library(lib, "c10", ["c10/core/*.cpp"], toolchain)
        self.library(lib, "torch_cpu", ["aten/src/ATen/*.cpp"], toolchain)
        if rocm:
            self.library(lib, "torch_hip", self.hip_sources(), toolchain)
        self.module(module, lib, toolchain)

    @staticmethod
    def hip_sources() -> list[str]:
        if not any(ROOT.glob("third_party/cudakit/src/*.hip")):
            raise native.fail("third_party/cudakit is missing: run git submodule update --init")
        return ["c10/hip/*.hip", "aten/src/ATen/native/hip/*.hip", "third_party/cudakit/src/*.hip"]

    def library(self, lib: Path, name: str, patterns: list[str], toolchain: Any) -> None:
        objects = self.objects(patterns, toolchain)
        others = [f"-l{other}" for other in ("c10",) if other != name]
        if name == "torch_hip":
            others += toolchain.hip_libraries()
        native.link(
            lib / f"lib{name}.so",
            objects,
            toolchain=toolchain,
            libraries=[f"-L{lib}", *others],
            rpaths=["$ORIGIN", *([ROCM_RPATH] if name == "torch_hip" else [])],
            soname=f"lib{name}.so",
        )

    def module(self, module: Path, lib: Path, toolchain: Any) -> None:
        defines = []
        libraries = [f"-L{lib}", "-lc10", "-ltorch_cpu"]
        if toolchain.hipcc:
            defines = ["USE_ROCM", f'TORCH_ARCH_FLAGS="{" ".join(toolchain.archs)}"']
            libraries.append("-ltorch_hip")
        objects = self.objects(["torch/csrc/*.cpp"], toolchain, defines, native.python_include())
        native.link(module, objects, toolchain=toolchain, libraries=libraries, rpaths=["$ORIGIN/lib"])

    def objects(
        self,
        patterns: Sequence[str],
        toolchain: Any,
        defines: Sequence[str] = (),
        includes: Sequence[str] = (),
    ) -> list[Path]:
        sources = [path.relative_to(ROOT) for item in patterns for path in sorted(ROOT.glob(item))]
        return native.compile_all(
            sources,
            root=ROOT,
            build_dir=Path(self.build_temp),
            toolchain=toolchain,
            include_dirs=[*INCLUDES, *includes],
            defines=defines,
        )


if __name__ == "__main__":
    setup(
        name="torch",
        version=torch_version(),
        description="Tensors in miniature, with device kernels: the sample stack's torch",
        long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
        long_description_content_type="text/markdown",
        license="MIT",
        license_files=["LICENSE"],
        python_requires=">=3.11",
        install_requires=requirements(),
        packages=["torch", "torch.cuda", "torch.utils", "torch.utils.hipify"],
        package_data={"torch": ["py.typed"]},
        ext_modules=[Extension("torch._C", sources=[])],
        cmdclass={"build_ext": BuildLibraries, "build_py": BuildPython},
        zip_safe=False,
    )
