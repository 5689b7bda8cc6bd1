"""A recipe for CI: mistakes about devices among a project's tests, told apart, by the line that made them."""

from __future__ import annotations

from pathlib import Path

import pytest

MODEL = """import torch

def forward(weight, data):
    return data @ weight


def fine(weight, data):
    return data.to(weight.device) @ weight


def wrapped(weight, data):
    try:
        forward(weight, data)
    except RuntimeError as error:
        raise ValueError("in a layer") from error
"""
TESTS = """import pytest, torch
import model

def weight(): return torch.ones(2, 2, device="cuda")
def test_forgotten(): model.forward(weight(), torch.ones(2, 2))
def test_known(): weight() + torch.ones(2)
def test_fixed(): model.fine(weight(), torch.ones(2, 2))
def test_other(): raise ValueError("of another kind")
def test_wrapped(): model.wrapped(weight(), torch.ones(2, 2))

@pytest.mark.torchdevice_off(reason="asks whether there is a GPU")
def test_off(): assert not torch.cuda.is_available()

def test_on_again(): assert weight().is_cuda
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "test_model.py").write_text(TESTS, encoding="utf-8")
    baseline = (
        "# to be mended\ntest_model.py::test_known two_devices\ntest_model.py::test_fixed two_devices\n"
    )
    (tmp_path / "known.txt").write_text(baseline, encoding="utf-8")
    return tmp_path


def suite(run, *options: str, **variables: str) -> str:
    command = ("-m", "pytest", "-p", "torchdevice.pytest_plugin", "-p", "no:cacheprovider", "--rootdir=.")
    with pytest.raises(AssertionError) as caught:
        run("", *command, *options, **variables)
    return str(caught.value)


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["alone", "xdist"])
def test_mistakes_are_told_apart(run, project: Path, workers: tuple[str, ...]) -> None:
    if workers:
        pytest.importorskip("xdist")
    text = suite(
        run,
        "--torchdevice-strict",
        "--torchdevice-baseline=known.txt",
        "test_model.py",
        *workers,
        GITHUB_ACTIONS="true",
        GITHUB_WORKSPACE=str(project.parent),
    )
    file = f"{project.name}/model.py"
    assert "model.py:4: Expected all tensors to be on the same device" in text
    assert f"::error file={file},line=4,title=torchdevice different_argument::Expected all tensors" in text
    assert "test_model.py::test_forgotten different_argument" in text
    assert "test_model.py::test_wrapped different_argument" in text
    assert "fixed, to be taken out of the baseline: test_model.py::test_fixed two_devices" in text
    assert "2 new, 1 in the baseline, 1 fixed" in text
    assert "3 failed, 3 passed, 1 xfailed" in text


def test_a_baseline_that_is_not_there_is_said_in_one_line(run, project: Path) -> None:
    text = suite(run, "--torchdevice-strict", "--torchdevice-baseline=lost.txt", "test_model.py")
    assert "ERROR: --torchdevice-baseline=lost.txt: No such file or directory" in text
    assert "Traceback" not in text


def test_an_opt_out_has_a_reason(run, project: Path) -> None:
    (project / "test_model.py").write_text(
        "import pytest\n@pytest.mark.torchdevice_off\ndef test_it(): pass\n", encoding="utf-8"
    )
    assert 'test_it: write torchdevice_off(reason="...")' in suite(run, "--torchdevice", "test_model.py")
