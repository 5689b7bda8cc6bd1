"""A miniature ROCm, made and packaged, and what is in its binaries."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

from cairn import files
from cairn.rocm import package
from helpers.trail import shared_cache

SAMPLE = Path(__file__).parents[2] / "external-builds" / "sample" / "rocm"
TARGETS = ("gfx942", "gfx1100")
VERSION = "7.10.0"
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"

KERNEL = """
#include <hip/hip_runtime.h>
#include <math.h>
#include <type_traits>

template <typename T> __global__ void __launch_bounds__(256) axpy(T a, const T *x, T *y, int n) {
  static_assert(std::is_floating_point<T>::value, "");
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

__global__ void total(const float *x, float *sum, int n) {
  HIP_DYNAMIC_SHARED(float, part)
  part[threadIdx.x] = threadIdx.x < n ? expf(fmaxf(x[threadIdx.x], 0.f)) : 0.f;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(sum, logf(part[0]) + sqrtf(part[1]));
}

extern "C" int launch() {
  float *x = nullptr;
  if (hipMalloc(&x, 16) == hipSuccess) return -1;
  hipLaunchKernelGGL((axpy<double>), dim3(1), dim3(64), 0, 0, 1.0, (double *)x, (double *)x, 1);
  total<<<1, 256, 1024>>>(x, x, 1);
  int count = -1;
  return hipGetLastError() == hipSuccess ? -2 : hipGetDeviceCount(&count);
}
"""
"""Source with kernels that every HIP compiles; its function `launch` gives a hipError_t."""


def targets_in(path: Path) -> list[str]:
    """The sorted targets of every code object in a file, read from the bundles' tables."""
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".hip_fatbin")
        data = section.data() if section else b""
    found, at = [], data.find(_BUNDLE)
    while at >= 0:
        (count,) = struct.unpack_from("<Q", data, at + len(_BUNDLE))
        cursor = at + len(_BUNDLE) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, cursor)
            name = data[cursor + 24 : cursor + 24 + length].decode()
            if name.startswith("hip"):
                assert size > 0
                assert data[at + offset : at + offset + 4] == b"\x7fELF"
                found.append(name.rpartition("--")[2])
            cursor += 24 + length
        at = data.find(_BUNDLE, at + len(_BUNDLE))
    return sorted(found)


def digest() -> str:
    """A digest of what the miniature ROCm is made of."""
    key = hashlib.sha256()
    for path in sorted(path for path in SAMPLE.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        key.update(path.read_bytes())
    return key.hexdigest()[:12]


def prefix_for(prefix: Path, targets: Sequence[str] = TARGETS) -> Path:
    """Copy the miniature ROCm for these targets, which is built once for all tests, in five CPU seconds."""
    made = shared_cache() / "prefixes" / f"{'-'.join(targets)}-{digest()}"
    made.parent.mkdir(parents=True, exist_ok=True)
    with files.locked(made.with_suffix(".lock"), timeout=600):
        if not made.is_dir():
            part = made.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            build_prefix(part, targets).rename(made)
    shutil.rmtree(prefix, ignore_errors=True)
    return Path(shutil.copytree(made, prefix, symlinks=True))


def build_prefix(prefix: Path, targets: Sequence[str] = TARGETS) -> Path:
    """Build the miniature ROCm."""
    command = [sys.executable, SAMPLE / "build.py", "--prefix", prefix, "--targets", ",".join(targets)]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return prefix


def request_for(prefix: Path, output_dir: Path) -> package.PackageRequest:
    """The request to package it."""
    return package.PackageRequest(
        prefix=prefix,
        description=SAMPLE / "packages.toml",
        version=VERSION,
        targets=TARGETS,
        output_dir=output_dir,
    )


def make_environment(folder: Path) -> Path:
    """A fresh environment without pip; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"
