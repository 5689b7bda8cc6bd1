"""Sets whose device code is in wheels of its own are sealed, offered and judged whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.errors import StoreError
from cairn.release.gate import files_of_set, gate, installation
from cairn.release.gate.case import Case, opened
from cairn.release.index.snapshot import Index
from cairn.release.publish import stage
from cairn.release.publish.resolve import resolve_set
from cairn.stack.model import DeviceWheels
from cairn.store.memory import MemoryStore
from cairn.wheels import build_statement, wheels_to_set, wheelset
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.device_wheel import Terms
from cairn.wheels.split.split import split
from cairn.wheels.wheelset import WheelSet
from helpers.formats import make_bundle, make_code_object
from helpers.gate import case_of, kept, record_of, stack_of
from helpers.hip_library import make_hip_library
from helpers.release import (
    MANIFEST,
    audit,
    keys_of,
    make_set,
    make_wheel,
    put,
    stage_set,
    statement_of,
    with_bill,
)
from helpers.wheels import build_wheel

TARGETS = ("gfx942", "gfx1100")


def parts_of(
    folder: Path, *, seed: bytes = b"a", terms: Terms | None = None, more: Mapping[str, bytes] | None = None
) -> list[Path]:
    codes = {target: make_code_object(target, seed * 400) for target in TARGETS}
    wheel = build_wheel(
        folder / "whole",
        name="torch",
        version="2.9.0",
        tags=["cp311-cp311-manylinux_2_28_x86_64"],
        requires=["rocm-sdk-core==7.14.0"],
        pure=False,
        files={"torch/lib/x.so": make_hip_library([make_bundle(codes)]), **(more or {})},
    )
    return list(split(with_bill(wheel), folder / "parts", terms or Terms(prefix="amd", runtime="7.14")))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A host wheel and its device wheels, which no test changes."""
    return parts_of(tmp_path_factory.mktemp("parts"))


def staged(store: MemoryStore, parts: list[Path], folder: Path, *, rocm: str = "7.14.0") -> WheelSet:
    put(store, "staging", [make_wheel(folder / "sdk", "rocm-sdk-core", rocm)])
    made = make_set(parts, family="gfx942-gfx1100", targets=TARGETS)
    return stage_set(store, "staging", made, parts)


def case_with_code(store: MemoryStore, made: WheelSet, **changes: Any) -> Case:
    """The case of a set of a stack whose only project is torch, which has device code."""
    stack = stack_of(made, device_code=("torch",))
    torch = next(project for project in stack.projects if project.name == "torch")
    return case_of(store, made, stack=msgspec.structs.replace(stack, projects=(torch,)), **changes)


def test_host_and_device_wheels_are_one_set(store: MemoryStore, parts: list[Path], tmp_path: Path) -> None:
    made = staged(store, parts, tmp_path)
    names = ("amd-torch-device-gfx1100", "amd-torch-device-gfx942", "torch")
    assert tuple(wheel.distribution for wheel in made.wheels) == names
    case = case_with_code(store, made)
    code = {wheel.distribution: case.code_of(wheel) for wheel in made.wheels}
    assert code == dict(zip(names, (("gfx1100",), ("gfx942",), ("cpu",)), strict=True))
    with opened(case) as files:
        assert list(files_of_set.not_of_split(case, files)) == []
        assert list(files_of_set.not_of_stack(case)) == []
    # A test on a GPU must have had its device wheel.
    whole = record_of(made, hardware=("gfx942",))
    lacking = tuple(w for w in whole.wheels if "device_gfx942" not in w.file_name)
    without = msgspec.structs.replace(whole, wheels=lacking)
    for record, untested in ((whole, ("gfx1100",)), (without, TARGETS)):
        found = gate.weigh(case_with_code(store, made, set_records=kept(record)))
        assert found.untested == untested
    assert "does not cover amd_torch_device_gfx942" in " ".join(found.missing)


def test_a_split_that_is_not_whole_is_not_sealed(parts: list[Path], tmp_path: Path) -> None:
    host, first, second = parts
    other = parts_of(tmp_path / "other", seed=b"b")
    for wrong, said in (
        ([host, first], r"amd-torch-device-gfx1100 is missing, which torch\[device-gfx1100\] asks for"),
        ([host, first, other[2]], "code of a different build for gfx1100 of lib/x.so#0"),
        ([first, second], "device wheel, and no wheel beside it has an extra for it"),
    ):
        fresh = MemoryStore()
        with pytest.raises(StoreError, match=rf"device code of the set is not whole: .*{said}|lacks what"):
            staged(fresh, wrong, tmp_path)
        assert not [key for key in fresh.objects if key.startswith("sets/")]


