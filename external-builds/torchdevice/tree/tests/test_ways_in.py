"""`python -m torchdevice`, `pytest --torchdevice`, and machines that need none of it."""

from __future__ import annotations

import pytest
import torchdevice
from torchdevice import router

SCRIPT = (
    "import sys, torch\nprint(__name__, sys.argv[1:], torch.ones(2, device='cuda').sum().item(), __file__)\n"
)


def test_a_script(run) -> None:
    output = run(SCRIPT, "-m", "torchdevice", "--to", "cpu", "SCRIPT", "--to", "mps", "-m")
    assert output.startswith("__main__ ['--to', 'mps', '-m'] 2.0 ")


def test_a_module(run, tmp_path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert run("", "-m", "torchdevice", "-m", "train", "--epochs", "1").startswith(
        "__main__ ['--epochs', '1'] 2.0"
    )


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_script_from_a_pipe(run, name) -> None:
    code = SCRIPT.replace("__file__", "globals().get('__file__')")
    output = run("", "-m", "torchdevice", name, "--epochs", "1", given=code)
    assert output == f"__main__ ['--epochs', '1'] 2.0 {None if name == '-' else name}\n"
    assert "ZeroDivisionError" in run("", "-m", "torchdevice", name, given="1 / 0", exit_code=1)


def test_where_modules_are_looked_for(run) -> None:
    code = "import sys; print(sys.path[0])"
    beside = run(code, "-m", "torchdevice", "SCRIPT")
    assert beside == run(code)
    assert run(code, "-P", "-m", "torchdevice", "SCRIPT") == run(code, "-P", "SCRIPT") != beside


def test_a_script_that_spawns(run) -> None:
    code = (
        "import multiprocessing, torch\n"
        "WEIGHT = torch.ones(2, device='cuda')\n"
        "def use(): print('child', WEIGHT.sum().item())\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=use); child.start(); child.join()\n"
        "    assert child.exitcode == 0\n"
    )
    assert "child 2.0" in run(code, "-m", "torchdevice", "SCRIPT")


@pytest.mark.parametrize(
    "options", [(), ("no-such.py",), ("--to", "xpu", "SCRIPT"), ("--devices", "0", "SCRIPT")]
)
def test_mistakes_are_one_line(run, options) -> None:
    with pytest.raises(AssertionError) as caught:
        run(SCRIPT, "-m", "torchdevice", *options)
    assert "Traceback" not in str(caught.value).partition("usage:")[2]


@pytest.mark.parametrize(
    ("options", "exit_code", "text"),
    [
        (("",), 2, "there is no script ''"),
        (("no-such.py",), 2, "there is no script 'no-such.py'"),
        (("empty",), 1, "can't find '__main__' module in 'empty'"),
        (("-m", "no_such"), 1, "No module named no_such"),
        (("-m", "no_such.part"), 1, "module specification for 'no_such.part'"),
        (("-m", "package"), 1, "'package' is a package and cannot be directly executed"),
        (("-m", ".relative"), 1, "Relative module names not supported"),
    ],
)
def test_nothing_to_run_is_one_line(run, tmp_path, options, exit_code, text) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    errors = run("", "-m", "torchdevice", *options, exit_code=exit_code)
    assert text in errors.splitlines()[-1]
    assert "Traceback" not in errors


@pytest.mark.parametrize("options", [("SCRIPT",), ("-m", "program")])
def test_an_import_that_fails_is_the_programs(run, options) -> None:
    errors = run("import no_such_module", "-m", "torchdevice", *options, exit_code=1)
    assert "Traceback" in errors and "program.py" in errors


def test_the_table(run) -> None:
    assert "| `torch.zeros` | translated |" in run("", "-m", "torchdevice", "--table")


TESTS = """
from torch import zeros
import torch
def test_cuda():
    assert zeros(1, device="cuda").device == torch.device("cuda")
    assert torch.cuda.is_available()
"""


def test_a_test_suite(run, tmp_path) -> None:
    (tmp_path / "conftest.py").write_text("from torch import zeros\nzeros(1, device='cuda')\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    plugin = ("-m", "pytest", "-p", "torchdevice.pytest_plugin", "-p", "no:cacheprovider")
    output = run("", *plugin, "--torchdevice", "test_it.py")
    assert "1 passed" in output
    assert 'torchdevice: "cuda" is translated to cpu' in output
    (tmp_path / "conftest.py").unlink()
    with pytest.raises(AssertionError, match="1 failed"):
        run("", *plugin, "test_it.py")


def test_a_machine_with_cuda_is_left_alone(run) -> None:
    """Here CUDA is only said to be there, before torchdevice looks; on a real one nothing more is asked."""
    run(
        "import torch\n"
        "torch.cuda.is_available = lambda: True\n"
        "import torchdevice, sys\n"
        "def seen():\n"
        "    modules = [(m, x) for m, x in sys.modules.items() if m.partition('.')[0] == 'torch']\n"
        "    return {(m, n): id(v) for m, x in modules for n, v in list(vars(x).items())}\n"
        "before = seen()\n"
        "assert torchdevice.enable().native\n"
        "assert seen() == before\n"
        "assert torchdevice.disable() and seen() == before\n"
        "assert torchdevice.enable('cpu').target == 'cpu'\n"
    )


def test_the_route(monkeypatch) -> None:
    assert router.decide() == router.Route(target="cpu")
    monkeypatch.setenv("TORCHDEVICE_COUNT", "4")
    assert router.decide().count == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert router.decide(count=3).count == 3
    monkeypatch.delenv("TORCHDEVICE_COUNT")
    assert router.decide().count == 2
    for text, strict in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("TORCHDEVICE_STRICT", text)
        assert router.decide().strict is strict
    monkeypatch.setenv("TORCHDEVICE_STRICT", "false")
    with pytest.raises(ValueError, match="TORCHDEVICE_STRICT is 0 or 1, not 'false'"):
        router.decide()
    monkeypatch.delenv("TORCHDEVICE_STRICT")
    monkeypatch.setenv("TORCHDEVICE", "tpu")
    with pytest.raises(ValueError, match="tpu"):
        torchdevice.enable()
    with pytest.raises(RuntimeError, match="no mps on this machine"):
        torchdevice.enable("mps")


def test_it_is_announced_once(run) -> None:
    code = (
        "import logging, torchdevice\n"
        "seen = []\n"
        "keep = lambda record: seen.append(record.getMessage())\n"
        "logging.getLogger('torchdevice').addFilter(keep)\n"
        "for _ in range(2):\n"
        "    with torchdevice.redirected('cpu'): pass\n"
        "assert len(seen) == 1 and 'runs on cpu' in seen[0], seen\n"
    )
    run(code)
