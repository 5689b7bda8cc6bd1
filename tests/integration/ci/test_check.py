"""`cairn ci check` against a server of buckets, one that ignores conditions, and what gh answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.pipeline.repository import aws
from cairn.release.trust import signers
from helpers import tiny_stack
from helpers.buckets import Server
from helpers.http_proxy import proxy
from helpers.program import Cairn

COMMIT = f"git+https://github.com/me/cairn.git@{'0' * 40}"
REPOSITORY = "repos/me/wheels"
ENVIRONMENTS = (
    "night-freeze",
    "night-build",
    "night-stage",
    "night-test",
    "night-report",
    "nightly",
    "release",
)
ROLES = ("FREEZE", "BUILD", "STAGE", "TEST", "PROMOTE", "REPORT")
# Answers with the file of that path, or as GitHub does where there is nothing.
_GH = """#!{python}
import pathlib, sys
path = pathlib.Path({answers!r}, sys.argv[2].partition("?")[0] + ".json")
if not path.is_file():
    sys.exit("gh: Not Found (HTTP 404)")
print(path.read_text())
"""


class GitHub:
    """What gh answers of a repository in which nothing is missing."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        values = {"CAIRN_STORE": store, "CAIRN_AWS_REGION": "us-east-1"}
        values |= {f"CAIRN_ROLE_{role}": aws.arn("123456789012", "me/wheels", role) for role in ROLES}
        variables = [{"name": name, "value": value} for name, value in values.items()]
        branches = {"protected_branches": False, "custom_branch_policies": True}
        reviewers = [{"type": "required_reviewers", "reviewers": [{"type": "User"}]}]
        self.answers: dict[str, Any] = {
            f"{REPOSITORY}/actions/variables": {"variables": variables},
            f"{REPOSITORY}/environments": {
                "environments": [
                    {
                        "name": name,
                        "protection_rules": reviewers if name == "release" else [],
                        "deployment_branch_policy": branches,
                    }
                    for name in ENVIRONMENTS
                ]
            },
            f"{REPOSITORY}/actions/runners": {"runners": []},
            f"{REPOSITORY}/actions/workflows": {
                "workflows": [
                    {"path": f".github/workflows/{name}.yml", "state": "active"}
                    for name in ("nightly", "nightly-watch", "release")
                ]
            },
        }

    def write(self) -> None:
        for path, answer in self.answers.items():
            file = self.folder / f"{path}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(answer))


@pytest.fixture
def bucket(s3_server: Server) -> str:
    return f"s3://{s3_server.new_bucket()}/store"


