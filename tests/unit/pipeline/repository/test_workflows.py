"""Cairn's workflows, fitted to a repository of one's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from cairn import shipped
from cairn.pipeline.repository import workflows
from cairn.pipeline.repository.workflows import Credentials, Terms

COMMIT = f"git+https://github.com/me/cairn.git@{'0' * 40}"
KINDS: tuple[Credentials, ...] = ("roles", "keys", "none")


def fitted(**changes: Any) -> Mapping[str, bytes]:
    return workflows.fitted(
        Terms(**{"stack": "stack", "line": "main", "requirement": COMMIT, "version": "1.0", **changes})
    )


def parsed(files: Mapping[str, bytes]) -> dict[str, Any]:
    return {path: yaml.safe_load(data) for path, data in files.items() if path.endswith(".yml")}


def jobs_of(files: Mapping[str, bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, file in parsed(files).items():
        yield from ((f"{path} {name}", job) for name, job in file.get("jobs", {}).items())


@pytest.mark.parametrize("credentials", KINDS)
def test_nothing_of_cairns_own_repository_is_left(credentials: Credentials) -> None:
    files = fitted(credentials=credentials)
    for path, data in files.items():
        if not path.endswith("constraints.txt"):
            assert not re.search(r"external-builds|docs/how-to|\"\.\[", data.decode()), path
    install = parsed(files)[".github/actions/setup-cairn/action.yml"]["runs"]["steps"][-1]["run"]
    constraints = re.search(r"--constraint (\S+)", install)
    assert constraints is not None
    assert constraints[1] in files
    assert f'"cairn-wheels[$EXTRAS] @ {COMMIT}"' in install


def test_an_edit_of_a_workflow_of_cairns_is_in_what_is_written() -> None:
    own = shipped.read("github/")["workflows/nightly.yml"].decode()
    made = fitted()[".github/workflows/nightly.yml"].decode()
    changed = sum(one not in own for one in made.splitlines())
    assert workflows.scheduled_line({".github/workflows/nightly.yml": own.encode()}) == "nightly"
    every = "".join(data.decode() for data in fitted().values())
    assert set(re.findall(r"vars\.CAIRN_LINE \|\| '(.*?)'", every)) == {"main"}
    assert changed < 10
    assert len(made.splitlines()) == len(own.splitlines()) + 1


@pytest.mark.parametrize("credentials", ["keys", "none"])
def test_without_roles_no_job_asks_for_a_token_of_its_identity(credentials: Credentials) -> None:
    files = fitted(credentials=credentials)
    assert not any(re.search(rb"aws-actions/|CAIRN_ROLE_|steps\.role", data) for data in files.values())
    signing = {name for name, job in jobs_of(files) if "id-token" in job["permissions"]}
    assert signing == {f".github/workflows/{name} stage" for name in ("nightly.yml", "release.yml")}
    for path, file in parsed(files).items():
        for job in [*file.get("jobs", {}).values(), file.get("runs", {})]:
            for step in job.get("steps", ()):
                assert step.get("env", True), f"{path}: {step}"  # a block that has lost all of its lines


def test_the_keys_of_a_job_are_secrets_of_its_environment_and_go_to_steps_that_name_the_store() -> None:
    files = fitted(credentials="keys")
    both = {workflows.ACCESS_KEY, workflows.SECRET_KEY}
    for name, job in jobs_of(files):
        used = set(re.findall(r"secrets\.(CAIRN_S3_\w+)", str(job)))
        assert used == (both if "environment" in job else set()), name
        assert not re.search(r"secrets\.", str({**job, "steps": []})), name
    for path, file in parsed(files).items():
        if "runs" in file:
            for step in file["runs"]["steps"]:
                holds = "AWS_SECRET_ACCESS_KEY" in step.get("env", {})
                names_store = bool(re.search(r'--(cache-)?store "\$(CACHE_)?STORE"', step.get("run", "")))
                assert holds == names_store, f"{path}: {step}"


def test_a_folder_has_no_credentials_and_its_own_runner() -> None:
    files = fitted(credentials="none", runs_on=("self-hosted", "lab"))
    assert not any(re.search(rb"AWS_(ACCESS|SECRET)|secrets\.CAIRN_S3", data) for data in files.values())
    for name, job in jobs_of(files):
        assert job["runs-on"] == ["self-hosted", "lab"] or "matrix" in str(job["runs-on"]), name


def test_roles_and_environments_are_those_of_the_jobs() -> None:
    """Read from the text, so that comments stay; what YAML says must be the same."""
    files = fitted()
    expected: dict[str, list[str]] = {}
    for _, job in jobs_of(files):
        for role in re.findall(r"vars\.CAIRN_ROLE_(\w+)", str(job)):
            environment = str(job.get("environment", ""))
            names = re.findall(r"'([^']+)'", environment) if "${{" in environment else environment.split()
            expected.setdefault(role, []).extend(names or [""])
    unique = {role: tuple(dict.fromkeys(names)) for role, names in expected.items()}
    assert workflows.roles_of_jobs(files) == unique
    assert {"FREEZE", "BUILD", "STAGE", "TEST", "PROMOTE", "REPORT"} == expected.keys()
    assert set(workflows.environments(files)) >= {"nightly", "release"}


def test_a_wheel_in_the_repository_is_installed_from_there() -> None:
    files = fitted(requirement="./.github/cairn/cairn-1.0-py3-none-any.whl")
    text = files[".github/actions/setup-cairn/action.yml"].decode()
    assert '"./.github/cairn/cairn-1.0-py3-none-any.whl[$EXTRAS]"' in text
