"""Which actions are used, with whose permissions, and who can make them run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from cairn.errors import UsageError
from cairn.workflows import expressions, runs
from cairn.workflows.document import Node
from cairn.workflows.expressions import EVERY_OTHER, UNKNOWN, Expression, Value
from cairn.workflows.findings import Finding, Rule
from cairn.workflows.workflow import HERE, Job, Workflow, is_there

_PINNED = re.compile(r"[^@]+@[0-9a-f]{40}|docker://[^@]+@sha256:[0-9a-f]{64}")
_VERSION_COMMENT = re.compile(r"#.*\d")

# Events that somebody without write access to the repository can cause, and those of them that run with its
# secrets and a token that writes (docs.github.com, "Events that trigger workflows").
_OF_ANYBODY = frozenset(
    {"pull_request", "pull_request_target", "issue_comment", "workflow_run", "issues", "fork"}
)
_PRIVILEGED = frozenset({"pull_request_target", "issue_comment", "workflow_run"})

_HEAD = (
    ("github", "head_ref"),
    ("github", "event", "pull_request", "head"),
    ("github", "event", "workflow_run", "head_branch"),
    ("github", "event", "workflow_run", "head_sha"),
    ("github", "event", "workflow_run", "head_repository"),
)
_GIVEN_TO_ALL = "github_token"


def check(workflow: Workflow) -> Iterator[Finding]:
    """Every finding on actions, permissions, and what a fork reaches."""
    yield from _unpinned(workflow)
    if not workflow.jobs:
        return
    yield from _permissions(workflow)
    for job in workflow.jobs.values():
        yield from _checkouts(workflow, job)
        yield from _secrets(workflow, job)


def _unpinned(workflow: Workflow) -> Iterator[Finding]:
    steps = (*workflow.steps, *(step for job in workflow.jobs.values() for step in job.steps))
    nodes = (*(step.node for step in steps), *(job.node for job in workflow.jobs.values()))
    for of in nodes:
        node = of.get("uses")
        if node is None or not node.text:
            continue
        if node.text.startswith(HERE):
            if not is_there(node.text, workflow.path):
                said = f"there is no {node.text}"
                yield Finding(rule=Rule.MISSING_ACTION, file=workflow.path, line=node.line, message=said)
            continue
        line = workflow.lines[node.line - 1] if node.line <= len(workflow.lines) else ""
        if not _PINNED.fullmatch(node.text):
            said = f"{node.text} is not pinned by a full commit hash"
        elif not _VERSION_COMMENT.search(line.partition(node.text)[2]):
            said = f"{node.text} does not say in a comment which version it is"
        else:
            continue
        yield Finding(rule=Rule.UNPINNED_ACTION, file=workflow.path, line=node.line, message=said)


def _permissions(workflow: Workflow) -> Iterator[Finding]:
    top = workflow.node.get("permissions")
    if top is None:
        lacking = [job for job in workflow.jobs.values() if job.node.get("permissions") is None]
        for job in lacking:
            yield _permission(workflow, job.line, f"the job {job.id} has the permissions of the repository")
        return
    if top.text:
        yield _permission(workflow, top.line, f"every job has {top.text}")
    for scope, node in top.fields.items():
        if node.text == "write":
            yield _permission(workflow, node.line, f"every job has {scope}: write")
    for job in workflow.jobs.values():
        own = job.node.get("permissions")
        if own is not None and own.text:
            yield _permission(workflow, own.line, f"the job {job.id} has {own.text}")


def _permission(workflow: Workflow, line: int, message: str) -> Finding:
    return Finding(rule=Rule.PERMISSIONS, file=workflow.path, line=line, message=message)


def _checkouts(workflow: Workflow, job: Job) -> Iterator[Finding]:
    """Checkouts of what somebody else wrote, where the repository's secrets are at hand."""
    for event in sorted(_PRIVILEGED.intersection(workflow.events)):
        if not _reached_by_forks(job, event):
            continue
        for step in job.all_steps():
            if step.uses.startswith("actions/checkout@") and _names_head(step.node.get("with")):
                yield Finding(
                    rule=Rule.UNTRUSTED_CHECKOUT,
                    file=step.file,
                    line=step.line,
                    message=f"the job {job.id} checks out the head of a pull request for {event}",
                )


