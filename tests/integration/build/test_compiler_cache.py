"""The real ccache and sccache, in front of real compilers."""

import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import process
from cairn.build import execution, plan
from cairn.build.build_options import CompilerCache
from cairn.build.compiler_cache import launchers, session
from cairn.build.engine import events
from cairn.build.model import BuildRequest, BuiltWheel
from cairn.stack import Environment, Stack
from cairn.venv import PackageSource
from helpers import foreign, sccache_dist
from helpers.buckets import Server
from helpers.build import project, repository

SETUPTOOLS = """
from setuptools import Extension, setup

setup(name="host", version="1", ext_modules=[Extension("host", ["host.cpp", "free.cpp"])])
"""
HOST = """
#include <Python.h>
extern const char *place();
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "host", 0, -1, 0};
PyMODINIT_FUNC PyInit_host() { return place() ? PyModule_Create(&module) : 0; }
"""
FREE = "const char *place() { return __FILE__ __DATE__; }\n"
CMAKE_SETUP = """
import pathlib, subprocess, sys
from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools import Extension

class CMake(build_ext):
    def run(self):
        pathlib.Path("build").mkdir(exist_ok=True)
        subprocess.check_call(["cmake", "-S", ".", "-B", "build", "-G", "Ninja"])
        subprocess.check_call(["cmake", "--build", "build"])
        library = next(pathlib.Path("build").glob("libfree.so"))
        pathlib.Path(self.build_lib, "host").mkdir(parents=True, exist_ok=True)
        self.copy_file(str(library), str(pathlib.Path(self.build_lib, "host", "libfree.so")))

setup(name="host", packages=["host"], ext_modules=[Extension("host", [])], cmdclass={"build_ext": CMake})
"""
CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.18)
project(host CXX)
# As torch does for torch.__config__.
file(WRITE ${CMAKE_BINARY_DIR}/compiler.h "#define COMPILER \\"${CMAKE_CXX_COMPILER}\\"")
add_library(free SHARED free.cpp)
target_include_directories(free PRIVATE ${CMAKE_BINARY_DIR})
"""
CMAKE_FREE = '#include "compiler.h"\nextern "C" const char *place() { return COMPILER; }\n'


@pytest.fixture(autouse=True)
def own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / "sccache"))


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., BuiltWheel]:
    """Builds a tree from nothing; the wheel cache is never asked."""

    def of(
        tree: Path, cache: CompilerCache | None, *, requires: tuple[str, ...] = (), **environment: str
    ) -> BuiltWheel:
        host = project(
            "host",
            build_requires=("setuptools==84.2.1", "wheel==0.48.0", *requires),
            environment=Environment(
                always={"CXXFLAGS": "-ffile-prefix-map={site_packages}=. -g0", **environment}
            ),
        )
        request = BuildRequest(
            stack=Stack(name="s", line="l", targets=("cpu",), projects=(host,)),
            checkouts={"host": tree},
            output_dir=tmp_path / "out",
            work_dir=tmp_path / "work",
            cache_dir=tmp_path / "wheels",
            targets=("cpu",),
            jobs=1,
            clean=True,
            compiler_cache=cache,
        )
        (wheel,) = execution.run(plan.make(request))
        return wheel

    return of


def counted(folder: Path) -> list[events.CacheStatistics]:
    """What the events of the last run say of the compiler cache."""
    found = events.last_run(folder / "out" / events.FILE_NAME)
    return [event for event in found if isinstance(event, events.CacheStatistics)]


def members(wheel: BuiltWheel) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel.wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("cache", ["ccache", "sccache"])
def test_a_setuptools_build_is_compiled_once_and_is_the_same_bytes(
    build: Callable[..., BuiltWheel], tmp_path: Path, cache: CompilerCache
) -> None:
    files = {"setup.py": SETUPTOOLS, "host.cpp": HOST, "free.cpp": FREE}
    tree = repository(tmp_path / "a tree", files)
    plain = build(tree, None)
    assert plain.compiler_cache is None
    # As developers have it in their shells: it is not to stand in front of ours.
    mine = {"CC": "ccache gcc", "CXX": "ccache g++"} if cache == "ccache" else {}
    first = build(tree, cache, **mine)
    assert first.compiler_cache is not None
    assert (first.compiler_cache.hits, first.compiler_cache.misses) == (0, 2)
    second = build(tree, cache, **mine)
    assert second.compiler_cache is not None
    assert (second.compiler_cache.hits, second.compiler_cache.misses) == (2, 0)
    assert members(plain) == members(first) == members(second)
    (event,) = counted(tmp_path)
    assert (event.step, event.program, event.hits, event.misses) == ("build host", cache, 2, 0)


def test_machines_share_in_a_bucket_what_they_have_compiled(
    build: Callable[..., BuiltWheel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_server: Server
) -> None:
    for name, value in {
        "BUCKET": s3_server.new_bucket(),
        "REGION": "us-east-1",
        "S3_KEY_PREFIX": "compiled",
        "ENDPOINT": s3_server.endpoint,
        "S3_USE_SSL": "false",
    }.items():
        monkeypatch.setenv(f"SCCACHE_{name}", value)
    tree = repository(tmp_path / "tree", {"setup.py": SETUPTOOLS, "host.cpp": HOST, "free.cpp": FREE})
    found = []
    for machine in ("one", "two"):
        monkeypatch.setenv("SCCACHE_DIR", str(tmp_path / machine))
        counted = build(tree, "sccache").compiler_cache
        assert counted is not None
        found.append((counted.hits, counted.misses))
    assert found == [(0, 2), (2, 0)]


# What it has compiled is in its wheel by digest: `verify` refuses object files.
DEVICE_SETUP = """
import hashlib, os, pathlib, subprocess
from setuptools import setup
hip = ["hipcc", "--offload-arch=gfx1030", "-mcode-object-version=4", "-c", "kernel.hip", "-o", "kernel.o"]
subprocess.check_call(hip, env={**os.environ, "HIP_PLATFORM": "amd"})
subprocess.check_call(["g++", "-O2", "-c", "free.cpp", "-o", "free.o"])
found = [hashlib.sha256(pathlib.Path(name).read_bytes()).hexdigest() for name in ("kernel.o", "free.o")]
pathlib.Path("host.py").write_text(f"FOUND = {found}")
setup(name="host", version="1", py_modules=["host"])
"""
KERNEL = """#include <hip/hip_runtime.h>
__global__ void k(float *x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }
"""


def trees(folder: Path) -> dict[str, Callable[[], Path]]:
    """Trees to be compiled: of two files, of the 15 C++ files of a project on PyPI, and with device code."""
    host = {"setup.py": SETUPTOOLS, "host.cpp": HOST, "free.cpp": FREE}
    device = {"setup.py": DEVICE_SETUP, "kernel.hip": KERNEL, "free.cpp": FREE}

    def of_pypi() -> Path:
        words = ["download", "--no-deps", "--no-binary=:all:", "--dest", str(folder), "fasttext==0.9.3"]
        process.run([sys.executable, "-m", "pip", *words], confined=False)
        with tarfile.open(folder / "fasttext-0.9.3.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        return repository(folder / "fasttext-0.9.3", {})

    return {
        "host": lambda: repository(folder / "host", host),
        "pypi": of_pypi,
        "device": lambda: repository(folder / "device", device),
    }


@pytest.mark.by_hand
@pytest.mark.filterwarnings("default")  # of the setup.cfg of the project of PyPI
@pytest.mark.skipif(not sccache_dist.is_here(), reason="needs root and bubblewrap")
@pytest.mark.parametrize(("what", "here", "elsewhere"), [("host", 0, 2), ("pypi", 0, 15), ("device", 1, 1)])
def test_what_two_machines_compile_is_the_same_bytes(
    build: Callable[..., BuiltWheel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    here: int,
    elsewhere: int,
) -> None:
    if what == "device" and shutil.which("hipcc") is None:
        pytest.skip("no hipcc here: apt install hipcc rocm-device-libs libamdhip64-dev")
    tree = trees(tmp_path)[what]()
    requires = ("pybind11==3.0.1",) if what == "pypi" else ()
    plain = build(tree, None, requires=requires)
    with sccache_dist.SccacheDist(tmp_path / "dist") as servers:
        monkeypatch.setenv("SCCACHE_CONF", str(servers.config))
        cold = build(tree, "sccache", requires=requires).compiler_cache
        warm = build(tree, "sccache", requires=requires)
        assert cold is not None
        assert warm.compiler_cache is not None
        assert (cold.misses - cold.distributed, cold.errors) == (here, 0)
        assert cold.distributed >= elsewhere  # that of PyPI tries flags, too
        assert warm.compiler_cache.hits >= here + elsewhere
    assert members(plain) == members(warm)


@pytest.mark.by_hand
@pytest.mark.skipif(not sccache_dist.is_here(), reason="needs root and bubblewrap")
def test_workers_that_are_gone_are_told(
    build: Callable[..., BuiltWheel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = trees(tmp_path)["host"]()
    with sccache_dist.SccacheDist(tmp_path / "dist") as servers:
        monkeypatch.setenv("SCCACHE_CONF", str(servers.config))
        servers.kill_workers()
        found = build(tree, "sccache").compiler_cache
    assert found is not None
    assert (found.misses, found.distributed, found.undistributed) == (2, 0, 2)
    assert (found.problem or "").startswith("2 of 2 compilations were for sccache-dist and were done here")


# A compiler that looks into the server, which has started it, and into us.
NOSY = """#!/bin/sh
tr '\\0' '\\n' < /proc/$PPID/environ >> {seen}/server
cat /proc/{us}/environ > {seen}/us 2> /dev/null || rm {seen}/us
cat {secret} > {seen}/file 2> /dev/null || rm {seen}/file
cat {notes} > {seen}/notes 2> /dev/null || rm {seen}/notes
exec {compiler} "$@"
"""


@pytest.mark.parametrize("cache", ["ccache", "sccache"])
def test_headers_of_a_package_are_read_where_builds_share_them(
    build: Callable[..., BuiltWheel], tmp_path: Path, cache: CompilerCache
) -> None:
    setup = SETUPTOOLS.replace('"free.cpp"]', '"free.cpp"], include_dirs=[pybind11.get_include()]')
    files = {"setup.py": f"import pybind11{setup}", "host.cpp": HOST}
    files["free.cpp"] = f"#include <pybind11/detail/common.h>\n{FREE}"
    tree = repository(tmp_path / "tree", files)
    counted = build(tree, cache, requires=("pybind11==3.0.1",)).compiler_cache
    assert counted is not None
    assert (counted.misses, counted.errors) == (2, 0)


@foreign.needs_confinement
def test_compilers_that_sccache_starts_see_what_the_build_does_and_no_credentials(
    build: Callable[..., BuiltWheel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nosy = tmp_path / "nosy-g++"
    tree = repository(tmp_path / "tree", {"setup.py": SETUPTOOLS, "host.cpp": HOST, "free.cpp": FREE})
    (seen := tree / ".git" / "seen").mkdir()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "f4ke")
    monkeypatch.setenv("SCCACHE_BUCKET", "")  # as a workflow passes a variable that nobody has set
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "f4ke")
    with foreign.home_folder() as home:
        secret, notes = home / "token", home / "notes"
        secret.write_text("f4ke")
        notes.write_text("of somebody who builds")
        monkeypatch.setenv("MY_TOKEN_FILE", str(secret))
        files = {"secret": secret, "notes": notes, "compiler": shutil.which("g++")}
        nosy.write_text(NOSY.format(seen=seen, us=os.getpid(), **files))
        nosy.chmod(0o755)
        counted = build(tree, "sccache", CC=str(nosy), CXX=str(nosy)).compiler_cache
    assert counted is not None
    assert counted.misses == 2
    assert "SCCACHE_DIR=" in (seen / "server").read_text()
    assert "f4ke" not in (seen / "server").read_text()
    assert [path.name for path in seen.iterdir()] == ["server"]


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("ninja")), reason="no CMake and ninja here")
def test_cmake_gets_the_launcher_and_never_sees_our_scripts(
    build: Callable[..., BuiltWheel], tmp_path: Path
) -> None:
    files = {
        "setup.py": CMAKE_SETUP,
        "CMakeLists.txt": CMAKE_LISTS,
        "free.cpp": CMAKE_FREE,
        "host/__init__.py": "",
    }
    tree = repository(tmp_path / "tree", files | {".gitignore": "build\n"})
    plain, first, second = build(tree, None), build(tree, "ccache"), build(tree, "ccache")
    assert first.compiler_cache is not None
    assert second.compiler_cache is not None
    # CMake's own check of the compiler goes through the cache too.
    assert first.compiler_cache.misses
    assert (second.compiler_cache.hits, second.compiler_cache.misses) == (first.compiler_cache.misses, 0)
    assert members(plain) == members(first) == members(second)  # the path of the compiler is in them


def test_a_cache_that_sees_nothing_is_not_believed(
    build: Callable[..., BuiltWheel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    past = f"""
