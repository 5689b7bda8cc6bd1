"""Stand-in for vision's setup.py: built against the torch that is installed, whose hipify it runs on its kernels."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import torch
from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from torch.utils.hipify import hipify_python

ROOT = Path(__file__).resolve().parent
ROCM = torch.version.hip is not None and os.environ.get("FORCE_CUDA") == "1"


class Build(build_py):
    def run(self):
        super().run()
        if not ROCM:
            return
        hipify_python.hipify(
            project_directory=str(ROOT),
            output_directory=str(ROOT),
            includes=[f"{ROOT}/torchvision/csrc/ops/cuda/*"],
            is_pytorch_extension=True,
        )
        target = Path(self.build_lib, "torchvision")
        shutil.rmtree(target / "csrc", ignore_errors=True)
        sources = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("torchvision/csrc/ops/hip/*.hip"))]
        archs = [f"--offload-arch={arch}" for arch in re.split("[;,]", os.environ["PYTORCH_ROCM_ARCH"])]
        options = ["-O2", "-fPIC", "-shared", "-Wl,-s", "-Wl,-rpath,$ORIGIN/../_rocm_sdk_core/lib"]
        command = [f"{os.environ['ROCM_HOME']}/bin/hipcc", *sources, *archs, *options, "-o", target / "libtorchvision.so"]
        subprocess.run(command, cwd=ROOT, check=True)


class Binary(Distribution):
    def has_ext_modules(self):
        return ROCM


pinned = os.environ.get("PYTORCH_VERSION")
if pinned and torch.__version__ != pinned:
    raise SystemExit(f"built against torch {torch.__version__}, and {pinned} was asked for")
setup(
    name="torchvision",
    version=os.environ.get("BUILD_VERSION") or (ROOT / "version.txt").read_text(encoding="utf-8").strip(),
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    install_requires=["numpy", f"torch=={pinned}" if pinned else "torch", "pillow>=5.3.0,!=8.3.*"],
    packages=["torchvision", "torchvision.transforms"],
    cmdclass={"build_py": Build},
    distclass=Binary,
)
