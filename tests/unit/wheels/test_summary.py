from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.cli import wheel as command
from cairn.cli.main import guarded
from cairn.wheels.diff import Change, diff
from cairn.wheels.edit import Edit, apply
from cairn.wheels.summary import needed_tree, summarise

MakeWheel = Callable[..., Path]
MANYLINUX = ("cp311-cp311-manylinux_2_28_x86_64",)


@pytest.fixture
def linked(make_wheel: MakeWheel, make_elf: Callable[..., bytes], make_bundle: Callable[..., bytes]) -> Path:
    core = make_elf(soname="libcore.so.1", needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.28",)})
    code = make_elf(
        needed=("libcore.so.1", "libamdhip64.so.6"),
        runpath="$ORIGIN/lib",
        sections={".hip_fatbin": make_bundle({"gfx942": b"abc", "gfx1100": b"de"})},
    )
    other = make_elf(needed=("libcore.so.1",))
    ring = {f"demo/{x}.so": make_elf(soname=f"{x}.so", needed=(f"{y}.so",)) for x, y in ("ab", "ba")}
    return make_wheel(
        tags=MANYLINUX,
        pure=False,
        files={
            "demo/lib/libcore.so.1": core,
            "demo/_C.so": code,
            "demo/_D.so": other,
            "demo/x.py": b"1",
            **ring,
        },
    )


def cairn(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    return guarded(parser.parse_args(["wheel", *map(str, arguments)]))


def test_the_tree_shows_the_closure(linked: Path) -> None:
    assert list(needed_tree(summarise(linked))) == [
        "demo/_C.so",
        "├── libcore.so.1",
        "│   └── libc.so.6 (system)",
        "└── libamdhip64.so.6 (elsewhere)",
        "demo/_D.so",
        "└── libcore.so.1 (above)",
        "demo/a.so",
        "└── b.so",
        "    └── a.so (above)",
    ]


def test_the_summary_counts(linked: Path) -> None:
    summary = summarise(linked)
    assert summary.targets == ("gfx1100", "gfx942")
    code = next(library for library in summary.libraries if library.member == "demo/_C.so")
    assert (code.device_code_size, code.run_paths) == (5, ("$ORIGIN/lib",))
    assert summary.members == 12
    assert summary.unpacked_size > sum(library.size for library in summary.libraries)


def test_a_wheel_does_not_differ_from_itself(linked: Path) -> None:
    found = diff(linked, linked)
    assert found.fields == {}
    assert found.requirements == found.files == Change()
    assert (found.changed, found.modes, found.libraries, found.order) == ((), (), (), False)


def test_every_kind_of_difference_is_told(
    linked: Path, make_elf: Callable[..., bytes], tmp_path: Path
) -> None:
    new_core = make_elf(soname="libcore.so.1", needed=("libm.so.6",), versions={"libc.so.6": ("GLIBC_2.34",)})
    edit = Edit(
        version="2.0",
        add_requirements=("rocm==7.10.0",),
        remove_requirements=("triton",),
        replace_files={"demo/lib/libcore.so.1": new_core, "demo/_C.so": make_elf(needed=("libcore.so.1",))},
        remove_files=("demo/x.py",),
        add_files={"demo/y.py": b"2"},
    )
    found = diff(linked, apply(linked, edit, tmp_path / "out"))
    assert found.fields == {"version": ("1.0", "2.0")}
    assert found.requirements == Change(removed=("triton==3.5.0",), added=("rocm==7.10.0",))
    assert found.files == Change(removed=("demo/x.py",), added=("demo/y.py",))
    assert "demo-*.dist-info/METADATA" in found.changed
    assert "demo/lib/libcore.so.1" in found.changed
    code, core = found.libraries
    assert code.targets == Change(removed=("gfx1100", "gfx942"))
    assert code.needed == Change(removed=("libamdhip64.so.6",))
    assert core.needed == Change(removed=("libc.so.6",), added=("libm.so.6",))
    assert core.version_needs == Change(removed=("libc.so.6: GLIBC_2.28",), added=("libc.so.6: GLIBC_2.34",))


def test_show_for_people_and_programs(linked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cairn("show", linked) == 0
    text = capsys.readouterr().out
    assert "gfx1100, gfx942" in text
    assert "└── libamdhip64.so.6 (elsewhere)" in text
    assert cairn("show", "--json", linked) == 0
    (data,) = json.loads(capsys.readouterr().out)
    assert data["distribution"] == "demo"
    assert data["targets"] == ["gfx1100", "gfx942"]


def test_verify_lists_findings_and_fails(linked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = ("--provided", "libamdhip64.so*", "--provided", "?.so", "--targets", "gfx942,gfx1100")
    assert cairn("verify", *good, linked) == 0
    assert "good" in capsys.readouterr().out
    assert cairn("verify", *good, "--sibling", "triton=3.6.0", "--python", "3.12", linked) == 7
    text = capsys.readouterr().out
    assert "2 findings" in text
    assert "[sibling-not-exact]" in text
    assert "what to do: require triton==3.6.0" in text
    assert cairn("verify", "--json", linked) == 7
    assert [f["code"] for f in json.loads(capsys.readouterr().out)[str(linked)]] == ["needed"]
    assert cairn("verify", "--sibling", "triton", linked) == 2
    assert cairn("verify", "--targets", "gfx9999", linked) == 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--version", "3.0"), "demo-3.0"),
        (("--rocm-version", "7.10.0"), "demo-1.0+rocm7.10.0"),
        (("--version", "3.0", "--build-number", "2"), "demo-3.0-2"),
    ],
)
def test_set_version(
    linked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], name: str
) -> None:
    out = tmp_path / "out"
    require = ("--require", "triton==3.6.0", "--require", "rocm==7.10.0")
    assert cairn("set-version", *arguments, *require, "--output-dir", out, linked) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == out / f"{name}-{MANYLINUX[0]}.whl"
    assert summarise(path).requires_dist == ("triton==3.6.0", "filelock", "rocm==7.10.0")


def test_promotion_and_diff_on_the_command_line(
    make_wheel: MakeWheel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = make_wheel(version="1.0+rocm7.10.0a20260501")
    assert cairn("set-version", "--promote", "final", "--output-dir", tmp_path / "out", wheel) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == "demo-1.0+rocm7.10.0-py3-none-any.whl"
    assert cairn("diff", wheel, path) == 0
    assert "version: 1.0+rocm7.10.0a20260501 -> 1.0+rocm7.10.0\n" in capsys.readouterr().out
    assert cairn("diff", "--json", wheel, wheel) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == []
    assert cairn("diff", wheel, wheel) == 0
    assert capsys.readouterr().out == "no difference\n"


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("show", "missing.whl"), ("show", tmp_path / "demo-1-py3-none-any.whl")):
        assert cairn(*arguments) == 7
        assert capsys.readouterr().err.startswith("error: ")
