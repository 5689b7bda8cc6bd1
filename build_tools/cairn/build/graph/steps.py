"""The plans of all variants as one graph: SDKs, checkouts and builds, each with its action and the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cairn.build.engine.step import Graph, Step
from cairn.build.graph.explain import Explanation, explain
from cairn.build.inputs.source_tree import SOURCES
from cairn.build.plan import BuildStep, Plan
from cairn.errors import UsageError
from cairn.output import wording

Action = Literal["build", "cached", "present"]
"""`build`: it will run. `cached`: its wheel is taken from the cache. `present`: it is there already."""


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A step, and the action that is planned for it.

    Attributes:
        step: as the engine sees it; its digest is in the graph.
        variant: which variant it is of, in a few words; empty where several share it, or there is one.
        action: what will be done.
        explanation: why.
        key: under which the cache knows the wheel; None where there is none.
        checkout: the tree that it reads; None where it reads none.
        seconds: what it took the last time; None where that is not known.
    """

    step: Step
    variant: str
    action: Action
    explanation: Explanation
    key: str | None = None
    checkout: Path | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class PlanGraph:
    """All steps of a run, each after those it needs."""

    steps: tuple[PlannedStep, ...]
    graph: Graph

    def digest(self, step: PlannedStep) -> str:
        """A sha256 over all inputs of a step."""
        return self.graph.digests[step.step.name]

    def find(self, text: str) -> PlannedStep:
        """The step that a user names: by its name, or a project by its own where that is one step's.

        Raises:
            UsageError: there is none, or there are several.
        """
        named = [one for one in self.steps if text == one.step.name]
        builds = [
            one
            for one in self.steps
            if one.step.kind == "build"
            and text in (one.step.project, one.step.name.removeprefix("build "), f"build {one.step.project}")
        ]
        if len(matches := named or builds) == 1:
            return matches[0]
        names = [one.step.name for one in matches or self.steps]
        tip = wording.did_you_mean(text, names, what="its steps are")
        if matches:
            tip = f"name one: {', '.join(names)}"
        raise UsageError(f"{text!r} is {'several steps' if matches else 'not a step'} of the plan", tip=tip)


def graph_of(plans: Sequence[Plan], labels: Sequence[str]) -> PlanGraph:
    """The graph of plans.

    Args:
        plans: one for each variant.
        labels: what tells the variants from each other; an empty one where there is one alone.
    """
    steps: dict[str, PlannedStep] = {}
    sdk_names, tree_names = _sdk_names(plans), _tree_names(plans)
    for plan, label in zip(plans, labels, strict=True):
        shared: tuple[str, ...] = ()
        if (sdk := plan.request.sdk) is not None:
            name = sdk_names[sdk.environment]
            inputs = {"version": sdk.info.version, "digest": sdk.digest}
            reason = f"ROCm {sdk.info.version} is installed"
            steps[name] = _present(Step(name=name, kind="sdk", inputs=inputs), reason)
            shared = (name,)
        for step in plan.steps:
            tree = tree_names[step.checkout]
            steps[tree] = _tree_step(step, tree)
            needs = [
                _name_of("build", other, label) for other in plan.steps if other.project.name in step.needs
            ]
            planned = _build_step(plan, step, label=label, needs=(*shared, tree, *needs))
            steps[planned.step.name] = planned
    graph = Graph(tuple(one.step for one in steps.values()))
    order = {step.name: number for number, step in enumerate(graph.order)}
    # What variants share comes first, then each variant as a whole.
    lanes = {label: number for number, label in enumerate(dict.fromkeys(("", *labels)))}
    ordered = sorted(steps.values(), key=lambda one: (lanes[one.variant], order[one.step.name]))
    return PlanGraph(tuple(ordered), graph)


def _name_of(kind: str, step: BuildStep, label: str) -> str:
    """The name of a step: `build torch`, and with several variants `build torch [3.12]`."""
    return f"{kind} {step.project.name} [{label}]" if label else f"{kind} {step.project.name}"


def _sdk_names(plans: Iterable[Plan]) -> Mapping[Path, str]:
    """The steps of the SDKs, by the environment that each is in."""
    places = dict.fromkeys(plan.request.sdk.environment for plan in plans if plan.request.sdk)
    return {place: "ROCm SDK" if len(places) == 1 else f"ROCm SDK [{place.parent.name}]" for place in places}


def _tree_names(plans: Iterable[Plan]) -> Mapping[Path, str]:
    """The steps of the checkouts, by folder; those of several lines say which."""
    trees = {step.checkout: (plan.request.stack.line, step) for plan in plans for step in plan.steps}
    several = len({line for line, _ in trees.values()}) > 1
    return {
        place: _name_of("checkout", step, line if several else "") for place, (line, step) in trees.items()
    }


def _present(step: Step, reason: str, checkout: Path | None = None) -> PlannedStep:
    """A step that has nothing to do."""
    explanation = Explanation(reason=reason, last=None)
    return PlannedStep(step=step, variant="", action="present", explanation=explanation, checkout=checkout)


def _tree_step(step: BuildStep, name: str) -> PlannedStep:
    inputs = {key: step.inputs[key] for key in ("tree", "unseen", "upstream") if key in step.inputs}
    reason = f"{step.base_version or ''} at {step.checkout}".lstrip()
    tree = Step(name=name, kind="checkout", project=step.project.name, inputs=inputs)
    return _present(tree, reason, step.checkout)


def _build_step(plan: Plan, step: BuildStep, *, label: str, needs: tuple[str, ...]) -> PlannedStep:
    explanation = explain(step, plan.request.wheel_cache, clean=plan.request.clean)
    last = explanation.last
    return PlannedStep(
        step=Step(
            name=_name_of("build", step, label),
            kind="build",
            project=step.project.name,
            needs=needs,
            inputs={name: value for name, value in step.inputs.items() if name not in ("needs", SOURCES)},
            exclusive=(f"tree:{plan.request.tree_of(step.project)}",),
        ),
        variant=label,
        action="build" if step.hit is None else "cached",
        explanation=explanation,
        key=step.key,
        checkout=step.checkout,
        seconds=last.seconds if last is not None else None,
    )
