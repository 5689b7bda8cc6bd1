"""Device code split from wheels and joined again."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.kpack import Archive, without_build, writing
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object as offload_code_object
from cairn.formats.offload import record
from cairn.formats.view import BytesView
from cairn.targets import parse_target_id
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split import device_wheel
from cairn.wheels.split.join import join, write_variant
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object, make_dll, make_elf
from helpers.hip_library import make_hip_library
from helpers.wheels import (
    LINUX,
    MakeWheel,
    altered,
    build_wheel,
    lie_about_new_files,
    members_of,
)

BODIES = {
    "gfx942": random.Random(1).randbytes(9000),  # noqa: S311 - fixed content is the point
    "gfx90a:xnack+": b"code with xnack" * 300,
    "gfx90a:xnack-": b"code without" * 300,
    "gfx9-4-generic": b"for several" * 99,
}
CODES = {target: make_code_object(target, body) for target, body in BODIES.items()}
ALONE = make_code_object("gfx942", b"only one")
TARGETS = ("gfx90a:xnack+", "gfx90a:xnack-", "gfx9-4-generic", "gfx942")
PROCESSORS = ("gfx90a", "gfx9-4-generic", "gfx942")
KINDS = [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1)]


def codes(library: bytes, folder: Path) -> dict[tuple[int, str], bytes]:
    view = BytesView(library)
    found = {}
    for start, end in offload_code_object.ranges(elf.read(library)):
        for bundle in offload_bundle.read_range(view, start, end):
            with record.unpacking(view, bundle, folder) as content:
                for entry in bundle.device_entries:
                    found[bundle.at, entry.id] = b"".join(content.code(entry))
    return found


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    many = [make_bundle(CODES, *kind) for kind in KINDS]
    files = {
        "demo/__init__.py": b"VALUE = 1\n",
        "demo/lib/libplain.so": make_hip_library([make_bundle(CODES)], [0, 0]),
        "demo/lib/libmany é.so": make_hip_library(many, relocations="relr"),
        "demo/lib/deep/libdeep.so": make_hip_library([make_bundle({"gfx942": ALONE})]),
        "top.so": make_hip_library([make_bundle({"gfx942": ALONE})]),
        "demo/lib/libhost.so": make_elf(needed=("libplain.so",)),
        "demo/kernels/k.hsaco": make_code_object("gfx942", b"of its own"),
        "demo-1.0.data/platlib/demo_extra.so": make_hip_library([make_bundle({"gfx942": ALONE}, 2, 1)]),
    }
    return build_wheel(tmp_path_factory.mktemp("original"), tags=LINUX, files=files)


@pytest.fixture(scope="module")
def parts(original: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return split(original, tmp_path_factory.mktemp("parts"))


def test_a_host_wheel_and_one_for_each_processor(original: Path, parts: tuple[Path, ...]) -> None:
    host, *devices = parts
    assert host.name == original.name
    assert [path.name.split("-")[0] for path in devices] == [
        "demo_device_gfx90a",
        "demo_device_gfx9_4_generic",
        "demo_device_gfx942",
    ]
    assert binaries.targets_of(host) == ()
    of_devices = [binaries.targets_of(path) for path in devices]
    assert of_devices == [("gfx90a:xnack+", "gfx90a:xnack-"), ("gfx9-4-generic",), ("gfx942",)]
    info = wheel_info.read(host)
    extras = [f"device-{name}" for name in (*PROCESSORS, "gfx94x-dcgpu", "all")]
    assert info.extras == ("fast", *extras)
    assert 'demo-device-gfx90a==1.0 ; extra == "device-gfx90a"' in info.requires_dist
    for path in parts:
        targets = ("cpu",) if path == host else None
        findings = verify(path, Expectation(targets=targets, split_targets=("gfx942",), python="3.11"))
        assert [(f.code, f.member) for f in findings] == []
    assert wheel_info.read(devices[0]).requires_dist == ("demo==1.0",)
    assert "demo/kernels/k.hsaco" not in members_of(host)
    assert {name for name in members_of(devices[2]) if "dist-info" not in name} == {
        "demo/kernels/k.hsaco",
        "demo/.kpack/demo_gfx942.kpack",
        ".kpack/demo_gfx942.kpack",
    }
    assert {name for name in members_of(devices[0]) if "dist-info" not in name} == {
        "demo/.kpack/demo_gfx90a:xnack+.kpack",
        "demo/.kpack/demo_gfx90a:xnack-.kpack",
    }
    assert "demo_device_gfx942-1.0.dist-info/licenses/LICENSE" in members_of(devices[2])


@pytest.mark.parametrize(
    "write",
    [
        lambda original, _, out: split(original, out),
        lambda _, parts, out: join(parts[0], parts[1:], out),
        lambda _, parts, out: write_variant(parts[0], parts[-1], out),
    ],
)
def test_a_worse_wheel_is_not_left(
    original: Path,
    parts: tuple[Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[..., object],
) -> None:
    lie_about_new_files(monkeypatch)
    with pytest.raises(WheelError, match=r"would be worse .*\[record-hash\]"):
        write(original, parts, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def row_of(archive: Archive, key: str) -> dict[str, bytes]:
    return {target: archive.read(entry) for target, entry in archive.table.toc[key].items()}


def test_each_archive_has_all_code_of_its_target(parts: tuple[Path, ...]) -> None:
    found = members_of(parts[3])
    archive = Archive.open(BytesView(found["demo/.kpack/demo_gfx942.kpack"]), "x")
    assert archive.table.gfx_arches == ("gfx942",)
    keys = {f"lib/libplain.so#{n}" for n in range(2)} | {f"lib/libmany é.so#{n}" for n in range(5)}
    named = {without_build(key): key for key in archive.table.toc}
    assert named.keys() == keys | {"lib/deep/libdeep.so#0"}
    for key in keys:
        assert row_of(archive, named[key]) == {"gfx942": CODES["gfx942"]}
    # The same code in six bundles of two libraries, and what one library has alone.
    assert len(archive.places) == 2
    top = Archive.open(BytesView(found[".kpack/demo_gfx942.kpack"]), "x")
    assert {without_build(key): row_of(top, key) for key in top.table.toc} == {
        "top.so#0": {"gfx942": ALONE},
        "demo_extra.so#0": {"gfx942": ALONE},
    }


@pytest.mark.parametrize(
    ("path", "leads", "name", "where"),
    [
        ("demo/lib/libplain.so", "../.kpack/", "lib/libplain.so", "demo/.kpack/"),
        ("demo/lib/deep/libdeep.so", "../../.kpack/", "lib/deep/libdeep.so", "demo/.kpack/"),
        ("demo/x.so", ".kpack/", "x.so", "demo/.kpack/"),
        ("top.so", ".kpack/", "top.so", ".kpack/"),
        (".data/platlib/top.so", ".kpack/", "top.so", ".kpack/"),
        (".data/purelib/demo/lib/x.so", "../.kpack/", "lib/x.so", "demo/.kpack/"),
        (".data/data/lib/x.so", ".kpack/", "x.so", ".data/data/lib/.kpack/"),
        # uv takes no folder among scripts, which go to `bin`.
        (".data/scripts/run", ".kpack/", "run", ".data/data/bin/.kpack/"),
    ],
)
def test_where_a_library_looks(parts: tuple[Path, ...], path: str, leads: str, name: str, where: str) -> None:
    place = device_wheel.Place(wheel_info.read(parts[0]), path)
    reference = place.reference("0123456789abcdef")
    assert reference.kpack_search_paths == (f"{leads}demo_@GFXARCH@.kpack",)
    assert reference.kernel_name == f"{name}@0123456789abcdef"
    assert place.archives == f"{where}demo_@GFXARCH@.kpack"


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [
        ("gfx942", "gfx942"),
        ("gfx90a gfx90a:xnack+", "gfx90a gfx90a:xnack+"),
        ("gfx90a:sramecc+ gfx90a:xnack-", "gfx90a:sramecc+ gfx90a:sramecc+:xnack- gfx90a:xnack-"),
        ("gfx90a:xnack+ gfx90a:xnack-", "gfx90a:xnack+ gfx90a:xnack-"),
        (
            "gfx90a:sramecc+ gfx90a:xnack- gfx90a:xnack+",
            "gfx90a:sramecc+ gfx90a:sramecc+:xnack+ gfx90a:sramecc+:xnack- gfx90a:xnack+ gfx90a:xnack-",
        ),
        ("gfx9-4-generic gfx942", "gfx9-4-generic gfx942"),
        ("gfx9-4-generic:xnack+ gfx942", "gfx9-4-generic:xnack+ gfx942 gfx942:xnack+"),
        ("gfx942:xnack+ gfx90a:sramecc+", "gfx90a:sramecc+ gfx942:xnack+"),
    ],
)
def test_no_archive_hides_another(offered: str, wanted: str) -> None:
    made = device_wheel.archive_targets(map(parse_target_id, offered.split()))
    assert sorted(map(str, made)) == sorted(wanted.split())


def test_more_features_than_gpus_have_are_refused_at_once() -> None:
    names = [parse_target_id(f"gfx90a:{letter * 3}+") for letter in "abcdefghijklmnop"]
    with pytest.raises(WheelError, match="code for 16 features of gfx90a: aaa, bbb"):
        device_wheel.archive_targets(names)


def overlapping() -> bytes:
    bundle = bytearray(make_bundle({"gfx942": b"a" * 100, "gfx1100": b"b" * 100}))
    view = BytesView(bytes(bundle))
    (found,) = offload_bundle.read_range(view, 0, view.size)
    first, second = found.device_entries
    assert second.offset == first.offset + 100
    bundle[first.id_at - 24 : first.id_at - 16] = (first.offset + 50).to_bytes(8, "little")
    return make_hip_library([bytes(bundle)])


SMALL = make_bundle({"gfx942": ALONE})
TWICE = make_bundle({"gfx942": ALONE, "gfx950": ALONE}).replace(b"gfx950", b"gfx942")
HEADERS = "demo-1.0.data/headers"  # where installers give each wheel a folder of its own
REFUSED: list[tuple[str, bytes, str]] = [
    (f"{HEADERS}/x.so", make_hip_library([SMALL]), "headers/x.so is installed where no device wheel"),
    (f"{HEADERS}/k.hsaco", ALONE, "headers/k.hsaco is installed where no device wheel"),
    ("@GFXARCH@/x.so", make_hip_library([SMALL]), "@GFXARCH@/x.so has @GFXARCH@ in its path"),
    ("demo/a.dll", make_dll(sections={".hip_fat": SMALL}), "demo/a.dll: no runtime finds"),
    ("demo/x.so", make_hip_library([SMALL] * 2, [1]), "demo/x.so: 1 of its 2 bundles have no wrapper"),
    ("demo/x.so", make_hip_library([TWICE]), "two code objects for gfx942"),
    ("demo/x.so", overlapping(), "overlaps"),
]


@pytest.mark.parametrize(("name", "content", "reason"), REFUSED)
def test_code_that_cannot_be_taken_faithfully_is_refused(
    make_wheel: MakeWheel, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    wheel = make_wheel(tags=LINUX, files={name: content, "demo/good.so": make_hip_library([SMALL])})
    with pytest.raises(WheelError, match=re.escape(reason)) as error:
        split(wheel, tmp_path / "split")
    assert "no wrapper" not in reason or "unsplit" in (error.value.tip or "")
    assert not list((tmp_path / "split").glob("*"))


@pytest.mark.parametrize(
    ("target", "offered", "wanted"),
    [
        ("gfx942", "gfx90a gfx942", "gfx942"),
        ("gfx942", "gfx90a gfx9-4-generic", "gfx9-4-generic"),
        ("gfx942", "gfx9-4-generic gfx942", "gfx942"),
        ("gfx9-4-generic", "gfx942", None),
        ("gfx90a:xnack+", "gfx90a gfx90a:xnack-", "gfx90a"),
        ("gfx90a:sramecc+:xnack+", "gfx90a gfx90a:xnack+ gfx90a:sramecc-:xnack+", "gfx90a:xnack+"),
        ("gfx90a", "gfx90a:xnack+", None),
    ],
)
def test_which_code_a_gpu_gets(target: str, offered: str, wanted: str | None) -> None:
    names = offered.split()
    number = device_wheel.best_code(parse_target_id(target), [parse_target_id(name) for name in names])
    assert (None if number is None else names[number]) == wanted


def test_host_libraries_have_no_code_and_take_less_room(original: Path, parts: tuple[Path, ...]) -> None:
    whole, host = members_of(original), members_of(parts[0])
    for name in ("demo/lib/libplain.so", "demo/lib/libmany é.so"):
        before, after = whole[name], host[name]
        assert len(after) < len(before)
        assert elf.read(before).needed == elf.read(after).needed
        assert all(code not in after for code in CODES.values())
    assert host["demo/lib/libhost.so"] == whole["demo/lib/libhost.so"]


def test_all_device_wheels_give_the_original_members(
    original: Path, parts: tuple[Path, ...], tmp_path: Path
) -> None:
    made = join(parts[0], parts[1:], tmp_path / "joined")
    whole, again = members_of(original), members_of(made.path)
    own = {name for name in whole if name.endswith("/RECORD")}
    assert made.path.name == original.name
    assert {library.library: library.missing for library in made.libraries} == {
        "libdeep.so": (),
        "libplain.so": (),
        "libmany é.so": (),
        "demo_extra.so": (),
        "top.so": (),
    }
    for name in whole.keys() - own:
        if name.endswith(".so"):
            assert codes(again[name], tmp_path) == codes(whole[name], tmp_path)
        else:
            assert again[name] == whole[name]
    same = {library.library for library in made.libraries if library.same_bytes}
    assert "libplain.so" in same
    assert {n.rpartition("/")[2] for n in whole if n.endswith(".so") and whole[n] == again[n]} >= same
    assert sorted(again) == sorted(whole)
    assert binaries.targets_of(made.path) == TARGETS
    assert verify(made.path, Expectation(python="3.11")) == ()


def test_bundles_compressed_as_clang_does_come_back_byte_for_byte(
    make_wheel: MakeWheel, tmp_path: Path
) -> None:
    library = make_hip_library([make_bundle(CODES, 2, 0)])
    wheel = make_wheel(tags=LINUX, files={"demo/x.so": library})
    host, *devices = split(wheel, tmp_path / "split")
    made = join(host, devices, tmp_path / "joined")
    assert [library.same_bytes for library in made.libraries] == [True]
    assert members_of(made.path)["demo/x.so"] == library


@pytest.mark.parametrize("chosen", [(2,), (1, 3), (3, 2)])
def test_some_device_wheels_give_their_targets_alone(
    original: Path, parts: tuple[Path, ...], tmp_path: Path, chosen: tuple[int, ...]
) -> None:
    made = join(parts[0], [parts[number] for number in chosen], tmp_path / "joined")
    names = {PROCESSORS[number - 1] for number in chosen}
    wanted = tuple(t for t in TARGETS if t.partition(":")[0] in names)
    assert binaries.targets_of(made.path) == wanted
    whole, again = members_of(original), members_of(made.path)
    for name in ("demo/lib/libplain.so", "demo/lib/libmany é.so"):
        every = codes(whole[name], tmp_path)
        kept = {key: code for key, code in every.items() if key[1].split("--")[1] in wanted}
        assert codes(again[name], tmp_path) == kept
    assert wheel_info.read(made.path).metadata == wheel_info.read(original).metadata
    assert {name for lib in made.libraries for name in lib.missing} == set(
        PROCESSORS
    ) - names or 3 not in chosen


def test_a_split_is_the_same_every_time(original: Path, parts: tuple[Path, ...], tmp_path: Path) -> None:
    again = split(original, tmp_path / "elsewhere" / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in parts]


@pytest.mark.parametrize("change", ["name", "cut", "garbage", "code"])
def test_a_wrong_archive_is_found(parts: tuple[Path, ...], tmp_path: Path, change: str) -> None:
    name = "demo/.kpack/demo_gfx942.kpack"
    good = members_of(parts[3])[name]
    not_code = tmp_path / "x.kpack"
    with writing(not_code, group="demo", family="gfx942", targets=["gfx942"]) as made:
        made.name("x.so", 0, "gfx942", made.add([b"no ELF file"], len(b"no ELF file")))
        made.name("x.so", 1, "gfx942", made.add([], 0))
        made.name("x.so", 2, "gfx942", made.add([CODES["gfx9-4-generic"]], len(CODES["gfx9-4-generic"])))
    edits = {
        "name": Edit(remove_files=(name,), add_files={name.replace("gfx942", "gfx950"): good}),
        "cut": Edit(replace_files={name: good[:-1]}),
        "garbage": Edit(replace_files={name: b"KPAK"}),
        "code": Edit(replace_files={name: not_code}),
    }
    wanted = {"name": ["kpack-name"], "code": ["code-object-empty", "code-object-malformed"]}
    bad = edit_wheel(parts[3], edits[change], tmp_path / "bad")
    codes = [finding.code for finding in verify(bad, Expectation())]
    assert codes == wanted.get(change, ["kpack-malformed"])


def record_of(host: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(members_of(host)["demo-1.0.dist-info/cairn-split.json"])
    return found


def with_record(host: Path, record: dict[str, Any], folder: Path) -> Path:
    name = "demo-1.0.dist-info/cairn-split.json"
    return edit_wheel(host, Edit(replace_files={name: json.dumps(record).encode()}), folder)


@pytest.mark.parametrize("size", [1 << 62, 1 << 32, (1 << 32) - (16 << 20), 17 << 20])
def test_a_host_wheel_that_would_unpack_to_all_memory_is_refused(
    make_wheel: MakeWheel, tmp_path: Path, size: int
) -> None:
    library = make_hip_library([make_bundle({"gfx942": b"a" * 5000}, 2, 1)])
    host, device = split(make_wheel(tags=LINUX, files={"demo/x.so": library}), tmp_path / "split")
    record = record_of(host)
    record["libraries"][0]["parts"][0]["plain_size"] = size
    with pytest.raises(WheelError, match="contradicts itself"):
        join(with_record(host, record, tmp_path / "bad"), [device], tmp_path / "joined")


@pytest.mark.parametrize(
    ("digest", "said"),
    [
        ("sha512=abcd", "demo/lib/libplain.so has different content than its hash says"),
        ("sha256=abcd", "demo/lib/libplain.so has different content than its hash says"),
        ("md5=abcd", "demo/lib/libplain.so has no hash that can be trusted (md5)"),
    ],
)
def test_a_library_that_is_not_what_record_says_is_refused(
    original: Path, tmp_path: Path, digest: str, said: str
) -> None:
    def lie(record: bytes) -> bytes:
        return re.sub(rb"(?m)^(demo/lib/libplain\.so),[^,]*,", rb"\1,%b," % digest.encode(), record)

    bad = altered(Path(shutil.copy(original, tmp_path)), {"demo-1.0.dist-info/RECORD": lie})
    with pytest.raises(WheelError, match=re.escape(said)):
        split(bad, tmp_path / "split")


def test_a_device_wheel_that_lacks_an_archive_is_refused(parts: tuple[Path, ...], tmp_path: Path) -> None:
    host, first, _, last = parts
    cut = edit_wheel(last, Edit(remove_files=(".kpack/demo_gfx942.kpack",)), tmp_path / "cut")
    for devices in ([cut], [first, cut]):
        with pytest.raises(WheelError, match=r"no \.kpack/demo_gfx942\.kpack, where"):
            join(host, devices, tmp_path / "joined")
    assert not list((tmp_path / "joined").glob("*"))


def test_what_cannot_be_split(
    original: Path, make_wheel: MakeWheel, parts: tuple[Path, ...], tmp_path: Path
) -> None:
    marks = [{"add_extras": ("device-gfx942",)}, {"add_extras": ("Device_All",)}]
    marks += [{"add_requirements": ("demo-device-gfx942 ; extra == 'fast'",)}]
    marked = [edit_wheel(original, Edit(**mark), tmp_path / str(n)) for n, mark in enumerate(marks)]
    for wheel in (parts[0], *marked):
        with pytest.raises(WheelError, match="has been split already"):
            split(wheel, tmp_path / "again")
    with pytest.raises(WheelError, match="no device code"):
        split(make_wheel(), tmp_path / "again")
    with pytest.raises(WheelError, match="own source"):
        split(original, original.parent)
    assert not (tmp_path / "again").exists() or not any((tmp_path / "again").iterdir())


def test_wheels_that_do_not_belong_together(
    original: Path, make_wheel: MakeWheel, parts: tuple[Path, ...], tmp_path: Path
) -> None:
    host, first, *_ = parts
    out = tmp_path / "joined"
    with pytest.raises(WheelError, match="not a device wheel of demo"):
        join(host, [host], out)
    with pytest.raises(WheelError, match=r"twice|two device wheels"):
        join(host, [first, first], out)
    with pytest.raises(WheelError, match="not a host wheel"):
        join(original, [first], out)
    newer = edit_wheel(first, Edit(version="1.1"), tmp_path / "newer")
    with pytest.raises(WheelError, match="does not belong to"):
        join(host, [newer], out)
    other_code = {name: make_code_object(name, body[::-1]) for name, body in BODIES.items()}
    files = {"demo/lib/libplain.so": make_hip_library([make_bundle(other_code)])}
    other = split(make_wheel(tags=LINUX, files=files), tmp_path / "other")
    with pytest.raises(WheelError, match=r"different code for gfx90a:xnack\+ of lib/libplain\.so#0"):
        join(other[0], [first], out)
    with pytest.raises(WheelError, match="does not say what was split from it"):
        name = "demo-1.0.dist-info/cairn-split.json"
        join(edit_wheel(host, Edit(remove_files=(name,)), tmp_path / "without"), [first], out)
    assert not list(out.glob("*.whl"))


def test_a_library_of_nothing_but_device_code_becomes_small(make_wheel: MakeWheel, tmp_path: Path) -> None:
    noise = random.Random(2).randbytes(1 << 18) * 20  # noqa: S311 - fixed content is the point
    wheel = make_wheel(tags=LINUX, files={"demo/x.so": make_hip_library([make_bundle({"gfx942": noise})])})
    host, *devices = split(wheel, tmp_path / "split")
    assert len(members_of(host)["demo/x.so"]) < 32 << 10
    made = join(host, devices, tmp_path / "joined")
    assert members_of(made.path)["demo/x.so"] == members_of(wheel)["demo/x.so"]


def test_no_damaged_split_gives_a_lie(original: Path, parts: tuple[Path, ...], tmp_path: Path) -> None:
    host, wheel = parts[0], parts[3]
    name, member = "demo/.kpack/demo_gfx942.kpack", "demo/lib/libmany é.so"
    good, record = members_of(wheel)[name], record_of(host)
    whole = codes(members_of(original)[member], tmp_path)
    kept = {key: code for key, code in whole.items() if key[1].endswith("gfx942")}
    dice = random.Random(7)  # noqa: S311 - a fixed sequence is the point
    refused = 0
    for number in range(60):
        bad_host, bad_wheel = host, wheel
        if number % 2:
            bad_wheel = edit_wheel(wheel, Edit(replace_files={name: spoiled(good, dice)}), tmp_path / "bad")
        else:
            changed = json.loads(json.dumps(record))
            fields = [(at, key) for at in walk(changed) for key, value in at.items() if is_number(value)]
            at, key = dice.choice(fields)
            at[key] += dice.choice((-1, 1, 4096, 1 << 40, -(1 << 60)))
            bad_host = with_record(host, changed, tmp_path / "bad")
        out = tmp_path / "out"
        try:
            made = join(bad_host, [bad_wheel], out)
        except WheelError:
            refused += 1
            assert not list(out.glob("*"))
            continue
        assert codes(members_of(made.path)[member], tmp_path) == kept
        made.path.unlink()
    assert refused > 25
    assert {path.name for path in tmp_path.iterdir()} <= {"bad", "out"}


def spoiled(data: bytes, dice: random.Random) -> bytes:
    """A damaged archive."""
    if dice.randrange(2):
        return data[: dice.randrange(len(data))]
    changed = bytearray(data)
    changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def walk(value: object) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    if isinstance(value, dict):
        found.append(value)
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        found += walk(item)
    return found
