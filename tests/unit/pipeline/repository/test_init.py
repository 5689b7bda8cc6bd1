"""`cairn ci init` writes what a repository needs, once, and leaves what somebody has changed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import tiny_stack
from helpers.program import Cairn, Shown

COMMIT = f"git+https://github.com/me/cairn.git@{'0' * 40}"
BUCKET = ("--store", "s3://wheels/torch", "--repository", "me/wheels")
Init = Callable[..., Shown]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", tmp_path], check=True)
    return tmp_path


@pytest.fixture
def init(cairn: Cairn, repository: Path) -> Init:
    def run(*words: str, code: int = 0) -> Shown:
        return cairn("ci", "init", *words, repository, code=code)

    return run


def files_in(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_dry_run_writes_nothing_and_says_what_would_be_done(init: Init, repository: Path) -> None:
    shown = init("--cairn", COMMIT, *BUCKET, "--dry-run")
    assert files_in(repository) == {}
    assert ".github/workflows/nightly.yml: new" in shown.out
    assert "gh variable set CAIRN_STORE --repo me/wheels --body s3://wheels/torch" in shown.out
    assert "repos/me/wheels/environments/nightly" in shown.out


def test_a_second_run_changes_nothing_and_remembers(init: Init, repository: Path) -> None:
    init("--cairn", COMMIT, *BUCKET, "--aws-account", "123456789012")
    first = files_in(repository)
    stamps = {path: path.stat().st_mtime_ns for path in repository.rglob("*") if path.is_file()}
    shown = init()
    assert files_in(repository) == first
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items() if ".git" not in path.parts)
    assert "arn:aws:iam::123456789012:role/cairn-me-wheels-promote" in shown.out
    assert {"stack/stack.toml", ".github/workflows/release.yml", ".github/cairn/README.md"} <= first.keys()
    assert ".github/workflows/ci.yml" not in first
    assert ".github/workflows/images.yml" not in first


def test_what_somebody_has_changed_is_named_and_left(init: Init, repository: Path) -> None:
    init("--cairn", COMMIT, *BUCKET)
    edited = repository / "stack" / "matrix.toml"
    untouched = repository / ".github" / "actions" / "setup-cairn" / "action.yml"
    mine = f"{edited.read_text()}# mine\n"
    edited.write_text(mine)
    newer = COMMIT.replace("0" * 40, "1" * 40)
    for _ in range(2):
        shown = init("--cairn", newer)
        assert "stack/matrix.toml: edited" in shown.out
        assert edited.read_text() == mine
        assert newer in untouched.read_text()  # what nobody has changed follows
    assert "stack/matrix.toml: replaced" in init("--force").out
    assert "# mine" not in edited.read_text()
    assert "edited" not in init().out


def test_a_file_that_was_there_before_is_left(init: Init, repository: Path) -> None:
    path = repository / ".github" / "workflows" / "nightly.yml"
    path.parent.mkdir(parents=True)
    path.write_text("name: Something else\n")
    assert "nightly.yml: not ours" in init("--cairn", COMMIT).out
    assert "nightly.yml: not ours" in init().out
    assert path.read_text() == "name: Something else\n"


def test_ones_own_stack_is_used_where_it_lies(init: Init, repository: Path) -> None:
    assert (
        "torch-stack is no folder of this repository"
        in init("--cairn", COMMIT, "--stack", "torch-stack", code=2).err
    )
    tiny_stack.write(repository / "torch-stack")
    shown = init("--cairn", COMMIT, "--stack", "torch-stack")
    assert "nights are of the line main" in shown.err
    for name in ("nightly", "nightly-watch"):
        text = (repository / ".github" / "workflows" / f"{name}.yml").read_text()
        assert "'torch-stack'" in text
        assert "vars.CAIRN_LINE || 'main'" in text
    assert not (repository / "stack").exists()


def test_a_stack_in_the_folder_stack_is_taken_without_being_named(init: Init, repository: Path) -> None:
    before = tiny_stack.write(repository / "stack").joinpath("stack.toml").read_bytes()
    assert "not ours" not in init("--cairn", COMMIT).out
    assert (repository / "stack" / "stack.toml").read_bytes() == before
    assert not (repository / "stack" / "suite.toml").exists()  # of the sample


def test_a_stack_that_takes_its_sdk_from_an_index_has_the_variable_of_it(
    init: Init, repository: Path
) -> None:
    toml = tiny_stack.write(repository / "stack") / "stack.toml"
    toml.write_text(toml.read_text().replace("[[projects]]", "[sdk]\n\n[[projects]]", 1))
    assert "--rocm-index-url URL" in init("--cairn", COMMIT).err
    shown = init("--rocm-index-url", "https://rocm.example/{family}/")
    assert "gh variable set CAIRN_ROCM_INDEX_URL" in shown.out
    assert "--rocm-index-url URL" not in shown.err
    assert "https://rocm.example/{family}/" in init().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cairn", "git+https://github.com/me/cairn.git@main"), "is no commit"),
        (("--cairn", "cairn==1.0"), "is no commit"),
        (("--cairn", COMMIT, "--store", "s3://wheels/torch"), "--repository owner/name"),
        (("--cairn", COMMIT, "--store", "/srv/wheels"), "--runs-on"),
        (("--cairn", COMMIT, "--repository", "wheels"), "owner/name"),
        (("--cairn", COMMIT, *BUCKET, "--apply"), "--aws-account and --region"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    words: tuple[str, ...], message: str, init: Init, repository: Path
) -> None:
    assert message in init(*words, code=2).err
    assert files_in(repository) == {}


def test_only_a_repository_is_set_up(cairn: Cairn, tmp_path: Path) -> None:
    assert "git init" in cairn("ci", "init", tmp_path, code=2).err


def test_the_policies_name_the_repository_and_the_bucket(init: Init, repository: Path) -> None:
    init("--cairn", COMMIT, *BUCKET)
    folder = repository / ".github" / "cairn" / "aws"
    trust = json.loads((folder / "promote.trust.json").read_text())
    (statement,) = trust["Statement"]
    subjects = statement["Condition"]["StringEquals"]["token.actions.githubusercontent.com:sub"]
    assert "repo:me/wheels:environment:nightly" in subjects
    assert "arn:aws:s3:::wheels/torch/" in (folder / "promote.permissions.json").read_text()


def test_a_bucket_elsewhere_has_keys_and_no_roles(init: Init, repository: Path) -> None:
    shown = init("--cairn", COMMIT, *BUCKET, "--endpoint-url", "https://minio.example")
    assert not (repository / ".github" / "cairn" / "aws").exists()
    assert "CAIRN_S3_ENDPOINT_URL" in shown.out
    assert (
        "gh secret set CAIRN_S3_SECRET_ACCESS_KEY --repo me/wheels --env night-stage"
        in (repository / ".github" / "cairn" / "README.md").read_text()
    )


def test_a_bucket_that_turns_out_to_be_elsewhere_gets_keys(init: Init, repository: Path) -> None:
    init("--cairn", COMMIT, *BUCKET)
    init(*BUCKET, "--endpoint-url", "https://minio.example")
    assert "CAIRN_S3_SECRET_ACCESS_KEY" in (repository / ".github" / "cairn" / "README.md").read_text()


def test_another_store_has_nothing_of_the_one_before(init: Init, repository: Path) -> None:
    init("--cairn", COMMIT, *BUCKET, "--endpoint-url", "https://minio.example", "--region", "nowhere")
    shown = init("--store", "s3://elsewhere/torch", "--dry-run")
    assert "minio" not in shown.out
    assert "nowhere" not in shown.out
    init("--store", "s3://elsewhere/torch")
    assert (repository / ".github" / "cairn" / "aws").is_dir()
    assert "minio" in init(*BUCKET, "--endpoint-url", "https://minio.example").out
    assert "minio" in init(*BUCKET).out


# It notes what it is asked, knows the number of one account, and the branches of one environment.
_GH = """#!/bin/sh
printf '%s\\n' "$*" >> "@log@"
case "$2" in
    users/ann) echo 42;;
    */environments/nightly/deployment-branch-policies*) echo '{"branch_policies": [{"name": "main"}]}';;
esac
"""


def test_apply_runs_the_commands_that_it_prints(
    init: Init, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path_factory.mktemp("tools")
    (tools / "gh").write_text(_GH.replace("@log@", str(tools / "log")))
    (tools / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    words = ("--cairn", COMMIT, *BUCKET, "--aws-account", "123456789012", "--region", "eu-west-1")
    init(*words, "--reviewer", "ann", "--apply", "--dry-run")
    assert not (tools / "log").exists()
    init(*words, "--reviewer", "ann", "--apply")
    said = (tools / "log").read_text().splitlines()
    assert "variable set CAIRN_STORE --repo me/wheels --body s3://wheels/torch" in said
    assert any("environments/release" in line and "reviewers[][id]=42" in line for line in said)
    assert not any("environments/nightly" in line and "reviewers" in line for line in said)
    posted = {line.split("/environments/")[1].split("/")[0] for line in said if "POST" in line}
    assert "release" in posted
    assert "nightly" not in posted
