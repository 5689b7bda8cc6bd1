import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from cairn import stack as stacks
from cairn.cli.main import main

ROOT = Path(__file__).parents[3] / "external-builds" / "torchdevice"


def test_the_wheel_is_built_from_the_folder_and_verified(tmp_path: Path) -> None:
    where = ["--stack", str(ROOT), "--root-checkout-dir", str(tmp_path / "src")]
    assert main(["checkout", "all", *where]) == 0
    assert main(["build", *where, "--output-dir", str(tmp_path / "wheels")]) == 0
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    assert wheel.name == "torchdevice-0.1.0-py3-none-any.whl"
    assert main(["wheel", "verify", str(wheel)]) == 0
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("torchdevice/")}
    source = ROOT / "tree" / "src"
    files = {path for path in source.rglob("*") if path.suffix in (".py", ".toml") or path.name == "py.typed"}
    assert packed == {path.relative_to(source).as_posix() for path in files}


def test_it_imports_nothing_of_cairn() -> None:
    files = list((ROOT / "tree").rglob("*.py"))
    assert len(files) > 15
    assert [path for path in files if "cairn" in path.read_text(encoding="utf-8")] == []


def test_the_matrix_is_well_formed() -> None:
    data = tomllib.loads((ROOT / "tree/src/torchdevice/matrix.toml").read_text(encoding="utf-8"))
    paths = [f"{group['owner']}.{name}" for group in data["entries"] for name in group["names"]]
    assert len(paths) == len(set(paths)) > 150
    for group in data["entries"]:
        if group["status"] in ("emulated", "refused"):
            assert group["note"].endswith("."), group
    assert stacks.load(ROOT).targets == ("cpu",)


@pytest.mark.by_hand
def test_the_whole_trail(tmp_path: Path) -> None:
    """Built, verified, staged, smoke-tested, promoted, and installed from the release index by pip and by uv.

    pip takes a gigabyte here where it finds PyTorch for the CPU, and 8 GB where it finds the one for CUDA.
    """
    assert main(["ci", "run", "--stack", str(ROOT), "--work-dir", str(tmp_path)]) == 0
    assert list((tmp_path / "index" / "release" / "simple" / "torchdevice").glob("index.html"))


QUICK = ("tests/test_device_bugs.py", "tests/test_idioms.py", "tests/test_training.py")


@pytest.mark.parametrize(
    "files", [pytest.param(QUICK, id="quick"), pytest.param((), id="all", marks=pytest.mark.by_hand)]
)
def test_its_own_tests_pass(files: tuple[str, ...]) -> None:
    """With an interpreter that has torch, named by CAIRN_TEST_TORCH_PYTHON."""
    python = os.environ.get("CAIRN_TEST_TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch, pytest"], check=False, capture_output=True).returncode:
        pytest.skip("CAIRN_TEST_TORCH_PYTHON names no Python with torch and pytest")
    done = subprocess.run(
        [python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files], cwd=ROOT / "tree", check=False
    )
    assert done.returncode == 0
