"""`--split`: what a build leaves of a wheel with device code."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import msgspec
import pytest

from cairn.build import execution, outputs, plan, preflight, split_wheels
from cairn.build.model import BuildRequest, Job
from cairn.errors import UsageError
from cairn.stack import DeviceWheels
from cairn.wheels import wheelset
from helpers.build import MakeRequest
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import build_wheel, members_of

TARGETS = ("gfx942", "gfx1100")
BACKEND = """
import shutil
def build_wheel(folder, settings=None, metadata=None):
    return shutil.copy({wheel!r}, folder).rpartition("/")[2]
"""


def whole(folder: Path, *targets: str) -> Path:
    codes = {target: make_code_object(target, b"code" * 400) for target in targets}
    return build_wheel(
        folder,
        tags=["py3-none-manylinux_2_28_x86_64"],
        requires=[],
        pure=False,
        files={"demo/__init__.py": b"", "demo/x.so": make_hip_library([make_bundle(codes)])},
    )


@pytest.fixture
def request_of_demo(request_for: MakeRequest, tmp_path: Path) -> BuildRequest:
    made = request_for(demo=BACKEND.format(wheel=str(whole(tmp_path / "whole", *TARGETS))))
    words = DeviceWheels(prefix="amd", runtime="7.10")
    project = msgspec.structs.replace(made.stack.projects[0], device_code=True)
    stack = msgspec.structs.replace(made.stack, projects=(project,), device_wheels=words)
    return dataclasses.replace(made, stack=stack, targets=TARGETS, split=True)


HOST = "demo-1.0-py3-none-manylinux_2_28_x86_64.whl"
DEVICES = [f"amd_demo_device_{target}-{HOST.partition('-')[2]}" for target in TARGETS]


def test_a_build_leaves_host_and_device_wheels(request_of_demo: BuildRequest) -> None:
    request = request_of_demo
    (built,) = execution.run(plan.make(request))
    assert [path.name for path in built.files] == [HOST, *DEVICES]
    assert built.targets == TARGETS
    assert built.whole is not None
    assert not built.whole.is_relative_to(request.output_dir)
    outputs.write(request, (built,), outputs.manifests([request], [])[0])
    made = wheelset.read(request.output_dir / "set.json")
    assert {wheel.file_name: wheel.targets for wheel in made.wheels} == {
        HOST: (),
        DEVICES[0]: ("gfx942",),
        DEVICES[1]: ("gfx1100",),
    }
    before = {path: path.stat().st_ino for path in built.files}
    (again,) = execution.run(plan.make(request))
    assert (again.cached, {path: path.stat().st_ino for path in again.files}) == (True, before)
    os.truncate(built.devices[0], 100)
    (mended,) = execution.run(plan.make(request))
    assert len(members_of(mended.devices[0])) > 3


def test_a_build_that_splits_no_more_leaves_the_whole_wheel_alone(request_of_demo: BuildRequest) -> None:
    request = request_of_demo
    for split, names in ((True, [HOST, *DEVICES]), (False, [HOST]), (True, [HOST, *DEVICES])):
        asked = dataclasses.replace(request, split=split)
        (built,) = execution.run(plan.make(asked))
        outputs.write(asked, (built,), outputs.manifests([asked], [])[0])
        assert sorted(path.name for path in request.output_dir.glob("*.whl")) == sorted(names)
        assert ("demo-1.0.dist-info/cairn-split.json" in members_of(built.wheel)) == split
    assert "demo-1.0.dist-info/cairn-split.json" not in members_of(built.whole or Path())


def test_for_the_cpu_there_is_nothing_to_split(request_of_demo: BuildRequest) -> None:
    request = request_of_demo
    project = request.stack.projects[0]
    assert split_wheels.is_split(project, request)
    assert not split_wheels.is_split(project, dataclasses.replace(request, targets=("cpu",)))
    assert not split_wheels.is_split(msgspec.structs.replace(project, device_code=False), request)


def test_a_rocm_that_finds_no_code_is_refused_before_anything_is_built(
    request_of_demo: BuildRequest, tmp_path: Path
) -> None:
    job = Job(stack=request_of_demo.stack, checkouts={}, output_dir=tmp_path, split=True)
    for good in ("7.10.0", "7.10.0a20261101", "7.11.0"):
        preflight.runtime_of_device_wheels(job, good)
    with pytest.raises(UsageError, match=r"ROCm 7\.9\.1 finds no code in device wheels: .* 7\.10 or later"):
        preflight.runtime_of_device_wheels(job, "7.9.1")
    preflight.runtime_of_device_wheels(dataclasses.replace(job, split=False), "7.9.1")
