"""A split of which something is missing, is too many, or is of another build is told by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import WheelError
from cairn.formats.kpack import Archive, builds_in, kernel_name_of, without_build, writing
from cairn.formats.view import BytesView
from cairn.wheels.rewrite.set_version import set_versions
from cairn.wheels.rewrite.version_options import NewVersion
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.completeness import problems
from cairn.wheels.split.device_wheel import Terms
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, build_wheel, cairn_wheel, members_of

TARGETS = ("gfx90a:xnack+", "gfx90a", "gfx942")
ARCHIVE = "demo/.kpack/demo_gfx942.kpack"
RECORD = "demo-1.0.dist-info/cairn-split.json"

Edited = Callable[[Path, Path], Path]


def whole(folder: Path, seed: bytes = b"") -> Path:
    bundles = [
        make_bundle({t: make_code_object(t, seed + bytes([n + 1]) * 500) for t in TARGETS}, *kind)
        for n, kind in enumerate([(0, 0), (2, 1)])
    ]
    files = {
        "demo/lib/libdemo.so": make_hip_library(bundles, [0, 1, 0]),
        "top.so": make_hip_library(bundles[:1]),
        "demo/k.hsaco": make_code_object("gfx942", seed + b"alone"),
    }
    return build_wheel(folder, tags=LINUX, files=files)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    return list(split(whole(folder), folder / "split", Terms(runtime="7.14")))


def edited(wheel: Path, folder: Path, **changes: object) -> Path:
    return edit_wheel(wheel, Edit(**changes), folder / "edited")  # type: ignore[arg-type]


def rewritten(wheel: Path, folder: Path, change: Callable[[dict[tuple[str, str], bytes]], object]) -> Path:
    """A device wheel whose archive has other entries."""
    archive = Archive.open(BytesView(members_of(wheel)[ARCHIVE]), "x")
    (build,) = builds_in(archive.table.toc)
    places = {(without_build(key), target): entry for (key, target), entry in archive.entries.items()}
    entries = {place: archive.read(entry) for place, entry in places.items()}
    change(entries)
    path = folder / "new.kpack"
    with writing(path, group="demo", family="gfx942", targets=["gfx942"]) as made:
        for (key, target), code in entries.items():
            name, _, ordinal = key.rpartition("#")
            made.name(kernel_name_of(name, build), int(ordinal), target, made.add([code], len(code)))
    return edited(wheel, folder, replace_files={ARCHIVE: path})


def with_record(host: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    record = json.loads(members_of(host)[RECORD])
    change(record)
    return edited(host, folder, replace_files={RECORD: json.dumps(record).encode()})


def parts_in(record: dict[str, Any]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = record["libraries"][0]["parts"]
    return found


FIRST = ("lib/libdemo.so#0", "gfx942")
DEVICE = "demo_device_gfx942-1.0.dist-info"
DIFFERENT = "demo/lib/libdemo.so looks for different code than its cairn-split.json says"
ELSEWHERE = "demo/.kpack/d_@GFXARCH@.kpack"
REQUIRED = 'demo-device-gfx950==1.0; extra == "device-gfx950"'
PINNED = 'demo-device-gfx942==1.0 ; extra == "device-gfx942"'
# By what is done to the host wheel or to the last device wheel: what is said then.
IN_HOST: dict[str, tuple[Edited, str]] = {
    "an extra too many": (
        lambda w, f: edited(w, f, add_extras=("device-gfx950",)),
        "has the extra device-gfx950, for which nothing was split",
    ),
    "an extra less": (
        lambda w, f: edited(w, f, remove_extras=("device-gfx942",)),
        "lacks the extra device-gfx942",
    ),
    "device-all is not their union": (
        lambda w, f: with_record(w, f, lambda r: r["extras"].update({"device-all": ["gfx942"]})),
        "extras that are not those of its device wheels",
    ),
    "a requirement too many": (
        lambda w, f: edited(w, f, add_requirements=(REQUIRED,)),
        "requires demo-device-gfx950==1.0",
    ),
    "a requirement of another version": (
        lambda w, f: edited(w, f, rewrite_requirements={PINNED: PINNED.replace("1.0", "1.1")}),
        "does not require demo-device-gfx942==1.0",
    ),
    "a library that was edited": (
        lambda w, f: edited(w, f, replace_files={"top.so": b"x"}),
        "top.so is not the library",
    ),
    "a file of a device wheel": (
        lambda w, f: edited(w, f, add_files={"demo/k.hsaco": b"x"}),
        "has demo/k.hsaco itself, which belongs into a device wheel",
    ),
    "a record without a library": (lambda w, f: with_record(w, f, lambda r: r["libraries"].pop()), DIFFERENT),
    "a record without a wrapper": (
        lambda w, f: with_record(w, f, lambda r: parts_in(r)[0].update(wrappers=[0])),
        DIFFERENT,
    ),
    "a record of a different place": (
        lambda w, f: with_record(w, f, lambda r: r["libraries"][1].update(archives=ELSEWHERE)),
        DIFFERENT.replace("demo/lib/libdemo.so", "top.so"),
    ),
}
IN_DEVICE: dict[str, tuple[Edited, str]] = {
    "another version": (
        lambda w, f: edited(w, f, version="1.1"),
        "does not require demo==1.0|which it was split from",
    ),
    "no pin": (lambda w, f: edited(w, f, remove_requirements=("demo",)), "does not require demo==1.0"),
    "an archive less": (lambda w, f: edited(w, f, remove_files=(ARCHIVE,)), rf"lacks {ARCHIVE}"),
    "a kernel less": (
        lambda w, f: rewritten(w, f, lambda e: e.pop(FIRST)),
        "lacks the code for gfx942 of lib/libdemo.so#0",
    ),
    "a kernel too many": (
        lambda w, f: rewritten(w, f, lambda e: e.update({("x.so#0", "gfx942"): b"x"})),
        "has code for gfx942 of x.so#0, which was not split",
    ),
    "another wrapper's kernel": (
        lambda w, f: rewritten(w, f, lambda e: e.update({FIRST: e["lib/libdemo.so#1", "gfx942"]})),
        "code of a different build for gfx942 of lib/libdemo.so#0",
    ),
    "a file less": (lambda w, f: edited(w, f, remove_files=("demo/k.hsaco",)), "lacks demo/k.hsaco"),
    "a file of another build": (
        lambda w, f: edited(w, f, replace_files={"demo/k.hsaco": b"x"}),
        "has demo/k.hsaco of a different build",
    ),
    "a file too many": (
        lambda w, f: edited(w, f, add_files={"demo/more.hsaco": b"x"}),
        "has demo/more.hsaco, which was not split",
    ),
    "an archive that is none": (
        lambda w, f: edited(w, f, replace_files={ARCHIVE: b"KPAK"}),
        "is not a kpack archive",
    ),
    "an entry point": (
        lambda w, f: edited(w, f, add_files={f"{DEVICE}/entry_points.txt": b"[a]\nx = y\n"}),
        "has .*entry_points.txt, which was not split",
    ),
    "a module named as METADATA is": (
        lambda w, f: edited(w, f, add_files={"METADATA": b"x"}),
        "has METADATA, which was not split",
    ),
    "a requirement that no device wheel has": (
        lambda w, f: edited(w, f, add_requirements=("rocm-sdk-device-gfx950==1.0",)),
        "requires rocm-sdk-device-gfx950==1.0, as no device wheel does",
    ),
}


def test_a_whole_split_has_no_problem(parts: list[Path]) -> None:
    assert list(problems(parts)) == []
    assert list(problems(parts[::-1], rocm="7.14.0a20261001")) == []


def assert_told(wheels: list[Path], said: str) -> None:
    found = list(problems(wheels))
    assert any(re.search(said, problem) for problem in found), found


@pytest.mark.parametrize("fault", IN_HOST)
def test_each_fault_in_the_host_wheel_is_told(parts: list[Path], tmp_path: Path, fault: str) -> None:
    change, said = IN_HOST[fault]
    assert_told([change(parts[0], tmp_path), *parts[1:]], said)


@pytest.mark.parametrize("fault", IN_DEVICE)
def test_each_fault_in_a_device_wheel_is_told(parts: list[Path], tmp_path: Path, fault: str) -> None:
    change, said = IN_DEVICE[fault]
    assert_told([*parts[:-1], change(parts[-1], tmp_path)], said)


def test_a_part_that_is_missing_is_told(parts: list[Path]) -> None:
    assert_told(parts[:-1], r"demo-device-gfx942 is missing, which demo\[device-gfx942\]")
    assert_told(parts[1:], "device wheel, and no wheel beside it")


def test_an_archive_in_the_host_wheel_is_told(parts: list[Path], tmp_path: Path) -> None:
    host = edited(parts[0], tmp_path, add_files={ARCHIVE: members_of(parts[-1])[ARCHIVE]})
    assert_told([host, *parts[1:]], f"has {ARCHIVE} itself, which belongs into a device wheel")


def test_device_wheels_of_another_build_are_told(parts: list[Path], tmp_path: Path) -> None:
    other = split(whole(tmp_path, b"other"), tmp_path / "other")
    found = "\n".join(problems([parts[0], *other[1:]]))
    for target in ("gfx90a:xnack+", "gfx90a", "gfx942"):
        for key in ("lib/libdemo.so#0", "lib/libdemo.so#1", "lib/libdemo.so#2", "top.so#0"):
            assert f"code of a different build for {target} of {key}" in found
    assert "has demo/k.hsaco of a different build" in found


def test_verify_compares_parts_that_are_given_together(
    parts: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cairn_wheel("verify", *parts) == 0
    assert cairn_wheel("verify", parts[0], parts[1]) == 0
    other = split(whole(tmp_path, b"other"), tmp_path / "other")
    capsys.readouterr()
    assert cairn_wheel("verify", parts[0], parts[1], other[2]) != 0
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == [f"{path.name}: good" for path in parts[:2]] + [f"{other[2].name}: 5 findings"]
    said = f"  [split-differs] {other[2].name} has code of a different build for gfx942 of lib/libdemo.so#0"
    assert said in out
    # What is of a different version is not compared: its pin says that it belongs to another host wheel.
    later = set_versions(parts, NewVersion(version="1.1"), tmp_path / "later")
    assert cairn_wheel("verify", parts[0], later[2].target) != 0
    out = capsys.readouterr().out
    assert "requirement-unmet" in out
    assert "split-differs" not in out
    bad = edited(parts[0], tmp_path, replace_files={RECORD: b"{}"})
    assert cairn_wheel("verify", bad, parts[1]) != 0
    out = capsys.readouterr().out
    assert "[split-differs] demo-1.0.dist-info/cairn-split.json" in out
    assert out.count("[split-differs]") == 1
    # What cannot be read is said once.
    (tmp_path / parts[0].name).write_bytes(b"")
    assert cairn_wheel("verify", tmp_path / parts[0].name, parts[1]) != 0
    assert "split-differs" not in capsys.readouterr().out


def test_a_split_under_another_version_is_whole(parts: list[Path], tmp_path: Path) -> None:
    wanted = NewVersion(version="1.1+rocm7.14.0")
    made = set_versions(parts, wanted, tmp_path / "renamed")
    assert list(problems([each.target for each in made])) == []


def test_a_stack_knows_the_floor_better_than_a_host_wheel(parts: list[Path], tmp_path: Path) -> None:
    for said in (None, "6.0", "7.9"):
        host = with_record(parts[0], tmp_path, lambda record: record.update(runtime=said))  # noqa: B023
        wheels = [host, *parts[1:]]
        assert list(problems(wheels, rocm="7.13.0")) == []
        (problem,) = problems(wheels, rocm="7.13.0", floor="7.14")
        assert "finds its code on ROCm 7.14 or later, not on 7.13.0" in problem


def test_verify_compares_a_host_wheel_with_its_record(parts: list[Path], tmp_path: Path) -> None:
    expected = Expectation(targets=("gfx90a:xnack+", "gfx90a", "gfx942"))
    assert not verify(parts[0], expected)
    less = with_record(parts[0], tmp_path, lambda record: record["libraries"].pop())
    assert [(f.code, f.member) for f in verify(less, expected)] == [("split-differs", "top.so")]

    def for_one(record: dict[str, Any]) -> None:
        record["libraries"][1]["parts"][0]["codes"].pop()

    partial = with_record(parts[0], tmp_path, for_one)
    for asked in (expected, Expectation(targets=("cpu",), split_targets=("gfx942",))):
        found = [(f.code, f.member) for f in verify(partial, asked)]
        assert found == [("targets-missing", "top.so")]
    assert not verify(partial, Expectation(targets=("cpu",)))
    bad = edited(parts[0], tmp_path, replace_files={RECORD: b"{}"})
    assert [(f.code, f.member) for f in verify(bad, expected)] == [("split-differs", RECORD)]


@pytest.mark.parametrize("rocm", ["7.13.0", "7.13.9rc1", "6.4"])
def test_a_rocm_that_finds_no_code_is_told(parts: list[Path], rocm: str) -> None:
    (said,) = problems(parts, rocm=rocm)
    assert f"finds its code on ROCm 7.14 or later, not on {rocm}" in said


def test_a_record_that_cannot_be_read_is_refused(parts: list[Path], tmp_path: Path) -> None:
    bad = edited(parts[0], tmp_path, replace_files={RECORD: b"{}"})
    with pytest.raises(WheelError, match=r"cairn-split\.json"):
        list(problems([bad, *parts[1:]]))
