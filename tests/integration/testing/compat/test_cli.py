"""`cairn test compat` on what a smoke test has installed, and on its own reports."""

import json
import shutil
from pathlib import Path

import pytest

from cairn.cli import main
from cairn.testing import record
from helpers.testing import MakeWheel, Smoke

TORCH = """
__version__ = "2.9.1"
class version:
    git_version, hip, cuda = "c" * 40, None, None
class _Product:
    def __eq__(self, _other): return self
    def all(self): return RIGHT
class _Matrix:
    def __matmul__(self, _other): return _Product()
def ones(*_size): return _Matrix()
class cuda:
    is_available = is_initialized = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
def device(name): return name
RIGHT = True
"""
PROJECT = ("--only", "^projects/torch$")


def test_what_a_smoke_test_installed_is_measured_and_recorded(
    make_wheel: MakeWheel,
    smoke: Smoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    smoked = smoke([make_wheel("torch", "2.9.1", {"torch/__init__.py": TORCH})])
    out = tmp_path / "compat"
    monkeypatch.chdir(smoked.record_path.parent)
    command = ["test", "compat", "--smoke-dir", ".", "--output-dir", str(out), *PROJECT]

    assert main.main(command) == 0
    found = record.read(out / "record.json")
    assert (found.kind, found.verdict, found.wheels) == ("compat", "passed", smoked.record.wheels)
    assert found.pytest_args == ("--only=^projects/torch$",)
    assert "supported" in capsys.readouterr().out

    # The other night's torch computes wrong: the row fails, the record too, and the difference says so.
    wrong = TORCH.replace("RIGHT = True", "RIGHT = False")
    smoked = smoke([make_wheel("torch", "2.9.2", {"torch/__init__.py": wrong, "torch/fx.py": ""})])
    monkeypatch.chdir(smoked.record_path.parent)
    other = tmp_path / "other"
    assert main.main([*command[:5], str(other), *PROJECT]) == 8
    assert record.read(other / "record.json").verdict == "failed"
    capsys.readouterr()
    assert main.main(["diff", str(out), str(other), "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["table"], change["name"], change["kind"]) == ("projects", "torch", "less")

    # A report that excuses what is broken is named, so that the gate does not count the record.
    assert main.main([*command, "--baseline", str(other / "compat.json")]) == 8  # no row is left
    assert record.read(out / "record.json").pytest_args[-1] == f"--baseline={other / 'compat.json'}"
    capsys.readouterr()

    # What is not what was smoke-tested is not recorded as that.
    module = next((smoked.environment / "lib").glob("python*/site-packages/torch/__init__.py"))
    module.write_text(TORCH, encoding="utf-8")
    assert main.main(command) == 2
    assert "not what was tested there: torch/__init__.py" in capsys.readouterr().err
    module.write_text(wrong, encoding="utf-8")
    patch = module.parents[1] / "sitecustomize.py"
    patch.touch()
    assert main.main(command) == 2
    assert "not what was tested there: sitecustomize.py" in capsys.readouterr().err
    patch.unlink()
    # A package that nothing installed, by itself and in front of a module of the set.
    for folder in (patch.with_suffix(""), module.with_name("fx")):
        folder.mkdir()
        (folder / "__init__.py").touch()
        assert main.main(command) == 2
        name = folder.relative_to(patch.parent).as_posix()
        assert f"not what was tested there: {name}\n" in capsys.readouterr().err
        shutil.rmtree(folder)
    stranger = module.parent.parent / "apex-1.0.dist-info"
    stranger.mkdir()
    stranger.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\nName: apex\nVersion: 1.0\n", encoding="utf-8"
    )
    assert main.main(command) == 2
    assert "not what was tested there: apex 1.0" in capsys.readouterr().err
