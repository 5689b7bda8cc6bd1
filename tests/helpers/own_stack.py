"""What a new user has: a HIP extension in a repository of its own, a stack for it, and an index of ROCm."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from cairn import interpreters
from cairn.rocm import package
from cairn.targets import parse_targets
from helpers import rocm, sdk_index, zig
from helpers.trail import ROOT, shared_cache

FAMILY = "gfx110X-all"
HERE = interpreters.current()

_PROJECT = {
    "pyproject.toml": """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "axpy"
dynamic = ["version"]
requires-python = ">=3.11"

[tool.setuptools]
packages = ["axpy"]

[tool.setuptools.dynamic]
version = { file = "version.txt" }
""",
    "version.txt": "1.0\n",
    "setup.py": """import os
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class Hip(build_ext):
    def build_extension(self, ext):
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        targets = [f"--offload-arch={name}" for name in os.environ["PYTORCH_ROCM_ARCH"].split(";")]
        command = [f"{os.environ['ROCM_HOME']}/bin/hipcc", "-shared", "-fPIC", "-O2", *targets]
        command += [f"-I{sysconfig.get_path('include')}", *ext.sources, "-o", str(output)]
        subprocess.run(command, check=True)


setup(ext_modules=[Extension("axpy._C", ["axpy/axpy.hip"])], cmdclass={"build_ext": Hip})
""",
    "axpy/axpy.hip": """#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <hip/hip_runtime.h>

__global__ void axpy(float a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

static PyObject *device_count(PyObject *, PyObject *) {
  int count = 0;
  if (hipGetDeviceCount(&count) != hipSuccess) count = 0;
  if (count) axpy<<<1, 64>>>(1.0f, nullptr, nullptr, 0);
  return PyLong_FromLong(count);
}

static PyMethodDef methods[] = {{"device_count", device_count, METH_NOARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
""",
    "axpy/__init__.py": "from axpy._C import device_count as device_count\n",
}
_PAGE = ROOT / "docs" / "how-to" / "add-a-project.md"
_SMOKE = """import axpy


def test_devices_are_counted():
    assert axpy.device_count() >= 0
"""


def typed_on_the_page() -> list[str]:
    """The lines that the page has readers type, from `cairn ci init` on."""
    return re.findall(r"^\$ (cairn .*)$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def offer_sdk(folder: Path) -> Path:
    """Write an index with the SDK packages of the sample, for one family; return its folder to serve."""
    prefix, dists, targets = folder / "prefix", folder / "dists", parse_targets(FAMILY)
    package.package(
        package.PackageRequest(
            prefix=rocm.prefix_for(prefix, targets),
            description=rocm.SAMPLE / "packages.toml",
            version=sdk_index.VERSION,
            targets=targets,
            output_dir=dists,
        )
    )
    shutil.copy(zig.small_wheel(shared_cache()), dists)  # the compiler behind its hipcc
    sdk_index.offer(dists, folder / "www", FAMILY)
    return folder / "www"


def write_project(folder: Path) -> None:
    """Write the repository of the extension."""
    _write(folder, _PROJECT)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder, "Begin")


def write_stack(folder: Path, origin: Path) -> None:
    """Write the stack of the page, for this Python."""
    stack, matrix = (
        re.search(rf'```toml\n(schema = "cairn.{name}/1"\n.*?)```', _PAGE.read_text("utf-8"), re.DOTALL)
        for name in ("stack", "matrix-toml")
    )
    assert stack
    assert matrix
    texts = {
        "stack.toml": stack[1].replace("https://github.com/me/axpy", origin.as_uri()),
        "matrix.toml": matrix[1].replace('"3.12"', f'"{HERE.version}"'),
        "smoke-tests/test_axpy.py": _SMOKE,
    }
    _write(folder, texts)


def _write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def commit(folder: Path, subject: str) -> None:
    """Commit all of a repository."""
    git(folder, "add", "--all")
    git(folder, "-c", "user.name=me", "-c", "user.email=me@example.invalid", "commit", "-qm", subject)


def git(folder: Path, *words: str) -> None:
    """Run git in a repository."""
    subprocess.run(["git", *words], cwd=folder, check=True)
