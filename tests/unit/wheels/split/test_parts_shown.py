"""What `wheel show`, `verify` and `diff` make of the parts of a split wheel."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cairn.cli.main import main
from cairn.wheels.contents.summary import summarise
from cairn.wheels.interface.difference import diff
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, MakeWheel, build_wheel, cairn_wheel, members_of

PAIR = "demo/.kpack/demo_gfx90a:sramecc+:xnack-.kpack"


def code(target: str, text: bytes = b"code") -> bytes:
    return make_code_object(target, text * 500)


FIRST = {target: code(target) for target in ("gfx942", "gfx90a:xnack-", "gfx90a:sramecc+")}
SECOND = {target: code(target, b"other") for target in ("gfx942", "gfx11-generic")}

Parts = Callable[..., dict[str, Path]]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    made: dict[tuple[object, ...], dict[str, Path]] = {}

    def make(
        first: Mapping[str, bytes] = FIRST, second: Mapping[str, bytes] = SECOND, where: str = "split"
    ) -> dict[str, Path]:
        key = (where, *first.items(), *second.items())
        if key in made:
            return made[key]
        files = {
            "demo/__init__.py": b"",
            "demo/lib/liba.so": make_hip_library([make_bundle(first, 2, 1)], [0, 0]),
            "demo/lib/libb.so": make_hip_library([make_bundle(second), make_bundle(first)]),
            "demo/kernels/k.hsaco": make_code_object("gfx942", b"of its own"),
        }
        folder = tmp_path_factory.mktemp(where)
        host, *devices = split(build_wheel(folder, files=files, tags=LINUX), folder / "split")
        names = (path.name.partition("-")[0].partition("_device_")[2].replace("_", "-") for path in devices)
        made[key] = {"host": host, **dict(zip(names, devices, strict=True))}
        return made[key]

    return make


def test_show_says_which_part_it_is_and_what_is_in_it(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    found = parts()
    host, device = summarise(found["host"]), summarise(found["gfx942"])
    assert (host.kind, host.targets, host.archives) == ("host", (), ())
    assert (device.kind, device.targets) == ("device", ("gfx942",))
    (archive,) = device.archives
    assert (archive.path, archive.scheme) == ("demo/.kpack/demo_gfx942.kpack", "zstd-per-kernel")
    assert (archive.targets, archive.code_objects) == (("gfx942",), 2)
    assert archive.code_size == len(FIRST["gfx942"]) + len(SECOND["gfx942"])
    assert archive.libraries == {"lib/liba.so": 2, "lib/libb.so": 2}
    features = ("gfx90a:sramecc+", "gfx90a:sramecc+:xnack-", "gfx90a:xnack-")
    assert summarise(found["gfx90a"]).targets == features
    # By this anyone sees that they belong together.
    (build,) = host.builds
    assert [summarise(part).builds for part in found.values()] == [(build,)] * 4
    other = parts({**FIRST, "gfx942": code("gfx942", b"new")}, where="other")
    assert [summarise(part).builds == (build,) for part in other.values()] == [False] * 4
    again = parts(where="again")
    assert [part.read_bytes() for part in again.values()] == [part.read_bytes() for part in found.values()]
    assert cairn_wheel("show", found["host"], found["gfx942"]) == 0
    out = capsys.readouterr().out
    for text in (
        "in wheels of its own, which the extras bring",
        "../.kpack/demo_@GFXARCH@.kpack",
        "nothing else, for a host wheel; verify tells if it is whole",
        "2, for 4 wrappers of 2 libraries",
        "demo/kernels/k.hsaco",
        build,
        "demo-device-gfx942==1.0 ; extra device-gfx942, device-gfx94x-dcgpu, device-all",
    ):
        assert text in out
    assert cairn_wheel("show", "--json", *found.values()) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in plain] == ["host", *["device"] * 3]
    assert [one["builds"] for one in plain] == [[build]] * 4
    assert plain[0]["libraries"][0]["kpack_search_paths"] == ["../.kpack/demo_@GFXARCH@.kpack"]
    assert [one["path"] for one in plain[1]["archives"]][1] == PAIR


def test_a_whole_wheel_is_neither(make_wheel: MakeWheel) -> None:
    library = make_hip_library([make_bundle(FIRST)])
    assert summarise(make_wheel(files={"demo/x.so": library}, tags=LINUX)).kind is None
    assert summarise(make_wheel()).kind is None
    alone = make_wheel(files={"demo/k.hsaco": code("gfx942")}, tags=LINUX)
    assert summarise(alone).kind == "device"


ALL = ("gfx942", "gfx90a:xnack-", "gfx90a:sramecc+", "gfx11-generic")


@pytest.mark.parametrize(
    ("targets", "part", "codes"),
    [
        *[(ALL, part, []) for part in ("gfx942", "gfx90a", "gfx11-generic")],
        (("gfx942", "gfx90a"), "host", []),
        # Only one of its libraries had generic code, which these GPUs run; neither had any for the last one.
        (ALL, "host", ["targets-missing"]),
        (("gfx942", "gfx1100"), "host", ["targets-missing"]),
        (("gfx942", "gfx1201"), "host", ["targets-missing"] * 3),
        (("gfx1100",), "gfx942", ["targets-unexpected"] * 2),
        (("cpu",), "gfx942", ["targets-unexpected"] * 2),
        (("gfx942", "gfx90a:xnack-"), "gfx90a", ["targets-unexpected"] * 2),
        (("gfx942", "gfx90a"), "gfx90a", ["targets-missing", *["targets-unexpected"] * 3]),
        ((*ALL, "gfx90a:xnack+"), "gfx90a", ["targets-missing"]),
        ((*ALL, "gfx950"), "gfx942", []),
    ],
)
def test_verify_knows_what_each_part_must_have(
    parts: Parts, targets: tuple[str, ...], part: str, codes: list[str]
) -> None:
    expected = Expectation(targets=targets, require_device_code=True)
    assert [finding.code for finding in verify(parts()[part], expected)] == codes


def test_generic_code_in_each_library_is_code_for_its_gpus(parts: Parts) -> None:
    host = parts(first=SECOND, where="generic")["host"]
    for targets in (("gfx942", "gfx1100"), ("gfx942", "gfx1102", "gfx11-generic")):
        assert not verify(host, Expectation(targets=targets, require_device_code=True))


def test_verify_refuses_a_library_whose_reference_is_malformed(parts: Parts, tmp_path: Path) -> None:
    host = parts()["host"]
    name = "demo/lib/liba.so"
    library = members_of(host)[name].replace(b"kernel_name", b"kernel_nane")
    bad = edit_wheel(host, Edit(replace_files={name: library}), tmp_path / "bad")
    assert [(f.code, f.member) for f in verify(bad, Expectation())] == [("binary-malformed", name)]


def test_diff_of_two_nights_names_no_device_wheel_that_both_have(parts: Parts, tmp_path: Path) -> None:
    found, more = parts(), parts(second={**SECOND, "gfx950": code("gfx950")}, where="more")
    wheels = [path for name, path in more.items() if name != "host"]
    assert not cairn_wheel(
        "set-version", "--version", "1.0.1", "--output-dir", tmp_path / "later", *more.values()
    )
    later = tmp_path / "later" / more["host"].name.replace("-1.0-", "-1.0.1-")
    change = diff(found["host"], later)
    assert change.fields["version"] == ("1.0", "1.0.1")
    extras = ("device-all", "device-gfx950", "device-gfx950-dcgpu")
    assert change.requirements.added == tuple(
        f'demo-device-gfx950==1.0.1 ; extra == "{extra}"' for extra in extras
    )
    assert change.requirements.removed == ()
    assert not diff(wheels[0], tmp_path / "later" / wheels[0].name.replace("-1.0-", "-1.0.1-")).requirements


def test_diff_tells_which_code_changed(parts: Parts, capsys: pytest.CaptureFixture[str]) -> None:
    one, same = parts(), parts(where="again")
    assert not diff(one["gfx942"], same["gfx942"]).archives
    changed = {**FIRST, "gfx942": code("gfx942", b"new")}
    other = parts(changed, where="other")
    (change,) = diff(one["gfx942"], other["gfx942"]).archives
    assert change.member == "demo/.kpack/demo_gfx942.kpack"
    assert change.changed == tuple(f"lib/{name} gfx942" for name in ("liba.so#0", "liba.so#1", "libb.so#1"))
    assert (change.same, bool(change.targets), bool(change.code)) == (1, False, False)
    assert main(["diff", str(one["gfx942"]), str(other["gfx942"])]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"~ code in {change.member}: lib/liba.so for gfx942: 2, of 4" in lines
    assert f"~ code in {change.member}: lib/libb.so for gfx942: 1, of 4" in lines
    fewer = parts(second=FIRST, first={"gfx942": code("gfx942")}, where="fewer")
    found = diff(one["gfx90a"], fewer["gfx90a"]).archives
    places = ("lib/liba.so#0", "lib/liba.so#1", "lib/libb.so#1")
    assert tuple(f"{place} gfx90a:xnack-" for place in places) in {one.code.removed for one in found}
    assert main(["diff", "--json", str(one["gfx90a"]), str(fewer["gfx90a"])]) == 0
    assert json.loads(capsys.readouterr().out)["archives"][0]["code"]["removed"]
