"""The README beside what no workflow runs: what a repository has now, and what is to be set up elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cairn.pipeline.repository import aws, github, workflows
from cairn.pipeline.repository.choices import Choices

_NIGHTS = """\
# Nights of this repository

`cairn ci init` wrote the workflows in `.github/workflows/`, the actions in `.github/actions/`, and what is
in this folder. Change what you like: a later `cairn ci init`, such as of a newer Cairn, leaves changed files
alone and names them. Without the variable `CAIRN_STORE` the schedules do nothing.

What is built is in `{stack}/`: the projects in stack.toml, families and runners in matrix.toml. Jobs install
`{cairn}`.

## Variables and environments

`cairn ci init --apply` runs these lines:

```
{lines}
```

Have somebody review jobs in the environment `release`: `cairn ci init --reviewer LOGIN`, or the settings of
the repository.
"""
_ROLES = """
## Roles of AWS

`aws/` has two policies for each role: `permissions` for what it may do in the bucket, `trust` for the jobs
that may take it. {account} The one that builds may also write below `cache/` and `compiled/` of the bucket,
beside the store, for the variables `CAIRN_CACHE_STORE` and `CAIRN_COMPILER_CACHE_BUCKET`. With a root,
the latter names another bucket, or none.

```
{lines}
```
"""
_UNKNOWN = f"`{aws.ACCOUNT}` stands for the number of your account, which `--aws-account` puts there."
_NO_ROLES = """
## Roles of AWS

Run `cairn ci init --store s3://bucket/prefix` for the policies of the roles, or name a different store.
"""
_KEYS = """
## Keys

Each job runs in an environment, whose secrets are the keys of the store. Give each environment keys that may
do no more than its job (Cairn's docs/reference/nightly.md says what that is):

```
{lines}
```
"""
_FOLDER = """
## The store

Jobs get no credentials for `{store}`: each runs on a machine that has the folder, or a role in the cloud that
has the bucket. So all labels in matrix.toml, those of `host_test` too, must be of such machines. Code that is
built and tested there runs as the user of the runner, and could write into the store: for more than trying it
out, take a bucket of S3, with roles or keys.
"""


def text(choices: Choices, settings: github.Settings, made: Mapping[str, bytes]) -> str:
    """Return the text, for what was chosen; `made` are the other files."""
    parts = [
        _NIGHTS.format(
            stack=choices.stack_folder,
            cairn=choices.cairn,
            lines="\n".join(map(github.line_of, settings.commands())),
        )
    ]
    if choices.credentials == "none":
        parts.append(_FOLDER.format(store=choices.store))
    elif choices.credentials == "keys":
        parts.append(_KEYS.format(lines="\n".join(_secret_lines(settings))))
    elif any(path.endswith(".trust.json") for path in made):
        account = "" if choices.account else _UNKNOWN
        parts.append(_ROLES.format(account=account, lines="\n".join(_role_lines(choices, made))))
    else:
        parts.append(_NO_ROLES)
    return "".join(parts)


def _secret_lines(settings: github.Settings) -> Iterator[str]:
    for environment in settings.environments:
        for name in (workflows.ACCESS_KEY, workflows.SECRET_KEY):
            yield f"gh secret set {name} --repo {settings.repository} --env {environment}"


def _role_lines(choices: Choices, made: Mapping[str, bytes]) -> Iterator[str]:
    provider = f"--url https://{aws.PROVIDER} --client-id-list {aws.AUDIENCE}"
    yield f"aws iam create-open-id-connect-provider {provider}"
    for path in made:
        folder, _, file = path.rpartition("/")
        if file.endswith(".trust.json"):
            role = file.removesuffix(".trust.json")
            name = aws.role_name(str(choices.repository), role)
            # sccache of a build cannot renew its credentials, and a build takes up to 12 hours.
            session = " --max-session-duration 43200" if role == "build" else ""
            document = f"--assume-role-policy-document file://{path}"
            yield f"aws iam create-role --role-name {name} {document}{session}"
            policy = f"--policy-name {aws.POLICY} --policy-document file://{folder}/{role}.permissions.json"
            yield f"aws iam put-role-policy --role-name {name} {policy}"
