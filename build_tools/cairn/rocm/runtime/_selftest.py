"""`rocm-sdk test`: whether what is installed is complete and loads; by unittest, which is always there."""
# ruff: noqa: PT009, S101

from __future__ import annotations

import base64
import collections
import csv
import ctypes
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import unittest
from pathlib import Path

from . import _devel, _dist, find_libraries
from ._version import __version__

_NO_DEVICE = 100  # hipErrorNoDevice
_KERNEL = b'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


seen: collections.Counter[str] = collections.Counter()
"""What the tests looked at, by its kind."""


def run() -> int:
    """Run the tests of what is installed; 0 when all passed. The last line counts what they saw."""
    cases: list[type[unittest.TestCase]] = [RecordTest, CoreTest]
    # By the metadata of pip: a package whose folder was removed is no package that nobody asked for.
    cases += [LibrariesTest] if installed("libraries") else []
    cases += [DevelTest] if installed("devel") else []
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)
    good = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite).wasSuccessful()
    absent = [extra for extra in ("libraries", "devel", "profiler") if not installed(extra)]
    counts = [f"{count:,} {kind}" for kind, count in seen.items()]
    counts += [f"not installed: {', '.join(absent)}"] if absent else []
    sys.stdout.write(f"seen: {'; '.join(counts)}\n")
    return 0 if good else 1


def installed(extra: str) -> list[importlib.metadata.Distribution]:
    """The packages that an extra of `rocm` stands for, as far as they are installed; the core for none."""
    names = [line.partition("==")[0] for line in _dist.requirements(_dist.family()).get(extra, ())]
    return [each for name in names for each in importlib.metadata.distributions(name=name)]


class RecordTest(unittest.TestCase):
    """The files that each package installed, by its own RECORD (PEP 376)."""

    def test_files_are_those_of_record(self) -> None:
        """Not by `Distribution.files`, which passes over what is missing, from Python 3.12 on."""
        self.assertTrue(installed(""), "rocm-sdk-core is not installed")
        # Without its metadata a package would be taken for one that nobody wanted.
        folders = {extra: _dist.folder(extra) for extra in ("libraries", "profiler")}
        for extra, folder in {**folders, "devel": _devel.package()}.items():
            if not installed(extra):
                self.assertIsNone(folder, f"rocm-sdk-{extra} has files and no metadata")
        for package in [
            each for extra in ("", "libraries", "profiler", "devel") for each in installed(extra)
        ]:
            with self.subTest(package=package.metadata["Name"]):
                rows = [*csv.reader((package.read_text("RECORD") or "").splitlines())]
                hashed = [row for row in rows if len(row) > 1 and row[1].startswith("sha256=")]
                self.assertTrue(hashed, "its RECORD names no file with a sha256")
                wrong = [name for name, digest, *_ in hashed if _sha256(package, name) != digest]
                self.assertEqual(wrong[:5], [], f"{len(wrong)} files are missing or changed")
                seen["files of RECORD"] += len(hashed)


def _sha256(package: importlib.metadata.Distribution, name: str) -> str:
    """The digest of an installed file as RECORD has it; empty where there is no such file."""
    digest = hashlib.sha256()
    try:
        with Path(str(package.locate_file(name))).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return ""
    return f"sha256={base64.urlsafe_b64encode(digest.digest()).rstrip(b'=').decode()}"


class ComponentTest(unittest.TestCase):
    """What holds for every package with libraries."""

    component = ""

    def test_libraries_load(self) -> None:
        """Each library loads in a process of its own: nothing that was loaded before helps it."""
        root = _dist.folder(self.component)
        self.assertIsNotNone(root, f"the folder of rocm-sdk-{self.component} is gone")
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
                seen["libraries loaded"] += 1

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

    def test_each_kind_of_file_is_there(self) -> None:
        """Headers, CMake files and programs that were unpacked; a kind that is lacking is skipped by name."""
        unpacked = _devel.listing(self.root)
        for kind, folder in (("headers", "include"), ("CMake files", "lib/cmake"), ("programs", "bin")):
            with self.subTest(kind=kind):
                paths = [self.root / name for name in unpacked if name.startswith(f"{folder}/")]
                if not paths and kind != "headers":
                    self.skipTest(f"this SDK has no {kind}")
                self.assertTrue(paths, f"no {kind} in {self.root / folder}")
                for path in paths:
                    self.assertTrue(path.exists(), f"{path} is missing")
                    if kind == "programs" and path.is_file():
                        self.assertTrue(os.access(path, os.X_OK), f"{path} cannot be run")
                seen[kind] += len(paths)
