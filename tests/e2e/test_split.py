"""Linked wheels of the sample stack, split into host and device wheels and joined again."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from helpers.kpack_runtime import build_stand_in, codes_before, codes_by_amd, codes_by_us
from helpers.trail import SAMPLE, Trail, cairn

# As much of rocm-bootstrap as is asked.
BOOTSTRAP = """
import os
from types import SimpleNamespace as Value
def detect_gpus():
    names = os.environ["ROCM_BOOTSTRAP_FORCE_GFX_ARCH"].split(",")
    return [Value(target=Value(name=name), node_id=at) for at, name in enumerate(names)]
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trail")]


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def told(trail: Trail, *words: str | Path) -> dict[str, str]:
    done = cairn("wheel", *words, "--json", env=trail.environment())
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_every_member_of_every_wheel_comes_back(trail: Trail, tmp_path: Path) -> None:
    split = 0
    for wheel in trail.wheels:
        done = cairn("wheel", "split", wheel, "--output-dir", tmp_path / "split", env=trail.environment())
        if done.returncode:
            assert "no device code" in done.stderr
            continue
        host, *devices = (Path(line) for line in done.stdout.splitlines())
        assert [path.name.split("-")[0].rpartition("_")[2] for path in devices] == ["gfx942", "gfx1100"]
        made = told(trail, "join", host, *devices, "--output-dir", tmp_path / "joined")
        whole, again = contents(wheel), contents(Path(made["wheel"]))
        names = {name for name in whole if not name.endswith("/RECORD")}
        assert {name: again[name] for name in names} == {name: whole[name] for name in names}
        split += 1
    assert split == 2


def test_a_host_wheel_imports_and_a_joined_one_is_for_one_target(trail: Trail, tmp_path: Path) -> None:
    wheel = next(path for path in trail.wheels if path.name.startswith("torch-"))
    made = told(trail, "split", wheel, "--output-dir", tmp_path / "split")
    python, site = trail.work / "smoke" / "venv" / "bin" / "python", tmp_path / "site"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps"]
    env = trail.environment() | {"PIP_CONFIG_FILE": os.devnull}
    command = [*install, "--target", str(site), made["host"], *made["devices"]]
    subprocess.run(command, check=True, capture_output=True, env=env)
    code = "import torch; print(torch.__file__); print(torch.cuda.is_available())"
    env |= {"PYTHONPATH": str(site)}
    loaded = subprocess.run([str(python), "-c", code], env=env, capture_output=True, text=True, check=False)
    assert str(site) in loaded.stdout, loaded.stderr
    # torch asks by itself whether the code for the GPU is there.
    (site / "rocm_bootstrap.py").write_text(BOOTSTRAP)
    command, env = [str(python), "-c", "import torch"], env | {"ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}
    assert subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr == ""
    (site / "torch" / ".kpack" / "torch_gfx942.kpack").unlink()
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr
    version = Path(made["host"]).name.split("-")[1]
    assert f'pip install "torch[device-gfx942]=={version}"' in said
    assert said.count("\n") == 1
    device = next(path for path in made["devices"] if "gfx942" in path)
    one = told(trail, "join", made["host"], device, "--output-dir", tmp_path / "one")
    shown = cairn("wheel", "show", one["wheel"], "--json", env=trail.environment())
    assert json.loads(shown.stdout)[0]["targets"] == ["gfx942"]


@pytest.mark.by_hand
def test_a_split_build_goes_the_whole_way(trail: Trail, tmp_path: Path) -> None:
    """Built, sealed, tested, let through the gate and installed with its extras, beside nothing else."""
    work = tmp_path / "work"
    run = ["ci", "run", "--stack", SAMPLE, "--work-dir", work, "--split", "--json"]
    done = cairn(*run, env=trail.same_environment())
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert "torch[device-all]" in answer["pip"]
    wheels = {wheel["distribution"]: tuple(wheel["targets"]) for wheel in answer["set"]["wheels"]}
    for name in ("torch", "torchvision"):
        assert wheels[name] == ()
        assert wheels[f"{name}-device-gfx942"] == ("gfx942",)
        assert wheels[f"{name}-device-gfx1100"] == ("gfx1100",)
    index = (work / "index/release/simple").as_uri() + "/"
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--isolated", "--index-url", index]
    command += ["--ignore-installed", "--target", str(site), "--report", str(tmp_path / "report.json")]
    env = trail.environment() | {"PIP_CONFIG_FILE": os.devnull}
    subprocess.run([*command, "torch[device-gfx942]"], check=True, capture_output=True, env=env)
    report = json.loads((tmp_path / "report.json").read_text())
    chosen = {item["metadata"]["name"] for item in report["install"]}
    assert {"torch", "torch-device-gfx942"} <= chosen
    assert not any(name.endswith("-device-gfx1100") for name in chosen)
    # What the GPU of that extra gets of the installed wheel is what the wheel had before it was split.
    library = site / "torch/lib/libtorch_hip.so"
    whole = next(path for path in trail.wheels if path.name.startswith("torch-"))
    (tmp_path / "whole.so").write_bytes(contents(whole)["torch/lib/libtorch_hip.so"])
    codes = codes_before(tmp_path / "whole.so")
    stand_in = build_stand_in(tmp_path, "libamdhip64.so.6")
    for found in (codes_by_us, *([codes_by_amd] if "CAIRN_TEST_KPACK" in os.environ else [])):
        assert found(library, stand_in, "gfx942:sramecc+:xnack-") == [row["gfx942"] for row in codes]
        assert found(library, stand_in, "gfx1100") == [None] * len(codes)
    assert codes
    again = cairn(*run, env=trail.same_environment())
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["set"] == answer["set"]
