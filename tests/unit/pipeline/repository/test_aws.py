"""The policies of the roles that jobs take."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest

from cairn.pipeline.repository import aws, workflows
from cairn.pipeline.repository.workflows import Terms
from cairn.release.trust import metadata

PLACE = aws.place_of("s3://wheels/torch/")
D = "a" * 64


def may_write(role: str, key: str) -> bool:
    allowed = [
        pattern
        for statement in aws.permissions(role, PLACE)["Statement"]  # type: ignore[attr-defined]
        if statement["Effect"] == "Allow" and "s3:PutObject" in statement["Action"]
        for pattern in statement["Resource"]
    ]
    return any(fnmatchcase(f"arn:aws:s3:::wheels/{key}", pattern) for pattern in allowed)


@pytest.mark.parametrize(
    ("key", "roles"),
    [
        ("torch/nights/7/night.json", {"FREEZE"}),
        ("torch/staging/gfx110X-all/state.json", {"STAGE", "TEST"}),
        ("torch/dev/gfx110X-all/state.json", {"STAGE", "TEST", "PROMOTE"}),
        ("torch/ledger/names/torch.json", {"STAGE", "PROMOTE"}),
        (f"torch/files/aa/{D}/torch.whl", {"STAGE"}),
        (f"torch/sets/{D}/records/{D}.json", {"STAGE", "TEST"}),
        ("torch/nightly/gfx110X-all/state.json", {"PROMOTE"}),
        ("torch/release/state.json", {"PROMOTE"}),
        (f"torch/{metadata.key_of('snapshot', 7)}", {"PROMOTE"}),
        (f"torch/{metadata.TIMESTAMP}", {"PROMOTE"}),
        ("torch/untested/gfx110X-all/generations/1.json", {"PROMOTE"}),
        ("torch/nightly/gfx110X-all/status/leg.json", {"PROMOTE", "REPORT"}),
        ("other/nights/7/night.json", set()),
        ("cache/wheels/1.json", {"BUILD"}),
        ("torch/cache/wheels/1.json", set()),
    ],
)
def test_who_may_write_what(key: str, roles: set[str]) -> None:
    every = ("FREEZE", "BUILD", "STAGE", "TEST", "PROMOTE", "REPORT")
    assert {role for role in every if may_write(role, key)} == roles


def test_promoters_alone_remember_what_they_have_seen_signed() -> None:
    """In a bucket of its own: whoever can put an old copy of the store back cannot put that back, too."""
    for role in ("FREEZE", "BUILD", "STAGE", "TEST", "PROMOTE", "REPORT"):
        text = json.dumps(aws.permissions(role, PLACE))
        assert ('"arn:aws:s3:::wheels-trust/*"' in text) == (role == "PROMOTE")
        assert "wheels*" not in text


def test_a_pointer_is_written_on_a_condition_alone() -> None:
    (deny,) = (
        statement
        for statement in aws.permissions("PROMOTE", PLACE)["Statement"]  # type: ignore[attr-defined]
        if statement["Effect"] == "Deny"
    )
    assert fnmatchcase("arn:aws:s3:::wheels/torch/nightly/gfx110X-all/state.json", deny["Resource"][0])
    assert deny["Condition"] == {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}}


def test_a_role_trusts_the_environments_of_its_jobs_or_else_the_branch() -> None:
    assert aws.subjects(("nightly", "release"), "me/wheels", "main") == (
        "repo:me/wheels:environment:nightly",
        "repo:me/wheels:environment:release",
    )
    assert aws.subjects(("",), "me/wheels", "main") == ("repo:me/wheels:ref:refs/heads/main",)


def test_whoever_promotes_is_trusted_by_no_job_without_an_environment() -> None:
    files = workflows.fitted(Terms(stack="stack", line="main", requirement="x", version="1"))
    subjects = aws.subjects(workflows.roles_of_jobs(files)["PROMOTE"], "me/wheels", "main")
    assert all(":environment:" in subject for subject in subjects)


def test_the_name_of_a_role_fits_into_aws() -> None:
    names = {aws.role_name(f"{'o' * 39}/{'n' * 100}", role) for role in ("PROMOTE", "FREEZE")}
    assert {len(name) for name in names} == {64}
    assert len(names) == 2
