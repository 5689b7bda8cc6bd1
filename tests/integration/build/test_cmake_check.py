import shutil
import time
from pathlib import Path

import pytest

from cairn.build import execution, plan
from cairn.build.model import BuildRequest
from cairn.errors import BuildError
from cairn.stack import Environment, Stack
from helpers.build import project, repository, stand_in_compiler

BACKEND = """
import subprocess
def build_wheel(folder, settings=None, metadata=None):
    place = {folder}
    subprocess.check_call(["cmake", "-S", ".", "-B", place])
    subprocess.check_call(["cmake", "--build", place])
"""
# As in torch: what is asked is taken back where a library is missing; what follows would take hours.
LISTS = """
cmake_minimum_required(VERSION 3.18)
project(torch NONE)
option(USE_ROCM "" ON)
set(USE_ROCM OFF CACHE BOOL "" FORCE)
add_custom_target(
    compile ALL COMMAND ${CMAKE_COMMAND} -E echo compiling COMMAND ${CMAKE_COMMAND} -E sleep 300
)
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake here")
@pytest.mark.parametrize("folder", ["'build'", "__import__('tempfile').mkdtemp()"])
def test_a_build_that_was_configured_differently_stops_before_it_compiles(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_compiler(tmp_path / "bin", monkeypatch)
    files = {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND.format(folder=folder),
        "CMakeLists.txt": LISTS,
    }
    tree = repository(tmp_path / "a tree", files)
    torch = project("torch", cmake=Environment(cpu={"USE_ROCM": "ON"}))
    request = BuildRequest(
        stack=Stack(name="s", line="l", targets=("cpu",), projects=(torch,)),
        checkouts={"torch": tree},
        output_dir=tmp_path / "out",
        work_dir=tmp_path / "work",
        cache_dir=tmp_path / "wheels",
        targets=("cpu",),
    )
    began = time.monotonic()
    with pytest.raises(BuildError, match="CMake has configured torch differently: USE_ROCM is OFF, and ON"):
        execution.run(plan.make(request))
    assert time.monotonic() - began < 250
