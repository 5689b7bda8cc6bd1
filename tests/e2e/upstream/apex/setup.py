"""Stand-in for apex's setup.py: one library of kernels, built against the torch that is installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch
from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from torch.utils.hipify import hipify_python

ROOT = Path(__file__).resolve().parent
# As upstream does it: the stack asks for both, by names that setuptools does not know.
sys.argv = [word for word in sys.argv if word not in ("--cpp_ext", "--cuda_ext")]


class Build(build_py):
    def run(self):
        super().run()
        hipify_python.hipify(
            project_directory=str(ROOT),
            output_directory=str(ROOT),
            includes=[f"{ROOT}/csrc/*"],
            is_pytorch_extension=True,
        )
        sources = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("csrc/*.hip"))]
        archs = [f"--offload-arch={arch}" for arch in re.split("[;,]", os.environ["PYTORCH_ROCM_ARCH"])]
        options = ["-O2", "-fPIC", "-shared", "-Wl,-s", "-Wl,-rpath,$ORIGIN/../_rocm_sdk_core/lib"]
        target = Path(self.build_lib, "apex", "libapex.so")
        command = [f"{os.environ['ROCM_HOME']}/bin/hipcc", *sources, *archs, *options, "-o", target]
        subprocess.run(command, cwd=ROOT, check=True)


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(
    name="apex",
    version=os.environ.get("BUILD_VERSION") or (ROOT / "version.txt").read_text(encoding="utf-8").strip(),
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=["apex"],
    cmdclass={"build_py": Build},
    distclass=Binary,
)
