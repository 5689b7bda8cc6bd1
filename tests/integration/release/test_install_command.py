"""`cairn install` from an index that Cairn published, over HTTP: the lines work, and so does installing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cairn import venv
from cairn.cli.main import main
from cairn.release.serve.server import serving
from cairn.store.folder import LocalStore
from helpers.pages import PLATFORM, PYTHON
from helpers.release import make_set, make_wheel, move, stage_set


@pytest.fixture
def released(store: LocalStore, tmp_path: Path) -> LocalStore:
    """A store with a set for gfx1100 in the index of its family, and a newer one in the channel."""
    for version, targets, family, index in (
        ("2.9.0", ("gfx1100", "gfx1101"), "gfx110X-all", "release/gfx110X-all"),
        ("2.10.0", ("gfx942",), "gfx94X-dcgpu", "release"),
    ):
        torch = make_wheel(tmp_path / version, "torch", version)
        vision = make_wheel(tmp_path / version, "torchvision", f"0.{version}", requires=[f"torch=={version}"])
        made = make_set([torch, vision], family=family, targets=targets, python=PYTHON, platform=PLATFORM)
        sealed = stage_set(store, "staging", made, [torch, vision])
        move(
            store, sealed, target=index, untested="untested on hardware: gfx1101; bypassed by ann: none here"
        )
    return store


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_what_is_for_a_gpu_is_installed(
    released: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], installer: str
) -> None:
    environment = venv.create(tmp_path / "environment")
    with serving(released, port=0) as server:
        words = ["--index-url", f"{server.url}/release/simple/", "--python", str(environment.python)]
        assert main(["install", *words, "--product", "RX 7900 XTX", "--run", installer]) == 0
        printed = capsys.readouterr().out
    for line in printed.splitlines():
        assert line.endswith(f"--index-url {server.url}/release/gfx110X-all/simple/ torch torchvision")
    ask = "import torch, torchvision; print(torch.VERSION, torchvision.VERSION)"
    done = subprocess.run([environment.python, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2.9.0", "0.2.9.0"]


def test_the_printed_line_installs_in_a_shell(
    released: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], isolated: dict[str, str]
) -> None:
    environment = venv.create(tmp_path / "environment")
    with serving(released, port=0) as server:
        assert (
            main(["install", "--index-url", server.url + "/release/simple", "--target", "gfx942", "--json"])
            == 0
        )
        (choice,) = json.loads(capsys.readouterr().out)["choices"]
        assert choice["versions"] == {"torch": "2.10.0", "torchvision": "0.2.10.0"}
        env = {
            **isolated,
            "VIRTUAL_ENV": str(environment.path),
            "PATH": f"{Path(sys.executable).parent}:{isolated['PATH']}",
        }
        subprocess.run(["bash", "-c", choice["uv"]], env=env, check=True, capture_output=True)
    done = subprocess.run(
        [environment.python, "-c", "import torch; print(torch.VERSION)"], capture_output=True, check=True
    )
    assert done.stdout.split() == [b"2.10.0"]


def test_an_index_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--index-url", "http://127.0.0.1:9/release/simple/", "--target", "cpu"]) == 5
    assert "cannot read http://127.0.0.1:9/release/targets.json" in capsys.readouterr().err
