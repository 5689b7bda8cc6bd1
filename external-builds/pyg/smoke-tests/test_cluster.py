"""torch-cluster against plain Python: each reference is computed here, by looking at every pair of points."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch_cluster

# Distances between these differ by enough that no rounding changes an order.
POINTS = [(0.0, 0.0), (1.0, 0.2), (0.3, 2.0), (5.0, 5.0), (5.5, 4.1), (4.0, 6.3), (9.0, 0.5), (8.2, 1.9)]
QUERIES = [(0.9, 0.9), (5.1, 5.2), (8.8, 1.0)]


def nearest(query: tuple[float, float], count: int | None = None) -> list[int]:
    ranked = sorted(range(len(POINTS)), key=lambda i: math.dist(query, POINTS[i]))
    return ranked[:count]


def pairs(edges: torch.Tensor) -> list[tuple[int, int]]:
    return sorted(zip(*edges.tolist(), strict=True))


@pytest.mark.parametrize("k", [1, 3, len(POINTS)])
def test_k_nearest_neighbours(k: int) -> None:
    found = torch_cluster.knn(torch.tensor(POINTS), torch.tensor(QUERIES), k)
    expected = [(q, i) for q, point in enumerate(QUERIES) for i in nearest(point, k)]
    assert pairs(found) == sorted(expected)


def test_neighbours_stay_in_their_batch() -> None:
    batch = [0, 0, 0, 1, 1, 1, 2, 2]
    found = torch_cluster.knn(
        torch.tensor(POINTS), torch.tensor(QUERIES), 2, torch.tensor(batch), torch.tensor([0, 1, 2])
    )
    expected = [
        (q, i) for q, point in enumerate(QUERIES) for i in [i for i in nearest(point) if batch[i] == q][:2]
    ]
    assert pairs(found) == sorted(expected)


def test_all_points_within_a_radius() -> None:
    found = torch_cluster.radius(torch.tensor(POINTS), torch.tensor(QUERIES), 2.0)
    expected = [(q, i) for q, a in enumerate(QUERIES) for i, b in enumerate(POINTS) if math.dist(a, b) <= 2.0]
    assert pairs(found) == sorted(expected)


def test_a_radius_graph_links_both_ways_and_never_to_itself() -> None:
    found = torch_cluster.radius_graph(torch.tensor(POINTS), 2.2)
    expected = [
        (i, j)
        for i, a in enumerate(POINTS)
        for j, b in enumerate(POINTS)
        if i != j and math.dist(a, b) <= 2.2
    ]
    assert pairs(found) == sorted(expected)


def test_farthest_points_first() -> None:
    chosen = [0]
    while len(chosen) < len(POINTS) // 2:
        gaps = {i: min(math.dist(POINTS[i], POINTS[c]) for c in chosen) for i in range(len(POINTS))}
        chosen.append(max(gaps, key=gaps.get))
    found = torch_cluster.fps(torch.tensor(POINTS), ratio=0.5, random_start=False)
    assert found.tolist() == chosen


def test_grid_cells() -> None:
    points = torch.tensor([[0.0, 0.0], [11.0, 9.0], [2.0, 8.0], [2.0, 2.0], [8.0, 3.0]])
    found = torch_cluster.grid_cluster(points, torch.tensor([5.0, 5.0])).tolist()
    columns = int(11.0 // 5.0) + 1
    assert found == [int(x // 5) + int(y // 5) * columns for x, y in points.tolist()]


def test_the_nearest_centre() -> None:
    found = torch_cluster.nearest(torch.tensor(POINTS), torch.tensor(QUERIES))
    expected = [min(range(len(QUERIES)), key=lambda q: math.dist(p, QUERIES[q])) for p in POINTS]
    assert found.tolist() == expected


def test_graclus_matches_neighbours_in_pairs() -> None:
    row, col = [0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]
    weight = [9.0, 9.0, 1.0, 1.0, 9.0, 9.0]
    found = torch_cluster.graclus_cluster(torch.tensor(row), torch.tensor(col), torch.tensor(weight))
    assert found.tolist() == [0, 0, 2, 2]


def test_walks_follow_edges() -> None:
    row, col = torch.tensor([0, 1, 1, 2, 2, 3, 3, 0]), torch.tensor([1, 0, 2, 1, 3, 2, 0, 3])
    edges = set(zip(row.tolist(), col.tolist(), strict=True))
    walks = torch_cluster.random_walk(row, col, torch.tensor([0, 1, 2, 3]), walk_length=20)
    assert walks.shape == (4, 21)
    for walk in walks.tolist():
        assert all(step in edges for step in itertools.pairwise(walk))


def test_the_same_on_a_gpu(record_property: Callable[[str, object], None]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no device")
    found = torch_cluster.knn(torch.tensor(POINTS).cuda(), torch.tensor(QUERIES).cuda(), 2)
    assert pairs(found) == sorted((q, i) for q, point in enumerate(QUERIES) for i in nearest(point, 2))
    record_property("device", torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0])
