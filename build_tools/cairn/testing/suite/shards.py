"""Divide a suite into shards that take equally long, one for each machine.

Each machine makes the same plan by itself, from the same modules and times; its digest is in the results of
each shard, and `merge` refuses shards whose digests differ. The longest modules come first, and a module is
divided if no shard has room for all of it.

The shards get the lowest level, in seconds, at which everything has room. A module that fits goes whole to
the shard that has the least to do, since each piece of one costs the start of a process, and its imports,
once more. Of one that does not fit, the shards with the most room take as many tests as that holds. Tests
whose times are known are dealt by name; the others (new tests, or those of a module of which only the whole
time is known) by a place between 0 and 1 that follows from their node id (`worker.place`). Where no time is
known at all, a few modules are cut into as many parts as there are shards: of torch's, some take a hundred
times as long as others.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cairn import datafile
from cairn.errors import UsageError
from cairn.testing.junit import LONGEST, TestOutcome
from cairn.testing.suite import suite_results

DEFAULT = "default"

START = 10.0
"""Seconds that pytest takes to start and to import a module of torch's tests, for each piece (9 measured)."""
_EXACT = 0.002  # of the mean: how exactly the level is found
_SPLIT_SECOND = 0.002  # of a module that is cut, which rounding leaves over
_FEW = 10  # modules for each shard, below which one long module makes a shard far longer than the others


class Times(datafile.Value, tag_field="schema", tag="cairn.test-times/1"):
    """Seconds, all of them as measured.

    Attributes:
        modules: of whole modules, by their path below the folder of tests (`inductor/test_x.py`).
        classes: module to class to seconds, where no tests are known.
        tests: module to the rest of the node id (`TestA::test_b`) to seconds.
    """

    modules: Mapping[str, float] = {}
    classes: Mapping[str, Mapping[str, float]] = {}
    tests: Mapping[str, Mapping[str, float]] = {}

    def of(self, module: str) -> float | None:
        """Return the seconds of a module, or None if they are unknown."""
        # Added exactly: in a different order, a machine would plan differently from the others.
        if tests := self.tests.get(module):
            return math.fsum(tests.values())
        if (seconds := self.modules.get(module)) is not None:
            return seconds
        tests = self.classes.get(module)
        return math.fsum(tests.values()) if tests else None


def read_times(paths: Sequence[Path], *, config: str = DEFAULT) -> Times:
    """Read the times of several files; if two have a module, the later file counts.

    Upstream's (pytorch/test-infra, branch generated-stats, `stats/`) are `{build environment: {test config:
    {module: seconds}}}`, and for classes one level deeper; modules are named without `.py`. Their environment
    `default` is read, and for a config that they do not know, their `default`, too.

    Args:
        paths: `outcomes.jsonl` of earlier shards, files of `Times`, or upstream's.
        config: the key in upstream's files, such as `inductor`.

    Raises:
        UsageError: one of them is none of these, or has a time that is not one.
    """
    modules: dict[str, float] = {}
    classes: dict[str, Mapping[str, float]] = {}
    tests: dict[str, Mapping[str, float]] = {}
    for path in paths:
        times = _read_one(path, config)
        tables = (times.modules, *times.classes.values(), *times.tests.values())
        entries = (item for table in tables for item in table.items())
        if bad := [name for name, seconds in entries if not 0 <= seconds < LONGEST]:
            raise UsageError(f"{path}: the time of {bad[0]} is not one")
        modules |= times.modules
        classes |= times.classes
        tests |= times.tests
    return Times(modules=modules, classes=classes, tests=tests)


def times_of(results: Iterable[TestOutcome]) -> Times:
    """Return the times of tests that ran or were skipped, since skipping takes time too."""
    tests: dict[str, dict[str, float]] = defaultdict(dict)
    for outcome in results:
        module, _, rest = outcome.test.partition("::")
        if rest:  # not of a module that never came to its tests
            tests[module][rest] = round(outcome.seconds / outcome.attempts, 3)
    return Times(tests=tests)


def _read_one(path: Path, config: str) -> Times:
    if path.suffix == ".jsonl":
        return times_of(suite_results.read_outcomes(path))
    plain = datafile.read_json(path)
    if isinstance(plain, dict) and "schema" in plain:
        return datafile.from_plain(plain, Times, name=str(path))
    entries = _chosen(_chosen(plain, DEFAULT, path), config, path)
    flat = {f"{name}.py": value for name, value in entries.items() if isinstance(value, int | float)}
    deep = {f"{name}.py": value for name, value in entries.items() if isinstance(value, dict)}
    return datafile.from_plain(
        {"schema": "cairn.test-times/1", "modules": flat, "classes": deep}, Times, name=str(path)
    )