import os, subprocess
from setuptools import setup
os.makedirs("build", exist_ok=True)
subprocess.check_call([{shutil.which("g++")!r}, "-c", "free.cpp", "-o", "build/past.o"])
setup(name="host", version="1", py_modules=["host"])
"""
    build(repository(tmp_path / "tree", {"setup.py": past, "free.cpp": FREE, "host.py": ""}), "ccache")
    assert "ccache counted no compilation, although files were compiled" in capsys.readouterr().err
    (event,) = counted(tmp_path)
    assert (event.problem or "").startswith("ccache counted no compilation")


@pytest.fixture
def device(tmp_path: Path) -> launchers.Launchers:
    """Launchers for Debian's hipcc and its clang, with a folder of device libraries of its own."""
    hipcc = shutil.which("hipcc")
    libraries = launchers.device_libraries({}, None)
    clang = launchers.hip_clang(dict(os.environ), None)
    if hipcc is None or libraries is None or clang is None:
        pytest.skip("no hipcc here: apt install hipcc rocm-device-libs libamdhip64-dev")
    bitcode = tmp_path / "device libraries"
    shutil.copytree(libraries, bitcode)
    made = launchers.Launchers(
        folder=tmp_path / "launchers",
        program="ccache",
        cache=session.install_program("ccache", PackageSource(), log=tmp_path / "log", say=lambda _: None),
        path=os.environ["PATH"],
        compilers=launchers.compilers_on_path(os.environ["PATH"]),
        hip_clang=clang,
        device_libraries=bitcode,
        site_packages=tmp_path / "site-packages",
    )
    launchers.write(made)
    return made


