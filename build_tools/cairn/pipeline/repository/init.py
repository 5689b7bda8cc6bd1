"""Write what a repository on GitHub needs to run nights, and leave alone what somebody has changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

import cairn
from cairn import datafile, files, shipped
from cairn.errors import UsageError
from cairn.matrix.matrix_toml import FILE as MATRIX
from cairn.matrix.matrix_toml import MatrixToml, load_matrix_toml, usable
from cairn.pipeline.repository import aws, github, guide, workflows
from cairn.pipeline.repository.choices import FOLDER, LOCK, STACK, Choices, Lock, installed, read_lock
from cairn.pipeline.repository.workflows import Terms
from cairn.stack import Stack
from cairn.stack.read import load

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
            workflows.job_roles(made),
            aws.Place.of(choices.store),
            repository=choices.repository,
            branch=choices.branch,
            account=choices.account or aws.ACCOUNT,
        )
        made |= {f"{FOLDER}/aws/{name}": data for name, data in policies}
    made[f"{FOLDER}/README.md"] = guide.text(choices, settings(choices, made, lines), made).encode()
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
    roles = dict.fromkeys(job.role for job in workflows.job_roles(made))
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
    own = [label for label in choices.runs_on if not usable((label,), at_home=False)]
    return f"self-hosted-runner:\n  labels: {json.dumps(own)}\n".encode()


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
    if before is None or msgspec.structs.asdict(before) != msgspec.structs.asdict(lock):
        datafile.write(root / LOCK, lock)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
