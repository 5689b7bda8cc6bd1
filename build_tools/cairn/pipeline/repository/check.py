"""What a repository lacks to run nights: its files, its store, and its settings on GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

import cairn
from cairn.errors import CairnError
from cairn.matrix import legs
from cairn.matrix.matrix_options import Choice
from cairn.matrix.matrix_toml import FILE as MATRIX
from cairn.matrix.matrix_toml import MatrixToml, usable
from cairn.output import wording
from cairn.pipeline.doctor.model import Finding, missing, note, ok, warning
from cairn.pipeline.night import needs
from cairn.pipeline.night.needs import FreezeRequest
from cairn.pipeline.repository import aws, github, init, workflows
from cairn.pipeline.repository.choices import FOLDER, Choices, Lock
from cairn.release.trust import anchor
from cairn.release.trust.metadata import key_of
from cairn.stack import Stack
from cairn.store import opening
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import Store

AGAIN = "cairn ci init"
_APPLY = "cairn ci init --apply"
_LOGIN = "install gh, then: gh auth login"
_FILES: Mapping[init.State, str] = {
    "new": "not there",
    "updated": "of a different Cairn",
    "edited": "changed by somebody",
    "not ours": "not written by cairn ci init",
}


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at.

    Attributes:
        root: the working tree.
        lock: what `cairn ci init` left there.
        files: the workflows and policies as they are there, by path.
        expected: the settings that it is to have on GitHub.
        stack: that of its nights, or why it cannot be read.
        matrix: its matrix.toml; None where it is not there, or cannot be read.
        lines: those of its nights, beginning with the scheduled one.
    """

    root: Path
    lock: Lock
    files: Mapping[str, bytes]
    expected: github.Settings
    stack: Stack | CairnError
    matrix: MatrixToml | None
    lines: tuple[str, ...]

    @property
    def choices(self) -> Choices:
        """What it was set up with."""
        return self.lock.choices


def look(root: Path, lock: Lock) -> Repository:
    """Read what is looked at."""
    paths = (path for path in sorted((root / ".github").rglob("*")) if path.is_file())
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    stack: Stack | CairnError
    try:
        stack, matrix, lines = init.nights_of(lock.choices, root)
    except CairnError as error:
        stack, matrix, lines = error, None, ()
    expected = init.settings(lock.choices, files, lines)
    return Repository(
        root=root, lock=lock, files=files, expected=expected, stack=stack, matrix=matrix, lines=lines
    )


def check(repository: Repository) -> Iterator[Finding]:
    """Yield what there is and what is missing, each with what to do."""
    yield from _files(repository)
    variables = _ask_for(f"repos/{repository.expected.repository}/actions/variables", "variables", repository)
    if isinstance(variables, str):
        unchecked = "variables, environments, runners and schedules"
        text = f"not checked: {variables}"
        if repository.choices.repository is None:  # nights may run without GitHub
            yield note(unchecked, text, fix=f"{AGAIN} --repository owner/name")
        else:
            yield missing(unchecked, text, fix=_LOGIN)
        yield from _nights(repository, repository.expected.variables)
        yield from _store(repository, repository.choices.store)
        yield from _trust(repository)
        return
    values = {str(variable["name"]): str(variable["value"]) for variable in variables}
    yield from _variables(repository, values)
    yield from _nights(repository, values)
    yield from _store(repository, values.get("CAIRN_STORE") or repository.choices.store, values)
    yield from _trust(repository)
    yield from _environments(repository, values)
    yield from _runners(repository)
    yield from _schedules(repository)


