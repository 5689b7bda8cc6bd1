"""What a repository that runs nights was set up with, and the lock that remembers it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cairn import datafile, shipped
from cairn.errors import UsageError
from cairn.pipeline.repository import github, pinned, workflows
from cairn.pipeline.repository.workflows import Credentials
from cairn.sources.git import repository as git

LOCK = f"{pinned.FOLDER}/lock.json"
"""What was chosen, and the digest of each file as it was written."""
STACK = "stack"
"""The folder of a stack that is copied from Cairn's."""


class Choices(datafile.Value):
    """What a repository was set up with; a later run goes by it where nothing else is named.

    Attributes:
        cairn: what jobs install.
        stack: the folder of the stack, or one of Cairn's: `sample`, `pytorch`.
        store: its URL; None where it is not known yet.
        endpoint_url: the server of a bucket that is not the cloud's own.
        region: of the bucket.
        rocm_index_url: where the ROCm SDK comes from, for a stack that does not make its own.
        repository: `owner/name` on GitHub; None where it is not known yet.
        branch: the default branch.
        account: the number of the AWS account that has the roles.
        runs_on: labels of the runner of jobs that no matrix places.
        credentials: how jobs come to them; None for what suits the store.
        reviewers: accounts that say yes before a release is promoted.
    """

    cairn: str
    stack: str = "sample"
    store: str | None = None
    endpoint_url: str | None = None
    region: str | None = None
    rocm_index_url: str | None = None
    repository: str | None = None
    branch: str = "main"
    account: str | None = None
    runs_on: tuple[str, ...] = workflows.HOSTED
    credentials: Credentials = "roles"
    reviewers: tuple[str, ...] = ()

    @property
    def stack_folder(self) -> str:
        """The folder of the stack in the repository."""
        return STACK if self.stack in shipped.STACKS else self.stack


class Lock(datafile.Value, tag_field="schema", tag="cairn.ci-lock/1"):
    """What `cairn ci init` wrote into a repository.

    Attributes:
        version: of the Cairn that wrote it.
        choices: what it was told.
        files: the sha256 of each file as it was written.
    """

    version: str
    choices: Choices
    files: Mapping[str, str]


def chosen(root: Path, cairn_wheel: str | None = None, **given: object) -> Choices:
    """Return what the user names, else what an earlier run was told, else what follows from the repository.

    Raises:
        UsageError: it does not go together.
    """
    earlier = read_lock(root)
    values = datafile.to_plain(earlier.choices) if earlier else {}
    if given.get("store") not in (None, values.get("store")):
        for of_store in ("endpoint_url", "region", "credentials"):
            values.pop(of_store, None)
    values |= {name: value for name, value in given.items() if value}
    if "stack" not in values and (root / STACK / "stack.toml").is_file():
        values["stack"] = STACK  # that of whoever was here before
    if cairn_wheel or "cairn" not in values:
        values["cairn"] = pinned.named(cairn_wheel) if cairn_wheel else pinned.installed()
    checkout = git.root_at(root)
    origin = checkout.origin_url()
    values.setdefault("branch", checkout.run("symbolic-ref", "--short", "HEAD").strip())
    if not values.get("repository"):
        values["repository"] = github.name_in(origin) if origin else None
    if not values.get("credentials"):
        values["credentials"] = _credentials(values.get("store"), values.get("endpoint_url"))
    choices = datafile.from_plain(values, Choices, name=LOCK)
    _refuse_contradictions(root, choices)
    return choices


def _credentials(store: object, endpoint_url: object) -> Credentials:
    """Roles for a bucket of Amazon's, or no store yet; keys for S3 elsewhere; none for a folder, gs:// or az://."""
    if not str(store or "s3://").startswith("s3://"):
        return "none"
    return "keys" if endpoint_url else "roles"


def _refuse_contradictions(root: Path, choices: Choices) -> None:
    if choices.repository is not None:
        github.checked_name(choices.repository)
    if choices.credentials == "none" and choices.runs_on == workflows.HOSTED:
        raise UsageError(
            f"the workflows give GitHub's own runners no way to {choices.store}",
            tip="--runs-on LABELS: of a runner that has the folder, or credentials for the bucket",
        )
    if choices.credentials == "roles" and choices.store and not choices.repository:
        raise UsageError("the trust policies of roles name the repository", tip="--repository owner/name")
    if choices.stack not in shipped.STACKS and not (root / choices.stack / "stack.toml").is_file():
        raise UsageError(
            f"{choices.stack} is no folder of this repository with a stack.toml",
            tip=f"write one there, or begin with one of Cairn's: {', '.join(shipped.STACKS)}",
        )


def refuse_incomplete(choices: Choices) -> None:
    """Refuse to set a repository up of which not everything is known.

    Raises:
        UsageError: something is missing.
    """
    needed = {"--repository": choices.repository, "--store": choices.store}
    if choices.credentials == "roles":
        needed |= {"--aws-account": choices.account, "--region": choices.region}
    if missing := [name for name, value in needed.items() if not value]:
        raise UsageError(
            f"--apply needs {' and '.join(missing)}", tip="leave --apply out to write the files alone"
        )


def read_lock(root: Path) -> Lock | None:
    """Return what an earlier run left; None without one."""
    return datafile.read(root / LOCK, Lock) if (root / LOCK).is_file() else None
