"""The picture of a plan: where its boxes are, and that it is SVG whatever the steps are called."""

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from cairn.build.graph import layout, picture
from cairn.build.graph.layout import HEIGHT, WIDTH, Layout, Node

SVG = "{http://www.w3.org/2000/svg}"
PROJECTS = {"triton": (), "torch": ("triton",), "audio": ("torch",), "vision": ("torch", "triton")}


def stack_of(lanes: Iterable[str]) -> list[Node]:
    """Projects as the sample's, in each lane, and the checkouts that the lanes share."""
    nodes = [Node(name=f"checkout {name}") for name in PROJECTS]
    for lane in lanes:
        nodes += [
            Node(
                name=f"{name} {lane}", lane=lane, needs=(f"checkout {name}", *(f"{n} {lane}" for n in needs))
            )
            for name, needs in PROJECTS.items()
        ]
    return nodes


def overlap(found: Layout) -> list[tuple[str, str]]:
    return [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(found.boxes.items(), 2)
        if abs(a.x - b.x) < WIDTH and abs(a.y - b.y) < HEIGHT
    ]


def test_each_lane_has_its_band_and_each_step_stands_right_of_what_it_needs() -> None:
    lanes = [f"gfx{number}" for number in range(12)]
    nodes = stack_of(lanes)
    found = layout.place(nodes)
    assert overlap(found) == []
    assert [lane.name for lane in found.lanes] == ["", *lanes]
    bands = {lane.name: lane for lane in found.lanes}
    for upper, lower in itertools.pairwise(found.lanes):
        assert upper.bottom < lower.top
    for node in nodes:
        box = found.boxes[node.name]
        assert bands[node.lane].top <= box.y <= bands[node.lane].bottom - HEIGHT
        assert 0 <= box.x <= found.width - WIDTH
        for need in node.needs:
            assert found.boxes[need].x + WIDTH < box.x


def test_what_follows_from_other_needs_is_not_drawn_and_checkouts_stand_just_before_their_build() -> None:
    found = layout.place(stack_of(["a"]))
    assert ("triton a", "vision a") not in found.edges
    assert ("torch a", "vision a") in found.edges
    assert found.boxes["checkout vision"].x == found.boxes["torch a"].x
    assert found.boxes["checkout triton"].x == 24


def test_an_edge_over_several_columns_runs_between_the_boxes() -> None:
    names = ["a", "b", "c", "d"]
    chain = [Node(name=n, needs=tuple(names[i - 1 : i])) for i, n in enumerate(names)]
    extra = Node(name="e", needs=("a",))
    found = layout.place([*chain, extra, Node(name="f", needs=("d", "e"))])
    points = found.edges["e", "f"]
    assert len(points) > 2
    inside = [
        (name, x, y)
        for x, y in points[1:-1]
        for name, box in found.boxes.items()
        if box.x < x < box.x + WIDTH and box.y < y < box.y + HEIGHT
    ]
    assert inside == []


@given(st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=12), st.integers(1, 3))
def test_any_graph_is_placed_without_overlap(needs: list[set[int]], lanes: int) -> None:
    nodes = [
        Node(
            name=str(number),
            lane="" if number % (lanes + 1) == 0 else str(number % (lanes + 1)),
            needs=tuple(str(need) for need in sorted(each) if need < number),
        )
        for number, each in enumerate(needs)
    ]
    found = layout.place(nodes)
    assert overlap(found) == []
    assert len(found.boxes) == len(nodes)


@given(st.text(min_size=1, max_size=40))
def test_any_name_gives_xml_that_says_it(name: str) -> None:
    valid = "".join(c for c in name if c.isprintable() or c == " ") or "x"
    drawn = picture.Drawn(
        node=Node(name=valid, lane="<&>"), label=valid, note='"]]>', tone="run", hint=f"{valid}\n&"
    )
    drawing = picture.draw([drawn], title="<'\">", meaning={"run": "is built"})
    root = ET.fromstring(drawing)  # noqa: S314 - ours
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any(text.rstrip("…") == valid[: len(text.rstrip("…"))] and text for text in texts)
    assert "<&>" in texts
    assert "is built" in texts


def test_a_plan_without_steps_is_a_picture_too() -> None:
    drawing = picture.draw([], title="nothing", meaning={})
    assert ET.fromstring(drawing).tag == f"{SVG}svg"  # noqa: S314 - ours
