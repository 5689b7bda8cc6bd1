"""PyTorch's own tests of its operations, on "cuda" in TorchDevice's `strict`, against the same on the CPU.

CAIRN_TEST_PYTORCH_TESTS names the folder `test` of a PyTorch tree (2.7 was tried with the wheel of 2.13), and
CAIRN_TEST_TORCH_PYTHON an interpreter with what `requirements.txt` names. It takes half an hour.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

SOURCE = Path(__file__).parents[3] / "external-builds/torchdevice/tree/src"
FILES = ("indexing", "view_ops", "shape_ops", "sort_and_select", "type_promotion", "reductions")
SHARE, COLLECTED = 0.90, 2000

found: dict[str, Counter[str]] = {}

pytestmark = [
    pytest.mark.by_hand,
    pytest.mark.skipif(
        "CAIRN_TEST_PYTORCH_TESTS" not in os.environ, reason="CAIRN_TEST_PYTORCH_TESTS names no folder"
    ),
]


def results(folder: Path, file: str, device: str) -> dict[tuple[str, str], str]:
    """The outcome of each test of a file, by names that are the same for each device."""
    shutil.copy(Path(os.environ["CAIRN_TEST_PYTORCH_TESTS"]) / f"test_{file}.py", folder)
    python = os.environ.get("CAIRN_TEST_TORCH_PYTHON", sys.executable)
    report = folder / f"{device}.xml"
    strictly = ["-p", "torchdevice.pytest_plugin", "--torchdevice-strict"] if device == "cuda" else []
    environment = {**os.environ, "PYTORCH_TESTING_DEVICE_ONLY_FOR": device, "PYTHONPATH": str(SOURCE)}
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=no", f"--junit-xml={report}"]
    subprocess.run(
        [python, "-B", "-W", "ignore", "-m", "pytest", *options, *strictly, f"test_{file}.py"],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest just now
        name = re.sub(r"_(cpu|cuda)(?=_|$)", "_DEVICE", case.get("name", ""))
        group = re.sub(r"(CPU|CUDA)$", "", case.get("classname", "").rpartition(".")[2])
        kinds = {child.tag for child in case}
        failed = bool(kinds & {"failure", "error"})
        outcomes[group, name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return outcomes


@pytest.mark.parametrize("file", FILES)
def test_what_passes_on_the_cpu_passes(file: str, tmp_path: Path) -> None:
    on_cpu, on_cuda = (results(tmp_path, file, device) for device in ("cpu", "cuda"))
    passed = [test for test, outcome in on_cpu.items() if outcome == "passed"]
    counts = Counter(on_cuda.get(test, "not there for cuda") for test in passed)
    counts["collected"], counts["passed on the CPU"] = len(on_cpu), len(passed)
    found[file] = counts
    print(file, dict(counts))  # noqa: T201 - the figures are what it is run for
    assert passed
    # What PyTorch skips on a GPU, or has not for it, is no failure of ours; of the rest, nearly all pass.
    assert counts["passed"] >= SHARE * (counts["passed"] + counts["failed"])


def test_enough_pass_of_all_together() -> None:
    if set(found) != set(FILES):
        pytest.skip("only some files were run")
    total = sum(found.values(), Counter[str]())
    print(dict(total))  # noqa: T201
    assert total["collected"] >= COLLECTED
    assert total["passed"] >= SHARE * total["passed on the CPU"]
