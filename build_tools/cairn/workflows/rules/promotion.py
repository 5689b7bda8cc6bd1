"""What must hold before something is promoted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from cairn.workflows import promotions, runs
from cairn.workflows.expressions import EVERY_OTHER, UNKNOWN
from cairn.workflows.findings import Finding, Rule
from cairn.workflows.workflow import Job, Step, Workflow

_OURS = {"cairn", "pytest"}
_SUCCEED = (":", "true", "echo", "printf")
_FAIL = ("exit", "false", "return")


def check(workflow: Workflow) -> Iterator[Finding]:
    """Every finding on promotions of a workflow, or of an action."""
    promoting = [job for job in workflow.jobs.values() if promotions.of_job(job)]
    for job in promoting:
        yield from _reachable_job(workflow, job)
        yield from _reachable_steps(job.steps)
    yield from _reachable_steps(workflow.steps)
    before = {name for job in promoting for name in workflow.ancestors(job)}
    for job in workflow.jobs.values():
        yield from _continues(job, is_before=job.id in before, promotes=job in promoting)
        if job.id in before:
            yield from _fail_fast(job)
    if promoting:
        yield from _cancelled_by_the_next(workflow, promoting)


def _reachable_job(workflow: Workflow, job: Job) -> Iterator[Finding]:
    """The ends of needs, of the run and of what it follows, after which a promotion still runs."""
    gated = promotions.of_job(job) == "gated" and not promotions.downloads(job)
    after = []
    if runs.job_may_run(workflow, job, {}, cancelled=True):
        after.append("the workflow was cancelled")
    if "workflow_run" in workflow.events and not gated:
        bad = [result for result in runs.BAD if _follows(workflow, job, result)]
        after += [f"the workflow that it follows {_ended(bad)}"] if bad else []
    required = {
        need for need in job.needs if not any(_runs_after(workflow, job, need, bad) for bad in runs.BAD)
    }
    for need in () if gated and required else workflow.ancestors(job):
        bad = [result for result in runs.BAD if _runs_after(workflow, job, need, result)]
        after += [f"{need} {_ended(bad)}"] if bad else []
    for said in after:
        yield Finding(
            rule=Rule.PROMOTION_REACHABLE,
            file=job.file,
            line=_line_of_condition(job),
            message=f"the job {job.id} promotes, and runs after {said}",
        )


def _follows(workflow: Workflow, job: Job, result: runs.Result) -> bool:
    """Whether a job promotes that `workflow_run` starts when a different workflow ended so."""
    run = {"conclusion": result, EVERY_OTHER: UNKNOWN}
    event = {"workflow_run": run, EVERY_OTHER: UNKNOWN}
    context = {"github": {"event_name": "workflow_run", "event": event, EVERY_OTHER: UNKNOWN}}
    return runs.job_may_run(workflow, job, {}, context=context) and any(
        runs.may_hold(step.condition, context) for step in job.steps if promotions.of_step(step)
    )


def _runs_after(workflow: Workflow, job: Job, need: str, result: runs.Result) -> bool:
    alone = runs.job_may_run(workflow, job, {need: result})
    # Conditions that compare needs with each other show it only when they all end alike.
    return alone or (need in job.needs and runs.job_may_run(workflow, job, dict.fromkeys(job.needs, result)))


def _ended(results: Sequence[str]) -> str:
    words = {"failure": "failed", "cancelled": "was cancelled", "skipped": "was skipped"}
    return " or ".join(words[result] for result in results)


def _reachable_steps(steps: Sequence[Step]) -> Iterator[Finding]:
    """The earlier steps after whose failure a promoting one still runs."""
    for number, step in enumerate(steps):
        if promotions.of_step(step) is None:
            continue
        # What counts as passed when it fails is a finding of its own.
        failed = [at for at in range(number) if not steps[at].continues]
        after = [f"{steps[at].name!r} failed" for at in failed if runs.step_may_run(steps, number, at)]
        if runs.step_may_run(steps, number, None, cancelled=True):
            after.append("the workflow was cancelled")
        if after:
            yield Finding(
                rule=Rule.PROMOTION_REACHABLE,
                file=step.file,
                line=_line_of_condition(step),
                message=f"the step {step.name!r} promotes, and runs after {after[0]}",
            )


def _continues(job: Job, *, is_before: bool, promotes: bool) -> Iterator[Finding]:
    """What counts as passed when it fails, before a promotion."""
    if is_before and job.continues:
        yield _continued(job, f"the job {job.id} is before a promotion and counts as passed when it fails")
    last = max((n for n, step in enumerate(job.steps) if promotions.of_step(step)), default=0)
    for step in job.steps if is_before else job.steps[: last if promotes else 0]:
        for inner in step.with_inner():
            if inner.continues:
                said = f"the step {inner.name!r} is before a promotion and counts as passed when it fails"
                yield _continued(inner, said)
            if _swallows(inner):
                said = f"the step {inner.name!r} is before a promotion, and a command of it may fail unseen"
                node = inner.node.get("run") or inner.node
                yield Finding(rule=Rule.CONTINUE_ON_ERROR, file=inner.file, line=node.line, message=said)


def _swallows(step: Step) -> bool:
    """Whether one of our commands, or of pytest's, is followed by `|| true` or the like."""
    found = list(step.commands())
    for number, (before, command) in enumerate(itertools.pairwise(found), start=2):
        named = {word.rpartition("/")[2] for word in before.words[:3]}  # `cairn …`, `python -m pytest …`
        fails = any(after.words[0] in _FAIL for after in found[number : number + 1])  # `|| echo oh && exit 1`
        if command.alternative and command.words[0] in _SUCCEED and not fails and named & _OURS:
            return True
    return False


def _continued(of: Job | Step, message: str) -> Finding:
    node = of.node.get("continue-on-error") or of.node
    return Finding(rule=Rule.CONTINUE_ON_ERROR, file=of.file, line=node.line, message=message)


def _fail_fast(job: Job) -> Iterator[Finding]:
    strategy = job.node.get("strategy")
    if strategy is not None and strategy.get("matrix") and strategy.text_of("fail-fast") != "false":
        yield Finding(
            rule=Rule.FAIL_FAST,
            file=job.file,
            line=strategy.line,
            message=f"a leg of {job.id} that fails cancels the others, before a promotion",
        )


def _cancelled_by_the_next(workflow: Workflow, promoting: Sequence[Job]) -> Iterator[Finding]:
    for of in (workflow.node, *(job.node for job in promoting)):
        node = of.get("concurrency", "cancel-in-progress")
        if node is not None and node.text not in ("", "false"):
            yield Finding(
                rule=Rule.CANCEL_IN_PROGRESS,
                file=workflow.path,
                line=node.line,
                message="the next run cancels this one, perhaps while it promotes",
            )


def _line_of_condition(of: Job | Step) -> int:
    return (of.node.get("if") or of.node).line
