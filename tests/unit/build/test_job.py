import dataclasses
from pathlib import Path

import msgspec
import pytest

from cairn import stack as stacks
from cairn.build import job
from cairn.build.model import Job
from cairn.errors import PrerequisiteError, UsageError
from cairn.stack import Feature, Origin, Project, Sdk, Stack
from helpers.build import repository

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
    stack = msgspec.structs.replace(STACK, sdk=Sdk(version="7.0"))
    wanted = Job(
        stack=stack, checkouts={"torch": tree}, output_dir=tmp_path, targets=written, env_dir=tmp_path / "env"
    )
    planned = job.plans_of((wanted,))[0]
    assert planned.request.for_cpu
    assert planned.request.sdk is None
    with pytest.raises(PrerequisiteError):
        job.plans_of((dataclasses.replace(wanted, targets="gfx942"),))


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
        Job(stack=STACK, checkouts={}, output_dir=tmp_path, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", [None, "", "+rocm7.10.0", "+devrocm7.10.0.dev0-efed3c", "+CPU"])
def test_suffixes_that_pep_440_allows_are_taken(suffix: str | None, tmp_path: Path) -> None:
    wanted = Job(stack=STACK, checkouts={}, output_dir=tmp_path, version_suffix=suffix)
    assert wanted.version_suffix == suffix


def rocm_only_job(tmp_path: Path, *, targets: str) -> Job:
    torch = repository(tmp_path / "t", {"version.txt": "1.0", "setup.py": ""})
    apex = repository(tmp_path / "a", {"version.txt": "1.0", "setup.py": ""})
    own = msgspec.structs.replace(
        STACK.projects[0], name="apex", distribution="apex", checkout_dir="a", rocm_only=True
    )
    stack = msgspec.structs.replace(STACK, sdk=Sdk(version="7.0"), projects=(*STACK.projects, own))
    return Job(
        stack=stack,
        checkouts={"torch": torch, "apex": apex},
        output_dir=tmp_path,
        targets=targets,
        env_dir=tmp_path / "env",
    )


def test_a_project_of_rocms_own_is_left_out_of_builds_for_the_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = rocm_only_job(tmp_path, targets="cpu")
    assert [step.project.name for step in job.plans_of((wanted,))[0].steps] == ["torch"]
    assert "skipping apex: there is no build of it without ROCm" in capsys.readouterr().err
    with pytest.raises(UsageError, match="apex cannot be built for the CPU"):
        job.plans_of((dataclasses.replace(wanted, required=frozenset({"apex"})),))


def test_a_project_of_rocms_own_is_there_for_gpus(tmp_path: Path) -> None:
    wanted = rocm_only_job(tmp_path, targets="gfx942")
    with pytest.raises(PrerequisiteError):  # no SDK: that tells it from one for the CPU
        job.plans_of((dataclasses.replace(wanted, required=frozenset({"apex"})),))


def test_the_pytorch_stack_has_apex_pinned_by_torch_and_for_rocm_only() -> None:
    folder = Path(__file__).resolve().parents[3] / "external-builds" / "pytorch"
    apex = stacks.load(folder).for_line("release/2.9").project("apex")
    assert (apex.pin, apex.distribution, apex.checkout_dir) == ("related_commits", "apex", "apex")
    assert apex.rocm_only
