"""A manifest built twice, in two folders, from two caches, after an interrupt, gives the same bytes.

Where all tests run, in environments of its own and with an SDK of its own, too.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cairn.release import rebuilds
from cairn.release.index.snapshot import read_set
from cairn.store.folder import LocalStore
from helpers.trail import ROOT, SAMPLE, Trail, cairn, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("trail")]


def bill(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        return archive.read(next(n for n in names if n.endswith("/sboms/cairn.cdx.json"))).decode()


def manifest(work: Path) -> dict[str, Any]:
    """What was built; the sample's origins are folders, and those differ."""
    text = (work / "wheels" / "manifest.json").read_text()
    return dict(json.loads(text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if k != "origin"}))


def test_an_interrupted_challenge_leaves_no_verdict_and_the_next_one_finds_the_same_wheels(
    trail: Trail, tmp_path: Path
) -> None:
    place = tmp_path / "another folder \N{LATIN SMALL LETTER E WITH ACUTE}"
    shutil.copytree(trail.work / "index", place / "work" / "index", symlinks=True)
    shutil.copytree(trail.work / "wheels", place / "work" / "wheels", ignore=lambda *_: ["logs"])
    (place / "external-builds").symlink_to(ROOT / "external-builds")
    (place / ".venv").symlink_to(sys.prefix)
    store = LocalStore(place / "work" / "index")
    set_id = str(trail.answer["set"]["set_id"])
    others = {"TZ": "Asia/Kolkata", "LC_ALL": "C", "USER": "stranger"}
    alone = bool(os.environ.get("CAIRN_TEST_ALL"))
    env = clean_environment(tmp_path / "cache", own_environments=alone) | others
    words = ("challenge", set_id[:8], "--store", store.url, "--stack", SAMPLE, "--jobs", "1")
    rest = interrupted_at("→ build torch", *words, "--work-dir", place / "elsewhere", env=env)
    assert "error: interrupted" in rest
    assert "Traceback" not in rest
    assert not (place / "elsewhere" / "rebuild.json").exists()
    assert not list(store.list(f"sets/{set_id}/rebuilds/"))
    text = (ROOT / "docs" / "how-to" / "challenge-a-set.md").read_text("utf-8")
    script = "umask 077\n" + "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=place, env=env, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rebuilt identically by ann: 4 wheels" in done.stdout
    ((kept,), problems) = rebuilds.read(store, read_set(store, set_id))
    assert (kept.rebuild.is_identical, problems) == (True, ())
    page = (place / "work" / "index" / "release" / "status.html").read_text("utf-8")
    assert f"rebuilt identically by {kept.by}" in page
    audit = cairn("index", "check", "--store", store.url, env=env)
    assert audit.returncode == 0, audit.stdout + audit.stderr


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
