"""A repository on GitHub, through the program `gh`: its name, and the commands that set it up."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cairn import process
from cairn.errors import PrerequisiteError, ProcessError, UsageError
from cairn.output import Progress, silent

Command = tuple[str, ...]
_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_REMOTE = re.compile(r"[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")
_NUMBER = re.compile(r"\$\(gh api users/(\S+) --jq \.id\)")
_TIMEOUT = 60.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a repository is to have.

    Attributes:
        repository: `owner/name`.
        branch: the default branch, the only one whose jobs may use the environments.
        variables: by name.
        environments: those of the jobs.
        reviewers: accounts that say yes before a job in an environment of `reviewed` begins.
        reviewed: the environments that have reviewers.
    """

    repository: str
    branch: str
    variables: Mapping[str, str]
    environments: tuple[str, ...]
    reviewers: tuple[str, ...] = ()
    reviewed: tuple[str, ...] = ("release",)

    def commands(self) -> Iterator[Command]:
        """The commands that set it up, each of which may run again."""
        for name, value in self.variables.items():
            yield ("gh", "variable", "set", name, "--repo", self.repository, "--body", value)
        for environment in self.environments:
            place = f"repos/{self.repository}/environments/{environment}"
            fields = ["deployment_branch_policy[protected_branches]=false"]
            fields += ["deployment_branch_policy[custom_branch_policies]=true"]
            if environment in self.reviewed:
                for login in self.reviewers:
                    number = f"$(gh api users/{login} --jq .id)"
                    fields += ["reviewers[][type]=User", f"reviewers[][id]={number}"]
            yield ("gh", "api", "--silent", "--method", "PUT", place, *(w for f in fields for w in ("-F", f)))
            branch = f"name={self.branch}"
            yield (
                "gh",
                "api",
                "--silent",
                "--method",
                "POST",
                f"{place}/deployment-branch-policies",
                "-f",
                branch,
            )


def checked_name(text: str) -> str:
    """Return `owner/name`.

    Raises:
        UsageError: it is not the name of a repository.
    """
    if not _NAME.fullmatch(text):
        raise UsageError(f"{text} is not the name of a repository", tip="write owner/name")
    return text


def name_in(url: str) -> str | None:
    """Return the `owner/name` in the URL of a remote; None where it has none."""
    match = _REMOTE.search(url)
    return match[1] if match else None


def line_of(command: Command) -> str:
    """Return a command as a line for a shell, which looks the numbers of accounts up."""
    words = (f'"{word}"' if "$(" in word else shlex.quote(word) for word in command)
    return " ".join(words)


def apply(commands: Sequence[Command], *, say: Progress = silent) -> None:
    """Run commands, the first that fails being the last.

    Raises:
        PrerequisiteError: `gh` is not here.
        ProcessError: one failed.
    """
    if shutil.which("gh") is None:
        raise PrerequisiteError("--apply needs gh, GitHub's program", tip="install it, then: gh auth login")
    for command in commands:
        if _is_done(command):
            continue
        say(" ".join(command[:4]))
        _run(
            *(
                _NUMBER.sub(lambda match: _run("api", f"users/{match[1]}", "--jq", ".id"), word)
                for word in command[1:]
            )
        )


def _is_done(command: Command) -> bool:
    """Whether an environment names a branch already: GitHub refuses to be told again."""
    *_, place, _, field = command
    if not place.endswith("/deployment-branch-policies"):
        return False
    answer = ask(place)
    policies = () if isinstance(answer, str) else answer.get("branch_policies", ())
    return any(field == f"name={policy['name']}" for policy in policies)


def _run(*words: str) -> str:
    return process.run(["gh", *words], timeout=_TIMEOUT, confined=False).output.strip()


def ask(path: str) -> dict[str, Any] | str:
    """Ask GitHub's API, such as `repos/me/wheels/environments`.

    Returns the answer, in which a list has its first hundred items; or, as a text, why there is none.
    """
    if shutil.which("gh") is None:
        return "gh, GitHub's program, is not here"
    try:
        completed = process.run(
            ["gh", "api", f"{path}?per_page=100"], timeout=_TIMEOUT, separate_stderr=True, confined=False
        )
        answer = json.loads(completed.output)
    except (ProcessError, ValueError) as error:
        return f"gh api {path} has no answer: {_last_line(error)}"
    return answer if isinstance(answer, dict) else f"gh api {path} answers what it should not"


def _last_line(error: Exception) -> str:
    text = error.output if isinstance(error, ProcessError) else str(error)
    return next(reversed(text.strip().splitlines()), str(error))
