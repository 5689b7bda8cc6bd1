"""TorchScript, tracing, torch.compile and export go on working, while enabled and after."""

from __future__ import annotations

import pytest
import torch
import torchdevice

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def factories(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(3) + torch.arange(3).to(x.dtype) + torch.full([3], 2.0) + x


def on(x: torch.Tensor, where: torch.device) -> torch.Tensor:
    return x.to(where) + torch.ones(3, device=where)


def test_scripting_before_during_and_after() -> None:
    expected = [2.0, 3.0, 4.0]
    before = torch.jit.script(factories)
    with torchdevice.redirected("cpu"):
        during = torch.jit.script(factories)
        assert during.graph.__str__() == before.graph.__str__()
        assert before(torch.zeros(3)).tolist() == during(torch.zeros(3)).tolist() == expected
        where = torch.jit.script(on)  # its annotation is of before
        assert where(torch.zeros(3), torch.device("cuda")).tolist() == [1.0] * 3

        def made_now(x: torch.Tensor, where: torch.device) -> torch.Tensor:
            return torch.zeros(3, device=where) + x

        assert torch.jit.script(made_now)(torch.ones(3), torch.device("cuda")).tolist() == [1.0] * 3
    torch.jit._state._clear_class_state()
    assert torch.jit.script(on)(torch.zeros(3), torch.device("cpu")).tolist() == [1.0] * 3
    assert during(torch.zeros(3)).tolist() == expected


def test_scripting_for_the_first_time_while_enabled(run) -> None:
    run(
        "import torch, torchdevice\n"
        "def f(x: torch.Tensor): return torch.zeros(1, device=torch.device('cpu')) + torch.ones_like(x)\n"
        "torchdevice.enable('cpu')\n"
        "assert torch.jit.script(f)(torch.ones(1)).item() == 1\n"
        "torchdevice.disable()\n"
        "def g(x: torch.Tensor): return torch.zeros(1, device=torch.device('cpu')) + torch.ones_like(x)\n"
        "assert torch.jit.script(g)(torch.ones(1)).item() == 1\n"
    )


def test_tracing(tmp_path) -> None:
    with torchdevice.redirected("cpu"):
        traced = torch.jit.trace(lambda x: torch.zeros(3, device="cuda") + x.cuda(), torch.ones(3))
        torch.jit.save(traced, str(tmp_path / "traced.pt"))
        assert (
            torch.jit.load(tmp_path / "traced.pt", map_location="cuda")(torch.ones(3)).tolist() == [1.0] * 3
        )
    assert torch.jit.load(tmp_path / "traced.pt")(torch.ones(3)).tolist() == [1.0] * 3


COMPILE = """
import torch, torchdevice
def f(x):
    y = torch.zeros(3, device="cuda") + x.cuda() * 2
    return y.to("cuda:0") + torch.ones_like(x, device="cuda")
def plain(x):
    return torch.zeros(3, device="cpu") + torch.ones_like(x)
def check(f):
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.ones(3)).tolist() == f(torch.ones(3)).tolist()
if BEFORE:
    check(plain)
with torchdevice.redirected("cpu"):
    check(f)
    check(plain)
    program = torch.export.export(torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2, device="cuda"),))
    assert program.module()(torch.ones(1, 2)).shape == (1, 2)
check(plain)
with torchdevice.redirected("cpu"):
    check(f)
    compiled = torch.compile(f, backend="eager")
    compiled(torch.ones(3))
try:
    compiled(torch.ones(3))
except (AssertionError, RuntimeError) as error:
    assert "cuda" in str(error).lower()
else:
    raise SystemExit("compiled code still knows where cuda led")
"""


@pytest.mark.parametrize("before", [True, False])
def test_compiling(run, before: bool) -> None:
    run(f"BEFORE = {before}\n{COMPILE}")
