from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairn.wheels.interface import operators
from cairn.wheels.interface.operators import Operator, OperatorReader

CONSTANTS = b"\0".join(
    (
        b"torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        b"add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
        b"aten::add",
        b"aten::_add",
        b"roll(Tensor(a!) self, int[1] shifts=[], str mode='a, b') -> (Tensor(a!), int[])",
        b"wait(__torch__.torch.classes.c10d.Work work) -> ()",
        b"mine::roll",
        b"theirs::roll",
        b"both.x(Tensor? a=None) -> Tensor[]",
        b"aten::both.x(Tensor",
        b"extra::both",
        b"Expected f(x) -> y, but got z",
        b"f(int x) -> int { return 1; }",
        b"operator->",
        b"std::function<void (int)> -> nothing",
        b"(Tensor self) -> Tensor",
        b"add(Tensor self -> Tensor",
    )
)


def operators_in(pieces: list[bytes]) -> frozenset[Operator]:
    reader = OperatorReader()
    for piece in pieces:
        reader.feed(piece)
    return reader.operators()


def test_operators_are_the_schemas_among_the_constants() -> None:
    found = {(one.qualified, one.schema) for one in operators_in([CONSTANTS, b"\0nothing here\0"])}
    assert found == {
        ("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
        ("aten::add.Tensor", "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"),
        # Two namespaces have the name: which one is meant is not known.
        ("roll", "(Tensor(a!) self, int[1] shifts=[], str mode='a, b') -> (Tensor(a!), int[])"),
        ("wait", "(__torch__.torch.classes.c10d.Work work) -> ()"),
        ("aten::both.x", "(Tensor? a=None) -> Tensor[]"),
    }


@example([b"f(Tensor x) -> Tensor", b"\x0f"])  # one byte of code in 22
@given(st.lists(st.binary(max_size=80) | st.sampled_from([b"f(Tensor x) -> Tensor", b"-> ", b"::", b"\0"])))
def test_any_bytes_are_read(parts: list[bytes]) -> None:
    found = operators_in([b"".join(parts), b"\0", b"\0".join(parts) + b"\0"])
    assert all(isinstance(one, Operator) for one in found)
    if b"f(Tensor x) -> Tensor" in parts:  # behind `A` and `::` it gets a namespace
        assert ("f", "(Tensor x) -> Tensor") in {(one.name, one.schema) for one in found}


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=12), st.integers(0, 9000))
def test_a_piece_of_any_size_hides_no_text(sizes: list[int], before: int) -> None:
    """A short piece of code between two of text, and a text of which one piece has only the end."""
    library = CODE[:before] + b"\0" + CONSTANTS + b"\0" + CODE[:7000] + b"\0f(int x) -> int\0" + CODE[:7000]
    pieces, at = [], 0
    for size in (*sizes, len(library)):
        pieces.append(library[at : at + size])
        at += size
    assert {one.name for one in operators_in(pieces)} >= {"f", "nms", "add.Tensor", "both.x"}


CODE = bytes.fromhex("4889e5554889f84883ec10") * 30_000


@pytest.mark.parametrize("size", [100, 1 << 18])
def test_operators_are_the_same_however_a_library_is_cut_into_pieces(size: int) -> None:
    """Code is passed over; a text that begins in the piece of code before it is not."""
    parts = [CODE, b"\0" + CONSTANTS + b"\0" + bytes(1 << 18), CODE, b"\0f(int x) -> int\0"]
    library = b"".join(parts)
    found = operators_in([library[at : at + size] for at in range(0, len(library), size)])
    assert found == operators_in([parts[1], parts[3]])
    assert Operator("", "f", "(int x) -> int") in found


def test_a_bracket_that_does_not_close_costs_as_much_as_the_text_is_long() -> None:
    def seconds(length: int) -> float:
        began = time.process_time()
        assert operators._parse(f"f(T({'a' * length}) -> x", {}) is None
        return time.process_time() - began

    assert seconds(64_000) < 5  # 30 s where it grows with the square


def test_types_with_brackets_are_read() -> None:
    for argument in (
        "Tensor(a!)[] self",
        "Dict(str, Tensor(b)) x",
        "Tensor(a -> *)? x",
        "int[2] size=[1, 2]",
    ):
        parsed = operators._parse(f"ns::f({argument}) -> Tensor(a!)", {})
        assert parsed == Operator("ns", "f", f"({argument}) -> Tensor(a!)")
