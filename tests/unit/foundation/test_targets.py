import pytest

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
        ("gfx90a:sramecc+:xnack-", ("gfx90a:sramecc+:xnack-",)),
        ("cpu", ("cpu",)),
    ],
)
def test_reads_what_people_write(text: str, expected: tuple[str, ...]) -> None:
    assert targets.parse_targets(text) == expected


@pytest.mark.parametrize(
    "text", ["gfx941", "gfx", "gfxX", "", " ,; ", "cpu,gfx942", "gfx942:", "gfx90a:xnack", "GFX942"]
)
def test_refuses_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError):
        targets.parse_targets(text)


def test_suggests_the_name_that_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        targets.parse_targets("gfx110X-al")
    assert "gfx110X-all" in str(caught.value.tip)


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
        (("cpu",), "cpu"),
    ],
)
def test_family_of_targets(names: tuple[str, ...], family: str) -> None:
    assert targets.family_of(names) == family


def test_target_id_round_trips() -> None:
    text = "gfx90a:sramecc+:xnack-"
    assert str(targets.parse_target_id(text)) == text
