"""Wheels whose archive and RECORD are right, and whose files are not: what is let through must be true."""

from __future__ import annotations

import email.parser
import io
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import installer.sources
import pytest
from elftools.elf.elffile import ELFFile
from packaging.utils import canonicalize_name

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.targets import parse_target_id
from cairn.wheels.contents import binaries
from cairn.wheels.contents.summary import needed_tree, summarise
from cairn.wheels.fat import build
from cairn.wheels.interface.difference import diff
from cairn.wheels.metadata import wheel_info
from cairn.wheels.repair import repair_linked
from cairn.wheels.rewrite.elf import BinaryEdit, change
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.join import join
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object, make_dll, make_elf
from helpers.hip_library import make_hip_library
from helpers.packing import pack
from helpers.wheels import MakeWheel, members_of, with_empty_blocks

Dice = random.Random

TARGETS = ("gfx942", "gfx1100")
ELSEWHERE = ("libamdhip64.so*", "amdhip64*.dll")
SEEDS = range(60)
BATCH = 5
PYTHON = {
    "demo/__init__.py": b"from . import _rocm_init\n_rocm_init.initialize()\n",
    "demo/_rocm_init.py": b'def initialize():\n    f(preload_shortnames=["amdhip64"])\n',
    "demo/version.py": b"__version__ = '1.0+rocm7.10.0'\n",
}
NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFFF, 1 << 31, 1 << 32, 1 << 40, 1 << 63, (1 << 64) - 1, (1 << 64) - 4096)


@pytest.fixture
def codes() -> list[bytes]:
    code = {
        "gfx942": make_code_object("gfx942", b"abc" * 50),
        "gfx1100": make_code_object("gfx1100", b"d" * 30),
    }
    return [make_bundle(code, *kind) for kind in ((0, 0), (1, 0), (2, 1), (3, 0))]


@pytest.fixture
def library(codes: list[bytes]) -> bytes:
    return make_hip_library(
        codes,
        soname="libx.so",
        needed=("libc.so.6", "libamdhip64.so.7"),
        runpath="$ORIGIN:$ORIGIN/../_rocm_sdk_core/lib",
        versions={"libc.so.6": ("GLIBC_2.28",), "libamdhip64.so.7": ("hip_4.2",)},
    )


@pytest.fixture
def make(make_wheel: MakeWheel, library: bytes, codes: list[bytes]) -> MakeWheel:
    def make_(system: str) -> Path:
        dll = make_dll(
            ("KERNEL32.dll", "amdhip64_7.dll"),
            name="_C.pyd",
            exports=("PyInit__C",),
            sections={".hip_fat": (bytes(9)).join(codes)},
        )
        own = {"windows": {"demo/_C.pyd": dll}, "linux": {"demo/lib/libx.so": library}}[system]
        platform = {"windows": "win_amd64", "linux": "manylinux_2_28_x86_64"}[system]
        return make_wheel(
            version="1.0+rocm7.10.0",
            tags=(f"cp311-cp311-{platform}",),
            pure=False,
            requires=("rocm[libraries]==7.10.0", "triton==3.5.0"),
            files={**PYTHON, **own},
        )

    return make_


@pytest.fixture
def make_rocm(tmp_path: Path) -> Callable[[str], Path]:
    def make_rocm_(system: str) -> Path:
        folder = tmp_path / system / ("bin" if system == "windows" else "lib")
        folder.mkdir(parents=True)
        for name in ("amdhip64_7.dll", "amd_comgr.dll", "hiprtc.dll"):
            if system == "windows":
                (folder / name).write_bytes(make_dll(("KERNEL32.dll",)))
        for name, needed in (
            ("libamdhip64.so.7", "libhsa-runtime64.so.1"),
            ("libamd_comgr.so.3", "libc.so.6"),
        ):
            if system == "linux":
                (folder / name).write_bytes(make_elf(soname=name, needed=(needed,)))
                (folder / needed).write_bytes(make_elf(soname=needed))
        return tmp_path / system

    return make_rocm_


