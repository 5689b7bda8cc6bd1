"""A miniature ROCm, its packages, an index that serves them and an environment that has them."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import struct
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cairn.rocm import install, package

SAMPLE = Path(__file__).parents[3] / "external-builds" / "sample" / "rocm"
TARGETS = ("gfx942", "gfx1100")
VERSION = "7.10.0"
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


@pytest.fixture(autouse=True, scope="session")
def _own_pip_configuration() -> Iterator[None]:
    """Only what a test asks for: no index of the machine's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("PIP_", "ROCM_", "HIP_"))]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        # The tools of the SDK run under the first python3 on PATH.
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield


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


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A source file with kernels that every HIP compiles; its function `launch` gives a hipError_t."""
    path = tmp_path / "k.hip"
    path.write_text(KERNEL)
    return path


@pytest.fixture(scope="session")
def targets_in() -> Callable[[Path], list[str]]:
    """Gives the sorted targets of every code object in a file, read from the bundles' tables."""
    return _targets_in


def _targets_in(path: Path) -> list[str]:
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


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed prefix of the miniature ROCm."""
    return build_prefix(tmp_path_factory.mktemp("rocm") / "prefix")


def build_prefix(prefix: Path) -> Path:
    command = [sys.executable, SAMPLE / "build.py", "--prefix", prefix, "--targets", ",".join(TARGETS)]
    subprocess.run(command, check=True)
    return prefix


def request_for(prefix: Path, output_dir: Path) -> package.PackageRequest:
    return package.PackageRequest(
        prefix=prefix,
        description=SAMPLE / "packages.toml",
        version=VERSION,
        targets=TARGETS,
        output_dir=output_dir,
    )


@pytest.fixture(scope="session")
def dists(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages."""
    folder = tmp_path_factory.mktemp("dists")
    package.package(request_for(prefix, folder))
    return folder


@pytest.fixture
def dists_made_again(tmp_path: Path) -> Path:
    """The packages again, from a prefix that was built again, elsewhere."""
    again = build_prefix(tmp_path / "elsewhere" / "prefix")
    package.package(request_for(again, tmp_path / "dists"))
    return tmp_path / "dists"


@pytest.fixture(scope="session")
def ziglang_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the installed ziglang, put together again: an index needs every dependency."""
    dist = importlib.metadata.distribution("ziglang")
    path = tmp_path_factory.mktemp("ziglang") / f"ziglang-{dist.version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in dist.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts and file.name != "INSTALLER":
                archive.write(Path(str(dist.locate_file(file))), str(file))
    return path


@pytest.fixture(scope="session")
def index_url(dists: Path, ziglang_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index with the SDK and what it requires, and nothing else."""
    root = tmp_path_factory.mktemp("index")
    for path in (*dists.iterdir(), ziglang_wheel):
        name = path.name.partition(f"-{VERSION}" if path != ziglang_wheel else "-")[0]
        folder = root / "simple" / name.replace("_", "-")
        folder.mkdir(parents=True)
        (folder / path.name).symlink_to(path)
    with serving(root) as url:
        yield f"{url}/simple/"


class serving:  # noqa: N801 - reads as what it does
    """Serve a folder on a free port of this machine."""

    def __init__(self, root: Path) -> None:
        handler = functools.partial(_Quiet, directory=str(root))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def make_environment(folder: Path) -> Path:
    """A fresh environment without pip; its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def new_environment(tmp_path: Path) -> Path:
    """The interpreter of a fresh environment with nothing in it."""
    return make_environment(tmp_path / "venv")


@pytest.fixture(scope="session")
def environment(index_url: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the whole SDK, installed from the index alone."""
    python = make_environment(tmp_path_factory.mktemp("environment") / "venv")
    install.install(install.InstallRequest(python=python, index_url=index_url, version=VERSION))
    return python


@pytest.fixture
def small_environment(new_environment: Path, index_url: str) -> Path:
    """The interpreter of a fresh environment with the SDK's runtime alone."""
    install.install(install.InstallRequest(python=new_environment, index_url=index_url, extras=()))
    return new_environment
