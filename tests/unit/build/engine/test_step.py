from __future__ import annotations

import dataclasses

import pytest

from cairn.build.engine.schedule import Graph, Step
from cairn.errors import UsageError


def step(name: str, *needs: str, **inputs: object) -> Step:
    return Step(name=name, kind="build", needs=needs, inputs=inputs)


def test_a_step_comes_after_all_that_it_needs() -> None:
    graph = Graph((step("vision", "torch"), step("torch", "triton"), step("triton")))
    assert [s.name for s in graph.order] == ["triton", "torch", "vision"]


def test_steps_behind_one_are_found_at_any_distance_and_once() -> None:
    graph = Graph((step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"), step("e")))
    assert graph.behind("a") == ("b", "c", "d")
    assert graph.behind("e") == ()


def test_a_digest_is_of_the_inputs_and_of_all_that_comes_before() -> None:
    first = Graph((step("a", x=1), step("b", "a", x=2), step("c", x=3)))
    changed = Graph((step("a", x=9), step("b", "a", x=2), step("c", x=3)))
    assert changed.digests["a"] != first.digests["a"]
    assert changed.digests["b"] != first.digests["b"]
    assert changed.digests["c"] == first.digests["c"]


def test_what_a_step_only_comes_after_is_before_it_and_not_in_its_digest() -> None:
    alone = step("a", x=1)
    graph = Graph((dataclasses.replace(alone, after=("b",)), step("b", y=2)))
    assert [s.name for s in graph.order] == ["b", "a"]
    assert graph.behind("b") == ()
    assert graph.digests["a"] == Graph((alone,)).digests["a"]
    with pytest.raises(UsageError, match="circle"):
        Graph((step("a", "b"), dataclasses.replace(step("b"), after=("a",))))


def test_a_digest_does_not_depend_on_names_limits_or_the_order_of_steps() -> None:
    one = Graph((step("a", x=1), step("b", "a", y=2)))
    renamed = (
        dataclasses.replace(step("second", "first", y=2), cores=8),
        step("first", x=1),
    )
    assert Graph(renamed).digests["second"] == one.digests["b"]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((step("a"), step("a")), "two steps are called 'a'"),
        ((step("a", "b"),), "needs 'b', which is not a step"),
        ((step("a", "b"), step("b", "a")), "circle: "),
        ((step("a", "a"),), "circle: a > a"),
    ],
    ids=["same name", "unknown", "circle", "itself"],
)
def test_a_graph_that_cannot_be_carried_out_is_refused(steps: tuple[Step, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Graph(steps)
