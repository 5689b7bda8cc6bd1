"""`cairn ci check`: what a repository lacks to run nights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn import converters
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.cli.ci.init import repository_name
from cairn.errors import PrerequisiteError, UsageError
from cairn.options import argument
from cairn.output import console


@dataclass(frozen=True, kw_only=True)
class Check:
    """Options of `cairn ci check`.

    It compares the files with what this Cairn writes, tries the store, and asks GitHub, through gh, for
    variables, environments and their secrets, runners and schedules, and Amazon, through aws, for the roles;
    what cannot be asked is named as not checked. In the store it writes and removes one object of a name of
    its own. The exit code is 3 where something that is needed is missing, or GitHub does not answer for a
    repository that was named.

        cairn ci check --repository me/wheels
    """

    folder: Path = argument(
        "DIR", "the root of a git repository", nargs="?", convert=converters.folder, default=Path()
    )
    repository: str | None = repository_name()


def _check(request: Check) -> Answer:
    import msgspec

    from cairn.cli.doctor import text_of
    from cairn.pipeline.repository import check, choices, github

    root = request.folder.absolute()
    lock = choices.read_lock(root)
    if lock is None:
        raise UsageError(f"{root} is not set up for nights", tip="run `cairn ci init` there first")
    if request.repository:
        new_choices = msgspec.structs.replace(
            lock.choices, repository=github.checked_name(request.repository)
        )
        lock = msgspec.structs.replace(lock, choices=new_choices)
    with console.current().stage("check the repository"):
        findings = tuple(check.check(check.look(root, lock)))
    lacking = tuple(dict.fromkeys(finding.check for finding in findings if finding.level == "missing"))
    error = PrerequisiteError(
        f"a night needs what is missing here: {', '.join(lacking)}",
        tip="do what is said below each, then run `cairn ci check` again",
    )
    plain = {"schema": "cairn.ci-check/1", "repository": lock.choices.repository, "findings": findings}
    return Answer(plain, text_of(findings), error=error if lacking else None)


COMMANDS = {"check": command(Check, _check)}
