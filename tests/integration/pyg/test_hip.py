"""torch-scatter and torch-cluster as HIP: the stack's helper files by themselves, and the whole, by hand."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from cairn import stack as stacks
from cairn import venv
from cairn.build import environments, rocm_sdk
from cairn.build.inputs import variables
from cairn.venv import PackageSource
from cairn.wheels.metadata import wheel_info
from helpers.rocm import targets_in
from helpers.trail import cairn, clean_environment

ROOT = Path(__file__).parents[3] / "external-builds" / "pyg" / "hip"
TARGETS = ("gfx942", "gfx1100")
# setup.py makes an extension of each of its C++ files; these have no CUDA beside them.
WITHOUT_KERNELS = {
    "torch_scatter": {"_version_cuda.so"},
    "torch_cluster": {"_version_cuda.so", "_sampler_cuda.so"},
}


@pytest.fixture(scope="module")
def prefix() -> ModuleType:
    """The script that makes the prefix of the SDK."""
    spec = importlib.util.spec_from_file_location("prefix", ROOT / "rocm" / "prefix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_helper_file_is_an_input_of_the_build_or_of_the_sdk() -> None:
    stack = stacks.load(ROOT)
    assert stack.targets == TARGETS
    for project in stack.projects:
        assert variables.stack_files(stack, project, for_cpu=False).keys() == {"python/sitecustomize.py"}
    sdk, packages, _ = rocm_sdk.recipe(stack)
    of_sdk = {word.removeprefix("{stack_dir}/") for word in sdk.build if word.startswith("{stack_dir}/")}
    assert of_sdk == {"rocm/prefix.py"}
    assert packages.parent == ROOT / "rocm"  # all in this folder is in the key of the SDK
    found = {path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*") if "__pycache__" not in path.parts}
    assert found == {"README.md", "stack.toml", "python", "rocm"}


def test_the_extension_builder_is_told_that_it_is_of_hip(tmp_path: Path) -> None:
    """The order counts: what torch says is changed before its extension builder reads it, and not sooner."""
    package = tmp_path / "torch"
    (package / "utils").mkdir(parents=True)
    (package / "__init__.py").write_text("from torch import cuda, version\nbefore = version.hip\n")
    (package / "version.py").write_text("hip = None\n")
    (package / "cuda.py").write_text("def _is_compiled(): return False\ndef is_available(): return 'asked'\n")
    (package / "utils" / "__init__.py").touch()
    (package / "utils" / "cpp_extension.py").write_text(
        "import torch\nIS_HIP = bool(torch.version.hip and torch.cuda._is_compiled())\n"
    )
    shown = "import torch; from torch.utils import cpp_extension as e; print(torch.before, e.IS_HIP)"
    shown += "; print(torch.cuda.is_available())"

    def run(**more: str) -> str:
        env = {"PYTHONPATH": f"{ROOT / 'python'}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1", **more}
        command = [sys.executable, "-c", shown]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    assert run(PYTORCH_ROCM_ARCH="gfx942") == "None True\nFalse\n"
    assert run() == "None False\nasked\n"


@pytest.mark.usefixtures("debian_hip")
def test_targets_are_numbered_as_debians_device_libraries_number_them(prefix: ModuleType) -> None:
    """A wrong number would choose wrong instructions in silence."""
    disassembler = shutil.which("llvm-dis-19") or shutil.which("llvm-dis-15")
    if disassembler is None:
        pytest.skip("not here: apt-get install llvm-19")
    known = sorted(prefix.BITCODE.glob("oclc_isa_version_*.bc"))
    assert len(known) > 20
    for path in known:
        text = subprocess.run([disassembler, "-o", "-", path], check=True, capture_output=True, text=True)
        number = re.search(r"constant i32 (\d+)", text.stdout)
        assert number is not None
        assert prefix.isa_version(f"gfx{path.stem.rpartition('_')[2]}") == int(number[1]), path.name
    assert [prefix.isa_version(target) for target in TARGETS] == [9402, 11000]


@pytest.mark.by_hand
def test_torch_scatter_and_torch_cluster_as_hip(prefix: ModuleType, tmp_path: Path) -> None:
    if not all(path.exists() for path in (prefix.CLANG, prefix.ASSEMBLER, prefix.HEADERS / "thrust")):
        pytest.skip(f"not here: apt-get install --no-install-recommends {' '.join(prefix.PACKAGES)}")
    stack = stacks.load(ROOT)
    env = clean_environment(tmp_path / "cache")

    def run(*words: str | Path) -> None:
        done = cairn(*words, env=env, cwd=tmp_path, timeout=7200)
        assert done.returncode == 0, done.stderr

    hipifier = venv.create(tmp_path / "hipifier")
    subject, log = "the wheels that hipify needs", tmp_path / "uv.log"
    environments.install(hipifier, stack.extra_wheels, PackageSource(), subject=subject, log=log)
    dists = rocm_sdk.make(stack, TARGETS, tmp_path / "sdk", log=tmp_path / "sdk.log", say=lambda _: None)
    where = ("--stack", ROOT, "--root-checkout-dir", "src")
    run("checkout", "all", *where, "--python", hipifier.python)
    build = ("build", *where, "--output-dir", "out", "--install-rocm", "--find-links", dists[0].parent)
    run(*build)

    # The build has repaired them, and refuses what `verify` has a finding on.
    made = json.loads((tmp_path / "out" / "set.json").read_text())["wheels"]
    assert {w["distribution"]: sorted(w["targets"]) for w in made} == dict.fromkeys(
        ("torch-cluster", "torch-scatter"), sorted(TARGETS)
    )
    for wheel in sorted((tmp_path / "out").glob("*.whl")):
        assert wheel_info.read(wheel).version.endswith("+rocm5.2.3")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / wheel.stem)
        extensions = sorted((tmp_path / wheel.stem).glob("torch_*/_*_cuda.so"))
        with_kernels = [path for path in extensions if targets_in(path)]
        without = {path.name for path in extensions if path not in with_kernels}
        assert without == WITHOUT_KERNELS[wheel.name.partition("-")[0]]
        assert all(targets_in(path) == sorted(TARGETS) for path in with_kernels)
        shown = cairn("wheel", "show", "--json", wheel, env=env).stdout
        # The runtime of the SDK, and what brings the symbols that a ROCm build of PyTorch has.
        assert "libamdhip64.so.5" in shown
        assert "libtorch.so" in shown
