"""The same manifest built twice, in two folders and from two caches, gives the same bytes."""

import json
import zipfile
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


def test_two_builds_in_two_folders_give_the_same_wheels(trail: Trail, tmp_path: Path) -> None:
    work = tmp_path / "another folder"
    done = cairn(
        *("ci", "run", "--stack", SAMPLE, "--work-dir", work),
        env=clean_environment(tmp_path / "cache", own_environments=True),
    )
    assert done.returncode == 0, done.stderr
    again = sorted((work / "wheels").glob("*.whl"))
    assert manifest(work) == manifest(trail.work)
    differences = []
    for one, other in zip(trail.wheels, again, strict=True):
        if files.sha256_of(one) != files.sha256_of(other):
            differences.append(cairn("wheel", "diff", one, other, env=trail.environment()).stdout)
    assert differences == []


def test_every_wheel_names_its_sources_and_the_sdk(trail: Trail) -> None:
    commits = {p["distribution"]: p["commit"] for p in manifest(trail.work)["projects"]}
    assert len(trail.wheels) == len(commits)
    for wheel in trail.wheels:
        found = json.loads(bill(wheel))
        own = found["metadata"]["component"]
        assert own["pedigree"]["commits"] == [{"uid": commits[own["name"]]}]
        assert {"rocm": "7.10.0"}.items() <= {p["name"]: p["version"] for p in found["components"]}.items()
        assert str(trail.work) not in bill(wheel)
