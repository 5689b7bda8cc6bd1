"""`cairn build plan`: what would be built and why, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli.answer import Answer, Piece, Table
from cairn.cli.binder import command
from cairn.cli.build.run import BuildOptions, jobs_of
from cairn.options import option
from cairn.output import console
from cairn.output.wording import short_id

if TYPE_CHECKING:
    from cairn.build.plan_graph import PlanGraph, PlannedStep

_LONGEST = 60  # characters of a value in the table; JSON has all


@dataclass(frozen=True, kw_only=True)
class Plan(BuildOptions):
    """Options of `cairn build plan`.

    Of several lines, families or Pythons, each has a folder of its own below the output folder:
    LINE/FAMILY/PYTHON.

        cairn build plan --stack external-builds/pytorch --targets gfx1100
    """

    explain: str | None = option(
        "say of one step, such as vision, which of its inputs changed since its last wheel",
        convert=converters.nonempty,
        metavar="STEP",
    )


def _plan(request: Plan) -> Answer:
    from cairn.build import job, plan_graph, variants

    jobs = jobs_of(request)
    graph = plan_graph.graph_of(job.plans_of(jobs), variants.labels(jobs))
    if request.explain is not None:
        one = graph.find(request.explain)
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


COMMANDS = {"plan": command(Plan, _plan)}
