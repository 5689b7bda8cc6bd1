"""What a repository that runs nights was set up with, and the lock that remembers it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cairn import DISTRIBUTION, datafile, files, shipped
from cairn.errors import UsageError
from cairn.pipeline.repository import github, workflows
from cairn.pipeline.repository.workflows import Credentials
from cairn.sources.git import repository as git

FOLDER = ".github/cairn"
"""Where a wheel lies that a repository has itself, beside all that no workflow runs."""

_COMMIT = re.compile(r"git\+https://\S+@[0-9a-f]{40}")
_WHEEL = re.compile(r"https://\S+\.whl#sha256=[0-9a-f]{64}")
_TIP = (
    "name it with --cairn: git+https://host/owner/cairn.git@COMMIT, "
    "https://host/cairn_wheels-….whl#sha256=…, or a wheel, which is then copied into the repository"
)
LOCK = f"{FOLDER}/lock.json"
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
        credentials: how jobs reach the store; what suits it.
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


def chosen(root: Path, requirement: str | None = None, **given: object) -> Choices:
    """Return what the user names, else what an earlier run was told, else what follows from the repository.

    Raises:
        UsageError: it does not go together.
    """
    earlier = read_lock(root)
    values = datafile.to_plain(earlier.choices) if earlier else {}
    if given.get("store") not in (None, values.get("store")):
        for of_store in ("endpoint_url", "region"):
            values.pop(of_store, None)
    values |= {name: value for name, value in given.items() if value}
    if "stack" not in values and (root / STACK / "stack.toml").is_file():
        values["stack"] = STACK  # that of whoever was here before
    if requirement or "cairn" not in values:
        values["cairn"] = requirement_of(requirement or installed())
    checkout = git.root_at(root)
    origin = checkout.origin_url()
    values.setdefault("branch", checkout.run("symbolic-ref", "--short", "HEAD").strip())
    if not values.get("repository"):
        values["repository"] = github.name_in(origin) if origin else None
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


def requirement_of(text: str) -> str:
    """Return the requirement that a user names; for a wheel on this machine, the path of its copy.

    Raises:
        UsageError: it can come to be something else, such as a branch.
    """
    name = text.partition("#")[0].rpartition("/")[2]
    if name.endswith(".whl") and name.partition("-")[0].replace("_", "-") != DISTRIBUTION:
        raise UsageError(f"{name} is no wheel of {DISTRIBUTION}", tip=_TIP)
    if _COMMIT.fullmatch(text) or _WHEEL.fullmatch(text) or text.startswith(f"./{FOLDER}/"):
        return text
    if text.endswith(".whl") and files.expanded(text).is_file():
        return f"./{FOLDER}/{files.expanded(text).name}"
    raise UsageError(f"{text} is no commit, and no wheel with its sha256", tip=_TIP)


def installed() -> str:
    """Return what `requirement_of` takes for the Cairn that runs here, by pip's note of it (PEP 610).

    Raises:
        UsageError: it came from where no job can get it: a file, or an index of whatever name.
    """
    note = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    place = json.loads(note) if note else {}
    url = str(place.get("url", ""))
    if commit := place.get("vcs_info", {}).get("commit_id"):
        return f"git+{url}@{commit}"
    sha256 = place.get("archive_info", {}).get("hashes", {}).get("sha256")
    if sha256 and url.startswith("https:"):
        return f"{url}#sha256={sha256}"
    if url.startswith("file:") and url.endswith(".whl"):
        wheel = Path(url2pathname(urlsplit(url).path))
        # uv notes no hash.
        if wheel.is_file() and sha256 in (None, files.sha256_of(wheel)):
            return str(wheel)
    if "dir_info" in place:
        checkout = git.root_at(Path(url2pathname(urlsplit(url).path)))
        origin, commit = checkout.origin_url(), checkout.head()
        if origin and commit and origin.startswith("https:"):
            return f"git+{origin}@{commit}"
    raise UsageError(
        "jobs cannot install the Cairn that runs here: it has no address that they reach", tip=_TIP
    )


def read_lock(root: Path) -> Lock | None:
    """Return what an earlier run left; None without one."""
    return datafile.read(root / LOCK, Lock) if (root / LOCK).is_file() else None
