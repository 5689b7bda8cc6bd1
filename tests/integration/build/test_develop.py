"""One project edited in its checkout: `cairn build --develop`."""

import shutil
import subprocess
from pathlib import Path

import pytest

from cairn import isolation
from cairn.build import develop
from cairn.build.model import Job
from cairn.errors import BuildError, UsageError
from cairn.stack import Environment, Stack
from helpers import packing
from helpers.build import PYPROJECT, project, repository, stand_in_compiler

SETUP = """
import os
from setuptools import Extension, setup
setup(name="kernels", version=os.environ["BUILD_VERSION"], py_modules=["kernels"],
      ext_modules=[Extension("_kernels", ["module.cpp", "one.cpp", "two.cpp"])])
"""
MODULE = """
#include <Python.h>
long one(), two();
static PyObject *sum(PyObject *, PyObject *) { return PyLong_FromLong(one() + two()); }
static PyMethodDef methods[] = {{"sum", sum, METH_NOARGS, 0}, {0, 0, 0, 0}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", 0, -1, methods};
PyMODINIT_FUNC PyInit__kernels() { return PyModule_Create(&module); }
"""
FILES = {
    "setup.py": SETUP,
    "kernels.py": "from _kernels import sum",
    "module.cpp": MODULE,
    "one.cpp": "long one() { return 1; }",
    "two.cpp": "long two() { return 2; }",
    "version.txt": "1.5\n",
    ".gitignore": "build/\n*.so\n*.egg-info/\n",
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    kernels = project(
        "kernels",
        version_file="version.txt",
        environment=Environment(always={"BUILD_VERSION": "{version}"}),
        build_requires=("setuptools==84.2.1", "wheel==0.48.0"),
    )
    return Job(
        stack=Stack(name="s", line="l", targets=("cpu",), projects=(kernels,), version_suffix="+edited"),
        checkouts={"kernels": repository(tmp_path / "a tree", FILES)},
        output_dir=tmp_path / "out",
        env_dir=tmp_path / "envs",
        compiler_cache="ccache",
    )


def says(done: develop.EditableInstall, program: str) -> str:
    return subprocess.check_output([done.python, "-c", program], text=True, cwd="/").strip()


def test_an_edit_is_compiled_alone_and_imported_from_the_checkout(job: Job) -> None:
    tree = job.checkouts["kernels"]
    first = develop.run(job, "kernels")
    assert says(first, "import kernels; print(kernels.sum(), kernels.__file__)") == f"3 {tree}/kernels.py"
    program = "from importlib.metadata import version; print(version('kernels'))"
    assert says(first, program) == "1.5+edited", "the version of the real build"
    assert first.compiler_cache is not None
    assert first.compiler_cache.misses == 3
    (tree / "two.cpp").write_text("long two() { return 40; }")
    second = develop.run(job, str(tree))  # by its folder, as upstream's users name it
    assert says(second, "import kernels; print(kernels.sum())") == "41"
    assert second.compiler_cache is not None
    assert (second.compiler_cache.hits, second.compiler_cache.misses) == (2, 1)
    (tree / "kernels.py").write_text("def sum(): return 'edited'")
    assert says(second, "import kernels; print(kernels.sum())") == "edited", "no build is needed for Python"


def test_what_does_not_compile_is_told_with_its_log(job: Job, tmp_path: Path) -> None:
    (job.checkouts["kernels"] / "one.cpp").write_text("long one() { return }")
    with pytest.raises(BuildError, match="building kernels failed") as caught:
        develop.run(job, "kernels")
    assert caught.value.log == tmp_path / "out" / "logs" / "kernels-develop.log"
    assert any("one.cpp" in line for line in (*caught.value.tail, *caught.value.causes))


def test_the_environment_may_be_the_developers_own(job: Job, tmp_path: Path) -> None:
    mine = tmp_path / "my env"
    subprocess.check_call(["python3", "-m", "venv", "--without-pip", mine])
    (mine / "notes.txt").write_text("mine")
    done = develop.run(job, "kernels", folder=mine)
    assert done.python.parent.parent == mine
    assert says(done, "import kernels; print(kernels.sum())") == "3"
    assert (mine / "notes.txt").read_text() == "mine"


def test_a_name_that_the_stack_does_not_have(job: Job, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a project") as caught:
        develop.run(job, "kernel")
    assert "kernels" in (caught.value.tip or "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError):
        develop.run(job, str(tmp_path / "empty"))


HELD = """
import fcntl, os, pathlib

def build_editable(folder, settings=None, metadata=None):
    for lock in {locks!r}:
        file = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            raise SystemExit(lock + " is free while this compiles")
    return write_wheel(folder, "thing", "1.0", {{"thing.py": ""}}).name
"""


def test_no_other_run_takes_the_environments_away_while_it_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_compiler(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv(isolation.VARIABLE, str(tmp_path))  # the locks that the backend tries
    mine = tmp_path / "mine" / "env"
    locks = [str(tmp_path / "envs" / "build.lock"), str(mine.with_name(".env.lock"))]
    backend = packing.backend(HELD.format(locks=locks))
    stack = Stack(name="s", line="l", targets=("cpu",), projects=(project("thing"),))
    done = develop.run(
        Job(
            stack=stack,
            checkouts={
                "thing": repository(tmp_path / "t", {"pyproject.toml": PYPROJECT, "backend.py": backend})
            },
            output_dir=tmp_path / "out",
            env_dir=tmp_path / "envs",
        ),
        "thing",
        folder=mine,
    )
    assert says(done, "import thing; print(thing.__file__)").startswith(str(mine))
