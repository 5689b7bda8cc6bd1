"""Write what a repository on GitHub needs to run nights, and leave alone what somebody has changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from msgspec import structs

import cairn
from cairn import datafile, files, shipped
from cairn.errors import UsageError
from cairn.matrix.matrix_toml import FILE as MATRIX
from cairn.matrix.matrix_toml import MatrixToml, load_matrix_toml, usable
from cairn.pipeline.repository import aws, github, workflows
from cairn.pipeline.repository.choices import FOLDER, LOCK, STACK, Choices, Lock, installed, read_lock
from cairn.pipeline.repository.workflows import Terms
from cairn.stack import Stack
from cairn.stack.read import load

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


_HOSTED_LABEL = '"ubuntu-24.04"'  # of the sample's matrix.toml


State = Literal["new", "unchanged", "updated", "edited", "not ours", "replaced"]
"""`edited` since it was written, and `not ours`: both are left as they are."""


class WrittenFile(datafile.Value):
    """A file of the repository, and what becomes of it."""

    path: str
    state: State


def contents(choices: Choices, root: Path, *, wheel: Path | None = None) -> Mapping[str, bytes]:
    """Return every file that the repository is to have, by its path.

    Args:
        choices: what was chosen.
        root: the repository.
        wheel: of Cairn, to be copied into the repository.
    """
    _, _, lines = nights_of(choices, root)
    terms = Terms(
        stack=choices.stack_folder,
        line=lines[0],
        requirement=choices.cairn,
        runs_on=choices.runs_on,
        credentials=choices.credentials,
        version=cairn.__version__,
    )
    made = dict(workflows.fitted(terms))
    if choices.cairn.startswith("./"):
        copy = wheel or root / choices.cairn
        if not copy.is_file() and wheel is None:
            copy = Path(installed())
        if copy.name != Path(choices.cairn).name or not copy.is_file():
            raise UsageError(f"{choices.cairn} is gone", tip="name the wheel again with --cairn")
        made[choices.cairn.removeprefix("./")] = copy.read_bytes()
    if choices.stack in shipped.STACKS:
        made |= dict(_stack_files(choices))
    made[".github/actionlint.yaml"] = _actionlint(choices)
    if choices.credentials == "roles" and choices.store and choices.repository:
        policies = aws.policy_files(
            workflows.roles_of_jobs(made),
            aws.place_of(choices.store),
            repository=choices.repository,
            branch=choices.branch,
            account=choices.account or aws.ACCOUNT,
        )
        made |= {f"{FOLDER}/aws/{name}": data for name, data in policies}
    made[f"{FOLDER}/README.md"] = text(choices, settings(choices, made, lines), made).encode()
    return made


def nights_of(choices: Choices, root: Path) -> tuple[Stack, MatrixToml | None, tuple[str, ...]]:
    """Return the stack, its matrix.toml if there is one, and its nights' lines, the scheduled one first.

    Raises:
        UsageError: its stack.toml or matrix.toml cannot be read.
    """
    folder = root / choices.stack_folder
    if not (folder / "stack.toml").is_file():
        folder = shipped.folder(f"stacks/{choices.stack}")
    stack = load(folder)
    if not (folder / MATRIX).is_file():  # which `check` names
        return stack, None, (stack.line,)
    matrix = load_matrix_toml(folder / MATRIX, stack)
    return stack, matrix, matrix.lines_of("nightly", stack)


def settings(choices: Choices, made: Mapping[str, bytes], lines: tuple[str, ...]) -> github.Settings:
    """Return what the repository on GitHub is to have; `made` are its files, `lines` those of its nights."""
    variables = {
        "CAIRN_STORE": choices.store or "",
        "CAIRN_AWS_REGION": choices.region or "",
        workflows.ENDPOINT: choices.endpoint_url or "",
        workflows.ROCM_INDEX_URL: choices.rocm_index_url or "",
        "CAIRN_LINES": ",".join(lines[1:]),
    }
    roles = workflows.roles_of_jobs(made)
    if choices.store and choices.repository:
        account = choices.account or aws.ACCOUNT
        variables |= {f"CAIRN_ROLE_{role}": aws.arn(account, choices.repository, role) for role in roles}
    return github.Settings(
        repository=choices.repository or "OWNER/NAME",
        branch=choices.branch,
        variables={name: value for name, value in variables.items() if value},
        environments=workflows.environments(made),
        reviewers=choices.reviewers,
    )


def _stack_files(choices: Choices) -> Iterator[tuple[str, bytes]]:
    for name, data in shipped.read(f"stacks/{choices.stack}/").items():
        if name == MATRIX and choices.credentials == "none":
            # A folder is where its runner is, and so is every job that reads it.
            labels = ", ".join(f'"{label}"' for label in choices.runs_on)
            data = data.replace(_HOSTED_LABEL.encode(), labels.encode())  # noqa: PLW2901
        yield f"{STACK}/{name}", data


def _actionlint(choices: Choices) -> bytes:
    """The labels of runners that are not GitHub's own, which actionlint would take for mistyped."""
    labels = [label for label in choices.runs_on if not usable((label,), at_home=False)]
    return f"self-hosted-runner:\n  labels: {json.dumps(labels)}\n".encode()


def plan(root: Path, made: Mapping[str, bytes], *, force: bool) -> tuple[WrittenFile, ...]:
    """Compare a repository with the files that it is to have."""
    lock = read_lock(root)
    written = lock.files if lock else {}
    return tuple(
        WrittenFile(path=path, state=_state(root / path, data, written.get(path), force=force))
        for path, data in sorted(made.items())
    )


def _state(path: Path, data: bytes, digest: str | None, *, force: bool) -> State:
    if not path.exists():
        return "new"
    current = path.read_bytes()
    if current == data:
        return "unchanged"
    if digest == _sha256(current):
        return "updated"
    if force:
        return "replaced"
    return "edited" if digest else "not ours"


def write(root: Path, choices: Choices, made: Mapping[str, bytes], planned: tuple[WrittenFile, ...]) -> None:
    """Write the files that are not as they should be, and the lock last."""
    before = read_lock(root)
    digests: dict[str, str] = {}
    for file in planned:
        if file.state in ("edited", "not ours"):
            # That of what was written: it stays edited until somebody takes the edit back.
            if before and file.path in before.files:
                digests[file.path] = before.files[file.path]
            continue
        if file.state != "unchanged":
            (root / file.path).parent.mkdir(parents=True, exist_ok=True)
            files.write_bytes(root / file.path, made[file.path])
        digests[file.path] = _sha256(made[file.path])
    lock = Lock(version=cairn.__version__, choices=choices, files=digests)
    if before is None or structs.asdict(before) != structs.asdict(lock):
        datafile.write(root / LOCK, lock)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
