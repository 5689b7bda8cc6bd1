"""Contract: torchvision's wheel is built against the torch that is installed. README.md lists the variables.

The device kernels are hipified here, while building: the sources of the project stay CUDA.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
OPS = Path("torchvision/csrc/ops")

try:
    import torch
    from torch.utils import cpp_extension
    from torch.utils.hipify import hipify_python
except ImportError as error:
    raise SystemExit(f"error: torchvision needs torch to build, which cannot be imported: {error}") from error


def git_version() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "Unknown"
    return found.stdout.strip() if found.returncode == 0 else "Unknown"


def version() -> str:
    """BUILD_VERSION or VERSION_NAME, else version.txt and the commit."""
    for name in ("BUILD_VERSION", "VERSION_NAME"):
        if os.environ.get(name):
            return os.environ[name]
    base = (ROOT / "version.txt").read_text(encoding="utf-8").strip()
    commit = git_version()
    return base if commit == "Unknown" else f"{base}+{commit[:7]}"


def torch_requirement() -> str:
    """Exactly the torch of PYTORCH_VERSION; without it, any."""
    pinned = os.environ.get("PYTORCH_VERSION")
    return f"torch=={pinned}" if pinned else "torch"


def with_device_code() -> bool:
    """Where FORCE_CUDA=1, or where a GPU is found and not FORCE_CUDA=0."""
    forced = os.environ.get("FORCE_CUDA")
    wanted = forced == "1" if forced else torch.cuda.is_available()
    if wanted and not cpp_extension.IS_HIP_EXTENSION:
        raise SystemExit("error: FORCE_CUDA=1 needs a torch built for ROCm, and ROCM_HOME")
    return wanted


def device_sources() -> list[str]:
    hipify_python.hipify(
        project_directory=str(ROOT),
        output_directory=str(ROOT),
        includes=[f"{(ROOT / OPS / 'cuda').as_posix()}/*"],
        is_pytorch_extension=True,
    )
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / OPS / "hip").glob("*.hip"))]


def extension() -> Extension:
    sources = ["torchvision/csrc/vision.cpp"]
    if with_device_code():
        return cpp_extension.CUDAExtension("torchvision._C", sources + device_sources())
    return cpp_extension.CppExtension("torchvision._C", sources)


class BuildPython(build_py):
    def run(self) -> None:
        # A file that left the sources must not live on in the wheel of a second build.
        package = Path(self.build_lib) / "torchvision"
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        text = (
            f"__version__ = {version()!r}\n"
            f"git_version = {git_version()!r}\n"
            f"hip = {torch.version.hip if with_device_code() else None!r}\n"
        )
        (package / "version.py").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    setup(
        name="torchvision",
        version=version(),
        description="The sample stack's torchvision",
        long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
        long_description_content_type="text/markdown",
        license="MIT",
        license_files=["LICENSE"],
        python_requires=">=3.11",
        install_requires=[torch_requirement()],
        packages=["torchvision", "torchvision.ops"],
        ext_modules=[extension()],
        cmdclass={"build_ext": cpp_extension.BuildExtension, "build_py": BuildPython},
        zip_safe=False,
    )