@pytest.mark.slow
def test_device_code_is_kept_by_target_and_device_libraries(
    device: launchers.Launchers, tmp_path: Path
) -> None:
    source = tmp_path / "kernel.hip"
    source.write_text(
        "#include <hip/hip_runtime.h>\n"
        "__global__ void k(float *x) { x[threadIdx.x] = sinf(x[threadIdx.x]); }\n"
    )
    bitcode = device.device_libraries
    assert bitcode is not None
    log = tmp_path / "stats.log"

    def compile_for(target: str) -> tuple[str, bytes]:
        log.unlink(missing_ok=True)
        given = {
            **os.environ,
            "PATH": f"{device.bin}:{os.environ['PATH']}",
            "HIP_PLATFORM": "amd",
            "HIP_CLANG_PATH": str(device.hip_bin),
            "DEVICE_LIB_PATH": str(bitcode),
            "CCACHE_STATSLOG": str(log),
        }
        out = tmp_path / "kernel.o"
        process.run(["hipcc", f"--offload-arch={target}", "-c", source, "-o", out], env=given, confined=False)
        counted = [line for line in log.read_text().splitlines() if not line.startswith("#")]
        return (
            "hit" if "direct_cache_hit" in counted or "preprocessed_cache_hit" in counted else "miss"
        ), out.read_bytes()

    first = compile_for("gfx90a")
    assert first[0] == "miss"
    assert compile_for("gfx90a") == ("hit", first[1])
    assert compile_for("gfx1030")[0] == "miss"
    assert compile_for("gfx90a")[0] == "hit"
    # Another device library: the preprocessor sees nothing of it, the code object has it inside.
    (bitcode / "ocml.bc").write_bytes((bitcode / "ocml.bc").read_bytes() + b"\0" * 4)
    assert compile_for("gfx90a")[0] == "miss"
