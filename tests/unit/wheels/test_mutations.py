"""A corpus of damaged and malicious wheels: no error but ours, no file outside, no lie that passes."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.formats.zip.limits import Limits
from cairn.formats.zip.reader import Archive, RawFile
from cairn.wheels.contents import binaries
from cairn.wheels.contents.summary import Summary, summarise, summarise_archive
from cairn.wheels.interface.difference import diff
from cairn.wheels.interface.read import read_listing
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.join import join
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle
from helpers.hip_library import make_hip_library
from helpers.packing import pack
from helpers.wheels import LINUX, MakeWheel, members_of

SEEDS = range(40)
BATCH = 8
CENTRAL = b"PK\x01\x02"
LOCAL = b"PK\x03\x04"
END = b"PK\x05\x06"


@pytest.fixture
def wheel(make_wheel: MakeWheel) -> Path:
    elf = make_hip_library(
        [make_bundle({"gfx942": b"abc"}), make_bundle({"gfx1100": b"d"}, 2, 1)],
        soname="libx.so",
        needed=("libc.so.6",),
        versions={"libc.so.6": ("GLIBC_2.28",)},
    )
    return make_wheel(
        tags=LINUX,
        files={
            "demo/__init__.py": b"VALUE = 1\n" * 50,
            "demo/x.so": elf,
            "demo-1.0.data/scripts/run": b"#!x\n",
        },
        executables=("demo-1.0.data/scripts/run",),
    )


def mutated(good: bytes, dice: random.Random) -> Iterator[bytes]:
    """Blind damage, and changes of exactly the fields that guard against attacks."""
    yield good[: dice.randrange(len(good))]
    data = bytearray(good)
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    yield bytes(data)
    for magic, fields in (
        (CENTRAL, (8, 10, 16, 20, 24, 28, 30, 32, 38, 42)),
        (LOCAL, (6, 8, 14, 18, 22, 26, 28)),
    ):
        places = [at for at in range(len(good)) if good.startswith(magic, at)]
        data = bytearray(good)
        struct.pack_into("<H", data, dice.choice(places) + dice.choice(fields), dice.randrange(1 << 16))
        yield bytes(data)
    data = bytearray(good)
    struct.pack_into("<H", data, good.rindex(END) + dice.choice((4, 8, 10, 12, 16, 20)), dice.randrange(9999))
    yield bytes(data)
    start, end = sorted((dice.randrange(len(good)), dice.randrange(len(good))))
    yield good[:start] + good[end:]
    yield good[:end] + good[start:]
    name = dice.choice((b"demo/__init__.py", b"demo/x.so"))
    evil = dice.choice((b"../x", b"/etc/x", b"a\0b", b"a/./b", b"C:\\x"))
    yield good.replace(name, evil.ljust(len(name), b"y"))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_damage_escapes_as_another_error_or_passes_as_good(wheel: Path, tmp_path: Path, seed: int) -> None:
    good, before = wheel.read_bytes(), members_of(wheel)
    dice = random.Random(seed)  # noqa: S311 - a fixed sequence is the point
    around = sorted(tmp_path.rglob("*"))
    cases = list(mutated(good, dice))
    assert len(cases) == BATCH
    for number, data in enumerate(cases):
        wheel.write_bytes(data)
        findings = verify(wheel, Expectation(targets=("gfx942", "gfx1100")))
        if not findings:
            # Only what no installer acts on may differ: every name and byte is the same.
            assert members_of(wheel) == before
        for reader in (wheel_info.read, binaries.read_wheel, binaries.targets_of, summarise):
            attempt(lambda reader=reader: reader(wheel))  # type: ignore[misc]
        if isinstance(whole := attempt(lambda: summarise(wheel)), Summary):
            # What can be read whole gives the same where it lies on a server, but for the binaries.
            listed = listing(wheel).to_plain()
            unread = {name for name, value in listed.items() if value is None} | {"unread"}
            assert {n: v for n, v in listed.items() if n not in unread} == {
                n: v for n, v in whole.to_plain().items() if n not in unread
            }
        attempt(lambda: listing(wheel))
        attempt(lambda: diff(wheel, wheel))
        split_and_join(wheel, tmp_path / f"split{number}")
        out = tmp_path / f"out{number}"
        made = attempt(lambda out=out: edit_wheel(wheel, Edit(version="2.0"), out))  # type: ignore[misc]
        left = [path.name for path in out.glob("*")] if out.exists() else []
        assert left == ([made.name] if isinstance(made, Path) else [])
        if isinstance(made, Path):
            made.unlink()
        if out.exists():
            out.rmdir()
    assert sorted(tmp_path.rglob("*")) == around


def listing(wheel: Path) -> Summary:
    """What is read of a wheel on a server; here of a file that claims to be there."""
    raw = RawFile(wheel)
    raw.is_remote = True
    with Archive.open(raw, limits=Limits(links=True)) as archive:
        read_listing(archive)
        return summarise_archive(archive)


def split_and_join(wheel: Path, folder: Path) -> None:
    """Either an error of ours and nothing written, or wheels that give the same targets again."""
    made = attempt(lambda: split(wheel, folder / "parts"))
    if isinstance(made, tuple):
        assert sorted((folder / "parts").iterdir()) == sorted(made)
        joined = join(made[0], made[1:], folder / "joined")
        assert binaries.targets_of(joined.path) == binaries.targets_of(wheel)
    else:
        assert not list(folder.rglob("*.*"))
    if folder.exists():
        shutil.rmtree(folder)


def attempt(action: Callable[[], object]) -> object:
    try:
        return action()
    except WheelError:
        return None


@pytest.mark.parametrize("file", ["METADATA", "WHEEL", "RECORD", "entry_points.txt", "x.so"])
def test_files_whose_archive_is_sound_but_whose_content_is_not(
    wheel: Path, tmp_path: Path, file: str
) -> None:
    good = members_of(wheel)
    dice = random.Random(file)  # noqa: S311 - a fixed sequence is the point
    for _ in range(25):
        pack(
            wheel, {name: spoiled(data, dice) if name.endswith(file) else data for name, data in good.items()}
        )
        findings = verify(wheel, Expectation(targets=("gfx942", "gfx1100"), require_device_code=True))
        assert findings or members_of(wheel) == good
        attempt(lambda: summarise(wheel))
        split_and_join(wheel, tmp_path / "split")
        attempt(lambda: edit_wheel(wheel, Edit(version="2.0", add_requirements=("a",)), tmp_path / "out"))


def spoiled(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 5)):
        at = dice.randrange(len(changed))
        kind = dice.randrange(3)
        if kind == 0:
            changed[at] = dice.randrange(256)
        elif kind == 1:
            del changed[at : at + dice.randint(1, 20)]
        else:
            changed[at:at] = dice.choice((b"\n", b",", b"\0", b": ", b'"', b"\xff", b"a" * 50))
        changed = changed or bytearray(b"x")
    return bytes(changed)