def spoiled(data: bytes, dice: Dice) -> bytes:
    """Damage as it happens, and numbers as an attacker writes them."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at, kind = dice.randrange(len(changed) + 1), dice.randrange(7)
        if kind in (0, 1):
            changed[at : at + 1] = bytes([dice.choice((0, 1, 63, 127, 128, 255, dice.randrange(256)))])
        elif kind in (2, 3):
            width = dice.choice((1, 2, 4, 8))
            number = dice.choice((*NUMBERS, len(data), dice.randrange(1 << 64)))
            at -= at % width
            changed[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
        elif kind == 4:
            del changed[at : at + dice.choice((1, 2, 8, 64, 500))]
        elif kind == 5:
            changed[at:at] = dice.choice((b"\n", b",", b"\0", b": ", b'"', b"\xff", b"a" * 50, b"[", b"(("))
        else:
            del changed[at:]
    return bytes(changed)


def resealed(wheel: Path, target: Path, dice: Dice) -> Path:
    """A copy with one file spoiled, and a RECORD that agrees with it."""
    content = members_of(wheel)
    info = next(name.split("/")[0] for name in content if name.endswith(".dist-info/WHEEL"))
    del content[f"{info}/RECORD"]
    victim = dice.choice(sorted(content))
    content[victim] = spoiled(content[victim], dice)
    return pack(target, content)


def attempt(action: Callable[[], object]) -> object:
    try:
        return action()
    except WheelError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return None


def judge(wheel: Path) -> None:
    """What others read of a wheel must be what we let through."""
    with installer.sources.WheelFile.open(wheel) as other:
        other.validate_record()
        about = email.parser.Parser().parsestr(other.read_dist_info("METADATA"))
        assert (canonicalize_name(about["Name"]), about["Version"]) == (
            *(canonicalize_name(other.distribution), other.version),
        )
        kind = email.parser.Parser().parsestr(other.read_dist_info("WHEEL"))
        assert (kind["Wheel-Version"], kind["Root-Is-Purelib"]) == ("1.0", "false")
        assert set(kind.get_all("Tag")) == set(wheel_info.read(wheel).tags)
    needed = {found.path: found.needed for found in binaries.read_wheel(wheel, only="elf")}
    assert needed == dict(needed_by_others(wheel))


def needed_by_others(wheel: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, data in members_of(wheel).items():
        if data.startswith(elf.MAGIC):
            segments = ELFFile(io.BytesIO(data)).iter_segments("PT_DYNAMIC")
            yield name, tuple(tag.needed for s in segments for tag in s.iter_tags("DT_NEEDED"))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_let_through_is_true(
    make: MakeWheel, make_rocm: Callable[[str], Path], tmp_path: Path, seed: int
) -> None:
    system = ("linux", "windows")[seed % 2]
    good, rocm, out = make(system), make_rocm(system), tmp_path / "out"
    around = sorted(tmp_path.rglob("*"))
    dice = random.Random(seed)  # noqa: S311 - a fixed sequence is the point
    expected = Expectation(targets=TARGETS, require_device_code=True, provided_libraries=ELSEWHERE)
    assert verify(good, expected) == ()
    for _ in range(BATCH):
        wheel = resealed(good, tmp_path / "bad" / good.name, dice)
        findings = verify(wheel, expected)
        assert not any("\n" in finding.reason + finding.fix for finding in findings)
        if not findings:
            judge(wheel)
        attempt(lambda: list(needed_tree(summarise(wheel).binaries)))  # noqa: B023 - called at once, here and below
        attempt(lambda: diff(good, wheel))  # noqa: B023
        attempt(lambda: edit_wheel(wheel, Edit(version="2.0", add_requirements=("a",)), out))  # noqa: B023
        attempt(lambda: repair_linked(wheel, out, exclude=ELSEWHERE))  # noqa: B023
        targets = (parse_target_id("gfx942"),)
        request = build.FatRequest(wheel=wheel, rocm=rocm, output_dir=out, targets=targets)
        attempt(lambda: build.make(request))  # noqa: B023
        parts = attempt(lambda: split(wheel, out / "parts"))  # noqa: B023
        if isinstance(parts, tuple):
            joined = join(parts[0], parts[1:], out / "joined").path
            assert binaries.targets_of(joined) == binaries.targets_of(wheel)
        assert not list(out.rglob(".*"))
        shutil.rmtree(wheel.parent)
        shutil.rmtree(out, ignore_errors=True)
    assert sorted(tmp_path.rglob("*")) == around


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_joined_of_spoiled_parts_is_the_original(
    make: MakeWheel, tmp_path: Path, library: bytes, number: int
) -> None:
    parts = list(split(make("linux"), tmp_path / "parts"))
    dice = random.Random(number)  # noqa: S311 - a fixed sequence is the point
    refused = 0
    for _ in range(40):
        bad = resealed(parts[number], tmp_path / "bad" / parts[number].name, dice)
        chosen = [*parts[:number], bad, *parts[number + 1 :]]
        made = attempt(lambda: join(chosen[0], chosen[1:], tmp_path / "out"))  # noqa: B023
        if made is None:
            refused += 1
            assert not (tmp_path / "out").exists() or not any((tmp_path / "out").iterdir())
            continue
        (found,) = made.libraries  # type: ignore[attr-defined]
        same = members_of(made.path)["demo/lib/libx.so"] == library  # type: ignore[attr-defined]
        assert found.same_bytes == same
        assert not found.missing
        assert binaries.targets_of(made.path) == TARGETS  # type: ignore[attr-defined]
        made.path.unlink()  # type: ignore[attr-defined]
    assert 0 < refused < 40


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_a_spoiled_rocm_tree_is_refused_or_bundled_as_it_is(
    make: MakeWheel, make_rocm: Callable[[str], Path], tmp_path: Path, system: str
) -> None:
    wheel, rocm = make(system), make_rocm(system)
    dice = random.Random(system)  # noqa: S311 - a fixed sequence is the point
    request = build.FatRequest(
        wheel=wheel, rocm=rocm, output_dir=tmp_path / "out", targets=(parse_target_id("gfx942"),)
    )
    build.make(request)
    made = 0
    for _ in range(40):
        victim = dice.choice(sorted(path for path in rocm.rglob("*") if path.is_file()))
        good = victim.read_bytes()
        victim.write_bytes(spoiled(good, dice))
        report = attempt(lambda: build.make(request))
        if report is not None:
            made += 1
            attempt(lambda: judge(Path(report.wheel)))  # type: ignore[attr-defined]  # noqa: B023
        victim.write_bytes(good)
    assert made > 0
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_a_library_with_numbers_of_an_attacker_is_refused_or_changed_as_asked(
    library: bytes, tmp_path: Path
) -> None:
    dice = random.Random(7)  # noqa: S311 - a fixed sequence is the point
    path = tmp_path / "x.so"
    asked = BinaryEdit(run_path=("$ORIGIN/a/long/one",), replace_needed={"libamdhip64.so.7": "libother.so"})
    refused = 0
    for _ in range(500):
        data = bytearray(library)
        for _ in range(dice.randint(1, 3)):
            at = dice.randrange(16, 64 + 3 * 56) & ~7
            data[at : at + 8] = dice.choice((*NUMBERS, dice.randrange(1 << 64))).to_bytes(8, "little")
        path.write_bytes(data)
        if attempt(lambda: change(path, asked) or True) is None:
            refused += 1
        else:
            assert elf.read_file(path).rpath == asked.run_path
        assert path.stat().st_size < 1 << 20
    assert 0 < refused < 500


@pytest.mark.parametrize("reader", [summarise, binaries.read_wheel, binaries.targets_of])
@pytest.mark.parametrize("more", [-100, -1, 1, 1 << 20])
def test_a_member_that_unpacks_to_less_or_more_than_both_its_headers_say(
    make_wheel: MakeWheel, codes: list[bytes], reader: Callable[[Path], object], more: int
) -> None:
    library = make_elf(
        soname="libx.so", needed=("libc.so.6",), sections={".hip_fatbin": bytes(9).join(codes)}
    )
    wheel = make_wheel(files={"demo/x.so": library})
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo("demo/x.so")
    central = data.rindex(b"PK\x01\x02", 0, data.rindex(b"demo/x.so"))
    for at in (info.header_offset + 22, central + 24):
        assert int.from_bytes(data[at : at + 4], "little") == info.file_size
        data[at : at + 4] = (info.file_size + more).to_bytes(4, "little")
    wheel.write_bytes(data)
    with pytest.raises(WheelError) as caught:
        reader(wheel)
    assert "demo/x.so" in str(caught.value)
    assert "demo/x.so" in {finding.member for finding in verify(wheel, Expectation())}


def test_a_binary_is_seen_by_all_however_late_its_first_byte_comes(
    make_wheel: MakeWheel, codes: list[bytes], tmp_path: Path
) -> None:
    extension = make_hip_library(codes, needed=("libfar.so",))
    files = {"demo/x.so": extension, "demo/bin/run": b"#!/bin/sh\n", **PYTHON}
    wheel = make_wheel(tags=("cp311-cp311-linux_x86_64",), files=files)
    for name in ("demo/x.so", "demo/bin/run"):
        with_empty_blocks(wheel, name)
        with zipfile.ZipFile(wheel) as archive:
            assert archive.testzip() is None
        seen = {(finding.code, finding.member) for finding in verify(wheel, Expectation())}
        assert {("needed", "demo/x.so"), ("not-executable", "demo/bin/run")} <= seen
        summary = summarise(wheel)
        assert [binary.path for binary in summary.binaries] == ["demo/x.so"]
        assert "demo/x.so" in list(needed_tree(summary.binaries))
        assert binaries.targets_of(wheel) == TARGETS
        with pytest.raises(WheelError, match=r"libfar\.so"):
            repair_linked(wheel, tmp_path / name / "repaired", exclude=())
        made = split(wheel, tmp_path / name / "split")
        assert len(made) == 1 + len(TARGETS)
