import dataclasses
from pathlib import Path

import pytest

from cairn.build import job
from cairn.errors import PrerequisiteError, UsageError
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


@pytest.mark.parametrize(
    "given",
    [
        {"version_suffix": "rocm7.10.0"},
        {"version_suffix": "+rocm7.10.0\n"},
        {"version_suffix": "+rocm7\nTag: x"},
        {"version_suffix": "+rocm7|evil==1"},
        {"version_suffix": "+rocm7/../x"},
        {"version_suffix": "+rocm 7"},
        {"version_suffix": "+"},
        {"build_number": "1\nTag: x"},
        {"build_number": "1; rm"},
        {"build_number": "٣"},
        {"build_number": "9" * 5000},
        {"build_number": ""},
    ],
)
def test_values_that_reach_versions_and_environments_are_refused_at_once(
    given: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        job.Job(stack=STACK, checkouts={}, output_dir=tmp_path, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [None, "", "+rocm7.10.0", "+devrocm7.10.0.dev0-efed3c", "+CPU"])
def test_suffixes_that_pep_440_allows_are_taken(suffix: str | None, tmp_path: Path) -> None:
    wanted = job.Job(stack=STACK, checkouts={}, output_dir=tmp_path, version_suffix=suffix)
    assert wanted.version_suffix == suffix
