"""`cairn ci night run`: a whole night from one process, as its page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cairn import interpreters
from cairn.pipeline.night import plan
from cairn.release import records
from cairn.release.index.snapshot import Index
from cairn.store.folder import LocalStore
from helpers.trail import ROOT, clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("night-run")]

PAGE = ROOT / "docs/how-to/run-a-night-without-github.md"
HERE = interpreters.current().version
INDEX = "nightly/gfx94X-dcgpu"


def blocks() -> list[str]:
    """What the page tells the reader to type, for a Python that is here."""
    found = re.findall(r"```bash\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return [block.replace("--pythons 3.12", f"--pythons {HERE}") for block in found]


def test_the_page(project: Path, cache_of_nights: Path) -> None:
    env = clean_environment(cache_of_nights) | {
        "PIP_CONFIG_FILE": os.devnull,
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
    }

    def run(script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(
            command, cwd=project, env=env, capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    shown, first, again = map(run, blocks())
    assert re.search(r"^promote \S+ +the driver", shown.stdout, re.MULTILINE)
    assert "7 steps of the night" in shown.stderr
    store = LocalStore(project / "night/store")
    (promoted,) = Index(store, INDEX).load().sets()
    kinds = sorted(item.record.kind for item in records.read(store, promoted.set_id).records)
    assert kinds == ["smoke", "suite"]
    assert "weak policy" not in first.stdout + first.stderr
    assert "1 untested" in first.stderr  # on hardware: the sample's SDK reaches none
    # Wheels name the commits of the manifest, and none that hipify made here.
    frozen = plan.manifest_of(store, plan.read(store, "first"))
    named = set()
    for wheel in (project / "night/store/files").rglob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            modules = [name for name in archive.namelist() if re.fullmatch("[^/]+/version.py", name)]
            named |= {
                id_ for name in modules for id_ in re.findall("[0-9a-f]{40}", archive.read(name).decode())
            }
    assert named == {source.commit for source in frozen.projects if source.name != "triton"}
    # Nothing is done twice, and no build is left in the store.
    assert "build" not in again.stderr
    assert not list(store.list("nights/first/built/"))
    log = next((project / "night/work/night-first").glob("build-*.log")).read_text("utf-8")
    assert "cairn ci night step build --phase run" in log
    assert not [path for path in (project / "night/work/night-first").iterdir() if path.is_dir()]