def _files(repository: Repository) -> Iterator[Finding]:
    """Compare the files with what this Cairn writes."""
    try:
        made = init.contents(repository.choices, repository.root)
    except CairnError as error:
        yield missing("files", str(error), fix=error.tip)
        return
    planned = init.plan(repository.root, made, force=False)
    for state, words in _FILES.items():
        names = [file.path for file in planned if file.state == state]
        if not names:
            continue
        text = f"{words}: {wording.some(names)}"
        if state == "new":
            yield missing("files", text, fix=AGAIN)
        elif state == "updated":
            text += f" ({repository.lock.version}; {cairn.__version__} runs here)"
            yield warning("files", text, fix=AGAIN)
        else:
            yield note("files", text)
            # An edited one is its owner's; one that does nothing any more is none.
            ended = [name for name in names if not _runs(name, repository.files.get(name))]
            if ended:
                yield missing("files", f"nothing runs in {wording.some(ended)}", fix=f"{AGAIN} --force")
    if all(file.state == "unchanged" for file in planned):
        yield ok("files", f"{wording.count(planned, 'file')} as Cairn {cairn.__version__} writes them")


def _runs(name: str, data: bytes | None) -> bool:
    """Whether a workflow or an action still has something to run; True of any other file."""
    room = name.removeprefix(".github/").partition("/")[0]
    key = {"workflows": b"\njobs:", "actions": b"\nruns:"}.get(room)
    return data is None or key is None or not name.endswith(".yml") or key in b"\n" + data


