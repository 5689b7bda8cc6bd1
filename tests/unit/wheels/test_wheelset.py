from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from cairn.errors import UsageError, WheelError
from cairn.wheels import wheels_to_set
from cairn.wheels import wheelset as wheel_set
from cairn.wheels.metadata import wheel_info
from cairn.wheels.wheelset import ClosureFile, WheelSet
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
    return wheels_to_set.make(
        wheels,
        manifest_sha256="0" * 64,
        stack="sample",
        line="main",
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


FILE = ClosureFile(file_name="numpy-2.0-py3-none-any.whl", sha256="a" * 64, size=1, origin="mirrored")


def test_the_id_is_of_every_word_and_every_file(wheels: list[Path]) -> None:
    whole = wheel_set.seal(made(wheels), [FILE])
    assert whole.id == wheel_set.seal(made(wheels[::-1]), [FILE]).id
    others = [
        wheel_set.seal(made(wheels), []),
        wheel_set.seal(made(wheels), [msgspec.structs.replace(FILE, sha256="b" * 64)]),
        wheel_set.seal(made(wheels), [msgspec.structs.replace(FILE, origin="published")]),
        *(
            wheel_set.seal(msgspec.structs.replace(made(wheels), **{name: value}), [FILE])
            for name, value in {
                "family": "gfx110X-all",
                "targets": ("gfx942",),
                "python": "3.12",
                "platform": "win_amd64",
                "stack": "other",
                "line": "nightly",
                "manifest_sha256": "1" * 64,
                "requirements": ("rocm==7",),
            }.items()
        ),
    ]
    assert len({whole.id, *(other.id for other in others)}) == len(others) + 1


def test_an_open_set_has_no_id(wheels: list[Path]) -> None:
    with pytest.raises(WheelError, match="the set is open"):
        _ = made(wheels).id


@pytest.mark.parametrize(
    "edit",
    [
        ('"size": 1,', '"size": 2,'),
        ('"mirrored"', '"published"'),
        ("gfx94X-dcgpu", "gfx110X-all"),
        ('"main"', '"mainx"'),
    ],
)
def test_a_sealed_set_that_was_edited_is_noticed(
    wheels: list[Path], tmp_path: Path, edit: tuple[str, str]
) -> None:
    path = tmp_path / "set.json"
    wheel_set.write(path, wheel_set.seal(made(wheels), [FILE]))
    assert edit[0] in path.read_text()
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(WheelError, match="changed"):
        wheel_set.read(path)


@pytest.mark.parametrize("closure", [[FILE, FILE], ["own"]])
def test_a_file_is_in_a_set_once(wheels: list[Path], closure: list[object]) -> None:
    given = [msgspec.structs.replace(FILE, file_name=wheels[1].name) if f == "own" else FILE for f in closure]
    with pytest.raises(WheelError, match="twice"):
        wheel_set.seal(made(wheels), given)


def test_what_is_written_is_read(wheels: list[Path], tmp_path: Path) -> None:
    wheel_set.write(tmp_path / "set.json", made(wheels))
    assert json.loads((tmp_path / "set.json").read_text())["schema"] == "cairn.set/2"
    assert wheel_set.read(tmp_path / "set.json") == made(wheels)


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
