"""`cairn ci init` and `check`: set up a repository on GitHub that runs nights, and see what it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note, Piece, Warn
from cairn.cli.binder import command
from cairn.errors import PrerequisiteError, UsageError
from cairn.options import argument, flag, option, repeated
from cairn.output import console
from cairn.pipeline.pipeline_options import rocm_index_url

if TYPE_CHECKING:
    from cairn.output.console import Mark
    from cairn.pipeline.repository.github import Command
    from cairn.pipeline.repository.init import State, WrittenFile

_MARKS: Mapping[State, Mark] = {
    "new": "done",
    "updated": "done",
    "replaced": "done",
    "unchanged": "kept",
    "edited": "bypassed",
    "not ours": "bypassed",
}


def repository_name() -> Any:
    """`--repository`."""
    return option(
        "its name on GitHub (default: that of the remote origin)",
        metavar="OWNER/NAME",
        convert=converters.nonempty,
    )


@dataclass(frozen=True, kw_only=True)
class Init:
    """Options of `cairn ci init`.

    It writes workflows that call the Cairn that is installed here, the stack, and the policies of the roles
    that jobs take, and prints the commands that set the repository up. Jobs take roles for a bucket of
    Amazon's, have keys for one elsewhere, and neither for a folder. A later run goes by what an earlier
    one was told; it brings the files up to date, but leaves those alone that somebody has changed.

        cairn ci init --store s3://my-wheels/pytorch --repository me/wheels
    """

    folder: Path = argument(
        "DIR", "the root of a git repository", nargs="?", convert=converters.folder, default=Path()
    )
    stack: str | None = option(
        "a stack.toml, its folder, or one of Cairn's own: sample, pytorch, pyg, torchdevice (default: a copy "
        "of the sample)",
        convert=converters.nonempty,
        completer=common.complete_stack_folders,
    )
    store: str | None = common.store(required=False)
    endpoint_url: str | None = common.endpoint_url()
    rocm_index_url: str = rocm_index_url()
    region: str | None = option("region of the bucket", convert=converters.nonempty)
    repository: str | None = repository_name()
    cairn: str | None = option(
        "what jobs install: git+https://…@COMMIT, https://….whl#sha256=…, or a wheel to copy into the "
        "repository (default: what runs here)",
        metavar="REQUIREMENT",
        convert=converters.nonempty,
    )
    aws_account: str | None = option("number of the AWS account that has the roles", metavar="NUMBER")
    runs_on: tuple[str, ...] | None = option(
        "labels of the runner of jobs that no matrix places, joined by commas (default: ubuntu-24.04)",
        metavar="LABELS",
        convert=converters.words,
    )
    reviewer: tuple[str, ...] = repeated("account that reviews releases", metavar="LOGIN")
    apply: bool = flag("set the repository on GitHub up too, by gh")
    force: bool = flag("write files again that somebody has changed, or that were there before")
    dry_run: bool = common.dry_run()


def _init(request: Init) -> Answer:
    from cairn.pipeline.repository import choices as chosen
    from cairn.pipeline.repository import github, init

    root = request.folder.absolute()
    if not (root / ".git").exists():
        raise UsageError(f"{root} is not the root of a git repository", tip="git init, or name the root")
    choices = chosen.chosen(
        root,
        request.cairn,
        stack=request.stack and request.stack.removesuffix("stack.toml").rstrip("/"),
        store=request.store,
        endpoint_url=request.endpoint_url,
        region=request.region,
        rocm_index_url=request.rocm_index_url,
        repository=request.repository,
        account=request.aws_account,
        runs_on=request.runs_on,
        reviewers=request.reviewer,
    )
    wheel = Path(request.cairn) if request.cairn and choices.cairn.startswith("./") else None
    made = init.contents(choices, root, wheel=wheel)
    planned = init.plan(root, made, force=request.force)
    stack, _, lines = init.nights_of(choices, root)
    commands = tuple(init.settings(choices, made, lines).commands())
    if request.apply:
        chosen.refuse_incomplete(choices)
    if not request.dry_run:
        init.write(root, choices, made, planned)
        if request.apply:
            with console.current().stage(f"set {choices.repository} up") as stage:
                github.apply(commands, say=stage.update)
    plain = {
        "schema": "cairn.ci-init/1",
        "choices": choices,
        "files": planned,
        "commands": [list(words) for words in commands],
        "applied": request.apply and not request.dry_run,
    }
    notes = [f"{choices.stack_folder}: nights are of the line {' and '.join(lines)}"]
    if stack.takes_sdk and not choices.rocm_index_url:
        notes.append(f"{stack.name} takes its ROCm SDK from an index: name it with --rocm-index-url URL")
    return Answer(plain, _text(planned, commands, request, notes))


def _text(
    planned: tuple[WrittenFile, ...], commands: tuple[Command, ...], request: Init, notes: Sequence[str]
) -> Iterator[Piece]:
    from cairn.pipeline.repository import github

    stack = Counter[str]()
    for file in planned:
        if file.state == "new" and not file.path.startswith("."):
            stack[file.path.partition("/")[0]] += 1
        elif file.state != "unchanged":
            yield _MARKS[file.state], f"{file.path}: {file.state}"
    for name, count in stack.items():
        yield "done", f"{name}/: new, {count} files"
    left = [file.path for file in planned if file.state in ("edited", "not ours")]
    same = sum(file.state == "unchanged" for file in planned)
    outcome = "to write" if request.dry_run else "written"
    written = len(planned) - same - len(left)
    yield Note(f"{written} of {len(planned)} files {outcome}; {same} are as they should be")
    yield from map(Note, notes)
    if left:
        yield Warn(f"left alone, since somebody wrote or changed it: {', '.join(left)} (--force writes it)")
    if not request.apply or request.dry_run:
        yield Note("what sets the repository up (--apply runs it):")
        yield from map(github.line_of, commands)
        yield Note(".github/cairn/README.md says what else is to be done; `cairn ci check` what is missing")


@dataclass(frozen=True, kw_only=True)
class Check:
    """Options of `cairn ci check`.

    It compares the files with what this Cairn writes, tries the store, and asks GitHub, through gh, for
    variables, environments and their secrets, runners and schedules; what cannot be asked is named as not
    checked. In the store it writes and removes one object of a name of
    its own. The exit code is 3 where something that is needed is missing, or GitHub does not answer for a
    repository that was named.

        cairn ci check --repository me/wheels
    """

    folder: Path = argument(
        "DIR", "the root of a git repository", nargs="?", convert=converters.folder, default=Path()
    )
    repository: str | None = repository_name()


def _check(request: Check) -> Answer:
    from msgspec import structs

    from cairn.cli.doctor import text_of
    from cairn.pipeline.repository import check, choices, github

    root = request.folder.absolute()
    lock = choices.read_lock(root)
    if lock is None:
        raise UsageError(f"{root} is not set up for nights", tip="run `cairn ci init` there first")
    if request.repository:
        new_choices = structs.replace(lock.choices, repository=github.checked_name(request.repository))
        lock = structs.replace(lock, choices=new_choices)
    with console.current().stage("check the repository"):
        findings = tuple(check.check(check.look(root, lock)))
    lacking = tuple(dict.fromkeys(finding.check for finding in findings if finding.level == "missing"))
    error = PrerequisiteError(
        f"a night needs what is missing here: {', '.join(lacking)}",
        tip="do what is said below each, then run `cairn ci check` again",
    )
    plain = {"schema": "cairn.ci-check/1", "repository": lock.choices.repository, "findings": findings}
    return Answer(plain, text_of(findings), error=error if lacking else None)


COMMANDS = {"init": command(Init, _init), "check": command(Check, _check)}
