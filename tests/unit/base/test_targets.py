from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn import targets
from cairn.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gfx942", ("gfx942",)),
        ("gfx942,gfx1100", ("gfx942", "gfx1100")),
        ("gfx942;gfx1100 gfx942", ("gfx942", "gfx1100")),
        ("gfx110X-all", ("gfx1100", "gfx1101", "gfx1102", "gfx1103")),
        ("gfx94X", ("gfx942",)),
        ("gfx115X", ("gfx1150", "gfx1151", "gfx1152", "gfx1153")),
        ("gfx90X", ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx90c")),
        ("gfx90X-dcgpu", ("gfx900", "gfx906", "gfx908", "gfx90a")),
        ("gfx103X-dgpu", ("gfx1030", "gfx1031", "gfx1032", "gfx1034")),
        ("gfx103X-igpu gfx90c", ("gfx1033", "gfx1035", "gfx1036", "gfx90c")),
        ("gfx125X-dcgpu", ("gfx1250",)),
        ("gfx90a:xnack-:sramecc+", ("gfx90a:sramecc+:xnack-",)),
        ("gfx1010:xnack-", ("gfx1010:xnack-",)),
        ("gfx90a:sramecc+:xnack-", ("gfx90a:sramecc+:xnack-",)),
        ("cpu", ("cpu",)),
    ],
)
def test_reads_what_people_write(text: str, expected: tuple[str, ...]) -> None:
    assert targets.parse_targets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("gfx941", "gfx", "gfxX", "", " ,; ", "cpu,gfx942", "gfx942:", "gfx90a:xnack", "GFX942"),
        *("gfx11-generic", "gfx1100:xnack+", "gfx900:sramecc+", "gfx90a:tgsplit+", "gfx90a:xnack+:xnack-"),
        *("gfx103X-all:xnack+", "gfx77X", "gfx90X-dgpu", "gfx942\x00"),
    ],
)
def test_refuses_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError):
        targets.parse_targets(text)


@pytest.mark.parametrize(
    ("text", "tip"),
    [
        ("gfx110X-al", "did you mean gfx110X-all?"),
        ("gfx94x_dcgpu", "did you mean gfx94X-dcgpu?"),
        ("GFX942", "did you mean gfx942?"),
        ("gfx90A:xnack+", "did you mean gfx90a:xnack+?"),
        ("gfx943", "did you mean gfx942?"),
        ("gfx1105", "did you mean gfx1100 or gfx1101 or gfx1102?"),
        ("gfx940", "build for gfx942"),
        ("gfx12-generic", "build for gfx1200, gfx1201"),
        ("gfx1030:xnack+", "write gfx1030"),
        ("gfx900:sramecc+", "its features are xnack"),
        ("gfx94X-dcgpu:xnack+", "features belong to single targets, such as gfx90a:xnack+"),
    ],
)
def test_suggests_the_name_that_was_meant(text: str, tip: str) -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_targets(text)
    assert caught.value.tip == tip


def test_suggests_the_families_where_no_name_is_near() -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_targets("nope")
    assert str(caught.value.tip).startswith("the families are: gfx90X-dcgpu, gfx90c, gfx94X-dcgpu")


@pytest.mark.parametrize(
    "text", ["gfx940", "gfx9-generic", "gfx9-4-generic:xnack+", "gfx12-5-generic", "gfx803"]
)
def test_what_wheels_carry_and_nobody_builds_is_read_where_it_may_be(text: str) -> None:
    assert targets.parse_targets(text, unbuilt=True) == (text,)


def test_every_family_member_is_a_known_target() -> None:
    for members in targets.families().values():
        assert set(members) <= set(targets.known_targets())


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (("gfx942",), "gfx94X-dcgpu"),
        (("gfx1100", "gfx1102"), "gfx110X-all"),
        (("gfx942", "gfx1100"), "gfx942-gfx1100"),
        (("gfx90a:xnack+",), "gfx90X-dcgpu"),
        (("gfx90c",), "gfx90c"),
        (("gfx1030",), "gfx103X-all"),
        (("gfx1151",), "gfx1151"),
        (("gfx1150", "gfx1153"), "gfx115X-all"),
        (("gfx1250",), "gfx125X-dcgpu"),
        (("gfx900", "gfx1201"), "gfx900-gfx1201"),
        (("cpu",), "cpu"),
    ],
)
def test_family_of_targets(names: tuple[str, ...], family: str) -> None:
    assert targets.family_of(names) == family


def test_target_id_round_trips() -> None:
    text = "gfx90a:sramecc+:xnack-"
    assert str(targets.parse_target_id(text)) == text


def test_every_target_has_a_product() -> None:
    assert all(targets.product_of(name) for name in targets.known_targets())
    assert targets.product_of("gfx90a:xnack+") == "MI210, MI250"


NATURAL = """
cpu gfx803 gfx9-generic gfx900 gfx902 gfx906 gfx908 gfx90a gfx90a:xnack+ gfx90c gfx9-4-generic gfx940
gfx942 gfx942:sramecc+:xnack- gfx950 gfx10-1-generic gfx1010 gfx10-3-generic gfx1030 gfx1036
gfx11-generic gfx1100 gfx1103 gfx1150 gfx12-generic gfx1200 gfx12-5-generic gfx1250 gfx1250-strict gfx
something
"""


@given(st.permutations(NATURAL.split()))
def test_targets_sort_by_number(names: list[str]) -> None:
    assert targets.in_order(names) == tuple(NATURAL.split())


@given(st.text(max_size=12))
def test_anything_can_be_sorted_among_targets(text: str) -> None:
    assert set(targets.in_order([text, "gfx942", "gfx1100"])) == {text, "gfx942", "gfx1100"}


def test_every_generic_target_serves_targets_with_a_name() -> None:
    for name, members in targets.generic_targets().items():
        assert str(targets.parse_target_id(name)) == name
        assert set(members) <= {*targets.known_targets(), *targets.unbuilt_targets()}
    assert targets.product_of("gfx12-generic") == "runs on gfx1200, gfx1201"


def test_the_reference_page_has_every_target_and_family() -> None:
    page = Path(__file__).parents[3].joinpath("docs/reference/targets.md").read_text(encoding="utf-8")
    lines = page.splitlines()
    for name in targets.known_targets():
        names = [f for f, members in targets.families().items() if name in members and f != name]
        assert f"| {name} | {targets.product_of(name)} | {' '.join(names)} |" in lines
    for name, members in targets.generic_targets().items():
        assert f"| {name} | {' '.join(members)} |" in lines


def test_the_page_for_people_who_install_has_every_family_of_indexes() -> None:
    lines = Path(__file__).parents[3].joinpath("RELEASES.md").read_text(encoding="utf-8").splitlines()
    table = [line.split(" | ") for line in lines if line.startswith("| gfx")]
    shown = {cells[0].removeprefix("| "): tuple(cells[1].split()) for cells in table}
    assert tuple(shown) == targets.index_families()
    assert all(members == targets.families()[name] for name, members in shown.items())


@pytest.mark.parametrize("text", ["rx7900", "7900", "RX 7900 XTX"])
def test_a_product_leads_to_its_target(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_targets(text)
    assert str(caught.value) == f"{text!r} is a product"
    assert caught.value.tip == "write its target: gfx1100"


@pytest.mark.parametrize("text", ["gtx1100x9", "rtx4090"])
def test_a_number_that_no_target_has_leads_to_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_targets(text)
    assert str(caught.value.tip).startswith("the families are: ")
