"""The roles of AWS that the jobs of a night take: what each may do in the bucket, and who may take it.

Sources: "Actions, resources, and condition keys for Amazon S3" of AWS; for the subjects of tokens, "About
security hardening with OpenID Connect" of GitHub.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from cairn.release.index import keys

ACCOUNT = "ACCOUNT_ID"
"""Stands for the number of an account that nobody has named."""
PROVIDER = "token.actions.githubusercontent.com"
AUDIENCE = "sts.amazonaws.com"

POLICY = "store"
"""The name of the policy of what a role may do."""

TRUST = "{}-trust"
"""The bucket beside that of the store in which promoters remember what they have seen signed."""

_TRIAL = ".conditional-writes*"
_CHANNELS = tuple(f"{channel}/*" for channel in keys.CHANNELS if channel != "staging")
_CACHES = ("cache/*", "compiled/*")  # of built wheels and of sccache, in the bucket but not in the store
_PAGES = tuple(
    f"{channel}/{page}"
    for channel in keys.CHANNELS
    for page in (
        *("status/*", "*/status/*", "*.html", "nights.*"),
        *("targets.json", "*/targets.json", "trends.json", "*/trends.json"),
    )
)
_WRITES: Mapping[str, tuple[str, ...]] = {
    "FREEZE": ("nights/*", "recipes/*"),
    "BUILD": (),
    # Of a commit that is not the line's, sets are staged in the channel of what developers try.
    "STAGE": (
        *("files/*", "sets/*", "staging/*", f"{keys.DEV}/*", "ledger/*", keys.LANDING, keys.CHOOSER),
        "nights/*/steps/*",
    ),
    # The ledger has every record, and staging says of a set that one stands against it.
    "TEST": (
        *("sets/*/records/*", "sets/*/results/*", "nights/*/steps/*", "nights/*/shards/*"),
        *("ledger/entries/*", "ledger/sets/*", keys.LEDGER_HEAD, "staging/*", f"{keys.DEV}/*"),
    ),
    "PROMOTE": (
        *_CHANNELS,
        "metadata/*",  # where the store has a root: what promoters sign
        "sets/*/judgements/*",
        "ledger/*",
        keys.LANDING,
        keys.CHOOSER,
        "nights/*/steps/*",
    ),
    "REPORT": (keys.LANDING, keys.CHOOSER, *_PAGES),
}
"""What the jobs of each role write, below the store's prefix; in words: docs/reference/nightly.md."""


Place: TypeAlias = tuple[str, str]
"""A bucket of Amazon's, and what the keys of the store begin with: empty, or with a slash at the end."""


def place_of(url: str) -> Place:
    """Return the place that `s3://bucket/prefix` names."""
    bucket, _, prefix = url.partition("://")[2].partition("/")
    prefix = prefix.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def role_name(repository: str, role: str) -> str:
    """Return the name of a role in AWS, such as `cairn-me-wheels-promote`, of at most 64 characters."""
    return f"cairn-{repository.replace('/', '-')}"[: 63 - len(role)] + f"-{role.lower()}"


def arn(account: str, repository: str, role: str) -> str:
    """Return the ARN of a role."""
    return f"arn:aws:iam::{account}:role/{role_name(repository, role)}"


def permissions(role: str, place: Place) -> dict[str, object]:
    """Return the policy of what a role may do.

    The pointer of an index is written on a condition or not at all: AWS refuses a write that has none.
    """
    name, prefix = place
    bucket = f"arn:aws:s3:::{name}"
    store = f"{bucket}/{prefix}"
    # A store that is the whole bucket has no room beside it.
    caches = _CACHES if role == "BUILD" and prefix else ()
    writes = [f"{store}{pattern}" for pattern in _WRITES.get(role, ())] + [f"{bucket}/{c}" for c in caches]
    prefixes = [f"{prefix}*", *([prefix] if prefix else []), *caches]
    lists = {"StringLike": {"s3:prefix": prefixes}}
    statements = [
        _statement("List", ["s3:ListBucket"], [bucket], Condition=lists),
        _statement("Read", ["s3:GetObject"], [f"{store}*", *(f"{bucket}/{cache}" for cache in caches)]),
    ]
    if role == "PROMOTE":
        # Nobody else, so that an old copy of a store that somebody puts back shows.
        memory = f"arn:aws:s3:::{TRUST.format(name)}"
        actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket"]
        statements.append(_statement("Remember", actions, [memory, f"{memory}/*"]))
    if writes:
        # Whoever is the first to write tries the conditions of the bucket, on a key that is then removed.
        trials = [f"{bucket}/{folder}{_TRIAL}" for folder in (prefix, *(c[:-1] for c in caches))]
        pointers = {"Null": {"s3:if-match": "true", "s3:if-none-match": "true"}}
        statements += [
            _statement("Write", ["s3:PutObject", "s3:AbortMultipartUpload"], [*writes, *trials]),
            _statement("CleanUp", ["s3:DeleteObject"], trials),
            _statement(
                "PointersOnConditionOnly",
                ["s3:PutObject"],
                [f"{store}*/state.json"],
                Effect="Deny",
                Condition=pointers,
            ),
        ]
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(sid: str, actions: list[str], resources: list[str], **more: object) -> dict[str, object]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources, **more}


def subjects(environments: Iterable[str], repository: str, branch: str) -> tuple[str, ...]:
    """Return the subjects of the tokens with which jobs in these environments take a role.

    A job in an environment has that in its subject, any other the branch that its run is of.
    """
    return tuple(
        f"repo:{repository}:environment:{environment}"
        if environment
        else f"repo:{repository}:ref:refs/heads/{branch}"
        for environment in environments
    )


def trust(account: str, allowed: Sequence[str]) -> dict[str, object]:
    """Return the policy of who may take a role: jobs whose tokens have one of these subjects."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:aws:iam::{account}:oidc-provider/{PROVIDER}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {
            "StringEquals": {f"{PROVIDER}:aud": AUDIENCE, f"{PROVIDER}:sub": list(allowed)},
        },
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def policy_files(
    roles: Mapping[str, Iterable[str]], place: Place, *, repository: str, branch: str, account: str
) -> Iterator[tuple[str, bytes]]:
    """Yield the policies of each role that jobs take: `promote.permissions.json`, `promote.trust.json`."""
    for role, environments in roles.items():
        allowed = subjects(environments, repository, branch)
        for kind, policy in (("permissions", permissions(role, place)), ("trust", trust(account, allowed))):
            yield f"{role.lower()}.{kind}.json", f"{json.dumps(policy, indent=2)}\n".encode()
