"""Contract: torchaudio's wheel is built against the torch that is installed. README.md lists the variables."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError as error:
    raise SystemExit(f"error: torchaudio needs torch to build, which cannot be imported: {error}") from error


def git_version() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "Unknown"
    return found.stdout.strip() if found.returncode == 0 else "Unknown"


def version() -> str:
    """BUILD_VERSION, else version.txt and the commit."""
    if os.environ.get("BUILD_VERSION"):
        return os.environ["BUILD_VERSION"]
    base = (ROOT / "version.txt").read_text(encoding="utf-8").strip()
    commit = git_version()
    return base if commit == "Unknown" else f"{base}+{commit[:7]}"


def torch_requirement() -> str:
    """Exactly the torch of PYTORCH_VERSION; without it, any."""
    pinned = os.environ.get("PYTORCH_VERSION")
    return f"torch=={pinned}" if pinned else "torch"


def use_rocm() -> bool:
    """USE_ROCM; where it is not said, what the installed torch was built for."""
    value = os.environ.get("USE_ROCM", "").upper()
    wanted = value in {"1", "ON", "YES", "TRUE", "Y"} if value else torch.version.hip is not None
    if wanted and torch.version.hip is None:
        raise SystemExit("error: USE_ROCM=1 but the installed torch was built without ROCm")
    return wanted


class BuildPython(build_py):
    def run(self) -> None:
        # A file that left the sources must not live on in the wheel of a second build.
        package = Path(self.build_lib) / "torchaudio"
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        text = (
            f"__version__ = {version()!r}\n"
            f"git_version = {git_version()!r}\n"
            f"hip = {torch.version.hip if use_rocm() else None!r}\n"
        )
        (package / "version.py").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    setup(
        name="torchaudio",
        version=version(),
        description="The sample stack's torchaudio",
        long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
        long_description_content_type="text/markdown",
        license="MIT",
        license_files=["LICENSE"],
        python_requires=">=3.11",
        install_requires=[torch_requirement()],
        packages=["torchaudio"],
        ext_modules=[CppExtension("torchaudio._torchaudio", ["torchaudio/csrc/audio.cpp"])],
        cmdclass={"build_ext": BuildExtension, "build_py": BuildPython},
        zip_safe=False,
    )
