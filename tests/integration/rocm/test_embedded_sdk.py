"""The miniature ROCm, from its sources to kernels compiled by what pip installed."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installer.sources import WheelFile

from cairn import interpreters
from cairn.build import rocm_sdk
from cairn.build.model import SdkRequest
from cairn.errors import NetworkError, PrerequisiteError, UsageError
from cairn.files import sha256_of
from cairn.output import silent
from cairn.rocm import install
from cairn.venv import PackageSource
from helpers.rocm import targets_in
from helpers.serving import serving

TARGETS = ("gfx942", "gfx1100")
VERSION = "7.10.0"
HOST = """
#include <Python.h>
#include <stdlib.h>
extern "C" int launch();
static PyObject *call(PyObject *, PyObject *) { return PyLong_FromLong(launch()); }
static PyMethodDef methods[] = {{"call", call, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_native() { return PyModule_Create(&module); }
"""
NO_DEVICE = 100  # hipErrorNoDevice


def test_the_same_sources_give_the_same_packages(dists: Path, dists_made_again: Path) -> None:
    names = sorted(path.name for path in dists.iterdir())
    assert names == sorted(path.name for path in dists_made_again.iterdir())
    assert len(names) == 4
    for name in names:
        assert (dists_made_again / name).read_bytes() == (dists / name).read_bytes(), name


def test_wheels_are_whole_portable_and_pinned(dists: Path) -> None:
    wheels = sorted(dists.glob("*.whl"))
    assert [w.name.split("-")[0] for w in wheels] == [
        "rocm_sdk_core",
        "rocm_sdk_devel",
        "rocm_sdk_libraries_gfx942_gfx1100",
    ]
    for path in wheels:
        assert path.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
        with WheelFile.open(path) as wheel:
            wheel.validate_record()
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(wheels[0])],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "manylinux_2_28_x86_64" in shown.stdout or "manylinux_2_17" in shown.stdout


def test_libraries_hold_exactly_the_targets_asked_for(prefix: Path) -> None:
    assert targets_in(prefix / "lib" / "libhiprand.so.1") == sorted(TARGETS)


def test_binaries_name_no_folder_of_this_machine(prefix: Path) -> None:
    for path in (prefix / "lib").glob("*.so.*"):
        assert str(Path.home()).encode() not in path.read_bytes() or Path.home() == Path("/")
        assert str(prefix.parent).encode() not in path.read_bytes()
        assert b"site-packages" not in path.read_bytes()


def hipcc(bin_dir: Path, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in (bin_dir / "hipcc", *words)]
    # A plain machine: zig is found beside the SDK, whichever python3 comes first.
    env = os.environ | ({"PATH": os.defpath} if shutil.which("python3", path=os.defpath) else {})
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
class TestInstalled:
    """What an environment can do once the SDK was installed from one index."""

    def test_it_says_what_it_is(self, environment: Path) -> None:
        info = install.query(environment)
        assert (info.version, info.targets) == (VERSION, TARGETS)
        assert info.root.name == "_rocm_sdk_devel"
        assert (info.bin / "hipcc").is_file()
        assert (info.cmake / "hip" / "hip-config.cmake").is_file()
        assert (info.root / ".info" / "version").read_text() == f"{VERSION}\n"
        subprocess.run([sys.executable, "-m", "pip", "--python", environment, "check"], check=True)

    def test_its_own_tests_pass(self, environment: Path) -> None:
        done = subprocess.run(
            [environment.with_name("rocm-sdk"), "test"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "DevelTest" in done.stdout
        assert "LibrariesTest" in done.stdout
        # What it saw, against what the packages' own records and the unpacked files are.
        (line,) = re.findall(r"^seen: (.*)$", done.stdout, re.MULTILINE)
        counts = {kind: int(count.replace(",", "")) for count, kind in re.findall(r"([\d,]+) ([\w ]+)", line)}
        root = install.query(environment).root
        for kind, folder in (("headers", "include"), ("CMake files", "lib/cmake"), ("programs", "bin")):
            assert counts[kind] == sum(not path.is_dir() for path in (root / folder).rglob("*")), kind
        assert counts["libraries loaded"] == 2
        assert counts["files of RECORD"] > 10
        assert "not installed: profiler" in line

    @pytest.mark.parametrize(
        ("part", "left", "why"),
        [
            ("_rocm_sdk_core/lib/libamdhip64.so.6", None, "1 files are missing or changed"),
            ("_rocm_sdk_core/lib/libamdhip64.so.6", b"", "1 files are missing or changed"),
            ("_rocm_sdk_libraries_gfx942_gfx1100", None, "rocm-sdk-libraries-gfx942-gfx1100 is gone|is gone"),
            ("rocm_sdk_devel/devel.tar", b"cut", "1 files are missing or changed"),
            ("rocm_sdk_core-7.10.0.dist-info/RECORD", b"", "RECORD names no file"),
            ("rocm_sdk_devel-7.10.0.dist-info", None, "rocm-sdk-devel has files and no metadata"),
            (
                "rocm_sdk_libraries_gfx942_gfx1100-7.10.0.dist-info",
                None,
                "rocm-sdk-libraries has files and no metadata",
            ),
        ],
    )
    def test_its_own_tests_miss_what_was_removed(
        self, environment: Path, part: str, left: bytes | None, why: str
    ) -> None:
        path = install.query(environment).root.parent / part
        away = path.with_name(f"{path.name}.away")
        path.rename(away)
        try:
            if left is not None:
                path.write_bytes(left)
            program = environment.with_name("rocm-sdk")
            done = subprocess.run([program, "test"], capture_output=True, text=True, check=False)
        finally:
            path.unlink(missing_ok=True)
            away.rename(path)
        assert done.returncode == 1, done.stdout + done.stderr
        assert re.search(why, done.stdout)

    def test_libraries_are_links_into_the_other_packages(self, environment: Path) -> None:
        lib = install.query(environment).root / "lib"
        assert str((lib / "libamdhip64.so").readlink()) == "../../_rocm_sdk_core/lib/libamdhip64.so.6"
        assert (lib / "libhiprand.so").resolve().parts[-3] == "_rocm_sdk_libraries_gfx942_gfx1100"

    def test_hipcc_builds_an_extension_with_kernels_for_two_targets(
        self, environment: Path, kernels: Path, tmp_path: Path
    ) -> None:
        info = install.query(environment)
        assert kernels == tmp_path / "k.hip"
        (tmp_path / "m.cpp").write_text(HOST)
        include = subprocess.run(
            [environment, "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        if not Path(include, "Python.h").exists():
            pytest.skip("this Python has no headers")
        # Debian's pyconfig.h includes another one, by its path below /usr/include.
        includes = [f"-I{include}", "-idirafter", str(Path(include).parent)]
        archs = [f"--offload-arch={target}" for target in TARGETS]
        for words in (
            ["-c", "k.hip", "-o", "k.o", *archs, "-fPIC", "-O2", "-Wall", "-MMD", "-MF", "k.d"],
            ["-c", "m.cpp", "-o", "m.o", "-fPIC", "-O2", *includes],
            ["-shared", "k.o", "m.o", "-o", "native.so", "-Wl,-soname,native.so", "-Wl,--as-needed",
             f"-Wl,-rpath,{info.root / 'lib'}"],
        ):  # fmt: skip
            done = hipcc(info.bin, *words, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
        # One bundle from the one file with kernels, and nothing but the targets asked for.
        assert targets_in(tmp_path / "native.so") == sorted(TARGETS)
        assert "hip_runtime.h" not in (tmp_path / "k.d").read_text()  # -MMD leaves system headers out
        ran = subprocess.run(
            [environment, "-c", "import native; print(native.call())"],
            cwd=tmp_path, check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.stdout == f"{NO_DEVICE}\n"

    def test_hipcc_passes_on_errors(self, environment: Path, kernels: Path, tmp_path: Path) -> None:
        info = install.query(environment)
        assert kernels == tmp_path / "k.hip"
        (tmp_path / "bad.hip").write_text(
            "#include <hip/hip_runtime.h>\n__global__ void k() { nothing(); }\n"
        )
        for words, message in (
            (["k.hip", "--offload-arch=gfx9999"], "unsupported HIP gpu architecture: gfx9999"),
            (["bad.hip", "--offload-arch=gfx942"], "use of undeclared identifier 'nothing'"),
            (["missing.hip", "--offload-arch=gfx942"], "no such file or directory"),
            (["k.hip"], "no GPU target"),
        ):
            done = hipcc(info.bin, "-c", *words, "-o", "x.o", cwd=tmp_path)
            assert done.returncode == 1
            assert message in done.stderr
            assert "Traceback" not in done.stderr
            assert not (tmp_path / "x.o").exists()

    def test_cmake_finds_hip(self, environment: Path, tmp_path: Path) -> None:
        cmake = shutil.which("cmake")
        if cmake is None:
            pytest.skip("there is no cmake on this machine")
        info = install.query(environment)
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES NONE)\n"
            'find_package(hip 6 REQUIRED)\nmessage(STATUS "found ${hip_INCLUDE_DIR}")\n'
        )
        done = subprocess.run(
            [cmake, "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={info.cmake}"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert f"found {info.root}/include" in done.stdout

    def test_unpacking_is_safe_when_many_ask_at_once_and_uninstalling_leaves_nothing(
        self, dists: Path, new_environment: Path
    ) -> None:
        python = new_environment
        site = next((python.parents[1] / "lib").iterdir()) / "site-packages"
        pip = [sys.executable, "-m", "pip", "--python", str(python)]
        wheels = [str(p) for p in dists.iterdir()]
        subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", *wheels], check=True)
        assert not (site / "_rocm_sdk_devel").exists()
        asking = [
            subprocess.Popen([python, "-m", "rocm_sdk", "path", "--root"], stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        answers = {process.communicate()[0] for process in asking}
        assert answers == {f"{site / '_rocm_sdk_devel'}\n"}
        assert os.access(site / "_rocm_sdk_devel" / "bin" / "hipcc", os.X_OK)
        assert [p.name for p in site.iterdir() if p.name.endswith(".part")] == []
        names = [p.name.split(f"-{VERSION}")[0] for p in dists.iterdir()]
        # devel first: pip does not remove a link whose target is gone.
        names.sort(key="rocm_sdk_devel".__ne__)
        subprocess.run([*pip, "uninstall", "-q", "-y", *names], check=True)
        assert [p.name for p in site.iterdir()] == []

    def test_an_unknown_extra_is_an_error(self, index_url: str, new_environment: Path) -> None:
        with pytest.raises(UsageError, match="no extra bogus"):
            install.install(
                install.InstallRequest(
                    python=new_environment, source=PackageSource(index_url=index_url), extras=("bogus",)
                )
            )

    def test_find_links_is_enough_for_the_runtime(
        self, dists: Path, new_environment: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "empty").mkdir()
        request = install.InstallRequest(
            python=new_environment.parents[1],
            source=PackageSource(index_url=(tmp_path / "empty").as_uri(), find_links=(str(dists),)),
            extras=("libraries",),
        )
        assert install.install(request) is None
        code = (
            "import rocm_sdk as r; r.initialize_process(preload_shortnames=['amdhip64', 'hiprand'],"
            f"check_version='{VERSION}'); import ctypes; g = ctypes.c_void_p();"
            "print(r.preload_libraries.__module__,"
            "ctypes.CDLL('libhiprand.so.1').hiprandCreateGenerator(ctypes.byref(g), 400))"
        )
        done = subprocess.run([new_environment, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout == "rocm_sdk 203\n"  # HIPRAND_STATUS_INITIALIZATION_FAILED: no device

    def test_the_target_family_can_be_chosen_and_a_wrong_one_is_refused(
        self, index_url: str, small_environment: Path
    ) -> None:
        code = "import rocm_sdk; rocm_sdk.find_libraries('amdhip64')"
        subprocess.run([small_environment, "-c", code], check=True)
        for setting, statement, message in (
            ("", "rocm_sdk.find_libraries('hipblas')", "unknown ROCm library 'hipblas'"),
            ("", "rocm_sdk.find_libraries('hiprand')", "pip install 'rocm[libraries]==7.10.0'"),
            ("", "rocm_sdk.initialize_process(check_version='7.9.*')", "built against ROCm 7.9.*"),
            ("gfx90a", "rocm_sdk._dist.family()", "ROCM_SDK_TARGET_FAMILY=gfx90a is not in this SDK"),
        ):
            env = os.environ | ({"ROCM_SDK_TARGET_FAMILY": setting} if setting else {})
            done = subprocess.run(
                [small_environment, "-c", f"import rocm_sdk, rocm_sdk._dist; {statement}"],
                env=env, check=False, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 1
            assert message in done.stderr.splitlines()[-1]
        request = install.InstallRequest(
            python=small_environment, source=PackageSource(index_url=index_url), family="gfx90a"
        )
        assert "family-gfx90a" in " ".join(install.install_command(request))

    def test_asking_for_development_files_that_are_not_installed(self, small_environment: Path) -> None:
        with pytest.raises(PrerequisiteError, match=r"pip install 'rocm\[devel\]==7.10.0'"):
            install.query(small_environment)

    def test_uv_installs_it_too(self, index_url: str, new_environment: Path) -> None:
        uv = Path(sys.executable).with_name("uv")
        subprocess.run(
            [uv, "pip", "install", "-q", "--no-cache", "--python", new_environment, "--index-url", index_url,
             "rocm[libraries]"], check=True,
        )  # fmt: skip
        done = subprocess.run(
            [new_environment, "-m", "rocm_sdk", "version"], check=True, capture_output=True, text=True
        )
        assert done.stdout == f"{VERSION}\n"


def test_a_build_can_say_which_files_of_the_sdk_it_was_built_with(
    dists: Path, index_url: str, tmp_path: Path
) -> None:
    """What a builder signs; no lock has the SDK."""
    request = SdkRequest(source=PackageSource(index_url=index_url), version=VERSION)
    for _ in range(2):  # from pip's report, then from what the first left
        made = rocm_sdk.install(
            tmp_path / "sdk", request, python=interpreters.current(), log=tmp_path / "log", say=silent
        )
        assert made.files == {path.name: sha256_of(path) for path in dists.iterdir()}


def test_an_index_without_rocm_is_one_clear_error(new_environment: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"has no rocm\[libraries,devel\]"):
        install.install(
            install.InstallRequest(
                python=new_environment, source=PackageSource(index_url=(tmp_path / "empty").as_uri())
            )
        )


def test_an_index_out_of_reach_is_one_clear_error(
    new_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(NetworkError, match=r"cannot reach http://127\.0\.0\.1:9/"):
        install.install(
            install.InstallRequest(
                python=new_environment, source=PackageSource(index_url="http://127.0.0.1:9/")
            )
        )


def test_an_index_behind_a_login_page_is_called_that(new_environment: Path, tmp_path: Path) -> None:
    (tmp_path / "simple" / "rocm").mkdir(parents=True)
    page = tmp_path / "simple" / "rocm" / "index.html"
    page.write_text("<title>Log in</title><form><input type=password></form>")
    with (
        serving(tmp_path) as url,
        pytest.raises(NetworkError, match=f"{url}/simple/ is not a package index: .* a login page") as caught,
    ):
        install.install(
            install.InstallRequest(python=new_environment, source=PackageSource(index_url=f"{url}/simple/"))
        )
    assert "credentials" in str(caught.value.tip)


def test_an_environment_without_rocm_says_so(new_environment: Path) -> None:
    with pytest.raises(PrerequisiteError, match="there is no ROCm SDK in the environment"):
        install.query(new_environment)


def test_the_runtime_answers_that_there_is_no_device(prefix: Path) -> None:
    hip = ctypes.CDLL(str(prefix / "lib" / "libamdhip64.so.6"))
    count = ctypes.c_int(7)
    assert hip.hipGetDeviceCount(ctypes.byref(count)) == NO_DEVICE
    assert count.value == 0
    hip.hipGetErrorName.restype = hip.hipGetErrorString.restype = ctypes.c_char_p
    assert hip.hipGetErrorName(NO_DEVICE) == b"hipErrorNoDevice"
    assert hip.hipGetErrorString(NO_DEVICE) == b"no ROCm-capable device is detected"
    assert hip.hipGetLastError() == NO_DEVICE
    assert hip.hipGetLastError() == 0


def test_hip_is_preprocessed_to_standard_output_as_compiler_caches_ask_for_it(
    prefix: Path, tmp_path: Path
) -> None:
    # An empty answer, or one in a file called `-`, makes ccache take all sources for the same.
    answers = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.hip").write_text(f"__attribute__((global)) void {name}() {{}}\n")
        command = [
            sys.executable,
            str(prefix / "bin" / "hipcc"),
            "--offload-arch=gfx942",
            "-E",
            f"{name}.hip",
        ]
        answers.append(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout)
    assert b"void one()" in answers[0]
    assert b"void two()" in answers[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.hip", "two.hip"]


def test_a_library_is_linked_as_zig_links_it_without_making_a_c_runtime_again(
    prefix: Path, kernels: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(prefix, whole, symlinks=True)
    without = tmp_path / "without"
    shutil.copytree(prefix, without, symlinks=True)
    shutil.rmtree(without / "lib" / "llvm" / "lib" / "c-runtime")
    libraries = []
    for sdk in (whole, without):
        made, cache = tmp_path / f"{sdk.name}.so", tmp_path / f"{sdk.name}-cache"
        options = [
            "-shared",
            "-fPIC",
            "-O2",
            "--offload-arch=gfx942",
            "-lm",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,-z,defs",
        ]
        command = [sys.executable, sdk / "bin" / "hipcc", *options, kernels, "-o", made]
        env = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache)}
        subprocess.run(command, env=env, cwd=tmp_path, check=True)
        libraries.append(made.read_bytes())
        assert cache.exists() == (sdk is without)
    assert libraries[0] == libraries[1]
