"""What jobs hand on to each other: matrices and artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cairn.errors import UsageError
from cairn.workflows import expressions, runs
from cairn.workflows.document import Node
from cairn.workflows.expressions import EVERY_OTHER, UNKNOWN, Expression, Value
from cairn.workflows.findings import Finding, Rule
from cairn.workflows.workflow import Job, Step, Workflow

# A word in the name of an output that says how long a matrix is, and its value for an empty one.
_LENGTHS: Mapping[str, str] = {
    "empty": "true",
    **dict.fromkeys(("count", "length", "size", "total"), "0"),
    **dict.fromkeys(("any", "enabled", "has"), "false"),
}
_EMPTY = ("[]", '{"include":[]}', "{}", "")


def check(workflow: Workflow) -> Iterator[Finding]:
    """Every matrix that may be empty, and every artifact that a re-run meets."""
    for job in workflow.jobs.values():
        yield from _matrix(job)
        for step in job.steps:
            yield from _artifact(step)
    for step in workflow.steps:
        yield from _artifact(step)


def _matrix(job: Job) -> Iterator[Finding]:
    node = job.node.get("strategy", "matrix")
    for need, output in sorted(_outputs_in(node)) if node is not None else ():
        if not _guarded(job, need, output):
            yield Finding(
                rule=Rule.MATRIX_GUARD,
                file=job.file,
                line=node.line if node is not None else job.line,
                message=f"the job {job.id} runs when the matrix {output} of {need} is empty",
                fix=f"skip it: `if: needs.{need}.outputs.empty == 'false'`",
            )


def _outputs_in(node: Node) -> set[tuple[str, str]]:
    """The job and the output that a matrix is read from."""
    found = set()
    for expression in _expressions(node):
        for path in expression.paths():
            if path[:1] == ("needs",) and path[2:3] == ("outputs",) and len(path) > 3:  # noqa: PLR2004 - its parts
                found.add((path[1], path[3]))
    return found


def _guarded(job: Job, need: str, output: str) -> bool:
    """Whether the job is skipped when the matrix is empty, however an empty one is written."""
    if job.condition is None:
        return False
    named = {path[3] for path in job.condition.paths() if path[:3] == ("needs", need, "outputs") and path[3:]}
    return any(
        not runs.may_hold(job.condition, _when_empty(job, need, output, named, text)) for text in _EMPTY
    )


def _when_empty(job: Job, need: str, output: str, named: set[str], empty: str) -> Mapping[str, Value]:
    """What the job's condition sees when its matrix is empty and everything before it passed."""
    others = {"result": "success", "outputs": {EVERY_OTHER: UNKNOWN}}
    lengths = {name: value for name in named for word, value in _LENGTHS.items() if word in name.split("_")}
    known = {EVERY_OTHER: UNKNOWN, **lengths, output: empty}
    return {"needs": {**dict.fromkeys(job.needs, others), need: {"result": "success", "outputs": known}}}


def _artifact(step: Step) -> Iterator[Finding]:
    if not step.uses.startswith("actions/upload-artifact@"):
        return
    node = step.node.get("with", "name") or step.node
    paths = {path for expression in _expressions(node) for path in expression.paths()}
    if ("github", "run_attempt") not in paths or node is step.node:
        yield Finding(
            rule=Rule.ARTIFACT_ATTEMPT,
            file=step.file,
            line=node.line,
            message=f"the artifact {node.text or 'artifact'!r} has the same name in every attempt",
        )


def _expressions(node: Node) -> Iterator[Expression]:
    for scalar in node.scalars():
        try:
            yield from expressions.embedded(scalar.text or "")
        except UsageError:  # actionlint names it
            continue
