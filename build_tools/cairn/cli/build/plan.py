"""`cairn build --dry-run`: what would be built and why, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cairn.cli.answer import Answer, Piece, Table
from cairn.output import console
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from cairn.build.model import Job
    from cairn.build.plan_graph import PlanGraph, PlannedStep

_LONGEST = 60  # characters of a value in the table; JSON has all


def answer(jobs: Sequence[Job], explain: str | None) -> Answer:
    """Make the answer about what a build would do; of one step in full, if `explain` names it.

    Raises:
        UsageError: there is no such step.
    """
    from cairn.build import job, plan_graph, variants

    graph = plan_graph.graph_of(job.plans_of(jobs), variants.labels(jobs))
    if explain is not None:
        step = graph.find(explain)
        return Answer(_plain(graph, step), _explanation(step), more={"inputs": dict(step.step.inputs)})
    rows = [
        (
            step.step.name,
            step.action,
            step.explanation.reason,
            None if step.seconds is None else console.clock(step.seconds),
        )
        for step in graph.steps
    ]
    return Answer(
        {"schema": "cairn.plan/1", "steps": [_plain(graph, step) for step in graph.steps]},
        [Table(("step", "action", "why", "last time"), rows)],
    )


def _explanation(step: PlannedStep) -> Iterator[Piece]:
    yield f"{step.step.name}: {step.action}, {step.explanation.reason}"
    last = step.explanation.last
    if last is not None:
        yield f"compared with {last.file_name}, built {last.built} (key {short_id(last.key)})"
    if differences := step.explanation.differences:
        rows = [(each.name, _cut(each.before or "-"), _cut(each.now or "-")) for each in differences]
        yield Table(("input", "was", "is"), rows)


def _plain(graph: PlanGraph, step: PlannedStep) -> dict[str, object]:
    last = step.explanation.last
    return {
        "step": step.step.name,
        "kind": step.step.kind,
        "project": step.step.project or None,
        "variant": step.variant or None,
        "needs": step.step.needs,
        "digest": graph.digest(step),
        "action": step.action,
        "why": step.explanation.reason,
        "key": step.key,
        "checkout": step.checkout or None,
        "seconds": step.seconds,
        "compared_with": last.key if last is not None else None,
        "differences": [
            {"input": each.name, "was": each.before, "is": each.now} for each in step.explanation.differences
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
