"""The plans of all variants as one graph: SDKs, checkouts and builds, each with its action and the reason."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from cairn.build.cache import CacheEntry, WheelCache
from cairn.build.engine.schedule import Graph, Step
from cairn.build.execution import labelled
from cairn.build.inputs.source_tree import SOURCES
from cairn.build.plan import BuildStep, Plan
from cairn.errors import UsageError
from cairn.output import wording

_LOOKED_AT = 50  # entries of a project; what was built longer ago explains nothing
# What the wheel that is compared with should be alike in, before all else.
_SAME_VARIANT = ("python", "platform", "targets", "version_suffix", "sdk")
# What a user calls an input; `{0}` and `{1}` are what it was and is.
_REASONS = {
    "tree": "its sources changed",
    "unseen": "files that git does not see changed",
    "start": "the build folder to go on with changed",
    "sdk": "the ROCm SDK is a different one",
    "toolchain": "the compilers or their settings changed",
    "outside": "headers, libraries or packages of the machine changed",
    "targets": "targets {1}, not {0}",
    "python": "Python {1}, not {0}",
    "version_suffix": "version suffix {1}, not {0}",
    "build_number": "build number {1}, not {0}",
    "features": "features {1}, not {0}",
    "platform": "platform {1}, not {0}",
    "build_env": "variables of --build-env changed",
    "environment": "its variables in stack.toml changed",
    "upstream": "a different upstream commit",
    "finishing": "Cairn repairs, lists and verifies wheels in a new way",
}
_STACK = "what stack.toml says of it changed"

Action = Literal["build", "cached", "present"]
"""`build`: it will run. `cached`: its wheel is taken from the cache. `present`: it is there already."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """An input that has changed.

    Attributes:
        name: with the names of what it is in, such as `toolchain.c++`.
        before: what it was, as JSON; None where there was no such input.
        now: what it is; None where there is none any more.
    """

    name: str
    before: str | None
    now: str | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a step is built, or is not.

    Attributes:
        reason: in a few words.
        last: the wheel that was compared with; None where there is none.
        differences: the inputs that changed since.
    """

    reason: str
    last: CacheEntry | None
    differences: tuple[Difference, ...] = ()


def explain(step: BuildStep, cache: WheelCache, *, clean: bool) -> Explanation:
    """Compare a step with the last wheel of its project, of the same variant where there is one.

    Args:
        step: of a plan.
        cache: where earlier wheels are.
        clean: all is to be built again.
    """
    if step.hit is not None:
        return Explanation(reason="nothing changed", last=step.hit.entry)
    last = last_of(step, cache)
    if last is None:
        return Explanation(reason="never built before" if not clean else "--clean", last=None)
    changes = tuple(differences(last.inputs, step.inputs))
    if clean:
        return Explanation(reason="--clean", last=last, differences=changes)
    return Explanation(reason=summary(changes), last=last, differences=changes)


def last_of(step: BuildStep, cache: WheelCache) -> CacheEntry | None:
    """The last wheel of a step's project; one of the same variant before any other."""
    best, most = None, -1
    now = _plain(step.inputs)
    for entry in itertools.islice(cache.recent(step.project.name), _LOOKED_AT):
        if not entry.inputs:
            continue
        alike = [entry.inputs.get(name) == now.get(name) for name in _SAME_VARIANT]
        if sum(alike) > most:
            best, most = entry, sum(alike)
        if all(alike):
            break
    return best


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[Difference]:
    """Yield the inputs that differ, by name."""
    old, new = dict(_flat("", _plain(before))), dict(_flat("", _plain(now)))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield Difference(name=name, before=old.get(name), now=new.get(name))


def summary(changes: tuple[Difference, ...]) -> str:
    """Summarize differences in a few words, for a table."""
    if edited := edited_files(changes):
        return f"{wording.some(edited)} changed"
    changed = {change.name.partition(".")[0]: change for change in changes}
    changed.pop(SOURCES, None)
    if not changed:
        return "its last wheel is no longer in the cache"
    if changed.keys() - {"start"}:  # which follows from the rest: a different build folder goes with it
        changed.pop("start", None)
    reasons = [
        _REASONS.get(name, _STACK).format(change.before or "none", change.now or "none")
        for name, change in changed.items()
        if name != "needs"
    ]
    if built := [change.name.partition(".")[2] for change in changes if change.name.startswith("needs.")]:
        reasons.append(f"{' and '.join(built)} changed")
    return "; ".join(dict.fromkeys(reasons))


