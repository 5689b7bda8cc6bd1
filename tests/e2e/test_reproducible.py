"""A manifest built twice, in two folders, from two caches, once with an interrupt, gives the same bytes."""

import json
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cairn import files
from helpers.trail import SAMPLE, Trail, cairn, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trail")]


def bill(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        return archive.read(next(n for n in names if n.endswith("/sboms/cairn.cdx.json"))).decode()


def manifest(work: Path) -> dict[str, Any]:
    """What was built; the sample's origins are folders, and those differ."""
    text = (work / "wheels" / "manifest.json").read_text()
    return dict(json.loads(text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if k != "origin"}))


def test_an_interrupted_run_leaves_nothing_half_written_and_carries_on_to_the_same_wheels(
    trail: Trail, tmp_path: Path
) -> None:
    work = tmp_path / "another folder"
    env = clean_environment(tmp_path / "cache", own_environments=True)
    words = ("ci", "run", "--stack", SAMPLE, "--work-dir", work)
    rest = interrupted_at("→ build torch", *words, env=env)
    assert "error: interrupted" in rest
    assert "Traceback" not in rest
    finished = {p.name for p in (work / "wheels").glob("*.whl")}
    assert all(name.startswith("triton-") for name in finished)
    assert not list((work / "wheels").glob(".*part"))
    done = cairn(*words, "--json", env=env)
    assert done.returncode == 0, done.stderr
    kept = [wheel["file"] for wheel in json.loads(done.stdout)["wheels"] if wheel["cached"]]
    assert {name.rpartition("/")[2].split("-")[0] for name in kept} == {"triton"}
    again = sorted((work / "wheels").glob("*.whl"))
    assert manifest(work) == manifest(trail.work)
    differences = []
    for one, other in zip(trail.wheels, again, strict=True):
        if files.sha256_of(one) != files.sha256_of(other):
            differences.append(cairn("wheel", "diff", one, other, env=trail.environment()).stdout)
    assert differences == []


def interrupted_at(line: str, *words: str | Path, env: Mapping[str, str]) -> str:
    """Interrupt `cairn` a second after it wrote a line; what it wrote from then on."""
    command = [sys.executable, "-m", "cairn", *map(str, words)]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        for written in child.stderr:
            if line in written:
                time.sleep(1)
                child.send_signal(signal.SIGINT)
                break
        rest = child.stderr.read()
        assert child.wait(60) == 130, rest
    return rest


def test_every_wheel_names_its_sources_and_the_sdk(trail: Trail) -> None:
    commits = {p["distribution"]: p["commit"] for p in manifest(trail.work)["projects"]}
    assert len(trail.wheels) == len(commits)
    for wheel in trail.wheels:
        found = json.loads(bill(wheel))
        own = found["metadata"]["component"]
        assert own["pedigree"]["commits"] == [{"uid": commits[own["name"]]}]
        assert {"rocm": "7.10.0"}.items() <= {p["name"]: p["version"] for p in found["components"]}.items()
        assert str(trail.work) not in bill(wheel)
