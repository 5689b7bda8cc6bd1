"""What the flags of the PyTorch stack keep out of compiled code: where its tree was when it was built."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from cairn import stack as stacks
from cairn.build.inputs import variables

PYTORCH = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"
# As in torch: CMake's flags go into the library (caffe2/core/macros.h.in), and a header names itself.
LISTS = """
cmake_minimum_required(VERSION 3.24)
project(torch CXX)
configure_file(macros.h.in macros.h)
include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
add_subdirectory(below)
"""
SOURCES = {
    "CMakeLists.txt": LISTS,
    "macros.h.in": '#define FLAGS "${CMAKE_CXX_FLAGS}"\n',
    "check.h": "inline const char* header() { return __FILE__; }\n",
    "below/CMakeLists.txt": "add_executable(torch ${CMAKE_CURRENT_SOURCE_DIR}/main.cpp)\n",
    "below/main.cpp": """
#include <cstdio>
#include "check.h"
#include "macros.h"
int main() { std::printf("%s\\n%s\\n%s\\n", __FILE__, header(), FLAGS); }
""",
}


def environment_of(name: str, tree: Path) -> dict[str, str]:
    """Those variables of a project that have to do with paths, as a build in the tree gets them."""
    stack = stacks.load(PYTORCH)
    template = variables.template_of(stack, stack.project(name), for_cpu=True)
    values = {"stack_dir": stack.folder, "source_dir": str(tree), "site_packages": str(tree / "site")}
    wanted = ("CFLAGS", "CXXFLAGS", "CMAKE_PROJECT_TOP_LEVEL_INCLUDES", "HIPCC_COMPILE_FLAGS_APPEND")
    return {key: variables.expand(template[key], values, where=key) for key in wanted if key in template}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    if shutil.which("g++") is None or shutil.which("cmake") is None:
        pytest.skip("needs g++ and CMake")
    folder = tmp_path / "a tree é"
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_torch_s_libraries_name_their_sources_from_the_root_of_the_tree(tree: Path) -> None:
    given = environment_of("torch", tree)
    included = given["CMAKE_PROJECT_TOP_LEVEL_INCLUDES"]
    flags = given["CXXFLAGS"]
    settings = [f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={included}", f"-DCMAKE_CXX_FLAGS={flags}"]
    subprocess.run(["cmake", "-S", tree, "-B", tree / "build", *settings], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tree / "build"], check=True, capture_output=True)
    program = tree / "build" / "below" / "torch"
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == ["./below/main.cpp", "./check.h", flags]
    assert str(tree).encode() not in program.read_bytes()


# torch 2.7 compiles C++ extensions with the flags of C, later ones with those of C++; hipcc has its own.
@pytest.mark.parametrize("variable", ["CFLAGS", "CXXFLAGS", "HIPCC_COMPILE_FLAGS_APPEND"])
@pytest.mark.parametrize("project", ["audio", "vision", "apex"])
def test_extensions_name_their_sources_from_the_root_of_the_tree(
    tree: Path, project: str, variable: str
) -> None:
    flags = shlex.split(environment_of(project, tree)[variable])
    (tree / "macros.h").write_text('#define FLAGS ""\n')
    headers = tree / "site/torch/include"  # as torch's own, in the environment of the build
    headers.mkdir(parents=True)
    (tree / "check.h").rename(headers / "check.h")
    words = ["g++", *flags, f"-I{tree}", f"-I{headers}", tree / "below" / "main.cpp", "-o", tree / "program"]
    subprocess.run(words, check=True, capture_output=True)
    assert str(tree).encode() not in (tree / "program").read_bytes()
    said = subprocess.run([tree / "program"], check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[:2] == ["./below/main.cpp", "./site/torch/include/check.h"]


def test_what_setuptools_compiles_for_torch_does_so_too(tree: Path) -> None:
    flags = shlex.split(environment_of("torch", tree)["CFLAGS"])
    (tree / "stub.c").write_text("const char* stub(void) { return __FILE__; }\n")
    words = ["gcc", "-g", *flags, "-c", tree / "stub.c", "-o", "stub.o"]  # -g: as Python's own flags
    subprocess.run(words, check=True, cwd=tree)
    assert str(tree).encode() not in (tree / "stub.o").read_bytes()


def test_what_hipcc_compiles_does_so_too(tmp_path: Path) -> None:
    appended = environment_of("torch", tmp_path / "a tree")["HIPCC_COMPILE_FLAGS_APPEND"]
    assert shlex.split(appended) == [f"-fmacro-prefix-map={tmp_path}/a tree=."]
