"""Cutting a suite into shards by the times of its tests."""

import itertools
import random

import pytest

from cairn.errors import UsageError
from cairn.testing.suite import worker
from cairn.testing.suite.shards import START, Piece, ShardPlan, Times, plan_shards

SHARDS = (1, 2, 3, 6, 10)


def recorded(seed: int, *, modules: int, tests: int) -> Times:
    """Times like those of torch's suite: most tests are short, a few take minutes."""
    chance = random.Random(seed)  # noqa: S311
    return Times(
        tests={
            f"test_{m}.py": {
                f"TestA::test_{t}": round(chance.lognormvariate(-1.0, 1.6), 3)
                for t in range(1 + chance.randrange(tests))
            }
            for m in range(modules)
        }
    )


def spread(made: ShardPlan) -> float:
    """How much longer the longest shard is than the mean."""
    return max(made.seconds) * len(made.shards) / sum(made.seconds)


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize(("modules", "tests"), [(6, 2500), (40, 300), (200, 40)])
def test_the_longest_shard_is_within_five_percent_of_the_mean(modules: int, tests: int, shards: int) -> None:
    times = recorded(7, modules=modules, tests=tests)
    assert spread(plan_shards(times.tests, times, shards)) < 1.05


@pytest.mark.parametrize("shards", SHARDS)
def test_modules_of_which_only_the_whole_time_is_known_are_cut_by_place(shards: int) -> None:
    times = Times(modules={"test_a.py": 9000.0, "test_b.py": 400.0, "test_c.py": 30.0})
    made = plan_shards(times.modules, times, shards)
    assert spread(made) < 1.05
    whole = [piece for shard in made.shards for piece in shard if piece.module == "test_a.py"]
    ends = sorted((piece.low, piece.high) for piece in whole)
    assert (ends[0][0], ends[-1][1]) == (0.0, 1.0)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(ends))


def test_a_test_that_is_longer_than_a_shard_should_be_is_alone() -> None:
    tests = {"TestA::test_long": 1000.0, **{f"TestA::test_{n}": 1.0 for n in range(100)}}
    made = plan_shards(["test_a.py"], Times(tests={"test_a.py": tests}), 4)
    assert max(made.seconds) == 1000.0 + START
    assert [piece.tests for shard in made.shards for piece in shard if "TestA::test_long" in piece.tests] == [
        ("TestA::test_long",)
    ]


def selects(piece: Piece, test: str) -> bool:
    """Whether the plugin would run a test: what `worker` does with the piece."""
    options = {"journal": "", "only": None, "finished": [], "piece": piece.for_worker()}
    return worker.Worker(options)._runs(test)


@pytest.mark.parametrize("shards", SHARDS)
def test_every_test_runs_once_those_that_nobody_has_timed_too(shards: int) -> None:
    times = recorded(3, modules=4, tests=600)
    made = plan_shards(times.tests, times, shards)
    for module, known in times.tests.items():
        new = [f"TestNew::test_{number}" for number in range(50)]
        for test in (*list(known)[::20], *new):
            pieces = [piece for shard in made.shards for piece in shard if piece.module == module]
            assert sum(selects(piece, f"{module}::{test}") for piece in pieces) == 1


def test_the_plan_is_the_same_whatever_the_order() -> None:
    times = recorded(5, modules=12, tests=300)
    turned = Times(tests={name: dict(reversed(times.tests[name].items())) for name in reversed(times.tests)})
    assert plan_shards(list(turned.tests), turned, 5) == plan_shards(list(times.tests), times, 5)
    assert plan_shards(times.tests, times, 5).digest != plan_shards(times.tests, times, 6).digest
    unknown = ["test_a.py", "test_b.py"]
    assert plan_shards(reversed(unknown), Times(), 5) == plan_shards(unknown, Times(), 5)


def test_an_unknown_module_counts_like_the_others() -> None:
    times = Times(modules={"test_a.py": 100.0, "test_b.py": 300.0, "test_c.py": 200.0})
    made = plan_shards(["test_a.py", "test_b.py", "test_c.py", "test_new.py"], times, 1)
    assert made.unknown == ("test_new.py",)
    assert made.seconds[0] == 800.0 + 4 * START


@pytest.mark.parametrize("shards", SHARDS)
def test_a_few_modules_that_nobody_has_timed_are_shared_by_all(shards: int) -> None:
    names = ["test_long.py", "test_short.py"]
    made = plan_shards(names, Times(), shards)
    assert [[piece.module for piece in shard] for shard in made.shards] == [names] * shards
    assert made.unknown == tuple(names)
    tests = [f"test_long.py::TestA::test_{number}" for number in range(1000)]
    ran = [sum(selects(shard[0], test) for test in tests) for shard in made.shards]
    assert sum(ran) == len(tests)
    assert max(ran) < 1.3 * len(tests) / shards


def test_many_modules_that_nobody_has_timed_stay_whole() -> None:
    made = plan_shards([f"test_{number}.py" for number in range(200)], Times(), 6)
    assert all(piece.whole for shard in made.shards for piece in shard)
    assert {len(shard) for shard in made.shards} <= {33, 34}


def test_no_module_is_an_error() -> None:
    with pytest.raises(UsageError, match="no module"):
        plan_shards([], Times(), 2)


def test_more_shards_than_there_is_to_do_leaves_some_empty() -> None:
    made = plan_shards(["test_a.py"], Times(tests={"test_a.py": {"test_a": 0.5}}), 3)
    assert sorted(len(shard) for shard in made.shards) == [0, 0, 1]


def test_a_place_depends_on_nothing_but_the_name() -> None:
    # Written down: every machine that shares a suite must agree.
    assert worker.place("test_nn.py::TestNN::test_x") == 0.24987483244278508
