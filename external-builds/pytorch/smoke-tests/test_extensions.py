"""What others are built against: torch's headers, its CMake packages, and torch.utils.cpp_extension."""

import ctypes
import importlib
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch
from packaging.requirements import Requirement

FOLDER = Path(torch.__file__).parent
OPERATOR = """
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <cstdint>

extern "C" int64_t size_of_float() { return static_cast<int64_t>(c10::elementSize(c10::ScalarType::Float)); }
extern "C" int32_t cpu() { return aoti_torch_device_type_cpu(); }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(smoke LANGUAGES CXX)
find_package(Torch REQUIRED)
foreach(name torch torch_cpu c10)
  get_target_property(place ${name} IMPORTED_LOCATION_RELEASE)
  message(STATUS "${name} lies at ${place}")
  if(NOT EXISTS "${place}")
    message(FATAL_ERROR "${name} is not at ${place}")
  endif()
endforeach()
"""
# Of each library that others link; torch/extension.h is what every extension begins with.
HEADERS = [
    "torch/extension.h",
    "torch/torch.h",
    "torch/library.h",
    "torch/csrc/api/include/torch/nn.h",
    "ATen/ATen.h",
    "ATen/native/DispatchStub.h",
    "ATen/ops/add.h",
    "c10/core/Device.h",
    "c10/util/Half.h",
    "torch/script.h",
]
_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]((?:ATen|c10|torch|caffe2)/[^>"]+)[>"]', re.MULTILINE)


@pytest.fixture
def cpp_extension() -> ModuleType:
    """The module, where what it needs is installed."""
    try:
        return importlib.import_module("torch.utils.cpp_extension")
    except ModuleNotFoundError as error:
        listed = map(Requirement, metadata.requires("torch") or [])
        asked = any(one.name == "setuptools" and (not one.marker or one.marker.evaluate()) for one in listed)
        # Torch 2.7 requires it only for Pythons whose `venv` does not bring it.
        if error.name != "setuptools" or asked:
            raise
    pytest.skip("setuptools, which this torch compiles with and does not require, is not installed")


def test_headers_are_there() -> None:
    top = FOLDER / "include"
    missing = [name for name in HEADERS if not any((place / name).is_file() for place in places(top))]
    # What they include first of all, whatever the system: their own beginnings, up to the first condition.
    for name in sorted({*HEADERS} - {*missing}):
        path = next(place / name for place in places(top) if (place / name).is_file())
        text = path.read_text(encoding="utf-8", errors="replace").partition("#if")[0]
        missing += [
            each
            for each in _INCLUDE.findall(text)
            if not any((place / each).is_file() for place in places(top))
        ]
    assert not missing


def places(top: Path) -> tuple[Path, ...]:
    return top, top / "torch" / "csrc" / "api" / "include"


def test_the_packages_for_cmake_name_libraries_that_are_there() -> None:
    packages = {name: FOLDER / "share" / "cmake" / name for name in ("Torch", "Caffe2", "ATen")}
    assert [name for name, folder in packages.items() if not (folder / f"{name}Config.cmake").is_file()] == []
    named: set[str] = set()
    for path in FOLDER.glob("share/cmake/**/*Targets-*.cmake"):
        named |= set(re.findall(r'"\$\{_IMPORT_PREFIX\}/([^"]+)"', path.read_text(encoding="utf-8")))
    # Some are of tests, or static and left where they were built: those that a user links count.
    own = [
        name for name in named if re.match(r"lib/(lib)?(torch|torch_\w+|c10|c10_\w+)\.(so|dylib|lib)$", name)
    ]
    assert len(own) >= 3
    assert [name for name in own if not (FOLDER / name).exists()] == []


def test_cmake_finds_torch(tmp_path: Path) -> None:
    if not shutil.which("cmake") or not shutil.which("c++"):
        pytest.skip("no CMake with a compiler is installed")
    if torch.version.hip is not None or torch.version.cuda is not None:
        pytest.skip("CMake would look for the toolkit of the GPU, which a user of the wheel need not have")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE, encoding="utf-8")
    found = torch.utils.cmake_prefix_path
    done = subprocess.run(
        [
            "cmake",
            "-S",
            ".",
            "-B",
            "build",
            f"-DCMAKE_PREFIX_PATH={found}",
            f"-DPython_EXECUTABLE={sys.executable}",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_cpp_extension_knows_where_torch_lies(cpp_extension: ModuleType) -> None:
    places = [Path(place) for place in cpp_extension.include_paths()]
    assert any((place / "torch" / "extension.h").is_file() for place in places)
    # One setting for this compiler and this library: what is built must link.
    built = cpp_extension.CppExtension("extension", ["extension.cpp"])
    assert {"c10", "torch", "torch_cpu", "torch_python"} <= set(built.libraries)
    assert any(next(Path(place).glob("*torch_python*"), None) for place in built.library_dirs)
    assert issubclass(cpp_extension.BuildExtension, object)


def test_code_in_cpp_compiles_links_and_runs(cpp_extension: ModuleType, tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), None)
    if os.name == "nt" or compiler is None:
        pytest.skip("no compiler of C++ is installed, or it takes other options")
    (tmp_path / "operator.cpp").write_text(OPERATOR, encoding="utf-8")
    library = tmp_path / "operator.so"
    includes = [f"-isystem{place}" for place in cpp_extension.include_paths()]
    links = [f"-L{FOLDER / 'lib'}", f"-Wl,-rpath,{FOLDER / 'lib'}", "-ltorch_cpu", "-lc10"]
    definitions = [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    command = [
        compiler,
        "-std=c++20",
        "-O0",
        "-fPIC",
        "-shared",
        *includes,
        *definitions,
        "operator.cpp",
        *links,
    ]
    done = subprocess.run(
        [*command, "-o", str(library)], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    loaded = ctypes.CDLL(str(library))
    assert (loaded.size_of_float(), loaded.cpu()) == (4, 0)
