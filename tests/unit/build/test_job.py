import pytest

from cairn.build import job
from cairn.stack import Feature, Origin, Project, Stack

STACK = Stack(
    name="s",
    line="nightly",
    targets=("gfx942",),
    projects=(
        Project(name="torch", distribution="torch", checkout_dir="t", origin=Origin(url="u"), hashtag="main"),
    ),
    features={"flash_attention": Feature(needs=("triton",), targets=("gfx90a", "gfx942", "gfx11"))},
)


@pytest.mark.parametrize(
    ("targets", "projects", "chosen", "on"),
    [
        (("gfx942",), ("torch", "triton"), {}, True),
        (("gfx1030", "gfx1100"), ("torch", "triton"), {}, True),
        (("gfx1030",), ("torch", "triton"), {}, False),
        (("gfx942",), ("torch",), {}, False),
        (("gfx942",), ("torch",), {"flash_attention": True}, True),
        (("gfx942",), ("torch", "triton"), {"flash_attention": False}, False),
    ],
)
def test_a_feature_is_on_where_it_can_work_unless_chosen(
    targets: tuple[str, ...], projects: tuple[str, ...], chosen: dict[str, bool], *, on: bool
) -> None:
    found = job.features(STACK, targets, projects, chosen)
    assert ("flash_attention" in found) is on
