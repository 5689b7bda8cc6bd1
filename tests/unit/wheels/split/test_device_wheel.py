"""What host and device wheels are called, how they require each other, and which files go where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cairn import targets
from cairn.cli.main import main
from cairn.errors import WheelError
from cairn.formats.offload import code_object
from cairn.wheels.metadata import device_names, wheel_info
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.device_wheel import SDK, Terms
from cairn.wheels.split.join import join
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, MakeWheel, members_of


def library(*processors: str) -> bytes:
    return make_hip_library([make_bundle({p: make_code_object(p, p.encode() * 99) for p in processors})])


def whole(make_wheel: MakeWheel, *processors: str, files: Mapping[str, bytes] | None = None) -> Path:
    members = {"demo/x.so": library(*processors), **(files or {})}
    return make_wheel(tags=LINUX, files=members)


def asked(host: Path, extra: str) -> list[str]:
    """The projects that an installer adds for an extra."""
    requirements = [Requirement(text) for text in wheel_info.read(host).requires_dist]
    return [r.name for r in requirements if r.marker is not None and r.marker.evaluate({"extra": extra})]


def test_an_extra_for_each_processor_each_whole_family_and_all(make_wheel: MakeWheel, tmp_path: Path) -> None:
    family = targets.families()["gfx110X-all"]
    host, *devices = split(whole(make_wheel, "gfx942", "gfx1030", *family), tmp_path / "split")
    for name in ("gfx942", "gfx1030", *family):
        assert asked(host, f"device-{name}") == [f"demo-device-{name}"]
    assert asked(host, "device-gfx94x-dcgpu") == ["demo-device-gfx942"]
    assert asked(host, "device-gfx110x-all") == [f"demo-device-{name}" for name in family]
    # Of this one three more processors were not built for.
    assert "device-gfx103x-all" not in wheel_info.read(host).extras
    every = [wheel_info.read(path).name for path in devices]
    assert asked(host, device_names.EVERY) == every
    assert all(extra == extra.lower() for extra in wheel_info.read(host).extras)


@pytest.mark.parametrize(
    ("project", "host", "processor"),
    [
        ("torch-device-gfx942", "torch", "gfx942"),
        ("amd-torch-device-gfx9-4-generic", "torch", "gfx9-4-generic"),
        ("amd_torch.device_gfx942", "Torch", "gfx942"),
        ("torch-device-all", "torch", None),
        ("mytorch-device-gfx942", "torch", None),
        ("torch", "torch", None),
        ("torchvision-device-gfx942", "torch", None),
    ],
)
def test_whose_device_wheel_a_project_is(project: str, host: str, processor: str | None) -> None:
    assert device_names.processor_of(project, host) == processor


def test_licences_come_along_wherever_they_stand(make_wheel: MakeWheel, tmp_path: Path) -> None:
    """Before PEP 639, setuptools put them right into the dist-info folder."""
    about = "demo-1.0.dist-info"
    older = Edit(remove_files=(f"{about}/licenses/LICENSE",), add_files={f"{about}/LICENSE": b"free\n"})
    wheel = edit_wheel(whole(make_wheel, "gfx942"), older, tmp_path / "older")
    _, device = split(wheel, tmp_path / "split")
    assert members_of(device)["demo_device_gfx942-1.0.dist-info/licenses/LICENSE"] == b"free\n"


def test_names_and_requirements_as_upstream_has_them(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = whole(make_wheel, "gfx942", "gfx9-4-generic")
    host, generic, device = split(wheel, tmp_path / "split", Terms(prefix="amd", sdk="7.14.0"))
    assert device.name == "amd_demo_device_gfx942-1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    info = wheel_info.read(device)
    assert info.name == "amd-demo-device-gfx942"
    assert info.requires_dist == ("demo==1.0", "rocm-sdk-device-gfx942==7.14.0")
    assert wheel_info.read(generic).requires_dist == ("demo==1.0",)
    assert asked(host, "device-gfx942") == ["amd-demo-device-gfx942"]
    assert verify(device, Expectation(targets=("gfx942",), python="3.11")) == ()
    made = join(host, [generic, device], tmp_path / "joined")
    assert wheel_info.read(made.path).metadata == wheel_info.read(wheel).metadata


def test_the_command_takes_both(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel, out = whole(make_wheel, "gfx942"), tmp_path / "out"
    command = ["wheel", "split", str(wheel), "--output-dir", str(out), "--device-prefix"]
    assert main([*command, "amd", "--rocm-version", "7.14.0rc1"]) == 0
    made = wheel_info.read(next(out.glob("amd_demo_device_*.whl")))
    assert made.requires_dist[1] == "rocm-sdk-device-gfx942==7.14.0rc1"
    assert main([*command, "amd", "--rocm-version", "latest"]) != 0
    with pytest.raises(SystemExit):
        main([*command, "amd/x"])


PROCESSORS = ("gfx90a", "gfx942", "gfx1100", "gfx9-4-generic")


@pytest.mark.parametrize(
    ("path", "processor"),
    [
        ("_rocm_sdk_libraries/lib/rocblas/library/TensileLibrary_lazy_gfx942.dat", "gfx942"),
        ("_rocm_sdk_libraries/lib/rocblas/4.4.1/library/TensileLibrary_lazy_gfx942.dat", "gfx942"),
        ("_rocm_sdk_libraries/lib/rocblas/library/Kernels.so-000-gfx90a-xnack+.hsaco", "gfx90a"),
        ("_rocm_sdk_libraries/lib/rocblas/library/TensileLibrary_Type_HH_fallback.dat", None),
        ("_rocm_sdk_libraries/lib/hipblaslt/library/gfx942/extop_gfx942.co", "gfx942"),
        ("_rocm_sdk_libraries/lib/hipblaslt/library/gfx90a/extop_gfx942.co", None),
        ("_rocm_sdk_libraries/lib/hipblaslt/library/a_gfx9-4-generic.dat", "gfx9-4-generic"),
        ("_rocm_sdk_libraries/lib/hipblaslt/library/a_gfx9421.dat", None),
        ("_rocm_sdk_libraries/lib/hipblaslt/library/a_gfx950.dat", None),
        ("lib/hipsparselt/library/x_gfx1100.yaml", "gfx1100"),
        ("share/miopen/db/gfx942130.HIP.fdb.txt", "gfx942"),
        ("share/miopen/db/gfx90a68.kdb", "gfx90a"),
        ("share/miopen/db/gfx1100_48.db.txt", "gfx1100"),
        ("share/miopen/db/gfx942.tn.model", "gfx942"),
        ("share/miopen/db/gfx90878.db", None),
        ("share/miopen/other/gfx942.txt", None),
        ("torch/lib/aotriton.images/amd-gfx942/flash/attn_fwd.aks2", "gfx942"),
        ("torch/lib/aotriton.images/amd-gfx90a_mod0/flash/attn_fwd.aks2", "gfx90a"),
        ("torch/lib/aotriton.images/amd-gfx11xx/flash/attn_fwd.aks2", None),
        ("torch/_inductor/gfx942.py", None),
    ],
)
def test_which_files_are_databases_of_one_processor(path: str, processor: str | None) -> None:
    assert code_object.database_processor(path, PROCESSORS) == processor


def test_databases_move_under_their_own_paths_and_come_back(make_wheel: MakeWheel, tmp_path: Path) -> None:
    folder = "demo/lib/rocblas/library"
    files = {f"{folder}/a_{name}.dat": name.encode() for name in ("gfx942", "gfx1100", "fallback")}
    wheel = whole(make_wheel, "gfx942", "gfx1100", files=files)
    host, *devices = split(wheel, tmp_path / "split")
    found = {path: {n for n in members_of(path) if folder in n} for path in (host, *devices)}
    assert list(found.values()) == [{f"{folder}/a_{n}.dat"} for n in ("fallback", "gfx942", "gfx1100")]
    made = join(host, devices, tmp_path / "joined")
    assert {n: d for n, d in members_of(made.path).items() if "RECORD" not in n} == {
        n: d for n, d in members_of(wheel).items() if "RECORD" not in n
    }
    some = join(host, devices[:1], tmp_path / "some")
    assert f"{folder}/a_gfx1100.dat" not in members_of(some.path)
    other = edit_wheel(devices[0], Edit(replace_files={f"{folder}/a_gfx942.dat": b"x"}), tmp_path / "other")
    with pytest.raises(WheelError, match="is not what was split"):
        join(host, [other], tmp_path / "refused")


def test_a_package_of_the_sdk_is_split_like_any_wheel(make_wheel: MakeWheel, tmp_path: Path) -> None:
    host, device = split(whole(make_wheel, "gfx942"), tmp_path / "split", SDK)
    assert wheel_info.read(device).name == "rocm-sdk-device-gfx942"
    assert asked(host, "device-gfx942") == ["rocm-sdk-device-gfx942"]
