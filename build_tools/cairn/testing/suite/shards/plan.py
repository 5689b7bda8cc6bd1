"""Cutting a suite into shards: longest modules first, and a module cut where it fits nowhere whole.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cairn import datafile
from cairn.errors import UsageError
from cairn.testing.suite.shards.times import Times

START = 10.0
"""Seconds that pytest takes to start and to import a module of torch's tests, for each piece (9 measured)."""
_EXACT = 0.002  # of the mean: how exactly the level is found
_FEW = 10  # modules for each shard, below which one long module makes a shard far longer than the others


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A module, or the part of one, that a shard runs.

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
        """Whether it is all of its module."""
        return not self.others and self.low <= 0 and self.high >= 1

    def for_worker(self) -> Mapping[str, object] | None:
        """The selection for the plugin; see `worker`."""
        if self.whole:
            return None
        named = {
            key: [f"{self.module}::{rest}" for rest in getattr(self, key)] for key in ("tests", "others")
        }
        return {**named, "low": self.low, "high": self.high}


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """The modules of each shard.

    Attributes:
        shards: the pieces of each shard, in the order in which they run.
        unknown: modules of which no time is known; they count as long as the median of the others.
    """

    shards: tuple[tuple[Piece, ...], ...]
    unknown: tuple[str, ...] = ()

    @property
    def seconds(self) -> tuple[float, ...]:
        """How long each shard should take."""
        return tuple(sum(piece.seconds for piece in shard) for shard in self.shards)

    @property
    def digest(self) -> str:
        """The sha256 of the plan, the same on every machine."""
        plain = [[datafile.to_plain(piece) for piece in shard] for shard in self.shards]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Module:
    """A module that is to be dealt; its tests, longest first, where their times are known."""

    name: str
    seconds: float
    tests: tuple[tuple[str, float], ...]


def make(modules: Iterable[str], times: Times, shards: int) -> ShardPlan:
    """Deal modules to so many shards; the same arguments give the same plan on every machine.

    Raises:
        UsageError: there are no modules.
    """
    names = sorted(set(modules))
    if not names:
        raise UsageError("there is no module to run")
    known = {name: seconds for name in names if (seconds := times.of(name)) is not None}
    if not known and len(names) < _FEW * shards:
        return _evenly(names, shards)
    middle = sorted(known.values())[len(known) // 2] if known else 0.0
    to_deal = [
        _Module(
            name=name,
            seconds=known.get(name, middle),
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
        unknown=tuple(name for name in names if name not in known),
    )


def _evenly(names: Iterable[str], shards: int) -> ShardPlan:
    """A part of every module for each shard."""
    unknown = tuple(names)
    ends = [at / shards for at in range(shards + 1)]
    parts = (
        tuple(Piece(module=name, seconds=START, low=low, high=high) for name in unknown)
        for low, high in itertools.pairwise(ends)
    )
    return ShardPlan(shards=tuple(parts), unknown=unknown)


def _deal(modules: Iterable[_Module], shards: int, level: float) -> list[list[Piece]] | None:
    """The pieces of each shard, none longer than the level; None where there is no room for all."""
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
    """The parts of a module that fill rooms of so many seconds, largest first; nothing if it is too long."""
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
    if tests or (not module.tests and left > _EXACT):
        return {}
    whole, low, parts = sum(seconds for seconds, _ in taken.values()) or 1.0, 0.0, {}
    for number, (at, (seconds, mine)) in enumerate(taken.items(), 1):
        high = 1.0 if number == len(taken) else low + seconds / whole
        own = set(mine)
        others = tuple(test for test, _ in module.tests if test not in own)
        parts[at] = Piece(
            module=module.name, seconds=seconds + START, tests=mine, others=others, low=low, high=high
        )
        low = high
    return parts


def _fill(
    tests: tuple[tuple[str, float], ...], room: float
) -> tuple[tuple[str, ...], tuple[tuple[str, float], ...], float]:
    """The tests that fit into a room, longest first, those that are left, and the seconds that are taken."""
    mine, rest, taken = [], [], 0.0
    for name, seconds in tests:
        if taken + seconds <= room:
            mine.append(name)
            taken += seconds
        else:
            rest.append((name, seconds))
    return tuple(mine), tuple(rest), taken