def _chosen(plain: Any, key: str, path: Path) -> dict[str, Any]:  # noqa: ANN401 - JSON
    below = plain.get(key, plain.get(DEFAULT)) if isinstance(plain, dict) else None
    if not isinstance(below, dict):
        raise UsageError(
            f"{path} has no test times for {key}, and none by {DEFAULT!r}",
            tip="give upstream's test-times.json, or outcomes.jsonl of an earlier run",
        )
    return below


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A module, or a part of one, that a shard runs.

    Attributes:
        module: its path below the folder of tests.
        seconds: what it should take, starting included.
        tests: of a part, the tests with known times that are in it, as the rest of their node ids.
        others: of a part, those that are in other parts.
        low: of a part, the place from which on it has the tests with unknown times.
        high: the place at which they end.
    """

    module: str
    seconds: float
    tests: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0

    @property
    def whole(self) -> bool:
        """Whether the piece is the whole module."""
        return not self.others and self.low <= 0 and self.high >= 1

    def for_worker(self) -> Mapping[str, object] | None:
        """The selection for the plugin; see `worker`."""
        if self.whole:
            return None
        selection = {
            key: [f"{self.module}::{rest}" for rest in getattr(self, key)] for key in ("tests", "others")
        }
        return {**selection, "low": self.low, "high": self.high}


class ShardPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The modules of each shard.

    Attributes:
        shards: the pieces of each shard, in the order in which they run.
        unknown: modules of which no time is known; they count as long as the median of the others.
    """

    shards: tuple[tuple[Piece, ...], ...]
    unknown: tuple[str, ...] = ()

    @property
    def seconds(self) -> tuple[float, ...]:
        """The expected seconds of each shard."""
        return tuple(sum(piece.seconds for piece in shard) for shard in self.shards)

    @property
    def digest(self) -> str:
        """The sha256 of the plan, the same on every machine."""
        plain = [[datafile.to_plain(piece) for piece in shard] for shard in self.shards]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


class _Module(msgspec.Struct, frozen=True, kw_only=True):
    """A module to assign to shards; its tests, longest first, if their times are known."""

    name: str
    seconds: float
    tests: tuple[tuple[str, float], ...]


def plan_shards(modules: Iterable[str], times: Times, shards: int) -> ShardPlan:
    """Assign modules to shards; the same arguments give the same plan on every machine.

    Raises:
        UsageError: there are no modules.
    """
    names = sorted(set(modules))
    if not names:
        raise UsageError("there is no module to run")
    known_seconds = {name: seconds for name in names if (seconds := times.of(name)) is not None}
    if not known_seconds and len(names) < _FEW * shards:
        return _evenly(names, shards)
    middle = sorted(known_seconds.values())[len(known_seconds) // 2] if known_seconds else 0.0
    to_deal = [
        _Module(
            name=name,
            seconds=known_seconds.get(name, middle),
            tests=tuple(sorted(times.tests.get(name, {}).items(), key=lambda item: (-item[1], item[0]))),
        )
        for name in names
    ]
    to_deal.sort(key=lambda module: (-module.seconds, module.name))
    total = sum(module.seconds + START for module in to_deal)
    low, high = total / shards, total + START * shards
    dealt = _deal(to_deal, shards, high)
    while high - low > low * _EXACT:
        middle = (low + high) / 2
        tried = _deal(to_deal, shards, middle)
        low, high, dealt = (middle, high, dealt) if tried is None else (low, middle, tried)
    if dealt is None:
        raise AssertionError("one shard has room for everything")
    return ShardPlan(
        shards=tuple(tuple(shard) for shard in dealt),
        unknown=tuple(name for name in names if name not in known_seconds),
    )


def _evenly(names: Iterable[str], shards: int) -> ShardPlan:
    """Give each shard a part of every module."""
    unknown = tuple(names)
    ends = [at / shards for at in range(shards + 1)]
    parts = (
        tuple(Piece(module=name, seconds=START, low=low, high=high) for name in unknown)
        for low, high in itertools.pairwise(ends)
    )
    return ShardPlan(shards=tuple(parts), unknown=unknown)


def _deal(modules: Iterable[_Module], shards: int, level: float) -> list[list[Piece]] | None:
    """Return the pieces of each shard, none of them above the level; None if there is no room for all."""
    dealt: list[list[Piece]] = [[] for _ in range(shards)]
    loads = [0.0] * shards
    for module in modules:
        at = loads.index(min(loads))
        if loads[at] + module.seconds + START <= level:
            pieces = {at: Piece(module=module.name, seconds=module.seconds + START)}
        else:
            pieces = _cut(module, {at: level - load - START for at, load in enumerate(loads)})
        if not pieces:
            return None
        for at, piece in pieces.items():
            dealt[at].append(piece)
            loads[at] += piece.seconds
    return dealt


def _cut(module: _Module, rooms: Mapping[int, float]) -> dict[int, Piece]:
    """Divide a module to fill rooms of these seconds, the largest first; empty if it is too long."""
    taken: dict[int, tuple[float, tuple[str, ...]]] = {}
    tests, left = module.tests, module.seconds
    for at, room in sorted(rooms.items(), key=lambda item: (-item[1], item[0])):
        if left <= 0 and not tests:
            break
        if room <= 0 or room < min(START, left):  # not worth a process
            continue
        mine, rest, seconds = _fill(tests, room) if tests else ((), (), min(room, left))
        if module.tests and not mine:
            continue
        taken[at], tests, left = (seconds, mine), rest, left - seconds
    if tests or (not module.tests and left > _SPLIT_SECOND):
        return {}
    whole, low, parts = sum(seconds for seconds, _ in taken.values()) or 1.0, 0.0, {}
    for number, (at, (seconds, mine)) in enumerate(taken.items(), 1):
        high = 1.0 if number == len(taken) else low + seconds / whole
        of_shard = set(mine)
        others = tuple(test for test, _ in module.tests if test not in of_shard)
        parts[at] = Piece(
            module=module.name, seconds=seconds + START, tests=mine, others=others, low=low, high=high
        )
        low = high
    return parts


def _fill(
    tests: tuple[tuple[str, float], ...], room: float
) -> tuple[tuple[str, ...], tuple[tuple[str, float], ...], float]:
    """Return the tests that fit into a room, longest first, the remaining ones, and the seconds used."""
    mine, rest, taken = [], [], 0.0
    for name, seconds in tests:
        if taken + seconds <= room:
            mine.append(name)
            taken += seconds
        else:
            rest.append((name, seconds))
    return tuple(mine), tuple(rest), taken