def test_families_of_one_build_share_the_host_wheel(
    store: MemoryStore, parts: list[Path], tmp_path: Path
) -> None:
    """Each set has the device wheels of its own targets, and not the extras for those of the others."""
    index = "staging/gfx94X-dcgpu"
    put(store, index, [make_wheel(tmp_path / "sdk", "rocm-sdk-core", "7.14.0")])
    whole = make_set(parts, family="gfx942-gfx1100", targets=TARGETS)
    own = wheels_to_set.part_of(whole, ("gfx942",))
    host, device, _ = parts
    assert {wheel.file_name for wheel in own.wheels} == {host.name, device.name}
    statement = build_statement.of_part(statement_of(whole, parts), own)
    words: dict[str, Any] = {"manifest": MANIFEST, "statement": statement}
    with pytest.raises(StoreError, match="these files are not those of the set"):
        stage.stage_set(store, index, own, parts, **words)
    made = stage.stage_set(store, index, own, [host, device], **words)
    assert not resolve_set(Index(store, index).load(), made).problems
    source = Index(store, index).load()
    case = case_with_code(store, made, source=source, target="release/gfx94X-dcgpu")
    with opened(case) as files:
        assert list(files_of_set.not_of_split(case, files)) == []
        assert list(files_of_set.not_of_stack(case)) == []
        assert installation.requirements(installation.extras_of(case, files)) == (
            "amd-torch-device-gfx942==2.9.0",
            "torch[device-gfx942,device-gfx94x-dcgpu,fast]==2.9.0",
        )
        note = installation.judge(case, files).note
    assert "torch has no wheel here for its extras device-all, device-gfx1100" in note
    assert audit(store, index, hashes=True) == ()
    lock = store.read(next(key for key in keys_of(store, f"sets/{made.id}/") if key.endswith(".toml"))).data
    assert b"device-gfx942" in lock
    assert b"device-all" not in lock
    # Its own device wheel is missed as before.
    alone = msgspec.structs.replace(own, wheels=tuple(w for w in own.wheels if w.distribution == "torch"))
    words["statement"] = build_statement.of_part(statement_of(whole, parts), alone)
    with pytest.raises(StoreError, match=r"amd-torch-device-gfx942 is missing, which torch\[device-gfx942\]"):
        stage.stage_set(store, index, alone, [host], **words)


def test_the_code_of_the_sdk_must_be_there_too(store: MemoryStore, tmp_path: Path) -> None:
    parts = parts_of(tmp_path, terms=Terms(sdk="7.14.0", runtime="7.14"))
    with pytest.raises(StoreError, match=r"rocm-sdk-device-gfx1100==7\.14\.0, wanted by torch_dev"):
        staged(store, parts, tmp_path)
    sdk = [make_wheel(tmp_path / "sdk", f"rocm-sdk-device-{target}", "7.14.0") for target in TARGETS]
    put(store, "staging", sdk)
    made = staged(store, parts, tmp_path)
    assert {file.file_name.partition("-")[0] for file in made.closure} >= {
        "rocm_sdk_device_gfx942",
        "rocm_sdk_device_gfx1100",
    }


def test_a_split_for_a_rocm_that_finds_no_code_is_neither_sealed_nor_believed_by_the_gate(
    store: MemoryStore, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match=r"finds its code on ROCm 7\.15 or later, not on 7\.14\.0"):
        staged(MemoryStore(), parts_of(tmp_path / "new", terms=Terms(runtime="7.15")), tmp_path)
    made = staged(store, parts_of(tmp_path, terms=Terms(runtime="6.0")), tmp_path)
    stack = msgspec.structs.replace(stack_of(made), device_wheels=DeviceWheels(runtime="7.15"))
    case = case_of(store, made, stack=stack)
    with opened(case) as files:
        (said,) = files_of_set.not_of_split(case, files)
    assert said.endswith("finds its code on ROCm 7.15 or later, not on 7.14.0")


def test_a_library_without_code_for_a_target_is_told_as_in_a_whole_wheel(
    store: MemoryStore, tmp_path: Path
) -> None:
    only = make_hip_library([make_bundle({"gfx942": make_code_object("gfx942", b"a" * 400)})])
    made = staged(store, parts_of(tmp_path, more={"torch/lib/y.so": only}), tmp_path)
    case = case_with_code(store, made)
    with opened(case) as files:
        assert list(files_of_set.not_of_split(case, files)) == []
        told = [text for text in files_of_set.findings(case, files) if "torch/lib/" in text]
    said = "(torch/lib/y.so): no code for gfx1100 was split from it"
    assert [text.partition(".whl ")[2] for text in told] == [said]


def test_the_gate_reads_the_wheels_again(store: MemoryStore, parts: list[Path], tmp_path: Path) -> None:
    """What was sealed by other means than ours is not promoted."""
    host, *devices = parts
    wrong = [edit_wheel(host, Edit(add_extras=("device-gfx950",)), tmp_path / "bad"), *devices]
    put(store, "staging", wrong)
    case = case_of(store, wheelset.seal(make_set(wrong, family="gfx942-gfx1100", targets=TARGETS), ()))
    with opened(case) as files:
        (said,) = files_of_set.not_of_split(case, files)
    assert "has the extra device-gfx950, for which nothing was split from it" in said


def test_a_host_wheel_that_says_nothing_of_its_split_is_not_promoted(
    store: MemoryStore, parts: list[Path], tmp_path: Path
) -> None:
    host, *devices = parts
    less = Edit(remove_files=("torch-2.9.0.dist-info/cairn-split.json",))
    made = staged(store, [edit_wheel(host, less, tmp_path / "silent"), *devices], tmp_path)
    case = case_of(store, made)
    with opened(case) as files:
        said = list(files_of_set.not_of_split(case, files))
    assert said == [
        f"no host wheel says that amd-torch-device-{name} was split from it, and what its code was before"
        for name in ("gfx1100", "gfx942")
    ]
