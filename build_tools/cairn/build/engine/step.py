"""The steps of a build, and the graph of their dependencies."""

from __future__ import annotations

import functools
import graphlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cairn.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Step:
    """One piece of work, as the engine sees it.

    Attributes:
        name: what it is called everywhere; no other step of its graph has it.
        kind: `checkout`, `build`, …: steps of a kind take alike long where nothing else is known.
        project: what it works on; with `kind` it says whose recorded durations are its own.
        needs: names of the steps that come first.
        after: names of steps that it waits for as well, though it needs nothing of them and runs also where
            they fail: what they compile, it finds in the compiler cache.
        inputs: all that may change its result, besides the results of its needs; values of JSON.
        cores: the most that it can use at once.
        memory: bytes at its peak for each core that it uses; 0 where no one knows.
        disk: bytes that must be free where it works when it starts.
        seconds: how long it takes, where who made the graph knows better than the records: 0 for a wheel that
            the cache has; None where not.
        exclusive: what it must be the only user of, such as a checkout: steps that name the same one run one
            after another.
    """

    name: str
    kind: str
    project: str = ""
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    inputs: Mapping[str, object] = field(default_factory=dict)
    cores: int = 1
    memory: int = 0
    disk: int = 0
    seconds: float | None = None
    exclusive: tuple[str, ...] = ()

    @functools.cached_property
    def waits_for(self) -> tuple[str, ...]:
        """The names of all steps that come before it."""
        return tuple(dict.fromkeys((*self.needs, *self.after)))


@dataclass(frozen=True)
class Graph:
    """Steps in which every need is met and none needs itself.

    Raises:
        UsageError: two steps have one name, a step needs one that does not exist, or needs go round in a
            circle.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if len(self.by_name) != len(self.steps):
            names = [step.name for step in self.steps]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two steps are called {twice!r}")
        for step in self.steps:
            for name in step.waits_for:
                if name not in self.by_name:
                    raise UsageError(f"the step {step.name!r} needs {name!r}, which is not a step")
        _ = self.order  # raises where there is a circle

    @functools.cached_property
    def by_name(self) -> Mapping[str, Step]:
        """Every step by its name."""
        return {step.name: step for step in self.steps}

    @functools.cached_property
    def order(self) -> tuple[Step, ...]:
        """The steps, each after those it waits for; otherwise as they were given."""
        sorter = graphlib.TopologicalSorter({step.name: step.waits_for for step in self.steps})
        try:
            return tuple(self.by_name[name] for name in sorter.static_order())
        except graphlib.CycleError as error:
            circle = " > ".join(error.args[1])
            raise UsageError(f"steps need each other in a circle: {circle}") from error

    @functools.cached_property
    def dependents(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the steps that need each step themselves."""
        return _inverted({step.name: tuple(dict.fromkeys(step.needs)) for step in self.steps})

    @functools.cached_property
    def followers(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the steps that wait for each step, whatever for."""
        return _inverted({step.name: step.waits_for for step in self.steps})

    @functools.cached_property
    def digests(self) -> Mapping[str, str]:
        """A sha256 for each step, over its kind, its inputs and the digests of the steps it needs.

        Names are not part of it: the same work has the same digest in every graph.
        """
        digests: dict[str, str] = {}
        for step in self.order:
            whole = {
                "kind": step.kind,
                "inputs": step.inputs,
                "needs": sorted(digests[name] for name in step.needs),
            }
            text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
            digests[step.name] = hashlib.sha256(text.encode()).hexdigest()
        return digests

    def behind(self, name: str) -> tuple[str, ...]:
        """The names of all steps that cannot run without a step, nearest first."""
        names: dict[str, None] = {}
        waiting = [name]
        for each in waiting:
            new = [after for after in self.dependents[each] if after not in names]
            names |= dict.fromkeys(new)
            waiting += new
        return tuple(names)


def _inverted(before: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """By step those that come after it, from those that come before it."""
    after: dict[str, list[str]] = {name: [] for name in before}
    for step, names in before.items():
        for name in names:
            after[name].append(step)
    return {name: tuple(steps) for name, steps in after.items()}
