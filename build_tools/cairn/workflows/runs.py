"""Which jobs and steps run after what ended how: GitHub's rules, followed for one failure at a time.

Sources: docs.github.com, "Using conditions to control job execution", "Status check functions"; issue 491
of actions/runner: a job is skipped for every job before it that was skipped, not for those it names alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cairn.workflows.expressions import EVERY_OTHER, UNKNOWN, Expression, Value, evaluate, truthy
from cairn.workflows.workflow import Job, Step, Workflow

Result = Literal["success", "failure", "cancelled", "skipped"]
BAD: tuple[Result, ...] = ("failure", "cancelled", "skipped")

_STATUS_FUNCTIONS = ("success", "failure", "cancelled", "always")


@dataclass(frozen=True, kw_only=True)
class _Status:
    """What the status functions say."""

    success: bool
    failure: bool
    cancelled: bool


def job_may_run(
    workflow: Workflow,
    job: Job,
    ended: Mapping[str, Result],
    *,
    cancelled: bool = False,
    context: Mapping[str, Value] | None = None,
) -> bool:
    """Whether a job may run after some jobs ended so, and the others as they then would.

    Args:
        workflow: its workflow.
        job: the job.
        ended: how jobs before it ended. One that is not there ran and passed if it could run.
        cancelled: the run was cancelled; jobs before it that had passed by then still have.
        context: what else is known, such as `github`.
    """
    results: dict[str, Result] = {}
    for name in workflow.ancestors(job):
        before = workflow.jobs[name]
        runs = cancelled or _may_run_after(workflow, before, results, context or {}, cancelled=False)
        results[name] = ended.get(name, "success" if runs else "skipped")
    return _may_run_after(workflow, job, results, context or {}, cancelled=cancelled)


def _may_run_after(
    workflow: Workflow,
    job: Job,
    results: Mapping[str, Result],
    context: Mapping[str, Value],
    *,
    cancelled: bool,
) -> bool:
    before = [results[name] for name in workflow.ancestors(job) if name in results]
    status = _Status(
        success=not cancelled and all(result == "success" for result in before),
        failure=not cancelled and "failure" in before,
        cancelled=cancelled,
    )
    needs = {
        name: {"result": results[name], "outputs": {EVERY_OTHER: UNKNOWN}}
        for name in job.needs
        if name in results
    }
    return _holds(job.condition, {**context, "needs": needs}, status)


def step_may_run(steps: Sequence[Step], number: int, failed: int | None, *, cancelled: bool = False) -> bool:
    """Whether a step may run after an earlier one failed.

    Args:
        steps: of the job.
        number: which one is asked about.
        failed: which one failed, in spite of which later ones run as they say.
        cancelled: the run was cancelled instead, just before the step.
    """
    known: dict[str, Value] = {EVERY_OTHER: UNKNOWN}
    has_failed = False
    for at, step in enumerate(steps[:number]):
        status = _Status(success=not has_failed, failure=has_failed, cancelled=False)
        result: Result = "success" if _holds(step.condition, {"steps": known}, status) else "skipped"
        conclusion: Result = result
        if at == failed:
            result = "failure"
            conclusion = "success" if step.continues else "failure"
        has_failed = has_failed or conclusion == "failure"
        if step.id:
            known[step.id] = {"outcome": result, "conclusion": conclusion, "outputs": {EVERY_OTHER: UNKNOWN}}
    status = _Status(
        success=not has_failed and not cancelled, failure=has_failed and not cancelled, cancelled=cancelled
    )
    return _holds(steps[number].condition, {"steps": known}, status)


def may_hold(condition: Expression | None, context: Mapping[str, Value]) -> bool:
    """Whether a condition may be true after everything before it passed."""
    return _holds(condition, context, _Status(success=True, failure=False, cancelled=False))


def _holds(condition: Expression | None, context: Mapping[str, Value], status: _Status) -> bool:
    if condition is None:
        return status.success
    functions = {
        "success": lambda: status.success,
        "failure": lambda: status.failure,
        "cancelled": lambda: status.cancelled,
        "always": lambda: True,
    }
    # GitHub puts `success() &&` before a condition that calls none of them.
    if not status.success and not condition.calls(*_STATUS_FUNCTIONS):
        return False
    return truthy(evaluate(condition, context, functions))
