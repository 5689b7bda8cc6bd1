"""Stand-in for pytorch's setup.py: PyPI's torch 2.13.0 for the CPU, packed again as what the environment asks for.

It reads upstream's variables. With ROCm it adds what makes a torch one for ROCm to Cairn and to the smoke tests: a
library with device code for each target, `torch.version.hip`, and the `_rocm_init` that the build lends to the tree.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
UNPACKED = Path((ROOT / "third_party/torch-cpu.txt").read_text(encoding="utf-8").strip())
ROCM = os.environ.get("ROCM_HOME", "") if os.environ.get("USE_ROCM", "ON") == "ON" else ""


def version():
    """PYTORCH_BUILD_VERSION, with .postN from build number 2 on."""
    asked = os.environ.get("PYTORCH_BUILD_VERSION") or (ROOT / "version.txt").read_text(encoding="utf-8").strip()
    number = int(os.environ.get("PYTORCH_BUILD_NUMBER") or 1)
    return asked if number < 2 else f"{asked}.post{number}"


def git_version():
    """As tools/generate_torch_version.py has it: whatever HEAD is."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def version_module():
    hip = None
    if ROCM:
        header = Path(ROCM, "include/hip/hip_version.h").read_text(encoding="utf-8")
        hip = ".".join(re.findall(r"#define HIP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    values = {"__version__": version(), "debug": False, "cuda": None, "git_version": git_version(), "hip": hip}
    values |= {"rocm": None, "xpu": None}
    return f"__all__ = {list(values)!r}\n" + "".join(f"{name} = {value!r}\n" for name, value in values.items())


def hip_library(folder):
    """The kernels of the submodule, compiled for each of PYTORCH_ROCM_ARCH."""
    sources = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("third_party/cudakit/src/*.hip"))]
    if not sources:
        raise SystemExit("this tree is not hipified: run tools/amd_build/build_amd.py first")
    library = Path(folder, "libtorch_hip.so")
    archs = [f"--offload-arch={arch}" for arch in re.split("[;,]", os.environ["PYTORCH_ROCM_ARCH"])]
    options = ["-O2", "-fPIC", "-shared", "-Ithird_party/cudakit/include", f"-Wl,-soname,{library.name}"]
    options += ["-Wl,-s", "-Wl,-rpath,$ORIGIN:$ORIGIN/../../_rocm_sdk_core/lib"]
    subprocess.run([f"{ROCM}/bin/hipcc", *sources, *archs, *options, "-o", library], cwd=ROOT, check=True)
    return library


class Pack(bdist_wheel):
    """Writes the wheel at once: setuptools would copy and deflate half a gigabyte."""

    def run(self):
        info = next(UNPACKED.glob("*.dist-info")).name
        mine, tag = f"torch-{version()}.dist-info", f"cp{sys.version_info[0]}{sys.version_info[1]}"
        extra = filter(None, os.environ.get("PYTORCH_EXTRA_INSTALL_REQUIREMENTS", "").split("|"))
        metadata = re.sub(r"(?m)^Version: .*$", f"Version: {version()}", self.upstream(info, "METADATA"), count=1)
        first = metadata.index("Requires-Dist: ")
        metadata = metadata[:first] + "".join(f"Requires-Dist: {each}\n" for each in extra) + metadata[first:]
        texts = {
            "torch/version.py": version_module(),
            f"{mine}/METADATA": metadata,
            f"{mine}/WHEEL": f"Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: false\nTag: {tag}-{tag}-linux_x86_64\n",
        }
        if (ROOT / "torch/_rocm_init.py").is_file():
            texts["torch/_rocm_init.py"] = (ROOT / "torch/_rocm_init.py").read_text(encoding="utf-8")
        Path(self.dist_dir).mkdir(parents=True, exist_ok=True)
        path = Path(self.dist_dir, f"torch-{version()}-{tag}-{tag}-linux_x86_64.whl")
        record = []
        with zipfile.ZipFile(path, "w") as archive:
            if ROCM:
                library = hip_library(self.dist_dir)
                self.add(archive, record, "torch/lib/libtorch_hip.so", library.read_bytes(), 0o755)
                library.unlink()
            for row in self.upstream(info, "RECORD").splitlines():
                name = row.rpartition(",")[0].rpartition(",")[0].strip('"')
                source = UNPACKED / name
                if name.startswith(f"{info}/") and name.endswith(("/METADATA", "/WHEEL", "/RECORD")):
                    continue
                if name in texts or not source.is_file():  # see `unpacked` of tests/helpers/upstream.py
                    continue
                name = name.replace(f"{info}/", f"{mine}/")  # noqa: PLW2901
                member = self.member(name, source.stat().st_mode)
                with source.open("rb") as file, archive.open(member, "w") as target:
                    while block := file.read(1 << 22):
                        target.write(block)
                record.append(row.replace(f"{info}/", f"{mine}/"))
            for name, text in texts.items():
                self.add(archive, record, name, text.encode())
            archive.writestr(self.member(f"{mine}/RECORD"), "\n".join([*record, f"{mine}/RECORD,,", ""]))

    @staticmethod
    def upstream(info, name):
        return (UNPACKED / info / name).read_text(encoding="utf-8")

    def add(self, archive, record, name, data, mode=0o644):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(data)}")
        archive.writestr(self.member(name, mode), data)

    @staticmethod
    def member(name, mode=0o644):
        when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "1700000000")))[:6]
        member = zipfile.ZipInfo(name, when)
        member.external_attr = (0o100000 | mode & 0o777) << 16
        return member


setup(name="torch", version=version(), packages=[], cmdclass={"bdist_wheel": Pack})
