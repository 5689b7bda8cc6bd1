"""Contract: the environment decides name and version of triton's wheel (README.md lists the variables).

A `build_env.json` beside this file gives the same variables where the environment does not.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
TRITON_VERSION = "3.5.0"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-Wall")


def setting(name: str, default: str) -> str:
    """A variable of the environment, else of build_env.json, else the default."""
    if os.environ.get(name):
        return os.environ[name]
    path = ROOT / "build_env.json"
    if not path.exists():
        return default
    try:
        return str(json.loads(path.read_text(encoding="utf-8")).get(name, default))
    except (ValueError, AttributeError) as error:
        raise SystemExit(f"error: {path} is not a JSON object: {error}") from error


def version() -> str:
    return TRITON_VERSION + setting("TRITON_WHEEL_VERSION_SUFFIX", "")


def find_cxx() -> list[str]:
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    rocm = os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH")
    bundled = Path(rocm, "lib", "llvm", "bin", "clang++") if rocm else None
    if bundled and bundled.exists():
        return [str(bundled)]
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return [found]
    raise SystemExit("error: no C++ compiler was found: install g++ or clang++, or set CXX")


def run(command: list[str]) -> None:
    print(shlex.join(command), flush=True)
    try:
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
    except OSError as error:
        raise SystemExit(f"error: cannot run {command[0]}: {error.strerror}") from error
    if status:
        raise SystemExit(f"error: {Path(command[0]).name} ended with exit status {status}")


class BuildPython(build_py):
    def run(self) -> None:
        # A file that left the sources must not live on in the wheel of a second build.
        package = Path(self.build_lib) / "triton"
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        (package / "_version.py").write_text(f"__version__ = {version()!r}\n", encoding="utf-8")


class BuildExtension(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        """`libtriton.so` without a tag of the Python in it, as upstream names it."""
        return os.path.join(*fullname.split(".")) + ".so"

    def build_extension(self, ext: Extension) -> None:
        object_file = (Path(self.build_temp) / "libtriton.o").resolve()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        for path in (object_file, target):
            path.parent.mkdir(parents=True, exist_ok=True)
        includes = ["-Isrc/include", *python_include()]
        cxx = find_cxx()
        launcher = shlex.split(os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", ""))
        flags = [*FLAGS, *shlex.split(os.environ.get("CXXFLAGS", ""))]
        run([*launcher, *cxx, *flags, *includes, "-c", ext.sources[0], "-o", str(object_file)])
        # --as-needed drops the C++ runtime that a C++ driver adds and nothing here uses.
        options = ["-shared", "-Wl,--as-needed", "-Wl,-s"]
        run([*cxx, *options, str(object_file), "-o", str(target)])


def python_include() -> list[str]:
    folder = Path(sysconfig.get_paths()["include"])
    if (folder / "Python.h").exists() and not is_multiarch(folder):
        return [f"-I{folder}"]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit("error: a free-threaded Python needs its headers to build extensions")
    return []


def is_multiarch(folder: Path) -> bool:
    """Whether `pyconfig.h` includes the system's, as Debian's does; a compiler with its own libc has none."""
    config = folder / "pyconfig.h"
    return config.exists() and f"<{sysconfig.get_config_var('MULTIARCH')}/" in config.read_text(encoding="utf-8")


if __name__ == "__main__":
    setup(
        name=setting("TRITON_WHEEL_NAME", "triton"),
        version=version(),
        description="The sample stack's triton",
        long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
        long_description_content_type="text/markdown",
        license="MIT",
        license_files=["LICENSE"],
        python_requires=">=3.11",
        package_dir={"": "python"},
        packages=["triton", "triton._C", "triton.runtime"],
        ext_modules=[Extension("triton._C.libtriton", ["src/libtriton.cpp"])],
        cmdclass={"build_ext": BuildExtension, "build_py": BuildPython},
        zip_safe=False,
    )
