"""Device code split from wheels and joined again."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.offload import bundle as offload_bundle
from cairn.formats.offload import code_object as offload_code_object
from cairn.formats.offload import container
from cairn.formats.view import BytesView
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.wheel import Edit, apply
from cairn.wheels.split.join import join
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object, make_dll, make_elf
from helpers.wheels import MakeWheel

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


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def codes(library: bytes) -> dict[tuple[int, str], bytes]:
    view = BytesView(library)
    found = {}
    for start, end in offload_code_object.ranges(elf.read(library)):
        for bundle in offload_bundle.read_range(view, start, end):
            plain = offload_bundle.unpack(view, bundle)
            for entry in bundle.device_entries:
                found[bundle.at, entry.id] = plain[entry.offset : entry.offset + entry.size]
    return found


@pytest.fixture
def build(make_wheel: MakeWheel) -> MakeWheel:
    def build_(**more: object) -> Path:
        many = b"".join(make_bundle(CODES, *kind).ljust(20_000, b"\0") for kind in KINDS)
        files: dict[str, bytes] = {
            "demo/__init__.py": b"VALUE = 1\n",
            "demo/lib/libplain.so": make_elf(sections={".hip_fatbin": make_bundle(CODES), ".data": b"d"}),
            "demo/lib/libmany é.so": make_elf(sections={".hip_fatbin": many}),
            "top.so": make_elf(sections={".hip_fatbin": make_bundle({"gfx942": ALONE})}),
            "demo/lib/libhost.so": make_elf(needed=("libplain.so",)),
            "demo/kernels/k.hsaco": make_code_object("gfx942", b"of its own"),
            "demo-1.0.data/platlib/demo_extra.so": make_elf(
                sections={".hip_fatbin": make_bundle({"gfx942": ALONE}, 2, 1)}
            ),
        }
        tags = ("cp311-cp311-manylinux_2_28_x86_64",)
        return make_wheel(**({"tags": tags, "pure": False, "files": files} | more))

    return build_


@pytest.fixture
def parts(build: MakeWheel, tmp_path: Path) -> tuple[Path, ...]:
    return split(build(), tmp_path / "split")


def test_a_host_wheel_and_one_for_each_processor(build: MakeWheel, parts: tuple[Path, ...]) -> None:
    host, *devices = parts
    assert host.name == build().name
    assert [path.name.split("-")[0] for path in devices] == [
        "demo_device_gfx90a",
        "demo_device_gfx9_4_generic",
        "demo_device_gfx942",
    ]
    assert binaries.targets_of(host) == ()
    of_devices = [binaries.targets_of(path) for path in devices]
    assert of_devices == [("gfx90a:xnack+", "gfx90a:xnack-"), ("gfx9-4-generic",), ("gfx942",)]
    info = wheel_info.read(host)
    assert info.extras == ("fast", *(f"device-{name}" for name in PROCESSORS))
    assert 'demo-device-gfx90a==1.0 ; extra == "device-gfx90a"' in info.requires_dist
    for path in parts:
        targets = ("cpu",) if path == host else None
        findings = verify(path, Expectation(targets=targets, python="3.11"))
        assert [(f.code, f.member) for f in findings] == []
    assert wheel_info.read(devices[0]).requires_dist == ("demo==1.0",)
    assert "demo/kernels/k.hsaco" not in contents(host)
    assert {name for name in contents(devices[2]) if "dist-info" not in name} == {
        "demo/kernels/k.hsaco",
        "demo/lib/libmany é.so.gfx942.devcode",
        "demo/lib/libplain.so.gfx942.devcode",
        "top.so.gfx942.devcode",
        "demo_device_gfx942-1.0.data/platlib/demo_extra.so.gfx942.devcode",
    }
    assert "demo_device_gfx942-1.0.dist-info/licenses/LICENSE" in contents(devices[2])


def test_libraries_keep_their_layout_without_their_code(build: MakeWheel, parts: tuple[Path, ...]) -> None:
    whole, host = contents(build()), contents(parts[0])
    for name in ("demo/lib/libplain.so", "demo/lib/libmany é.so"):
        before, after = whole[name], host[name]
        assert len(before) == len(after)
        assert elf.read(before) == elf.read(after)
        assert all(code not in after for code in CODES.values())


def test_all_device_wheels_give_the_original_members(
    build: MakeWheel, parts: tuple[Path, ...], tmp_path: Path
) -> None:
    made = join(parts[0], parts[1:], tmp_path / "joined")
    whole, again = contents(build()), contents(made.path)
    own = {name for name in whole if name.endswith("/RECORD")}
    assert made.path.name == build().name
    assert {library.library: library.missing for library in made.libraries} == {
        "libplain.so": (),
        "libmany é.so": (),
        "demo_extra.so": (),
        "top.so": (),
    }
    for name in whole.keys() - own:
        if name.endswith(".so"):
            assert codes(again[name]) == codes(whole[name])
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
    library = make_elf(sections={".hip_fatbin": make_bundle(CODES, 2, 0)})
    wheel = make_wheel(pure=False, files={"demo/x.so": library})
    host, *devices = split(wheel, tmp_path / "split")
    made = join(host, devices, tmp_path / "joined")
    assert [library.same_bytes for library in made.libraries] == [True]
    assert contents(made.path)["demo/x.so"] == library


@pytest.mark.parametrize("chosen", [(2,), (1, 3), (3, 2)])
def test_some_device_wheels_give_their_targets_alone(
    build: MakeWheel, parts: tuple[Path, ...], tmp_path: Path, chosen: tuple[int, ...]
) -> None:
    made = join(parts[0], [parts[number] for number in chosen], tmp_path / "joined")
    names = {PROCESSORS[number - 1] for number in chosen}
    wanted = tuple(t for t in TARGETS if t.partition(":")[0] in names)
    assert binaries.targets_of(made.path) == wanted
    whole, again = contents(build()), contents(made.path)
    for name in ("demo/lib/libplain.so", "demo/lib/libmany é.so"):
        kept = {key: code for key, code in codes(whole[name]).items() if key[1].split("--")[1] in wanted}
        assert codes(again[name]) == kept
    assert wheel_info.read(made.path).metadata == wheel_info.read(build()).metadata
    assert {name for lib in made.libraries for name in lib.missing} == set(
        PROCESSORS
    ) - names or 3 not in chosen


def test_a_split_is_the_same_every_time(build: MakeWheel, parts: tuple[Path, ...], tmp_path: Path) -> None:
    again = split(build(), tmp_path / "elsewhere" / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in parts]


@pytest.mark.parametrize("change", ["name", "cut", "garbage"])
def test_a_wrong_container_is_found(parts: tuple[Path, ...], tmp_path: Path, change: str) -> None:
    name = "demo/lib/libplain.so.gfx942.devcode"
    good = contents(parts[3])[name]
    edits = {
        "name": Edit(remove_files=(name,), add_files={name.replace("gfx942", "gfx950"): good}),
        "cut": Edit(replace_files={name: good[:-1]}),
        "garbage": Edit(replace_files={name: b"CAIRNDEV"}),
    }
    bad = apply(parts[3], edits[change], tmp_path / "bad")
    codes = [finding.code for finding in verify(bad, Expectation())]
    assert codes == ["container-name" if change == "name" else "container-malformed"]


@pytest.mark.parametrize("size", [1 << 62, 1 << 32, (1 << 32) - (16 << 20), 17 << 20])
def test_a_container_that_would_unpack_to_all_memory_is_refused(
    make_wheel: MakeWheel,
    tmp_path: Path,
    size: int,
) -> None:
    library = make_elf(sections={".hip_fatbin": make_bundle({"gfx942": b"a" * 5000}, 2, 1)})
    host, whole = split(make_wheel(pure=False, files={"demo/x.so": library}), tmp_path / "split")
    name = "demo/x.so.gfx942.devcode"
    data = contents(whole)[name]
    length = int.from_bytes(data[8:16], "little")
    index = json.loads(data[16 : 16 + length])
    index["parts"][0]["packed"]["plain_size"] = size
    text = json.dumps(index).encode()
    evil = data[:8] + len(text).to_bytes(8, "little") + text + data[16 + length :]
    bad = apply(whole, Edit(replace_files={name: evil}), tmp_path / "bad")
    assert [finding.code for finding in verify(bad, Expectation())] == ["container-malformed"]
    with pytest.raises(WheelError, match="would unpack to"):
        join(host, [bad], tmp_path / "joined")


def test_a_library_whose_name_leaves_no_room_is_refused(make_wheel: MakeWheel, tmp_path: Path) -> None:
    library = make_elf(sections={".hip_fatbin": make_bundle({"gfx942": b"code"})})
    wheel = make_wheel(pure=False, files={f"demo/{'x' * 245}.so": library})
    with pytest.raises(WheelError, match="longer than file systems take"):
        split(wheel, tmp_path / "split")
    assert not list((tmp_path / "split").iterdir())


def test_what_cannot_be_split(build: MakeWheel, parts: tuple[Path, ...], tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="already"):
        split(parts[0], tmp_path / "again") if binaries.targets_of(parts[0]) else split(
            apply(build(), Edit(add_extras=("device-gfx942",)), tmp_path / "marked"), tmp_path / "again"
        )
    with pytest.raises(WheelError, match="no device code"):
        split(parts[0], tmp_path / "again")
    with pytest.raises(WheelError, match="own source"):
        split(build(), build().parent)
    assert not (tmp_path / "again").exists() or not any((tmp_path / "again").iterdir())


def test_wheels_that_do_not_belong_together(
    build: MakeWheel,
    parts: tuple[Path, ...],
    tmp_path: Path,
) -> None:
    host, first, *_ = parts
    out = tmp_path / "joined"
    with pytest.raises(WheelError, match="not a device wheel of demo"):
        join(host, [host], out)
    with pytest.raises(WheelError, match=r"twice|two device wheels"):
        join(host, [first, first], out)
    with pytest.raises(WheelError, match="not a host wheel"):
        join(build(), [first], out)
    newer = apply(first, Edit(version="1.1"), tmp_path / "newer")
    with pytest.raises(WheelError, match="does not belong to"):
        join(host, [newer], out)
    other_code = {name: make_code_object(name, body[::-1]) for name, body in BODIES.items()}
    files = {"demo/lib/libplain.so": make_elf(sections={".hip_fatbin": make_bundle(other_code)})}
    other = split(build(files=files, version="1.0"), tmp_path / "other")
    with pytest.raises(WheelError, match=r"not the library|has no demo"):
        join(other[0], [first], out)
    assert not list(out.glob("*.whl"))


def test_a_library_of_nothing_but_device_code_is_refused(make_wheel: MakeWheel, tmp_path: Path) -> None:
    noise = random.Random(2).randbytes(1 << 18) * 80  # noqa: S311 - fixed content is the point
    wheel = make_wheel(
        files={"demo/x.so": make_elf(sections={".hip_fatbin": make_bundle({"gfx942": noise})})}
    )
    with pytest.raises(WheelError, match="nearly all device code"):
        split(wheel, tmp_path / "split")
    assert list((tmp_path / "split").iterdir()) == []


def test_overlapping_code_is_refused(make_wheel: MakeWheel, tmp_path: Path) -> None:
    bundle = bytearray(make_bundle({"gfx942": b"a" * 100, "gfx1100": b"b" * 100}))
    view = BytesView(bytes(bundle))
    (found,) = offload_bundle.read_range(view, 0, view.size)
    first, second = found.device_entries
    assert second.offset == first.offset + 100
    bundle[first.id_at - 24 : first.id_at - 16] = (first.offset + 50).to_bytes(8, "little")
    wheel = make_wheel(files={"demo/x.so": make_elf(sections={".hip_fatbin": bytes(bundle)})})
    with pytest.raises(WheelError, match="overlaps"):
        split(wheel, tmp_path / "split")


def index_of(data: bytes) -> tuple[dict[str, object], bytes]:
    length = int.from_bytes(data[8:16], "little")
    return json.loads(data[16 : 16 + length]), data[16 + length :]


def with_index(index: Mapping[str, object], rest: bytes) -> bytes:
    text = json.dumps(index).encode()
    return container.MAGIC + len(text).to_bytes(8, "little") + text + rest


def test_no_damaged_container_gives_a_lie(build: MakeWheel, parts: tuple[Path, ...], tmp_path: Path) -> None:
    host, wheel = parts[0], parts[3]
    names = ("demo/lib/libplain.so.gfx942.devcode", "demo/lib/libmany é.so.gfx942.devcode")
    good = {name: contents(wheel)[name] for name in names}
    whole = contents(build())
    dice = random.Random(7)  # noqa: S311 - a fixed sequence is the point
    refused = 0
    for number in range(120):
        name = names[number % 2]
        bad = apply(wheel, Edit(replace_files={name: spoiled(good[name], dice, number)}), tmp_path / "bad")
        out = tmp_path / "out"
        try:
            made = join(host, [bad], out)
        except WheelError:
            refused += 1
            assert not list(out.glob("*"))
            continue
        member = name.removesuffix(".gfx942.devcode")
        kept = {key: code for key, code in codes(whole[member]).items() if key[1].endswith("gfx942")}
        assert codes(contents(made.path)[member]) == kept
        made.path.unlink()
    assert refused > 80
    assert {path.name for path in tmp_path.iterdir()} <= {"wheels", "split", "bad", "out"}


def spoiled(data: bytes, dice: random.Random, number: int) -> bytes:
    """A damaged container: blind, or with one number of its index another."""
    if number % 3 == 0:
        return data[: dice.randrange(len(data))]
    if number % 3 == 1:
        changed = bytearray(data)
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        return bytes(changed)
    index, rest = index_of(data)
    fields = [(at, key) for at in walk(index) for key, value in at.items() if isinstance(value, int)]
    at, key = dice.choice(fields)
    at[key] += dice.choice((-1, 1, 4096, 1 << 40, -(1 << 70)))
    return with_index(index, rest)


def walk(value: object) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    if isinstance(value, dict):
        found.append(value)
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        found += walk(item)
    return found


@pytest.mark.parametrize("kind", [(0, 0), (2, 0), (3, 1)])
def test_device_code_in_a_dll_is_split_and_comes_back(
    make_wheel: MakeWheel, tmp_path: Path, kind: tuple[int, int]
) -> None:
    bundle = make_bundle(
        {"gfx942": CODES["gfx942"], "gfx1100": make_code_object("gfx1100", b"for a card" * 400)}, *kind
    )
    dll = make_dll(("kernel32.dll",), name="torch_hip.dll", sections={".hip_fat": bundle, ".data": b"d" * 64})
    files = {"demo/__init__.py": b"", "demo/lib/torch_hip.dll": dll}
    wheel = make_wheel(tags=("cp311-cp311-win_amd64",), pure=False, files=files)
    host, *devices = split(wheel, tmp_path / "split")
    assert [path.name.split("-")[0] for path in devices] == ["demo_device_gfx942", "demo_device_gfx1100"]
    assert binaries.targets_of(host) == ()
    assert [binaries.targets_of(path) for path in devices] == [("gfx942",), ("gfx1100",)]
    assert len(contents(host)["demo/lib/torch_hip.dll"]) == len(dll)
    for path in (host, *devices):
        assert [f.code for f in verify(path, Expectation(targets=("cpu",) if path == host else None))] == []
    one = join(host, devices[1:], tmp_path / "one")
    assert binaries.targets_of(one.path) == ("gfx1100",)
    made = join(host, devices, tmp_path / "joined")
    assert contents(made.path)["demo/lib/torch_hip.dll"] == dll


def test_code_in_libraries_of_two_systems_leaves_nothing_behind(
    make_wheel: MakeWheel, tmp_path: Path
) -> None:
    bundle = make_bundle({"gfx942": CODES["gfx942"]})
    files = {
        "demo/a.so": make_elf(sections={".hip_fatbin": bundle}),
        "demo/a.dll": make_dll(sections={".hip_fat": bundle}),
    }
    host, device_wheel = split(make_wheel(pure=False, files=files), tmp_path / "split")
    assert binaries.targets_of(host) == ()
    assert {"demo/a.so.gfx942.devcode", "demo/a.dll.gfx942.devcode"} <= contents(device_wheel).keys()
