"""Nights of sources whose versions stand still: each manifest has versions of its own, and none is refused.

The stack has a project with a version file and one without, whose version only its build tells, as triton's.
Nights are real: git, builds, an index, smoke tests and the gate.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cairn.pipeline.night import plan
from cairn.release.index.snapshot import Index
from cairn.store.folder import LocalStore
from helpers import tiny_stack
from helpers.program import Cairn
from helpers.trail import clean_environment

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("versions-that-stand-still")]

_QUARTZ = """
[[projects]]
name = "quartz"
distribution = "quartz"
checkout_dir = "quartz"
hashtag = "main"
origin = { url = "QUARTZ" }
version_file = ""
build_requires = ["setuptools==84.2.1"]
smoke_imports = ["quartz"]
environment.always = { QUARTZ_VERSION_SUFFIX = "{version_suffix}" }
"""
_SETUP = """import os

from setuptools import setup

setup(name="quartz", version="3.5.0" + os.environ["QUARTZ_VERSION_SUFFIX"], packages=["quartz"])
"""


class Nights:
    """A stack of two projects, a store, and the nights run with them."""

    def __init__(self, folder: Path, cairn: Cairn) -> None:
        self.folder, self.stack, self.cairn = folder, tiny_stack.write(folder / "stack"), cairn
        self.place = ("--store", folder / "store")
        self.quartz = folder / "quartz"
        toml = self.stack / "stack.toml"
        text = toml.read_text().replace(
            "version_edit = true",
            'version_edit = true\nneeds = ["quartz"]\nrequires = ["quartz=={version:quartz}"]',
        )
        toml.write_text(text + _QUARTZ.replace('QUARTZ"', f'{self.quartz}"'))
        (self.quartz / "quartz").mkdir(parents=True)
        (self.quartz / "setup.py").write_text(_SETUP)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit_quartz()

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.folder / "store")

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
        subprocess.run(["git", *who, *words], cwd=self.quartz, check=True)

    def commit_quartz(self) -> None:
        file = self.quartz / "quartz" / "__init__.py"
        count = len(file.read_text()) if file.exists() else 0
        file.write_text("#" * (count + 1))
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "Change quartz")

    def raise_tiny(self) -> None:
        (self.stack / "origin" / "version.txt").write_text("1.1\n")
        tiny_stack.commit(self.stack, "Raise tiny")

    def freeze(self, night: str, image: str) -> str:
        """Begin a night as a program of its own, of which several may run at one moment."""
        image = f"a@sha256:{image * 64}"
        command = [sys.executable, "-m", "cairn", *map(str, (*self.freezing(night), "--image", image))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def freezing(self, night: str) -> tuple[object, ...]:
        where = ("--stack", self.stack, "--work-dir", self.folder / night, "--to", "nightly")
        matrix = ("--matrix", self.folder / "matrix.json")
        return ("ci", "night", "freeze", "--night", night, *where, *matrix, *self.place)

    def run(self, night: str, *, code: int = 0) -> None:
        where = ("--stack", self.stack, "--work-dir", self.folder / "work")
        self.cairn("ci", "night", "run", "--night", night, *where, *self.place, code=code)
        self.cairn("index", "check", *self.place)

    def manifest(self, night: str) -> str:
        return plan.read(self.store, night).manifest_sha256

    def promoted(self) -> list[dict[str, str]]:
        """The versions of the sets that users can install, the last one last."""
        sets = sorted(Index(self.store, "nightly").load().sets(), key=lambda entry: entry.staged)
        return [dict(entry.projects) for entry in sets if entry.yanked is None]


@pytest.fixture
def nights(tmp_path: Path, cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> Nights:
    own = clean_environment(tmp_path / "cache") | {"PIP_CONFIG_FILE": os.devnull}
    for name in os.environ.keys() - own.keys():
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    return Nights(tmp_path, cairn)


def test_each_night_of_another_commit_has_versions_of_its_own(nights: Nights, tmp_path: Path) -> None:
    nights.run("1")
    assert nights.promoted() == [{"tiny": "1.0", "quartz": "3.5.0"}]
    # Nothing changed: the same manifest, and nothing is built.
    matrix = nights.cairn.json("matrix", "--stack", nights.stack, "--trigger", "nightly")
    (tmp_path / "matrix.json").write_text(json.dumps(matrix))
    assert nights.cairn.json(*nights.freezing("2"))["build"] == []
    assert nights.manifest("2") == nights.manifest("1")
    # What was yanked does not come back by a night that changes nothing, nor do its versions.
    (bad,) = Index(nights.store, "nightly").load().sets()
    nights.cairn("release", "yank", bad.set_id, "--reason", "wrong answers", *nights.place)
    nights.run("3", code=10)
    assert nights.promoted() == []
    # Somebody who can write claims must not be able to end the numbers.
    claims = {item.key for item in nights.store.list("nights/_versions/")}
    assert len(claims) == 2
    for key in claims:
        nights.store.write(f"{key}+again.999999999", b"0" * 64)
    # A commit more, in the project without a version file. Both stand still; the pin follows.
    nights.commit_quartz()
    nights.run("4")
    assert nights.promoted() == [{"tiny": "1.0+again.1", "quartz": "3.5.0+again.1"}]
    # A version more, of the project that has a version file. The other one stands still.
    nights.raise_tiny()
    nights.cairn(*nights.freezing("5"))
    frozen = plan.manifest_of(nights.store, plan.read(nights.store, "5"))
    again = {source.name: (source.version, source.again) for source in frozen.projects}
    assert again == {"tiny": ("1.1", 0), "quartz": (None, 2)}
    # Two freeze at one moment, for two images: two manifests, and each has versions of its own.
    with ThreadPoolExecutor() as pool:
        shown = "".join(pool.map(nights.freeze, ("6", "7"), "ab"))
    made = re.findall(r"(?:makes|ends in) (\S+)", shown)
    # One that lost a part of its claims leaves that number out.
    for name, lowest in (("1.1", 1), ("+", 3)):
        first, second = sorted(int(text[-1]) for text in made if text.startswith(name))
        assert lowest <= first < second <= lowest + 4, made
