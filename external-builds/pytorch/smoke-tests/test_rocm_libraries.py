"""ROCm's libraries: torch opened those that it lists, out of this environment, and nothing is missing."""

import ast
import ctypes
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.skipif(torch.version.hip is None, reason="this torch is not built for ROCm")


def preloads() -> list[str]:
    """The short names that `torch/_rocm_init.py` opens; none in a fat wheel, which brings the libraries."""
    path = Path(torch.__file__).with_name("_rocm_init.py")
    tree = ast.parse(path.read_text(encoding="utf-8")) if path.exists() else ast.Module([], [])
    keywords = [word for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords]
    lists = [ast.literal_eval(word.value) for word in keywords if word.arg == "preload_shortnames"]
    return [name for names in lists for name in names]


def mapped() -> set[Path]:
    """The files of libraries that this process has loaded."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    # proc(5): address, permissions, offset, device, inode, path.
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count("/"))
    return {Path(path).resolve() for path in paths if ".so" in path}


def test_what_torch_preloads_is_loaded_from_the_sdk() -> None:
    names = preloads()
    if not names:
        pytest.skip("this torch preloads nothing: a fat wheel, or a ROCm of the system")
    sdk = pytest.importorskip("rocm_sdk")
    loaded = mapped() if Path("/proc/self/maps").exists() else None
    for name in names:
        (path,) = sdk.find_libraries(name)
        ctypes.CDLL(str(path))
        assert loaded is None or Path(path).resolve() in loaded, f"{name} was not loaded with torch"


def test_the_runtime_is_the_environments_own() -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("this system does not tell what a process has loaded")
    found = [path for path in mapped() if path.name.startswith(("libamdhip64", "libhsa-runtime64"))]
    assert found, "no HIP runtime was loaded"
    own = any(importlib.util.find_spec(name) for name in ("rocm_sdk", "_rocm_sdk_core"))
    if not own and not any(Path(torch.__file__).parent.glob("lib/libamdhip64*")):
        pytest.skip("this environment has no ROCm of its own: the system's is used")
    places = [Path(folder).resolve() for folder in (sys.prefix, *sys.path) if folder]
    outside = [path for path in found if not any(path.is_relative_to(place) for place in places)]
    assert not outside, f"loaded from elsewhere: {outside}"
    # Two copies of one runtime in a process do not see each other's memory.
    assert len({path.name.partition(".")[0] for path in found}) == len(found), f"loaded twice: {found}"


def test_every_library_of_torch_loads() -> None:
    for path in sorted(Path(torch.__file__).parent.glob("lib/*.so*")):
        ctypes.CDLL(str(path))
