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
        one = graph.find(explain)
        return Answer(_plain(graph, one), _explanation(one), more={"inputs": dict(one.step.inputs)})
    rows = [
        (
            one.step.name,
            one.action,
            one.explanation.reason,
            None if one.seconds is None else console.clock(one.seconds),
        )
        for one in graph.steps
    ]
    return Answer(
        {"schema": "cairn.plan/1", "steps": [_plain(graph, one) for one in graph.steps]},
        [Table(("step", "action", "why", "last time"), rows)],
    )


def _explanation(one: PlannedStep) -> Iterator[Piece]:
    yield f"{one.step.name}: {one.action}, {one.explanation.reason}"
    last = one.explanation.last
    if last is not None:
        yield f"compared with {last.file_name}, built {last.built} (key {short_id(last.key)})"
    if differences := one.explanation.differences:
        rows = [(each.name, _cut(each.before or "-"), _cut(each.now or "-")) for each in differences]
        yield Table(("input", "was", "is"), rows)


def _plain(graph: PlanGraph, one: PlannedStep) -> dict[str, object]:
    last = one.explanation.last
    return {
        "step": one.step.name,
        "kind": one.step.kind,
        "project": one.step.project or None,
        "variant": one.variant or None,
        "needs": one.step.needs,
        "digest": graph.digest(one),
        "action": one.action,
        "why": one.explanation.reason,
        "key": one.key,
        "checkout": one.checkout or None,
        "seconds": one.seconds,
        "compared_with": last.key if last is not None else None,
        "differences": [
            {"input": each.name, "was": each.before, "is": each.now} for each in one.explanation.differences
        ],
    }


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
