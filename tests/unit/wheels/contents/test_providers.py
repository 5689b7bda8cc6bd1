"""What wheels that are installed together bring each other."""

from pathlib import Path

import pytest

from cairn.errors import UsageError, WheelError
from cairn.wheels.contents.providers import supplies
from helpers.formats import make_elf
from helpers.wheels import LINUX, build_wheel, cairn_wheel


@pytest.fixture
def stack(tmp_path: Path) -> dict[str, Path]:
    """A torch, an audio that requires it, and a vision that requires it by way of audio, or as an extra."""

    def make(name: str, needed: str, *requires: str) -> Path:
        needs = (needed, "libc.so.6")
        binary = make_elf(soname=f"lib{name}.so", needed=needs, runpath="$ORIGIN/../torch")
        files = {f"{name}/lib{name}.so": binary}
        return build_wheel(tmp_path / "a b é", name=name, tags=LINUX, requires=requires, files=files)

    return {
        "torch": make("torch", "libamdhip64.so.6", "rocm==7.10"),
        "audio": make("audio", "libtorch.so", "Torch == 1.0"),
        "vision": make("vision", "libtorch.so", "audio==1.0"),
        "text": make("text", "libtorch.so", "torch==1.0; extra == 'fa-st'"),
        # A project without files may name others by its extras alone, as cuda-toolkit does for PyTorch.
        "tune": make("tune", "libtorch.so", "text[none]", "text[Fa_st]"),
    }


def test_a_wheel_is_given_what_it_requires_and_nothing_else(stack: dict[str, Path]) -> None:
    given = supplies([*stack.values()])
    assert {path.name.partition("-")[0]: supply.libraries for path, supply in given.items()} == {
        "torch": (),
        "audio": ("libtorch.so",),
        "vision": ("libaudio.so", "libtorch.so"),
        "text": (),
        "tune": ("libtext.so", "libtorch.so"),
    }


def test_a_folder_supplies_all(stack: dict[str, Path], tmp_path: Path) -> None:
    files = {"_rocm/lib/libamdhip64.so.6": make_elf()}
    build_wheel(tmp_path / "sdk", name="rocm_core", tags=LINUX, files=files)
    (tmp_path / "sdk" / "rocm-7.10.tar.gz").touch()
    given = supplies([stack["torch"], stack["audio"]], folders=[tmp_path / "sdk"])
    assert [supply.libraries for supply in given.values()] == [
        ("libamdhip64.so.6",),
        ("libamdhip64.so.6", "libtorch.so"),
    ]


def test_a_version_that_is_not_required_supplies_nothing(
    stack: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"torch/libtorch.so": make_elf(soname="libtorch.so", needed=("libc.so.6",))}
    other = build_wheel(tmp_path, name="torch", version="2.0", tags=LINUX, requires=(), files=files)
    supply = supplies([other, stack["audio"]])[stack["audio"]]
    assert supply.libraries == ()
    assert supply.versions == {"torch": ("2.0",), "audio": ("1.0",)}
    assert supplies([other, stack["torch"], stack["audio"]])[stack["audio"]].libraries == ("libtorch.so",)
    assert cairn_wheel("verify", other, stack["audio"]) == 7
    text = capsys.readouterr().out
    assert "[needed] audio/libaudio.so: it needs libtorch.so: not in the wheel" in text
    assert "[requirement-unmet]" in text
    assert "it requires Torch==1.0, but is installed with 2.0" in text


def test_a_folder_supplies_no_version_that_a_requirement_excludes(
    stack: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def put(version: str) -> None:
        binary = make_elf(soname="libtorch.so", needed=("libc.so.6",))
        build_wheel(
            tmp_path / "sdk", name="torch", version=version, tags=LINUX, files={"torch/libtorch.so": binary}
        )

    put("2.0")
    assert cairn_wheel("verify", stack["audio"], "--find-links", tmp_path / "sdk") == 7
    text = capsys.readouterr().out
    assert "[needed] audio/libaudio.so: it needs libtorch.so: not in the wheel" in text
    assert "it requires Torch==1.0, but is installed with 2.0" in text
    put("1.0")
    assert cairn_wheel("verify", stack["audio"], "--find-links", tmp_path / "sdk") == 0


def test_requirements_that_were_not_given_are_named(
    stack: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("verify", stack["audio"]) == 7
    assert "not given: torch, which it requires" in capsys.readouterr().out


def test_broken_wheels_supply_nothing_when_named_and_are_refused_in_a_folder(
    stack: dict[str, Path], tmp_path: Path
) -> None:
    broken = tmp_path / "odd" / stack["torch"].name
    broken.parent.mkdir()
    broken.write_bytes(stack["torch"].read_bytes()[:-30])
    given = supplies([broken, stack["audio"]])
    assert {path: supply.libraries for path, supply in given.items()} == {broken: (), stack["audio"]: ()}
    with pytest.raises(WheelError, match=broken.name):
        supplies([stack["audio"]], folders=[broken.parent])
    with pytest.raises(UsageError, match="no folder"):
        supplies([stack["audio"]], folders=[tmp_path / "none"])


def test_requirements_may_go_in_a_circle(tmp_path: Path) -> None:
    pair = [
        build_wheel(tmp_path, name=a, tags=LINUX, requires=(b,), files={f"{a}.so": make_elf()})
        for a, b in ("xy", "yx")
    ]
    assert [supply.libraries for supply in supplies(pair).values()] == [("y.so",), ("x.so",)]


def test_verify_of_several_wheels(
    stack: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheels = [stack["torch"], stack["audio"]]
    assert cairn_wheel("verify", *wheels) == 7
    text = capsys.readouterr().out
    assert "it needs libamdhip64.so.6: not in the wheel" in text
    assert "it needs libtorch.so" not in text
    files = {"_rocm/lib/libamdhip64.so.6": make_elf()}
    build_wheel(tmp_path / "sdk", name="rocm_core", tags=LINUX, files=files)
    assert cairn_wheel("verify", "--find-links", tmp_path / "sdk", *wheels) == 0
    with pytest.raises(SystemExit):
        cairn_wheel("verify", "--find-links", tmp_path / "none", *wheels)
    assert f"there is no folder {tmp_path / 'none'}" in capsys.readouterr().err