def _names_head(node: Node | None) -> bool:
    wanted = _paths(node) if node is not None else set()
    merged = (
        any("refs/pull/" in (scalar.text or "") for scalar in node.scalars()) if node is not None else False
    )
    return merged or any(path[: len(head)] == head for path in wanted for head in _HEAD)


def _secrets(workflow: Workflow, job: Job) -> Iterator[Finding]:
    reached = [e for e in sorted(_OF_ANYBODY.intersection(workflow.events)) if _reached_by_forks(job, e)]
    if not reached:
        return

    def found(node: Node, what: str) -> Finding:
        said = f"the job {job.id} has {what}, and a fork reaches it by {reached[0]}"
        return Finding(rule=Rule.FORK_SECRETS, file=workflow.path, line=node.line, message=said)

    hidden = {id(s.node) for s in job.steps if not any(_may_hold_for_forks(s.condition, e) for e in reached)}
    for part in (workflow.node.get("env"), job.node):
        if part is not None:
            yield from (found(node, f"the secret {name}") for node, name in _secrets_in(part, hidden))
    if job.node.text_of("secrets") == "inherit":
        yield found(job.node.fields["secrets"], "all secrets")
    # The token of a fork's own `pull_request` writes nothing, whatever is asked for.
    privileged = _PRIVILEGED.intersection(reached)
    for scope, node in (job.node.get("permissions") or Node(line=1)).fields.items():
        if privileged and node.text == "write":
            yield found(node, f"{scope}: write")


def _secrets_in(part: Node, hidden: Collection[int]) -> Iterator[tuple[Node, str]]:
    """Every secret that is named there, but in the steps that are hidden."""
    for scalar in _scalars(part, hidden):
        for path in sorted(_paths(scalar)):
            if path[0] == "secrets" and path[1:2] != (_GIVEN_TO_ALL,):
                yield scalar, path[1] if path[1:] else "of every name"


def _scalars(part: Node, hidden: Collection[int]) -> Iterator[Node]:
    if id(part) in hidden:
        return
    if part.text is not None:
        yield part
    for child in (*part.items, *part.fields.values()):
        yield from _scalars(child, hidden)


def _reached_by_forks(job: Job, event: str) -> bool:
    return _may_hold_for_forks(job.condition, event)


def _may_hold_for_forks(condition: Expression | None, event: str) -> bool:
    """Whether a condition lets an event pass that somebody else's fork causes."""
    head: Mapping[str, Value] = {
        "repo": {"fork": True, "full_name": "fork/repository", EVERY_OTHER: UNKNOWN},
        EVERY_OTHER: UNKNOWN,
    }
    github: dict[str, Value] = {
        "event_name": event,
        "repository": "owner/repository",
        "event": {"pull_request": {"head": head, EVERY_OTHER: UNKNOWN}, EVERY_OTHER: UNKNOWN},
        EVERY_OTHER: UNKNOWN,
    }
    if event == "pull_request":  # the others run on the repository's own branch, or on that of the comment
        github |= {"ref": "refs/pull/1/merge", "ref_name": "1/merge", "ref_type": "branch"}
    return runs.may_hold(condition, {"github": github})


def _paths(node: Node) -> set[tuple[str, ...]]:
    found = set()
    for scalar in node.scalars():
        try:
            for expression in expressions.embedded(scalar.text or ""):
                found |= {tuple(part.casefold() for part in path) for path in expression.paths()}
        except UsageError:  # actionlint names it
            continue
    return found
