"""Feature flags, fallbacks, what is left out, and what is counted."""

from __future__ import annotations

import json

import pytest
import torch
import torchdevice
from torchdevice import features, matrix, monitoring, reporting


def test_what_is_switched_off_is_torchs_own() -> None:
    barrier, autocast = torch.distributed.barrier, torch.autocast.__init__
    with torchdevice.redirected("cpu", features="-distributed"):
        assert torch.distributed.barrier is barrier
        assert torch.autocast.__init__ is not autocast
        assert torchdevice.status().features == "-distributed"
    with torchdevice.redirected("cpu", features="-refusals"), pytest.raises(RuntimeError, match="dummy"):
        torch.cuda.CUDAGraph()


def test_every_entry_has_a_feature_and_every_feature_a_word() -> None:
    used = {entry.feature for entry in matrix.entries() if entry.status is not matrix.Status.NATIVE}
    assert used - {"signatures"} == features.NAMES.keys() - {"signatures", "monitor"}
    assert "signatures" in used


@pytest.mark.parametrize("text", ["amp", "+tea", "-", "+monitor,no"])
def test_mistakes_in_features_are_told(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TORCHDEVICE_FEATURES", text)
    with pytest.raises(ValueError, match="features are"):
        torchdevice.enable("cpu")
    assert torchdevice.status() is None


def test_the_environment_switches() -> None:
    assert "monitor" not in features.chosen()
    assert features.chosen(" +monitor , -amp") == features.chosen() - {"amp"} | {"monitor"}


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_half_precision_that_the_cpu_lacks(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(8).half()
    with pytest.raises(RuntimeError, match="Half"):
        torch.fft.fft(x)
    monitoring.reset()
    with torchdevice.redirected("cpu"):
        first, *_ = [torch.fft.rfft(x.cuda()) for _ in range(3)]
        assert torch.nn.functional.avg_pool3d(torch.ones(1, 2, 2, 2).bfloat16(), 2).dtype is torch.bfloat16
        with pytest.raises(IndexError, match="Dimension out of range"):
            torch.fft.fft(x, dim=7)
        loss = torch.nn.MultiMarginLoss()(torch.ones(1, 4).bfloat16(), torch.tensor([1]))
    assert loss.dtype is torch.bfloat16
    assert first.dtype is torch.complex32
    expected = torch.fft.rfft(x.float())
    assert torch.allclose(first.to(torch.complex64), expected, atol=1e-2)
    assert monitoring.report()["fallbacks"]["fft_rfft in torch.float16"] == 3
    assert caplog.text.count("fft_rfft lacks torch.float16") == 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_torchscript_compiles_what_falls_back() -> None:
    def transformed(x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).abs()

    with torchdevice.redirected("cpu"):
        assert torch.jit.script(transformed)(torch.ones(4)).tolist() == [4, 0, 0, 0]
        assert torch.jit.script(torch.nn.RReLU().eval())(torch.ones(4)).tolist() == [1] * 4
        assert torch.jit.script(torch.nn.MultiMarginLoss())(torch.zeros(1, 4), torch.tensor([1])) == 0.75


def test_pinning_is_left_out_and_can_be_torchs() -> None:
    x = torch.ones(2)
    with torchdevice.redirected("cpu"):
        assert x.pin_memory() is x
        assert not torch.utils.data.DataLoader([1], pin_memory=True).pin_memory
    with torchdevice.redirected("cpu", features="-optimizer"):
        assert torch.utils.data.DataLoader([1], pin_memory=True).pin_memory
        with pytest.raises(RuntimeError, match="Cannot access accelerator"):
            x.pin_memory()


def test_calls_are_counted_and_shown() -> None:
    monitoring.reset()
    with torchdevice.redirected("cpu", features="+monitor"):
        for _ in range(3):
            torch.zeros(1, device="cuda").cuda()
    data = monitoring.report()
    assert data["calls"]["torch.zeros"] == data["calls"]["torch.Tensor.cuda"] == 3
    assert data["first_called"]["torch.zeros"].startswith(f"{__file__}:")
    assert "torch.zeros" in reporting.as_text(data)
    assert reporting.as_svg(data).count("<rect") == len(data["calls"])
    monitoring.reset()


def test_a_report_of_a_program_and_its_processes(run, tmp_path) -> None:
    code = (
        "import multiprocessing, torch\n"
        "def use(): torch.ones(2, device='cuda')\n"
        "if __name__ == '__main__':\n"
        "    use()\n"
        "    child = multiprocessing.get_context('spawn').Process(target=use); child.start(); child.join()\n"
    )
    run(code, "-m", "torchdevice", "--report", "calls", "SCRIPT")
    shown = run("", "-m", "torchdevice", "report", "calls", "--format", "json")
    assert json.loads(shown)["calls"]["torch.ones"] == 2
    assert "program.py:2" in run("", "-m", "torchdevice", "report", "calls")
    assert run("", "-m", "torchdevice", "report", "calls", "--format", "svg").startswith("<svg")
    (tmp_path / "calls" / "1.json").write_text("{}")
    with pytest.raises(AssertionError, match=r"is no torchdevice\.report/1"):
        run("", "-m", "torchdevice", "report", "calls")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        '{"schema": "torchdevice.report/1"}',
        '{"schema": "torchdevice.report/1", "calls": [1], "fallbacks": {}, "first_called": {}}',
        '{"schema": "torchdevice.report/1", "calls": {"f": "x"}, "fallbacks": {}, "first_called": {}}',
    ],
)
def test_what_is_no_report_is_named(tmp_path, text) -> None:
    (tmp_path / "1.json").write_text(text)
    with pytest.raises(ValueError, match=r"1\.json is no torchdevice\.report/1"):
        reporting.read(tmp_path)