def edited_files(changes: tuple[Difference, ...]) -> list[str]:
    """Return the files of a tree that were edited since, if nothing else changed."""
    prefix = f"{SOURCES}.edited."
    others = {change.name for change in changes if not change.name.startswith(prefix)} - {"tree", "start"}
    return (
        []
        if others
        else [change.name.removeprefix(prefix) for change in changes if change.name.startswith(prefix)]
    )


def _plain(inputs: Mapping[str, object]) -> dict[str, object]:
    """Return inputs as a cache entry has them, with tuples as lists."""
    plain: dict[str, object] = json.loads(json.dumps(inputs, ensure_ascii=True))
    return plain


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    elif value is not None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            text = " ".join(value) or "none"
        yield prefix, text


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
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


class PlanGraph(msgspec.Struct, frozen=True):
    """All steps of a run, each after those it needs."""

    steps: tuple[PlannedStep, ...]
    graph: Graph

    def digest(self, step: PlannedStep) -> str:
        """A sha256 over all inputs of a step."""
        return self.graph.digests[step.step.name]

    def find(self, text: str) -> PlannedStep:
        """Find a step by its name, or by the name of its project if only one step has it.

        Raises:
            UsageError: there is none, or there are several.
        """
        matches_name = [step for step in self.steps if text == step.step.name]
        builds = [
            step
            for step in self.steps
            if step.step.kind == "build"
            and text
            in (step.step.project, step.step.name.removeprefix("build "), f"build {step.step.project}")
        ]
        if len(matches := matches_name or builds) == 1:
            return matches[0]
        names = [match.step.name for match in matches or self.steps]
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
    builds = [step for plan in labelled(plans, labels) for step in plan]
    sdks = {step.request.sdk.environment for step in builds if step.request.sdk}
    tree_names = _tree_names(builds)
    for step in builds:
        shared = []
        if (sdk := step.request.sdk) is not None:
            name = "ROCm SDK" if len(sdks) == 1 else f"ROCm SDK [{sdk.environment.parent.name}]"
            inputs = {"version": sdk.info.version, "digest": sdk.digest}
            reason = f"ROCm {sdk.info.version} is installed"
            steps[name] = _present(Step(name=name, kind="sdk", inputs=inputs), reason)
            shared = [name]
        tree = tree_names[step.checkout]
        tree_inputs = {key: step.inputs[key] for key in ("tree", "unseen", "upstream") if key in step.inputs}
        reason = f"{step.base_version or ''} at {step.checkout}".lstrip()
        present = Step(name=tree, kind="checkout", project=step.project.name, inputs=tree_inputs)
        steps[tree] = _present(present, reason, step.checkout)
        steps[step.name] = _planned(step, needs=(*shared, tree, *map(step.name_for, step.needs)))
    graph = Graph(tuple(planned.step for planned in steps.values()))
    order = {step.name: number for number, step in enumerate(graph.order)}
    # What variants share comes first, then each variant as a whole.
    lanes = {label: number for number, label in enumerate(dict.fromkeys(("", *labels)))}
    ordered = sorted(steps.values(), key=lambda step: (lanes[step.variant], order[step.step.name]))
    return PlanGraph(tuple(ordered), graph)


def _tree_names(steps: Iterable[BuildStep]) -> Mapping[Path, str]:
    """The steps of the checkouts, by folder; those of several lines say which."""
    trees = {step.checkout: (step.request.stack.line, step) for step in steps}
    several = len({line for line, _ in trees.values()}) > 1
    return {
        place: f"checkout {step.project.name}{f' [{line}]' if several else ''}"
        for place, (line, step) in trees.items()
    }


def _present(step: Step, reason: str, checkout: Path | None = None) -> PlannedStep:
    """Return a planned step that has nothing to do."""
    explanation = Explanation(reason=reason, last=None)
    return PlannedStep(step=step, variant="", action="present", explanation=explanation, checkout=checkout)


def _planned(step: BuildStep, *, needs: tuple[str, ...]) -> PlannedStep:
    request = step.request
    explanation = explain(step, request.wheel_cache, clean=request.clean)
    last = explanation.last
    return PlannedStep(
        step=Step(
            name=step.name,
            kind="build",
            project=step.project.name,
            needs=needs,
            inputs={name: value for name, value in step.inputs.items() if name not in ("needs", SOURCES)},
            exclusive=(f"tree:{request.tree_of(step.project)}",),
        ),
        variant=step.label,
        action="build" if step.hit is None else "cached",
        explanation=explanation,
        key=step.key,
        checkout=step.checkout,
        seconds=last.seconds if last is not None else None,
    )
