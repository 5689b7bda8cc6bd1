from __future__ import annotations

import re
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.formats.zip.layout import EscapingPathError, MissingMemberError
from cairn.formats.zip.reader import Archive
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify import Expectation, verify
from helpers.wheels import MakeWheel, altered, members_of, validated


def test_nothing_to_change_gives_the_same_members(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel()
    result = edit_wheel(wheel, Edit(), tmp_path / "out")
    assert result.name == wheel.name
    validated(result)
    assert members_of(result) == members_of(wheel)


def test_version_shows_everywhere(make_wheel: MakeWheel, tmp_path: Path) -> None:
    files = {
        "demo/__init__.py": b"",
        "demo-1.0.data/scripts/tool": b"#!python\n",
        "demo-1.0.data/data/a,b": b"x",
        "demo/demo-1.0.dist-info.txt": b"",
    }
    wheel = make_wheel(files=files, executables=("demo-1.0.data/scripts/tool",))
    before = wheel.read_bytes()
    result = edit_wheel(wheel, Edit(version="2.0+ROCM7.10.0-dev1"), tmp_path / "out")
    assert result.name == "demo-2.0+rocm7.10.0.dev1-py3-none-any.whl"
    info = validated(result)
    assert info.version == "2.0+rocm7.10.0.dev1"
    top = "demo-2.0+rocm7.10.0.dev1"
    assert members_of(result).keys() == {
        "demo/__init__.py",
        "demo/demo-1.0.dist-info.txt",
        f"{top}.data/scripts/tool",
        f"{top}.data/data/a,b",
        *(
            f"{top}.dist-info/{name}"
            for name in (
                "METADATA",
                "WHEEL",
                "RECORD",
                "entry_points.txt",
                "licenses/LICENSE",
                "sboms/a.cdx.json",
            )
        ),
    }
    assert b"\n\n# Demo \xc3\xa9\n\nVersion: not a header\n" in info.metadata
    assert b"X-Odd: kept\n" in info.metadata
    with Archive.open(result) as archive:
        assert archive.member(f"{top}.data/scripts/tool").executable
        assert archive.members[-1].name == f"{top}.dist-info/RECORD"
    assert wheel.read_bytes() == before


def test_build_and_tags(make_wheel: MakeWheel, tmp_path: Path) -> None:
    tags = ("cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux2014_x86_64")
    result = edit_wheel(make_wheel(), Edit(tags=tags, build="7"), tmp_path / "out")
    assert result.name == "demo-1.0-7-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    assert validated(result).build == "7"
    assert b"\nBuild: 7\n" in members_of(result)["demo-1.0.dist-info/WHEEL"]
    dropped = edit_wheel(result, Edit(build=""), tmp_path / "out2")
    assert validated(dropped).build is None
    assert b"Build" not in members_of(dropped)["demo-1.0.dist-info/WHEEL"]


def test_requirements(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel(
        requires=("Triton>=3; sys_platform == 'linux'", "triton==2; extra == 'old'", "numpy", "filelock")
    )
    edit = Edit(
        replace_requirements={"triton": "triton==3.5.0+rocm7"},
        remove_requirements=("NumPy",),
        add_requirements=("rocm[libraries]==7.10.0", "filelock"),
        add_extras=("device-gfx942", "fast"),
    )
    info = validated(edit_wheel(wheel, edit, tmp_path / "out"))
    assert info.requires_dist == ("triton==3.5.0+rocm7", "filelock", "rocm[libraries]==7.10.0")
    assert info.extras == ("fast", "device-gfx942")


def test_files(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel(
        files={"demo/a": b"1", "demo/b": b"2", "demo/tool": b"old"}, executables=("demo/tool",)
    )
    (tmp_path / "new-tool").write_bytes(b"new")
    edit = Edit(
        add_files={"demo/lib/c": b"3", "demo-1.0.dist-info/sboms/b.cdx.json": b"{}"},
        replace_files={"demo/tool": tmp_path / "new-tool"},
        remove_files=("demo/a",),
        version="1.1",
    )
    result = edit_wheel(wheel, edit, tmp_path / "out")
    validated(result)
    assert {"demo/lib/c", "demo/b", "demo-1.1.dist-info/sboms/b.cdx.json"} <= members_of(result).keys()
    assert "demo/a" not in members_of(result)
    with Archive.open(result) as archive:
        assert archive.read("demo/tool") == b"new"
        assert archive.member("demo/tool").executable


def test_the_same_edit_gives_the_same_bytes(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel, edit = make_wheel(), Edit(version="3", add_files={"z": b"1", "y": b"2"})
    first = edit_wheel(wheel, edit, tmp_path / "a").read_bytes()
    assert edit_wheel(wheel, edit, tmp_path / "b").read_bytes() == first


@pytest.mark.parametrize(
    "edit",
    [
        Edit(version="not a version"),
        Edit(tags=("py3",)),
        Edit(tags=("py3-none-any", "py2-abi3-any")),
        Edit(tags=()),
        Edit(build="x1"),
        Edit(add_requirements=("==",)),
        Edit(replace_requirements={"triton": "torch==1"}),
        Edit(replace_requirements={"numpy": "numpy==1"}),
        Edit(remove_requirements=("numpy",)),
        Edit(add_files={"demo/__init__.py": b""}),
        Edit(add_files={"demo-1.0.dist-info/METADATA": b""}),
        Edit(replace_files={"demo-1.0.dist-info/WHEEL": b""}),
        Edit(remove_files=("demo-1.0.dist-info/RECORD",)),
        # What would write lines of its own, or leave the folder.
        Edit(build="1\nTag: x"),
        Edit(build="1\rTag: x"),
        Edit(build="1/../../elsewhere"),
        Edit(build="1 2"),
        Edit(build="9" * 5000),
        Edit(version="1.0\n"),
        Edit(version="1.0\nName: other"),
        Edit(tags=("py3-none-any\nRoot-Is-Purelib: true",)),
        Edit(tags=("py3-none-../../x",)),
        Edit(tags=("py3--any",)),
        Edit(add_requirements=('a; extra == "x\nVersion: 9"',)),
        Edit(add_requirements=("a @ https://example.org/a.whl\nVersion:9",)),
        Edit(replace_requirements={"triton": 'triton; extra == "x\x85y"'}),
        Edit(add_extras=("fast\nRequires-Dist: evil",)),
        Edit(add_extras=("two words",)),
    ],
)
def test_what_cannot_be_meant_is_refused(make_wheel: MakeWheel, tmp_path: Path, edit: Edit) -> None:
    with pytest.raises(WheelError):
        edit_wheel(make_wheel(), edit, tmp_path / "deep" / "out")
    assert [path.name for path in tmp_path.rglob("*.whl")] == ["demo-1.0-py3-none-any.whl"]
    assert not list((tmp_path / "deep" / "out").glob("*"))


def test_missing_and_escaping_files_are_refused(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel()
    for edit in (Edit(replace_files={"nope": b""}), Edit(remove_files=("nope",))):
        with pytest.raises(MissingMemberError):
            edit_wheel(wheel, edit, tmp_path / "out")
    with pytest.raises(EscapingPathError):
        edit_wheel(wheel, Edit(add_files={"../x": b""}), tmp_path / "out")


def test_a_wheel_whose_record_lies_is_not_carried_on(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = altered(make_wheel(), {"demo/unlisted.py": b""})
    with pytest.raises(WheelError, match=r"is wrong: demo/unlisted\.py is not listed"):
        edit_wheel(wheel, Edit(version="2"), tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["demo/__init__.py", "demo-1.0.dist-info/METADATA", "demo-1.0.dist-info/WHEEL"]
)
@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_no_edit_vouches_for_a_file_that_is_not_what_record_says(
    make_wheel: MakeWheel, tmp_path: Path, name: str, how: str
) -> None:
    wheel = make_wheel()
    altered(wheel, {name: lambda data: data.rstrip(b"\n") + b" \n"})
    code = {"demo/__init__.py": b"VALUE = 2\n"}
    edit = Edit(version="2", replace_files=code) if how == "replaced" else Edit(remove_files=tuple(code))
    with pytest.raises(WheelError, match=f"RECORD of demo-1.0-py3-none-any.whl is wrong: {name} has"):
        edit_wheel(wheel, edit, tmp_path / "out")
    assert not [*tmp_path.glob("out/*.whl")]


@pytest.mark.parametrize("size", [0, 1000])
def test_no_edit_vouches_for_a_file_of_another_size(make_wheel: MakeWheel, tmp_path: Path, size: int) -> None:
    def lie(record: bytes) -> bytes:
        return re.sub(rb"(?m)^(demo/__init__\.py,[^,]*),\d+", rb"\1,%d" % size, record)

    wheel = altered(make_wheel(), {"demo-1.0.dist-info/RECORD": lie})
    with pytest.raises(WheelError, match=f"demo/__init__.py has [0-9]+ bytes, not {size}"):
        edit_wheel(wheel, Edit(replace_files={"demo/__init__.py": b""}), tmp_path / "out")


def test_the_input_is_never_its_own_output(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    before = wheel.read_bytes()
    with pytest.raises(WheelError, match="own source"):
        edit_wheel(wheel, Edit(add_files={"x": b""}), wheel.parent)
    assert wheel.read_bytes() == before


def test_signatures_of_the_old_record_are_gone(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = altered(make_wheel(), {"demo-1.0.dist-info/RECORD.jws": b"{}"})
    made = edit_wheel(wheel, Edit(version="2.0"), tmp_path / "out")
    assert not [name for name in members_of(made) if name.endswith(".jws")]
    assert verify(made, Expectation()) == ()


@pytest.mark.parametrize(
    "tag",
    [
        "py3.py2-none-any",
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp312.cp311-abi3.none-win_amd64",
    ],
)
def test_the_order_of_compressed_tags_stays(make_wheel: MakeWheel, tmp_path: Path, tag: str) -> None:
    built = make_wheel(tags=wheel_info.expand_tags(tag))
    wheel = built.rename(built.with_name(f"demo-1.0-01-{tag}.whl"))
    made = edit_wheel(wheel, Edit(version="1.1"), tmp_path / "out")
    assert made.name == f"demo-1.1-01-{tag}.whl"


def test_tags_that_replace_others_come_in_the_order_of_the_old_ones(
    make_wheel: MakeWheel, tmp_path: Path
) -> None:
    built = make_wheel(tags=("py3-none-linux_x86_64", "py2-none-linux_x86_64"))
    wheel = built.rename(built.with_name("demo-1.0-py3.py2-none-linux_x86_64.whl"))
    edit = Edit(tags=("py2-none-manylinux_2_28_x86_64", "py3-none-manylinux_2_28_x86_64"))
    assert edit_wheel(wheel, edit, tmp_path / "out").name == "demo-1.0-py3.py2-none-manylinux_2_28_x86_64.whl"
