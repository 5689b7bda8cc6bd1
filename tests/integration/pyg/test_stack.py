import sys
from pathlib import Path

import pytest

from cairn import process
from cairn import stack as stacks
from cairn.testing import junit
from cairn.testing.smoke import SmokeRequest, run_smoke
from cairn.wheels import wheels_to_set

ROOT = Path(__file__).parents[3] / "external-builds" / "pyg"


def test_the_stack_is_whole_and_pins_what_it_fetches() -> None:
    stack = stacks.load(ROOT)
    assert (stack.targets, stack.sdk, stack.version_suffix) == (("cpu",), None, "+pt213cpu")
    assert all(Path(folder).is_dir() for folder in stack.smoke_tests)
    for project in stack.projects:
        assert project.origin.sdist is not None
        assert project.origin.sha256 is not None
        assert len(project.origin.sha256) == 64
        assert project.hipify == "torch-utils"
        # the wheel must not install beside another torch than the one it was compiled for
        assert set(project.requires) == set(stack.extra_wheels)


@pytest.mark.by_hand
def test_a_wheel_built_for_cuda_does_not_pass_beside_the_cpu_torch(tmp_path: Path) -> None:
    """PyPI's torchvision needs libraries of the CUDA torch: a real wheel, and a bad one here."""
    house = tmp_path / "house"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", house]
    process.run([*download, "--no-deps", "torchvision==0.28.0"], timeout=1200, confined=False)
    wheel = next(house.glob("torchvision-*.whl"))
    if "+cpu" in wheel.name:
        pytest.skip("pip finds a torchvision for the CPU")
    # Without what it needs first: elsewhere it may be the one for CUDA, which needs gigabytes.
    fetched = process.run(
        [*download, "--no-deps", "torch==2.13.0"], timeout=1200, check=False, confined=False
    )
    if fetched.returncode or not list(house.glob("torch-2.13.0+cpu-*.whl")):
        pytest.skip("pip finds no torch for the CPU")
    process.run([*download, "torch==2.13.0", "numpy", "pillow"], timeout=1200, confined=False)
    wheel_set = wheels_to_set.make(
        [wheel],
        manifest_sha256="0" * 64,
        stack="vision",
        line="2.13",
        python="3.11",
        platform="linux_x86_64",
        family="cpu",
        targets=("cpu",),
    )
    result = run_smoke(
        SmokeRequest(
            wheel_set=wheel_set,
            work_dir=tmp_path / "work",
            find_links=(str(house),),
            extra_wheels=("torch==2.13.0",),
            imports={"torchvision": ("torchvision", "torchvision.ops")},
        )
    )
    assert result.record.verdict == "failed"
    failed = {
        c.name.rpartition("::")[2] for c in junit.read(result.junit_path).cases if c.outcome == "failed"
    }
    assert failed == {
        "test_imports[torchvision]",
        "test_libraries_load[torchvision]",
        "test_needed_libraries_are_in_the_environment_or_promised[torchvision]",
    }
    assert any("libc10_cuda.so: cannot open shared object file" in line for line in result.failures)
