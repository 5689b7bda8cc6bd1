from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from cairn.errors import UsageError, WheelError
from cairn.wheels import wheelset as wheel_set
from cairn.wheels.metadata import wheel_info
from cairn.wheels.wheelset import WheelSet
from helpers.formats import make_bundle, make_elf
from helpers.wheels import MakeWheel


@pytest.fixture
def wheels(make_wheel: MakeWheel) -> list[Path]:
    code = make_elf(sections={".hip_fatbin": make_bundle({"gfx942": b"a", "gfx1100": b"b"}, 3, 1)})
    return [
        make_wheel(name="torch", version="2.9.0+rocm7.10.0", files={"torch/x.so": code}),
        make_wheel(name="audio"),
    ]


def made(wheels: list[Path]) -> WheelSet:
    return wheel_set.make(
        wheels,
        manifest_sha256="0" * 64,
        stack="sample",
        python="3.11",
        platform="linux_x86_64",
        family="gfx94X-dcgpu",
        targets=("gfx942", "gfx1100"),
    )


def test_a_set_describes_its_wheels(wheels: list[Path]) -> None:
    found = made(wheels)
    assert [wheel.distribution for wheel in found.wheels] == ["audio", "torch"]
    torch = found.wheels[1]
    assert torch.version == "2.9.0+rocm7.10.0"
    assert torch.file_name == wheels[0].name
    assert torch.sha256 == hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    assert torch.size == wheels[0].stat().st_size
    assert torch.metadata_sha256 == wheel_info.read(wheels[0]).metadata_sha256
    assert torch.targets == ("gfx942", "gfx1100")
    assert found.wheels[0].targets == ()


def test_the_id_depends_on_the_bytes_alone(wheels: list[Path]) -> None:
    digests = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels)
    expected = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    assert made(wheels).set_id == made(wheels[::-1]).set_id == expected


def test_what_is_written_is_read(wheels: list[Path], tmp_path: Path) -> None:
    wheel_set.write(tmp_path / "set.json", made(wheels))
    assert json.loads((tmp_path / "set.json").read_text())["schema"] == "cairn.set/1"
    assert wheel_set.read(tmp_path / "set.json") == made(wheels)


def test_a_changed_digest_is_noticed(wheels: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    wheel_set.write(path, made(wheels))
    digest = made(wheels).wheels[0].sha256
    path.write_text(path.read_text().replace(digest, "f" * 64))
    with pytest.raises(WheelError, match="changed"):
        wheel_set.read(path)


def test_a_malformed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    with pytest.raises(UsageError):
        wheel_set.read(path)
    path.write_text('{"schema": "cairn.set/9"}')
    with pytest.raises(UsageError, match="schema"):
        wheel_set.read(path)


def test_two_wheels_of_one_project_are_refused(make_wheel: MakeWheel) -> None:
    with pytest.raises(WheelError, match="two wheels of demo"):
        made([make_wheel(), make_wheel(version="2.0")])
    with pytest.raises(WheelError, match="at least one"):
        made([])
