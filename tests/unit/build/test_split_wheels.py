"""`--split`: what a build leaves of a wheel with device code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec import structs

from cairn import files, venv
from cairn.build import device_packages, execution, job, plan, preflight, rocm_sdk
from cairn.build.inputs import variables
from cairn.build.model import BuildRequest, InstalledSdk, Job
from cairn.errors import UsageError
from cairn.rocm.install import SdkInfo
from cairn.stack import DeviceWheels
from cairn.wheels import wheelset
from cairn.wheels.metadata import wheel_info
from cairn.wheels.split import device_check
from helpers.build import MakeRequest, with_project, with_stack
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.testing import named_set, named_wheel
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
    made = with_stack(made, device_wheels=DeviceWheels(prefix="amd", runtime="7.10"))
    return structs.replace(with_project(made, device_code=True), targets=TARGETS, split=True)


HOST = "demo-1.0-py3-none-manylinux_2_28_x86_64.whl"
DEVICES = [f"amd_demo_device_{target}-{HOST.partition('-')[2]}" for target in TARGETS]


def test_a_build_leaves_host_and_device_wheels(request_of_demo: BuildRequest) -> None:
    request = request_of_demo
    (built,) = execution.run(plan.make(request))
    assert [path.name for path in built.files] == [HOST, *DEVICES]
    assert built.targets == TARGETS
    assert built.whole is not None
    assert not built.whole.is_relative_to(request.output_dir)
    job.write_outputs(request, (built,), job.manifests_of([request], job.trees_of([request]))[0])
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


def test_a_split_with_a_different_check_is_a_different_split(request_of_demo: BuildRequest) -> None:
    # Its bytes are in host wheels. Where they change, so must the number, or what an earlier Cairn has split
    # would stay for what this one splits.
    execution.run(plan.make(request_of_demo))
    note = json.loads((request_of_demo.output_dir / ".split-demo.json").read_text())
    assert note["terms"].split()[0] == "4"
    digest = files.sha256_of(Path(device_check.__file__))
    assert digest == "9f0d1029330542843a8caee492a08dfa577aee6f9601f4ba6a9463ca48de67ec"


def test_a_build_that_splits_no_more_leaves_the_whole_wheel_alone(request_of_demo: BuildRequest) -> None:
    request = request_of_demo
    for split, names in ((True, [HOST, *DEVICES]), (False, [HOST]), (True, [HOST, *DEVICES])):
        asked = structs.replace(request, split=split)
        (built,) = execution.run(plan.make(asked))
        job.write_outputs(asked, (built,), job.manifests_of([asked], job.trees_of([asked]))[0])
        assert sorted(path.name for path in request.output_dir.glob("*.whl")) == sorted(names)
        assert ("demo-1.0.dist-info/cairn-split.json" in members_of(built.wheel)) == split
    assert "demo-1.0.dist-info/cairn-split.json" not in members_of(built.whole or Path())


def test_device_wheels_of_targets_that_are_no_longer_built_go(request_of_demo: BuildRequest) -> None:
    request, folder = request_of_demo, request_of_demo.output_dir
    (built,) = execution.run(plan.make(request))
    # Wheels of a project whose name ends with that of this one are not of this one.
    beside = folder / DEVICES[0].replace("amd_", "my_")
    beside.write_bytes(built.devices[0].read_bytes())
    old = built.devices[0].replace(folder / DEVICES[0].replace("gfx942", "gfx950"))
    made = job.manifests_of([request], {request.stack.line: ()})[0]
    wheels = [built.wheel, old, built.devices[1], beside]
    known = (named_wheel(path.name, sha256=files.sha256_of(path)) for path in wheels)
    wheelset.write(folder / "set.json", named_set(*known, manifest_sha256=made.digest(), targets=TARGETS))
    execution.run(plan.make(request))
    assert sorted(path.name for path in folder.glob("*.whl")) == sorted([HOST, *DEVICES, beside.name])


def test_device_wheels_require_the_code_of_an_sdk_that_has_it_apart(
    request_of_demo: BuildRequest, tmp_path: Path
) -> None:
    def built_with(*packages: str) -> BuildRequest:
        env = tmp_path / "-".join(packages)
        site = venv.describe(env).site_packages
        for name in packages:
            info = site / f"{name.replace('-', '_')}-7.14.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 7.14.0\n")
        info = SdkInfo(version="7.14.0", targets=TARGETS, root=env, bin=env, cmake=env)
        return structs.replace(request_of_demo, sdk=InstalledSdk(environment=env, info=info, digest=""))

    family = built_with("rocm-sdk-core", "rocm-sdk-libraries-gfx94X-dcgpu")
    apart = built_with("rocm-sdk-core", "rocm-sdk-libraries", "rocm-sdk-device-gfx942")
    assert [device_packages.terms_of(request).sdk for request in (family, apart)] == [None, "7.14.0"]
    assert apart.sdk is not None
    always = ("rocm-sdk-core==7.14.0", "rocm-sdk-libraries==7.14.0")
    assert rocm_sdk.runtime_requirements(apart.sdk, devices=False) == always
    assert "rocm-sdk-device-gfx942==7.14.0" in rocm_sdk.runtime_requirements(apart.sdk)
    whole = request_of_demo.cache_dir / "demo" / HOST
    whole.parent.mkdir(parents=True)
    whole.write_bytes(next(tmp_path.glob("whole/*.whl")).read_bytes())
    apart.output_dir.mkdir()
    _, device, _ = device_packages.parts_of(whole, "a" * 64, apart.stack.projects[0], apart)
    assert wheel_info.read(device).requires_dist == ("demo==1.0", "rocm-sdk-device-gfx942==7.14.0")
    # Without device wheels, the wheel itself asks for that code.
    for request, split, extras in (
        (apart, False, ",device-gfx942,device-gfx1100"),
        (apart, True, ""),
        (family, False, ""),
    ):
        asked = structs.replace(request, split=split)
        values = variables.placeholder_values(
            asked, asked.stack.projects[0], base_version=None, built={}, source_dir=tmp_path
        )
        assert values["rocm_device_extras"] == extras


def test_for_the_cpu_there_is_nothing_to_split(request_of_demo: BuildRequest) -> None:
    request = request_of_demo
    project = request.stack.projects[0]
    assert device_packages.is_split(project, request)
    assert not device_packages.is_split(project, structs.replace(request, targets=("cpu",)))
    assert not device_packages.is_split(structs.replace(project, device_code=False), request)


def test_a_rocm_that_finds_no_code_is_refused_before_anything_is_built(
    request_of_demo: BuildRequest, tmp_path: Path
) -> None:
    job = Job(stack=request_of_demo.stack, checkouts={}, output_dir=tmp_path, split=True)
    for good in ("7.10.0", "7.10.0a20261101", "7.11.0"):
        preflight.runtime_of_device_wheels(job, good)
    with pytest.raises(UsageError, match=r"ROCm 7\.9\.1 finds no code in device wheels: .* 7\.10 or later"):
        preflight.runtime_of_device_wheels(job, "7.9.1")
    preflight.runtime_of_device_wheels(structs.replace(job, split=False), "7.9.1")
