"""`rocm-sdk test`: whether what is installed is complete and loads; by unittest, which is always there."""
# ruff: noqa: PT009, S101

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

from . import _devel, _dist, find_libraries
from ._version import __version__

_NO_DEVICE = 100  # hipErrorNoDevice
_KERNEL = b'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


def run() -> int:
    """Run the tests that what is installed allows; 0 when all passed."""
    cases: list[type[unittest.TestCase]] = [CoreTest]
    cases += [LibrariesTest] if _dist.folder("libraries") else []
    devel = str(_dist.load()["folders"]["devel"]).removeprefix("_")
    cases += [DevelTest] if importlib.util.find_spec(devel) else []
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)
    return 0 if unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite).wasSuccessful() else 1


class ComponentTest(unittest.TestCase):
    """What holds for every package with libraries."""

    component = ""

    def test_libraries_load(self) -> None:
        """Each library loads in a process of its own: nothing that was loaded before helps it."""
        root = _dist.folder(self.component)
        assert root is not None
        libraries = sorted(path for path in root.glob("lib/lib*.so*") if path.is_file())
        self.assertTrue(libraries, f"no library in {root / 'lib'}")
        for path in libraries:
            with self.subTest(library=path.name):
                code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
                result = subprocess.run(
                    [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
                )
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_shortnames_are_found(self) -> None:
        """Each name that can be preloaded is found."""
        for name, (component, _) in _dist.load()["libraries"].items():
            if component == self.component:
                with self.subTest(name=name):
                    self.assertTrue(find_libraries(name)[0].is_file())


class CoreTest(ComponentTest):
    """The runtime."""

    component = "core"

    def test_versions_agree(self) -> None:
        for requirement in (r for many in _dist.requirements(_dist.family()).values() for r in many):
            name = requirement.partition("==")[0]
            try:
                installed = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
            with self.subTest(distribution=name):
                self.assertEqual(installed, __version__)

    def test_hip_answers(self) -> None:
        if "amdhip64" not in _dist.load()["libraries"]:
            self.skipTest("this SDK has no HIP runtime")
        hip = ctypes.CDLL(str(find_libraries("amdhip64")[0]))
        count = ctypes.c_int(-1)
        status = hip.hipGetDeviceCount(ctypes.byref(count))
        self.assertIn(status, (0, _NO_DEVICE))
        self.assertEqual(status == 0, count.value > 0)

    def test_hiprtc_compiles(self) -> None:
        """The runtime compiles for each target, by the libraries and headers that it has itself."""
        if "hiprtc" not in _dist.load()["libraries"]:
            self.skipTest("this SDK has no hipRTC")
        rtc = ctypes.CDLL(str(find_libraries("hiprtc")[0]))
        for target in _dist.load()["families"][_dist.family()]:
            with self.subTest(target=target):
                program, size = ctypes.c_void_p(), ctypes.c_size_t()
                made = rtc.hiprtcCreateProgram(ctypes.byref(program), _KERNEL, b"k.hip", 0, None, None)
                self.assertEqual(made, 0)
                options = (ctypes.c_char_p * 1)(f"--offload-arch={target}".encode())
                self.assertEqual(rtc.hiprtcCompileProgram(program, 1, options), 0)
                self.assertEqual(rtc.hiprtcGetCodeSize(program, ctypes.byref(size)), 0)
                self.assertGreater(size.value, 0)


class LibrariesTest(ComponentTest):
    """The target-specific libraries."""

    component = "libraries"

    def test_programs_that_libraries_run(self) -> None:
        """What a library runs is on this machine; it is no failure of the SDK where it is not."""
        programs = _dist.load().get("programs", [])
        missing = [each for each in programs if not os.access(each[0], os.X_OK)]
        if missing:
            self.skipTest(
                "; ".join(
                    f"{library} runs {path}, which is not here: {hint}" for path, library, hint in missing
                )
            )


class DevelTest(unittest.TestCase):
    """Headers, CMake files and tools."""

    root: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.root = _devel.root(look=True)

    def test_no_link_is_broken(self) -> None:
        for path in self.root.rglob("*"):
            if path.is_symlink() and not path.exists():
                self.fail(f"{path} points to {path.readlink()}, which is not there")

    def test_tools_can_be_run(self) -> None:
        if not (self.root / "bin").is_dir():
            self.skipTest("this SDK has no tools")
        tools = [path for path in (self.root / "bin").iterdir() if path.is_file()]
        self.assertTrue(tools, "no tools")
        for path in tools:
            with self.subTest(tool=path.name):
                self.assertTrue(os.access(path, os.X_OK))

    def test_headers_are_there(self) -> None:
        self.assertTrue((self.root / "include" / "hip" / "hip_runtime.h").is_file())
