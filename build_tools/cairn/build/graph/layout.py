"""Places the steps of a graph for a picture: columns from left to right by what they need, in lanes.

The layered way of Sugiyama, Tagawa and Toda (1981), in three steps: columns by the longest way to each node;
an order within each column that keeps edges short (the mean place of the neighbours, a few times forth and
back); places. An edge over several columns gets a point in each, which takes part in the ordering as a node
does, so that it runs between the boxes and not behind them. Nodes of a lane stay in it.
"""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_ROUNDS = 4  # more change nothing in graphs of this kind
WIDTH, HEIGHT = 190, 40
"""Of a node, in pixels."""
_COLUMN_GAP, _ROW_GAP, _LANE_GAP = 64, 14, 34
_POINT_HEIGHT = 6  # of an edge that passes through a column
_MARGIN, _HEADING = 24, 22
_FIRST_TRUNK, _TRUNK_GAP = 12, 7  # from the box, and from one to the next


@dataclass(frozen=True, kw_only=True)
class Node:
    """What is placed.

    Attributes:
        name: of the step.
        lane: the variant that it is of; empty for what variants share.
        needs: names of nodes that come before it.
    """

    name: str
    lane: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Box:
    """Where a node is: its left upper corner, in pixels."""

    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Lane:
    """A band of the picture."""

    name: str
    top: float
    bottom: float


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A picture without its ink.

    Attributes:
        width: of the whole.
        height: of the whole.
        boxes: by node.
        lanes: from top to bottom.
        edges: the points that each edge goes through, by its two nodes.
        trunks: where the edges from a shared node to the lanes go down, one line for all of them, by node.
    """

    width: float
    height: float
    boxes: Mapping[str, Box]
    lanes: tuple[Lane, ...]
    edges: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]
    trunks: Mapping[str, float]


@dataclass(kw_only=True)
class _Place:
    """A node, or a point of a long edge, on its way to a place."""

    column: int
    lane: str
    height: int
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    y: float = 0.0


def place(nodes: Sequence[Node]) -> Layout:
    """Place nodes; an edge that follows from others is not drawn (A to C, where A to B and B to C are)."""
    needs = _reduced({node.name: node.needs for node in nodes})
    columns = _columns(needs)
    lanes = tuple(dict.fromkeys(node.lane for node in nodes))
    places = [_Place(column=columns[node.name], lane=node.lane, height=HEIGHT) for node in nodes]
    index = {node.name: number for number, node in enumerate(nodes)}
    chains = {
        (name, node.name): _chain(places, index[name], index[node.name])
        for node in nodes
        for name in needs[node.name]
    }
    ordered = _ordered(places, lanes)
    bands = _stack(places, lanes, ordered)

    def x(column: int) -> float:
        return _MARGIN + column * (WIDTH + _COLUMN_GAP)

    return Layout(
        width=x(max((p.column for p in places), default=0)) + WIDTH + _MARGIN,
        height=(bands[-1].bottom if bands else 0) + _MARGIN,
        boxes={name: Box(x=x(places[number].column), y=places[number].y) for name, number in index.items()},
        lanes=bands,
        edges={
            ends: tuple(
                point
                for number in chain
                for point in (
                    (x(places[number].column), places[number].y + places[number].height / 2),
                    (x(places[number].column) + WIDTH, places[number].y + places[number].height / 2),
                )
            )[1:-1]
            for ends, chain in chains.items()
        },
        trunks={
            nodes[number].name: x(places[number].column) + WIDTH + _FIRST_TRUNK + _TRUNK_GAP * row
            for (_, lane), cell in ordered.items()
            if lane == ""
            for row, number in enumerate(reversed([one for one in cell if one < len(nodes)]))
            if any(places[after].lane for after in places[number].after)
        },
    )


def _reduced(needs: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The needs without those that follow from others."""
    behind: dict[str, set[str]] = {}  # all that comes before a node
    reduced = {}
    for name in graphlib.TopologicalSorter(needs).static_order():
        direct = tuple(dict.fromkeys(needs[name]))
        reduced[name] = tuple(
            one for one in direct if not any(one in behind[other] for other in direct if other != one)
        )
        behind[name] = set(direct).union(*(behind[one] for one in direct))
    return reduced


def _columns(needs: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """The column of each node: behind all that it needs, and what needs nothing just before what needs it."""
    order = tuple(graphlib.TopologicalSorter(needs).static_order())
    found: dict[str, int] = {}
    for name in order:
        found[name] = max((found[one] + 1 for one in needs[name]), default=0)
    after: dict[str, list[str]] = {name: [] for name in order}
    for name, wanted in needs.items():
        for one in wanted:
            after[one].append(name)
    for name in reversed(order):
        if not needs[name] and after[name]:
            found[name] = min(found[one] for one in after[name]) - 1
    return found


def _chain(places: list[_Place], start: int, end: int) -> tuple[int, ...]:
    """The places that an edge goes through, points in the columns between included."""
    chain = [start]
    lane = places[end].lane if places[start].lane == "" else places[start].lane
    for column in range(places[start].column + 1, places[end].column):
        places.append(_Place(column=column, lane=lane, height=_POINT_HEIGHT))
        chain.append(len(places) - 1)
    chain.append(end)
    for one, other in itertools.pairwise(chain):
        places[one].after.append(other)
        places[other].before.append(one)
    return tuple(chain)


def _ordered(places: Sequence[_Place], lanes: Sequence[str]) -> dict[tuple[int, str], list[int]]:
    """The places of each column and lane, from top to bottom."""
    cells: dict[tuple[int, str], list[int]] = {}
    for number, one in enumerate(places):
        cells.setdefault((one.column, one.lane), []).append(number)
    rank = {number: float(row) for cell in cells.values() for row, number in enumerate(cell)}
    depth = {lane: number * 1000.0 for number, lane in enumerate(lanes)}

    def mean(number: int, neighbours: Sequence[int]) -> float:
        own = depth[places[number].lane]
        each = [depth[places[one].lane] + rank[one] for one in neighbours]
        return sum(each) / len(each) if each else own + rank[number]

    for turn in range(_ROUNDS):
        forth = turn % 2 == 0
        for key in sorted(cells, reverse=not forth):
            near = {n: places[n].before if forth else places[n].after for n in cells[key]}
            cells[key].sort(key=lambda number: mean(number, near[number]))
            rank |= {number: float(row) for row, number in enumerate(cells[key])}
    return cells


def _stack(
    places: Sequence[_Place], lanes: Sequence[str], cells: Mapping[tuple[int, str], Sequence[int]]
) -> tuple[Lane, ...]:
    """Give each place its height in the picture; the answer is the bands of the lanes."""
    top, bands = float(_MARGIN), []
    for lane in lanes:
        start = top + (_HEADING if lane else 0)
        bottom = start
        for (_, of), cell in cells.items():
            if of != lane:
                continue
            y = start
            for number in cell:
                places[number].y = y
                y += places[number].height + _ROW_GAP
            bottom = max(bottom, y - _ROW_GAP)
        bands.append(Lane(name=lane, top=top, bottom=bottom))
        top = bottom + _LANE_GAP
    return tuple(bands)
