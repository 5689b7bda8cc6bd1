"""The catalogue: which functions there are, calls in processes of their own, and what is made of them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import torch
from torchdevice import matrix
from torchdevice.catalog import command, functions, measure, render
from torchdevice.catalog.functions import Function
from torchdevice.catalog.measure import Outcome
from torchdevice.matrix import Status


def row(path: str, *arguments: str, status: Status = Status.NATIVE) -> Function:
    return Function(path=path, category="test", planned=True, status=status, arguments=arguments)


@pytest.mark.filterwarnings("ignore")
def test_the_plan_and_all_of_torch_are_there() -> None:
    found = {function.path: function for function in functions.functions()}
    assert sum(function.planned for function in found.values()) == 369
    assert len(found) > 5000
    assert found["torch.zeros"].category == "torch"
    assert found["torch.cuda.synchronize"].category == "CUDA_OPERATIONS"
    gone = [path for path, function in found.items() if function.planned and matrix.find(path) is None]
    assert {found[path].status for path in gone} == {Status.ABSENT}
    assert found["torch.add"].arguments[:2] == ("input", "other")


def test_calls_are_made_on_the_cpu_and_as_cuda() -> None:
    rows = [
        row("torch.add", "input", "other"),
        row("torch.linalg.eigh"),
        row("torch.cuda.synchronize", "device=…"),
        row("torch.cuda.cudart"),
        row("torch.cuda.has_half"),
        row("torch.export.compatibility", status=Status.ABSENT),
    ]
    made = {r.function.path: r for r in measure.measure(rows)}
    outcomes = {path.removeprefix("torch."): (r.cpu.outcome, r.cuda.outcome) for path, r in made.items()}
    assert outcomes == {
        "add": (Outcome.RETURNED, Outcome.RETURNED),
        "linalg.eigh": (Outcome.RETURNED, Outcome.RETURNED),
        "cuda.synchronize": (Outcome.REFUSED, Outcome.RETURNED),
        "cuda.cudart": (Outcome.REFUSED, Outcome.REFUSED),
        "cuda.has_half": (Outcome.VALUE, Outcome.VALUE),
        "export.compatibility": (Outcome.NOT_CALLED, Outcome.NOT_CALLED),
    }
    assert made["torch.add"].cuda.what == "Tensor"
    counts = render.summary(list(made.values()))[1]
    assert counts.startswith("Of the plan: 6 rows, 1 absent or of other devices; of 5 called")
    assert counts.endswith("80.0% not refused.")


def test_a_call_may_end_its_process_or_never_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_SECONDS", 0.5)
    monkeypatch.setattr(torch, "add", lambda *_: os._exit(3))
    monkeypatch.setattr(torch, "sub", lambda *_: time.sleep(60))
    monkeypatch.setattr(torch, "mul", lambda *_: print("x" * 100) or Path("here").touch())
    rows = {
        r.function.path: r.cpu for r in measure.measure([row(f"torch.{n}") for n in ("add", "sub", "mul")])
    }
    assert (rows["torch.add"].outcome, rows["torch.add"].what) == (Outcome.DIED, "exit 3")
    assert rows["torch.sub"].outcome is Outcome.DIED
    assert rows["torch.sub"].what.startswith("no end")
    assert rows["torch.mul"].outcome is Outcome.RETURNED


def test_it_is_written_and_compared(run, tmp_path) -> None:
    options = ("-m", "torchdevice", "catalog", "--only", "torch.cuda.nvtx.")
    assert "| `torch.cuda.nvtx.mark` |" in run("", *options)
    printed = run("", *options, "--format", "json", "--output", "old.json")
    assert "100.0% not refused" in printed
    old = json.loads((tmp_path / "old.json").read_text())
    assert old["schema"] == "torchdevice.catalog/1"
    old["functions"].pop(0)
    old["functions"][1]["status"] = "refused"
    (tmp_path / "old.json").write_text(json.dumps(old))
    changed = run("", *options, "--diff", "old.json").splitlines()
    assert changed[1].startswith("+ torch.cuda.nvtx.")
    assert changed[2].endswith("refused -> emulated")
    run("", *options, "--format", "html", "--output", "page.html")
    assert "<td>`torch.cuda.nvtx.mark`<td>" in (tmp_path / "page.html").read_text()
    (tmp_path / "old.json").write_text('{"schema": "other"}')
    with pytest.raises(AssertionError, match=r"this is no torchdevice\.catalog/1"):
        run("", *options, "--diff", "old.json")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"schema": "torchdevice.catalog/1", "torch": "2", "functions": [{"function": "f"}]}',
    ],
)
def test_what_is_no_catalogue_is_said_before_anything_is_measured(tmp_path, text, capsys) -> None:
    old = tmp_path / "old.json"
    old.write_text(text)
    for path, problem in ((old, "this is no torchdevice.catalog/1"), (tmp_path / "none.json", "none.json")):
        with pytest.raises(SystemExit, match="2"):
            command.main(["--diff", str(path)])
        assert problem in capsys.readouterr().err