def _variables(repository: Repository, values: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the variables of the repository with what is to be set."""
    required = {"CAIRN_STORE", *repository.expected.variables}
    if repository.choices.credentials == "roles":
        roles = workflows.roles_of_jobs(repository.files)
        required |= {"CAIRN_AWS_REGION", *(f"CAIRN_ROLE_{role}" for role in roles)}
    for name in sorted(required):
        expected = repository.expected.variables.get(name)
        if not values.get(name):
            line = f"gh variable set {name} --repo {repository.expected.repository} --body {expected or '…'}"
            yield missing(f"variable {name}", "is not set", fix=line)
        elif expected not in (None, values[name]) and aws.ACCOUNT not in str(expected):
            text = f"is {values[name]}, and {AGAIN} was told {expected}"
            yield warning(f"variable {name}", text, fix=_APPLY)
        else:
            yield ok(f"variable {name}", values[name])
    if values.get(workflows.ENDPOINT) and workflows.ENDPOINT not in required:  # of a store before this one
        line = f"gh variable delete {workflows.ENDPOINT} --repo {repository.expected.repository}"
        yield missing(f"variable {workflows.ENDPOINT}", f"is {values[workflows.ENDPOINT]}", fix=line)


def _nights(repository: Repository, values: Mapping[str, str]) -> Iterator[Finding]:
    """Compare what the workflows ask for with the lines and the ROCm SDK of the stack."""
    stack = repository.stack
    if isinstance(stack, CairnError):
        yield missing("stack", str(stack), fix=stack.tip)
        return
    default = workflows.scheduled_line(repository.files)
    scheduled = values.get("CAIRN_LINE") or default or ""
    others = [line.strip() for line in values.get("CAIRN_LINES", "").split(",") if line.strip()]
    for line in dict.fromkeys((scheduled, *others)):
        if line in stack.line_names():
            yield ok(f"line {line}", f"is one of the stack {stack.name}")
            continue
        name = "CAIRN_LINES" if line in others else "CAIRN_LINE"
        body = ",".join(repository.lines[1:]) if line in others else repository.lines[0]
        text = f"the workflows ask for it, and the stack {stack.name} has {' and '.join(stack.line_names())}"
        fix = f"gh variable set {name} --repo {repository.expected.repository} --body {body}"
        yield missing(f"line {line}", text, fix=AGAIN if line == default else fix)
    values = {**repository.expected.variables, **values}
    if stack.takes_sdk and not values.get(workflows.ROCM_INDEX_URL):
        text = f"nothing says where {stack.name} takes its ROCm SDK from"
        yield missing("ROCm SDK", text, fix=f"{AGAIN} --rocm-index-url URL, and --apply")
        stack = structs.replace(stack, sdk=None)  # the rest is asked all the same
    if repository.matrix is None:
        text = f"{repository.choices.stack_folder} has none: it names families, Pythons and runners"
        yield missing(MATRIX, text, fix=f"write {repository.choices.stack_folder}/{MATRIX}")
    elif scheduled in stack.line_names():
        yield from _ending(repository, stack.for_line(scheduled), repository.matrix, values)
    yield from _out_of_reach(repository, values)


def _ending(
    repository: Repository, stack: Stack, matrix: MatrixToml, values: Mapping[str, str]
) -> Iterator[Finding]:
    """Ask what freeze asks of the scheduled night, and tell how far its legs come."""
    owner, folder = repository.expected.repository.partition("/")[0], Path(stack.folder)
    choice = Choice(lines=(stack.line,), owner=owner if repository.choices.repository else None)
    try:
        made = legs.make(stack, matrix, choice, stack_path=folder)
        request = FreezeRequest(
            night="check",
            stack=stack,
            legs=made.legs,
            others=made.others,
            release=values.get("CAIRN_CHANNEL") or "nightly",
            image=values.get("CAIRN_BUILD_IMAGE", ""),
            rocm_index_url=values.get(workflows.ROCM_INDEX_URL, ""),
            work_dir=repository.root,
        )
        problems: tuple[CairnError, ...] = needs.lacking(_readable(values, repository), request)
    except CairnError as error:
        problems = (error,)
    for problem in problems:
        yield missing("the night's end", str(problem), fix=problem.tip)
    if not problems:
        yield ok("the night's end", f"{wording.count(made.legs, 'leg')} of the line {stack.line}")
        yield from (warning("the night's end", remark) for remark in needs.remarks(request))
        for leg in made.legs:
            if not leg.test_runs_on:
                yield note("the night's end", f"{leg.name} has no GPU runner: {', '.join(legs.notes(leg))}")


def _out_of_reach(repository: Repository, values: Mapping[str, str]) -> Iterator[Finding]:
    """Look for GitHub's own runners, whose jobs get no credentials for the store."""
    matrix, owner = repository.matrix, repository.expected.repository.partition("/")[0]
    if matrix is None or repository.choices.credentials != "none":
        return
    for labels in _label_sets(matrix, owner, repository):
        if usable(labels, at_home=False):
            text = f"is GitHub's own, and has no way to {values.get('CAIRN_STORE')}"
            place = f"{repository.choices.stack_folder}/{MATRIX}"
            fix = f"name one that has in {place} (build, test, host_test)"
            yield missing(f"runner {' '.join(labels)}", text, fix=fix)


def _readable(values: Mapping[str, str], repository: Repository) -> Store:
    """Return the store; an empty one where `_store` says what is wrong with it."""
    try:
        store = opening.open_store(
            values.get("CAIRN_STORE", ""), endpoint_url=repository.choices.endpoint_url
        )
        anchor.anchor(store)
    except CairnError:
        return MemoryStore()
    return store


def _store(
    repository: Repository, url: str | None, values: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Open the store, and try whether it does what conditional writes ask; see what its root asks for."""
    if not url:
        yield missing("store", "none is named", fix="cairn ci init --store s3://bucket/prefix")
        return
    try:
        store = opening.open_store(url, endpoint_url=repository.choices.endpoint_url)
        if values is not None and store.exists(key_of("root", 1)):
            yield from _signed(repository, store.url, values)
        if isinstance(store, LocalStore):
            yield ok("store", f"{url} is a folder: every job needs a runner that has it")
            return
        next(iter(store.list("nights/")), None)
    except CairnError as error:
        yield missing("store", f"{url} cannot be read: {error}", fix=error.tip)
        return
    yield ok("store", f"{url} answers")
    from cairn.store.buckets.bucket import BucketStore  # noqa: PLC0415 - an extra, which is here by now

    try:
        if isinstance(store, BucketStore):
            store.require_conditions()
    except CairnError as error:
        yield missing("conditional writes", f"{url} is unfit: {error}", fix=error.tip)
    else:
        yield ok("conditional writes", "of two writers at once one wins, and the other one is told")


def _signed(repository: Repository, url: str, values: Mapping[str, str]) -> Iterator[Finding]:
    """Look for what the jobs of a store with a root need to sign."""
    for name, content in (
        (anchor.VARIABLE, "its fingerprint: cairn trust show"),
        (anchor.MEMORY, "a store that promote alone may write to, where the jobs that sign remember"),
    ):
        line = f"gh variable set {name} --repo {repository.expected.repository} --body …"
        if not (value := values.get(name)):
            text = f"is not set, and {url} has a root: {content}; without it promote signs nothing"
            yield missing(f"variable {name}", text, fix=line)
        elif name == anchor.MEMORY and value.rstrip("/") == url.rstrip("/"):
            text = "names the store that is signed: whoever can write there must not write here"
            yield missing(f"variable {name}", text, fix=line)
        else:
            yield ok(f"variable {name}", value)


def _trust(repository: Repository) -> Iterator[Finding]:
    """Compare the policies of trust with the jobs that take the roles."""
    if repository.choices.credentials != "roles":
        return
    for role, environments in workflows.roles_of_jobs(repository.files).items():
        path = f"{FOLDER}/aws/{role.lower()}.trust.json"
        if path not in repository.files:
            yield missing(f"role {role}", f"there is no {path}", fix=f"{AGAIN} --store s3://bucket/prefix")
            continue
        allowed = set(_subjects_in(repository.files[path]))
        needed = set(aws.subjects(environments, repository.expected.repository, repository.choices.branch))
        if lacking := sorted(needed - allowed):
            yield missing(f"role {role}", f"{path} does not trust {', '.join(lacking)}", fix=AGAIN)
        elif wider := sorted(allowed - needed):
            text = f"{path} trusts {', '.join(wider)}, whose jobs do not need it"
            yield warning(f"role {role}", text, fix=f"{AGAIN} --force")
        else:
            yield ok(f"role {role}", f"trusts {', '.join(sorted(allowed))}")


def _subjects_in(policy: bytes) -> Iterator[str]:
    try:
        statements = json.loads(policy)["Statement"]
    except (ValueError, KeyError, TypeError):
        return
    for statement in statements:
        for condition in statement.get("Condition", {}).values():
            subjects = condition.get(f"{aws.PROVIDER}:sub", [])
            yield from [subjects] if isinstance(subjects, str) else subjects


def _environments(repository: Repository, values: Mapping[str, str]) -> Iterator[Finding]:
    """Look for the environments, their branches, their reviewers and their secrets."""
    signed = values.get(anchor.VARIABLE) or values.get(anchor.MEMORY)
    signing = workflows.environments(repository.files, using=workflows.SIGN_KEY) if signed else ()
    place = f"repos/{repository.expected.repository}/environments"
    environments = _ask_for(place, "environments", repository)
    if isinstance(environments, str):
        yield note("environments", f"not checked: {environments}")
        return
    by_name = {rule["name"]: rule for rule in environments}
    for name in repository.expected.environments:
        if name not in by_name:
            yield missing(f"environment {name}", "there is none", fix=_APPLY)
            continue
        rules = by_name[name].get("protection_rules") or []
        reviewed = any(rule.get("type") == "required_reviewers" for rule in rules)
        if not by_name[name].get("deployment_branch_policy"):
            text = "jobs of every branch may use it, and take what it may"
            yield missing(f"environment {name}", text, fix=_APPLY)
        elif name in repository.expected.reviewed and not reviewed:
            yield missing(f"environment {name}", "has no reviewers", fix=f"{_APPLY} --reviewer LOGIN")
        elif reviewed and name not in repository.expected.reviewed:
            yield note(f"environment {name}", "has reviewers, for whom every night waits")
        else:
            yield ok(f"environment {name}", "reviewed" if reviewed else "of the default branch alone")
        required = [workflows.ACCESS_KEY, workflows.SECRET_KEY] * (repository.choices.credentials == "keys")
        if required := [*required, *[workflows.SIGN_KEY] * (name in signing)]:
            yield from _secrets(repository, f"{place}/{name}/secrets", name, required)


def _secrets(
    repository: Repository, place: str, environment: str, required: Iterable[str]
) -> Iterator[Finding]:
    secrets = _ask_for(place, "secrets", repository)
    if isinstance(secrets, str):
        yield note(f"secrets of {environment}", f"not checked: {secrets}")
        return
    names = {label["name"] for label in secrets}
    for name in required:
        if name not in names:
            line = f"gh secret set {name} --repo {repository.expected.repository} --env {environment}"
            yield missing(f"secrets of {environment}", f"{name} is not set", fix=line)


def _runners(repository: Repository) -> Iterator[Finding]:
    """Look for a runner with the labels of each job."""
    matrix = repository.matrix
    if matrix is None:  # `_nights` has said so
        return
    owner = repository.expected.repository.partition("/")[0]
    label_sets = [
        labels for labels in _label_sets(matrix, owner, repository) if not usable(labels, at_home=False)
    ]
    if not label_sets:
        yield ok("runners", "all jobs run on GitHub's own")
        return
    available: list[set[str]] = []
    for place in (f"repos/{repository.expected.repository}", f"orgs/{owner}"):
        runners = _ask_for(f"{place}/actions/runners", "runners", repository)
        if not isinstance(runners, str):
            available += [{label["name"].casefold() for label in runner["labels"]} for runner in runners]
        elif place.startswith("repos/"):
            yield note("runners", f"not checked: {runners}")
            return
    for labels in label_sets:
        name = f"runner {' '.join(labels)}"
        if any({label.casefold() for label in labels} <= labels_there for labels_there in available):
            yield ok(name, "is registered")
        else:
            fix = f"register one, or change {repository.choices.stack_folder}/{MATRIX}"
            yield missing(name, "there is none: a job for it waits for a day, and fails", fix=fix)


def _label_sets(matrix: MatrixToml, owner: str, repository: Repository) -> Iterable[tuple[str, ...]]:
    at_home = matrix.at_home(owner)
    sets = [repository.choices.runs_on]
    sets += [matrix.build_labels(platform, at_home=at_home) for platform in matrix.platforms]
    for platforms in matrix.families.values():
        for platform, here in platforms.items():
            gpu, several = (usable(labels, at_home=at_home) for labels in (here.test, here.multi_gpu))
            sets += [gpu or matrix.host_labels(platform, at_home=at_home), several]
    return dict.fromkeys(labels for labels in sets if labels)


def _schedules(repository: Repository) -> Iterator[Finding]:
    """Look whether GitHub has the workflows, and has not switched their schedules off."""
    rows = _ask_for(f"repos/{repository.expected.repository}/actions/workflows", "workflows", repository)
    if isinstance(rows, str):
        yield note("workflows", f"not checked: {rows}")
        return
    states = {Path(workflow["path"]).name: workflow["state"] for workflow in rows}
    for name in workflows.WORKFLOWS:
        state = states.get(name)
        if state == "active":
            yield ok(f"workflow {name}", "is enabled")
        elif state is None:
            yield missing(f"workflow {name}", "GitHub does not have it", fix="commit it, and push it")
        else:
            why = " after two months without a commit" if state == "disabled_inactivity" else ""
            fix = f"gh workflow enable {name} --repo {repository.expected.repository}"
            yield missing(f"workflow {name}", f"GitHub has switched it off{why}", fix=fix)


def _ask_for(path: str, name: str, repository: Repository) -> list[dict[str, Any]] | str:
    if repository.choices.repository is None:
        return "nobody has said which repository it is on GitHub (--repository owner/name)"
    answer = github.ask(path)
    return answer if isinstance(answer, str) else list(answer.get(name, ()))