@pytest.fixture
def repository(
    bucket: str, s3_server: Server, cairn: Cairn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """One that is set up, and a gh that says nothing yet."""
    folder, tools = tmp_path / "repository", tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text(_GH.format(python=sys.executable, answers=str(tmp_path / "answers")))
    (tools / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", folder], check=True)
    words = (
        "--cairn",
        COMMIT,
        "--store",
        bucket,
        "--repository",
        "me/wheels",
        "--aws-account",
        "123456789012",
    )
    cairn("ci", "init", *words, "--region", "us-east-1", folder)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    return folder


@pytest.fixture
def github(repository: Path, bucket: str) -> GitHub:
    answers = GitHub(repository.parent / "answers", bucket)
    answers.write()
    return answers


def lacking(cairn: Cairn, repository: Path, *, code: int = 3) -> dict[str, str]:
    """What is missing, with what to do."""
    found = cairn.json("ci", "check", repository, code=code)["findings"]
    return {one["check"]: f"{one['text']} | {one['fix']}" for one in found if one["level"] == "missing"}


@pytest.mark.usefixtures("github")
def test_nothing_is_missing_and_nothing_is_left_in_the_bucket(
    cairn: Cairn, repository: Path, bucket: str, s3_server: Server
) -> None:
    for _ in range(2):  # the second time, what the server does is known, and tried all the same
        found = cairn.json("ci", "check", repository)["findings"]
        assert [one["check"] for one in found if one["level"] != "ok"] == [], found
    assert "conditional writes" in {one["check"] for one in found}
    assert "Contents" not in s3_server.client.list_objects_v2(Bucket=bucket.split("/")[2])


def test_a_store_with_a_root_asks_for_where_its_promoters_remember(
    cairn: Cairn, repository: Path, github: GitHub, bucket: str, tmp_path: Path
) -> None:
    signers.create(tmp_path / "keys")
    cairn("trust", "init", "--store", bucket, "--root-key", tmp_path / "keys" / signers.PRIVATE_NAME)
    names = {"variable CAIRN_ROOT", "variable CAIRN_TRUST_STORE"}
    assert lacking(cairn, repository).keys() == names
    variables = github.answers[f"{REPOSITORY}/actions/variables"]["variables"]
    memory = {"name": "CAIRN_TRUST_STORE", "value": bucket}
    variables += [{"name": "CAIRN_ROOT", "value": f"sha256:{'0' * 64}"}, memory]
    github.write()
    (text,) = lacking(cairn, repository).values()
    assert "names the store that is signed" in text
    memory["value"] = "s3://trust"
    github.write()
    assert not lacking(cairn, repository, code=0)  # of secrets that gh does not tell, nothing is known
    who_signs = ("night-stage", "night-test", "nightly", "release")
    for name in who_signs:
        github.answers[f"{REPOSITORY}/environments/{name}/secrets"] = {"secrets": [{"name": "OTHER"}]}
    github.write()
    secrets = lacking(cairn, repository)
    assert secrets.keys() == {f"secrets of {name}" for name in who_signs}
    line = f"gh secret set {signers.TEXT_VARIABLE} --repo me/wheels --env night-stage"
    assert f"{signers.TEXT_VARIABLE} is not set" in secrets["secrets of night-stage"]
    assert line in secrets["secrets of night-stage"]
    for name in who_signs:
        github.answers[f"{REPOSITORY}/environments/{name}/secrets"]["secrets"] += [
            {"name": signers.TEXT_VARIABLE}
        ]
    github.write()
    assert not lacking(cairn, repository, code=0)


def test_a_server_that_ignores_conditions_is_unfit(
    cairn: Cairn, repository: Path, github: GitHub, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lacking(cairn, repository, code=0) == {}
    for header in ("If-None-Match", "If-Match"):
        with proxy(s3_server.endpoint, without=header) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
            (found,) = lacking(cairn, repository).items()
        assert found[0] == "conditional writes"
        assert f"is unfit: {endpoint} ignores {header}: two writers at once would lose changes" in found[1]
    bucket = github.answers[f"{REPOSITORY}/actions/variables"]["variables"][0]["value"]
    assert "Contents" not in s3_server.client.list_objects_v2(Bucket=bucket.split("/")[2])


def _variable(name: str) -> Callable[[dict[str, Any]], None]:
    def drop(answers: dict[str, Any]) -> None:
        variables = answers[f"{REPOSITORY}/actions/variables"]["variables"]
        variables[:] = [one for one in variables if one["name"] != name]

    return drop


def _another_server(answers: dict[str, Any]) -> None:
    variables = answers[f"{REPOSITORY}/actions/variables"]["variables"]
    variables.append({"name": "CAIRN_S3_ENDPOINT_URL", "value": "https://minio.example"})


def _environment(name: str, **changes: object) -> Callable[[dict[str, Any]], None]:
    def change(answers: dict[str, Any]) -> None:
        environments = answers[f"{REPOSITORY}/environments"]["environments"]
        for one in list(environments):
            if one["name"] == name:
                one.update(changes)
                if not changes:
                    environments.remove(one)

    return change


def _switched_off(answers: dict[str, Any]) -> None:
    answers[f"{REPOSITORY}/actions/workflows"]["workflows"][0]["state"] = "disabled_inactivity"


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        (_variable("CAIRN_STORE"), "variable CAIRN_STORE", "gh variable set CAIRN_STORE --repo me/wheels"),
        (_variable("CAIRN_ROLE_PROMOTE"), "variable CAIRN_ROLE_PROMOTE", "role/cairn-me-wheels-promote"),
        (_another_server, "variable CAIRN_S3_ENDPOINT_URL", "gh variable delete CAIRN_S3_ENDPOINT_URL"),
        (_environment("release"), "environment release", "cairn ci init --apply"),
        (_environment("release", protection_rules=[]), "environment release", "no reviewers"),
        (_environment("nightly", deployment_branch_policy=None), "environment nightly", "every branch"),
        (_switched_off, "workflow nightly.yml", "gh workflow enable nightly.yml --repo me/wheels"),
    ],
)
def test_what_is_missing_on_github_is_named_with_what_to_do(
    fault: Callable[[dict[str, Any]], None],
    check: str,
    words: str,
    cairn: Cairn,
    repository: Path,
    github: GitHub,
) -> None:
    fault(github.answers)
    github.write()
    found = lacking(cairn, repository)
    assert list(found) == [check]
    assert words in found[check]


def test_a_runner_that_nobody_has_is_named_by_its_labels(
    cairn: Cairn, repository: Path, github: GitHub
) -> None:
    path = repository / "stack" / "matrix.toml"
    path.write_text(
        path.read_text().replace('\ntest = ["ubuntu-24.04"]', '\ntest = ["self-hosted", "gfx1100"]', 1)
    )
    assert list(lacking(cairn, repository)) == ["runner self-hosted gfx1100"]
    labels = [{"name": "self-hosted"}, {"name": "Linux"}, {"name": "GFX1100"}]
    github.answers[f"{REPOSITORY}/actions/runners"]["runners"] = [{"labels": labels, "status": "offline"}]
    github.write()
    assert lacking(cairn, repository, code=0) == {}


def test_the_workflows_ask_for_lines_and_an_sdk_that_the_stack_has(
    cairn: Cairn, repository: Path, github: GitHub
) -> None:
    variables = github.answers[f"{REPOSITORY}/actions/variables"]["variables"]
    variables.append({"name": "CAIRN_LINE", "value": "main"})
    github.write()
    (found,) = lacking(cairn, repository).items()
    assert found[0] == "line main"
    assert "gh variable set CAIRN_LINE --repo me/wheels --body nightly" in found[1]
    variables.pop()
    github.write()
    shutil.rmtree(repository / "stack")
    toml = tiny_stack.write(repository / "stack") / "stack.toml"
    toml.write_text(toml.read_text().replace("[[projects]]", "[sdk]\n\n[[projects]]", 1))
    matrix = toml.with_name("matrix.toml")
    matrix.write_text(matrix.read_text().replace("anything", "ubuntu-24.04"))
    found_both = lacking(cairn, repository)
    assert found_both["line nightly"].endswith("the stack tiny has main | cairn ci init")
    assert "--rocm-index-url" in found_both["ROCm SDK"]
    cairn("ci", "init", "--stack", "stack", "--rocm-index-url", "https://rocm.example/{family}/", repository)
    url = "gh variable set CAIRN_ROCM_INDEX_URL --repo me/wheels --body"
    found_variable = lacking(cairn, repository)
    assert list(found_variable) == ["variable CAIRN_ROCM_INDEX_URL"]
    assert url in found_variable["variable CAIRN_ROCM_INDEX_URL"]


@pytest.mark.usefixtures("github")
def test_a_role_that_does_not_trust_its_jobs_is_named(cairn: Cairn, repository: Path) -> None:
    path = repository / ".github" / "cairn" / "aws" / "promote.trust.json"
    path.write_text(path.read_text().replace("environment:nightly", "environment:nights"))
    found = lacking(cairn, repository)
    assert list(found) == ["role PROMOTE"]
    assert "does not trust repo:me/wheels:environment:nightly" in found["role PROMOTE"]


@pytest.mark.usefixtures("github")
def test_files_are_compared_with_what_this_cairn_writes(cairn: Cairn, repository: Path) -> None:
    (repository / ".github" / "workflows" / "nightly-watch.yml").unlink()
    (repository / "stack" / "suite.toml").write_text("# mine\n")
    (repository / ".github" / "workflows" / "release.yml").write_text("")
    found = cairn.json("ci", "check", repository, code=3)["findings"]
    texts = {(one["level"], one["text"]) for one in found if one["check"] == "files"}
    assert ("missing", "not there: .github/workflows/nightly-watch.yml") in texts
    assert ("missing", "nothing runs in .github/workflows/release.yml") in texts
    assert any(level == "note" and "stack/suite.toml" in text for level, text in texts)


def test_what_gh_does_not_answer_is_named_as_not_checked(cairn: Cairn, repository: Path) -> None:
    found = cairn.json("ci", "check", repository, code=3)["findings"]
    unchecked = [one["text"] for one in found if one["level"] in ("note", "missing")]
    assert all(text.startswith("not checked: ") for text in unchecked)
    assert "HTTP 404" in unchecked[0]
    assert {"store", "conditional writes"} <= {one["check"] for one in found if one["level"] == "ok"}
