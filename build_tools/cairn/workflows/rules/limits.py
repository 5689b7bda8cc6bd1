"""Time limits, and conditions that can be read at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cairn.errors import UsageError
from cairn.workflows import expressions
from cairn.workflows.document import Node
from cairn.workflows.expressions import Expression
from cairn.workflows.findings import Finding, Rule
from cairn.workflows.workflow import Job, Step, Workflow


def check(workflow: Workflow) -> Iterator[Finding]:
    """Every job and step without a limit, and every condition that is not one."""
    for job in workflow.jobs.values():
        # GitHub takes a limit neither for a job that calls a workflow nor for a step of an action.
        if not job.node.text_of("uses"):
            yield from _limit(job, f"the job {job.id}")
        for step in job.steps:
            yield from _limit(step, f"the step {step.name!r} of {job.id}")
        yield from _condition(job)
    for step in (*workflow.steps, *(step for job in workflow.jobs.values() for step in job.steps)):
        yield from _condition(step)
    yield from _booleans_as_text(workflow)


def _limit(of: Job | Step, what: str) -> Iterator[Finding]:
    if not of.node.text_of("timeout-minutes"):
        yield Finding(rule=Rule.TIME_LIMIT, file=of.file, line=of.line, message=f"{what} has no time limit")


def _condition(of: Job | Step) -> Iterator[Finding]:
    node = of.node.get("if")
    if node is None or not node.text:
        return
    try:
        found = expressions.parse_condition(node.text)
    except UsageError as error:
        yield Finding(rule=Rule.EXPRESSION, file=of.file, line=node.line, message=str(error))
        return
    if found.kind == "text":
        said = f"{node.text.strip()!r} is always true: text stands around `${{{{ }}}}`"
        yield Finding(rule=Rule.EXPRESSION, file=of.file, line=node.line, message=said)


def _booleans_as_text(workflow: Workflow) -> Iterator[Finding]:
    """Comparisons of a boolean input with text: `true` is not `'true'`, so they have one result always."""
    inputs = [workflow.node.get("on", event, "inputs") for event in ("workflow_dispatch", "workflow_call")]
    booleans = {
        ("inputs", name)
        for node in inputs
        if node is not None
        for name, said in node.fields.items()
        if said.text_of("type") == "boolean"
    }
    for node, expression in _expressions(workflow) if booleans else ():
        for part in expression.walk():
            if part.kind not in ("==", "!="):
                continue
            named = [path for side in part.parts for path in side.paths() if path in booleans]
            if named and any(side.kind == "value" and isinstance(side.value, str) for side in part.parts):
                result = "true" if part.kind == "!=" else "false"
                said = (
                    f"the input {named[0][1]} is a boolean, and compared with text: that is always {result}"
                )
                yield Finding(rule=Rule.EXPRESSION, file=workflow.path, line=node.line, message=said)


def _expressions(workflow: Workflow) -> Iterator[tuple[Node, Expression]]:
    """Every expression that can be read, with where it stands."""
    for node in workflow.node.scalars():
        with contextlib.suppress(UsageError):  # the rule on conditions, or actionlint, names it
            yield from ((node, found) for found in expressions.embedded(node.text or ""))
    conditional: list[Job | Step] = [*workflow.jobs.values()]
    conditional += [step for job in workflow.jobs.values() for step in job.steps]
    for of in conditional:
        condition = of.node.get("if")
        if condition is not None and "${{" not in (condition.text or "") and of.condition is not None:
            yield condition, of.condition
