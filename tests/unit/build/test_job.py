import dataclasses
from pathlib import Path

import pytest

from cairn.build import job
from cairn.errors import PrerequisiteError
from cairn.stack import Feature, Origin, Project, Sdk, Stack

from .conftest import repository

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


@pytest.mark.parametrize("written", ["cpu", " cpu ", "cpu,"])
def test_cpu_needs_no_sdk_however_it_is_written(written: str, tmp_path: Path) -> None:
    tree = repository(tmp_path / "t", {"version.txt": "1.0", "setup.py": ""})
    stack = dataclasses.replace(STACK, sdk=Sdk(version="7.0"))
    wanted = job.Job(
        stack=stack, checkouts={"torch": tree}, output_dir=tmp_path, targets=written, env_dir=tmp_path / "env"
    )
    planned = job.plan_of(wanted)
    assert planned.request.for_cpu
    assert planned.request.sdk is None
    with pytest.raises(PrerequisiteError):
        job.plan_of(dataclasses.replace(wanted, targets="gfx942"))
