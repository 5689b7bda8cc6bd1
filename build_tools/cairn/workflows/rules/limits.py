"""Time limits, and conditions that can be read at all."""

from __future__ import annotations

from collections.abc import Iterator

from cairn.errors import UsageError
from cairn.workflows import expressions
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
