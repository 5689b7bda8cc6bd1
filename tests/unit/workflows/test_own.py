"""What Cairn's own workflows must keep to, beyond what any linter knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn.workflows import expressions, workflow
from cairn.workflows.workflow import Job

FOLDER = Path(__file__).parents[3] / ".github" / "workflows"
NIGHTS = [workflow.load(FOLDER / name) for name in ("nightly.yml", "nightly-watch.yml", "release.yml")]
JOBS = [(found, job) for found in NIGHTS for job in found.jobs.values()]
every_job = pytest.mark.parametrize(
    "job", [job for _, job in JOBS], ids=[f"{found.path.stem}-{job.id}" for found, job in JOBS]
)


def role_of(job: Job) -> str:
    """The role that a job takes: the name of its variable."""
    roles = {
        scalar.text for step in job.steps for scalar in step.node.scalars() if "_ROLE_" in str(scalar.text)
    }
    assert len(roles) == 1
    return str(roles.pop()).strip("${ }").removeprefix("vars.CAIRN_ROLE_")


@every_job
def test_who_may_write_what_users_install_asks_reviewers_first(job: Job) -> None:
    """The trust policy of that role names environments, so that it is of no use to a job without one."""
    assert (role_of(job) == "PROMOTE") == (job.node.get("environment") is not None)
    promotes = any("promote" in command.words for step in job.all_steps() for command in step.commands())
    assert (role_of(job) == "PROMOTE") == promotes


@every_job
def test_what_builds_does_so_in_the_container_of_the_manifest(job: Job) -> None:
    builds = any("build" in command.words for step in job.all_steps() for command in step.commands())
    assert ("needs.freeze.outputs.image" in job.node.text_of("container")) == builds


def value(text: str, **context: Mapping[str, object]) -> object:
    (found,) = expressions.embedded(text)
    return expressions.evaluate(found, context, {})


@pytest.mark.parametrize(
    ("to", "own", "environment"),
    [
        ("nightly", "", "nightly"),
        ("dev", "dev", "nightly"),
        ("release", "", "release"),
        ("prerelease", "nightly", "release"),
        ("", "", "release"),
    ],
)
def test_a_night_to_the_channel_of_a_release_asks_its_reviewers(to: str, own: str, environment: str) -> None:
    text = NIGHTS[0].jobs["promote"].node.text_of("environment")
    needs = {"freeze": {"outputs": {"to": to}}}
    assert value(text, needs=needs, vars={"CAIRN_CHANNEL": own}) == environment


@pytest.mark.parametrize(
    ("inputs", "line", "group"),
    [
        ({}, "", "nightly"),
        ({}, "release/2.9", "release/2.9"),
        ({"line": "nightly"}, "", "nightly"),
        ({"line": "release/2.9", "dry-run": False}, "nightly", "release/2.9"),
        ({"line": "release/2.9", "night": "7"}, "", "7"),
        ({"dry-run": True, "line": "nightly"}, "", "123"),
    ],
)
def test_a_night_replaces_one_of_its_line_and_a_dry_run_none(
    inputs: dict[str, object], line: str, group: str
) -> None:
    text = NIGHTS[0].node.text_of("concurrency", "group")
    assert value(text, inputs=inputs, vars={"CAIRN_LINE": line}, github={"run_id": "123"}) == group
