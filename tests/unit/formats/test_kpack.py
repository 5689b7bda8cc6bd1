"""Archives put together byte by byte, and what our reader and our writer make of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from cairn.errors import WheelError
from cairn.formats import kpack, msgpack
from cairn.formats.kpack import (
    Archive,
    Reference,
    build_of,
    builds_in,
    kernel_name_of,
    key_of,
    without_build,
    writing,
)
from cairn.formats.view import BytesView

CODES = [b"first" * 3000, b"", bytes(70_000), random.Random(3).randbytes(5000)]  # noqa: S311 - fixed content
# Two wrappers share a code object, and one of them has code for two targets.
TOC = {
    "lib/a.so#0": {"gfx942": 0},
    "lib/a.so#1": {"gfx942": 1, "gfx90a:sramecc+:xnack-": 3},
    "b #1.so#12": {"gfx942": 2},
    "b #1.so#13": {"gfx942": 2},
}
TARGETS = ["gfx942", "gfx90a:sramecc+:xnack-"]
SCHEMES = ["none", "zstd-per-kernel"]


def table_of(**more: object) -> dict[str, Any]:
    toc = {
        key: {
            arch: {"type": "hsaco", "ordinal": number, "original_size": len(CODES[number])}
            for arch, number in row.items()
        }
        for key, row in TOC.items()
    }
    table = {"format_version": 1, "group_name": "demo", "gfx_arch_family": "gfx94X-dcgpu"}
    return {**table, "gfx_arches": TARGETS, "toc": toc, **more}


def make(scheme: str, table: Mapping[str, Any] | None = None, **more: object) -> bytes:
    """An archive as the format's description has it, `more` in its table in place of what belongs there."""
    data = bytearray(64)
    if scheme == "none":
        places = []
        for code in CODES:
            data += bytes(-len(data) % 64)
            places.append({"offset": len(data), "size": len(code)})
            data += code
        where: dict[str, object] = {"blobs": places}
    else:
        frames = [zstandard.ZstdCompressor().compress(code) for code in CODES]
        blob = struct.pack("<I", len(frames))
        blob += b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
        where = {"zstd_offset": len(data), "zstd_size": len(blob)}
        data += blob
    whole = {**(table or table_of()), "compression_scheme": scheme, **where, **more}
    data[:16] = struct.pack("<4sIQ", b"KPAK", 1, len(data))
    return bytes(data) + msgspec.msgpack.encode(whole)


def opened(data: bytes) -> Archive:
    return Archive.open(BytesView(data), "x.kpack")


def content(archive: Archive) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for (key, arch), entry in archive.entries.items():
        found.setdefault(key, {})[arch] = archive.read(entry)
    return found


WANTED = {key: {arch: CODES[number] for arch, number in row.items()} for key, row in TOC.items()}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_code_object_is_read(scheme: str) -> None:
    archive = opened(make(scheme))
    assert content(archive) == WANTED
    assert archive.table.gfx_arches == tuple(TARGETS)
    list(archive.checked())


def test_what_is_written_is_what_the_description_says(tmp_path: Path) -> None:
    path = tmp_path / "x.kpack"
    with writing(path, group="demo", family="gfx94X-dcgpu", targets=TARGETS) as writer:
        ordinals = [
            writer.add((code[at : at + 999] for at in range(0, len(code), 999)), len(code)) for code in CODES
        ]
        for key, row in TOC.items():
            kernel, _, wrapper = key.rpartition("#")
            for arch, number in row.items():
                writer.name(kernel, int(wrapper), arch, ordinals[number])
        assert not path.exists()
    data = path.read_bytes()
    magic, version, table_at = struct.unpack_from("<4sIQ", data)
    assert (magic, version) == (b"KPAK", 1)
    table = msgspec.msgpack.decode(data[table_at:])
    where = {name: table.pop(name) for name in ("zstd_offset", "zstd_size")}
    assert table == table_of(compression_scheme="zstd-per-kernel")
    blob = data[where["zstd_offset"] :][: where["zstd_size"]]
    assert where["zstd_offset"] + where["zstd_size"] == table_at
    at, found = 4, []
    for _ in range(struct.unpack_from("<I", blob)[0]):
        (size,) = struct.unpack_from("<I", blob, at)
        frame = blob[at + 4 : at + 4 + size]
        # As rocm-kpack's own reader does it (python/rocm_kpack/compression.py): in one go.
        found.append(zstandard.ZstdDecompressor().decompress(frame))
        at += 4 + size
    assert at == len(blob)
    assert found == CODES
    list(opened(data).checked())
    assert content(opened(data)) == WANTED


@pytest.mark.parametrize("said", [3, 5])
def test_code_of_another_size_is_refused(tmp_path: Path, said: int) -> None:
    def write() -> None:
        with writing(tmp_path / "x", group="", family="", targets=["gfx942"]) as writer:
            writer.add([b"code"], said)

    with pytest.raises(WheelError, match=f"not of {said} bytes"):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (lambda code: zstandard.ZstdCompressor(write_content_size=False).compress(code), "not say its size"),
        (lambda code: zstandard.ZstdCompressor().compress(code + b"+"), "says 15001 bytes"),
    ],
)
def test_frames_that_other_readers_refuse(frame: Callable[[bytes], bytes], says: str) -> None:
    packed = frame(CODES[0])
    data = bytearray(16) + struct.pack("<II", 1, len(packed)) + packed
    entry = {"type": "hsaco", "ordinal": 0, "original_size": len(CODES[0])}
    table = table_of(
        toc={"a#0": {"gfx942": entry}},
        compression_scheme="zstd-per-kernel",
        zstd_offset=16,
        zstd_size=len(packed) + 8,
    )
    data[:16] = struct.pack("<4sIQ", b"KPAK", 1, len(data))
    archive = opened(bytes(data) + msgspec.msgpack.encode(table))
    with pytest.raises(WheelError, match=says):
        list(archive.checked())


def test_a_failure_leaves_no_archive_behind(tmp_path: Path) -> None:
    def fails() -> None:
        with writing(tmp_path / "x", group="", family="", targets=["gfx942"]) as writer:
            number = writer.add([b"code"], len(b"code"))
            writer.name("a", 0, "gfx942", number)
            writer.name("a", 0, "gfx942", number)

    with pytest.raises(WheelError, match="two code objects for gfx942"):
        fails()
    assert list(tmp_path.iterdir()) == []


def entry(**more: object) -> dict[str, Any]:
    code = {"type": "hsaco", "ordinal": 0, "original_size": len(CODES[0]), **more}
    return table_of(toc={"lib/a.so#0": {"gfx942": code}})


WRONG: list[tuple[str, Callable[[], bytes]]] = [
    ("not a kpack", lambda: b"KPA"),
    ("not a kpack", lambda: b"\x7fELF" + bytes(60)),
    ("unknown version 2", lambda: b"KPAK\x02" + make("none")[5:]),
    ("cut off", lambda: b"KPAK\x01\0\0\0" + struct.pack("<Q", 1 << 60) + bytes(64)),
    ("table begins at byte 8", lambda: b"KPAK\x01\0\0\0" + struct.pack("<Q", 8) + make("none")[16:]),
    ("behind its end", lambda: make("none") + b"\0"),
    ("unknown version", lambda: make("none", format_version=2)),
    ("unknown way", lambda: make("none", compression_scheme="lzma")),
    ("lacks its blobs", lambda: make("zstd-per-kernel", compression_scheme="none")),
    ("does not say where", lambda: make("none", compression_scheme="zstd-per-kernel")),
    ("malformed", lambda: make("none", toc=[])),
    ("malformed", lambda: make("none", blobs=[{"offset": 64}])),
    ("malformed", lambda: make("none", blobs=[{"offset": True, "size": 1}])),
    ("unknown kind 'elf'", lambda: make("none", entry(type="elf"))),
    ("number 4 of 4", lambda: make("none", entry(ordinal=4))),
    ("number -1 of 4", lambda: make("none", entry(ordinal=-1))),
    ("would be 5", lambda: make("none", entry(original_size=5))),
    ("would be -1", lambda: make("zstd-per-kernel", entry(original_size=-1))),
    ("would be 1099511627776", lambda: make("zstd-per-kernel", entry(original_size=1 << 40))),
    ("not among its targets", lambda: make("none", gfx_arches=["gfx942"])),
    ("which is none", lambda: make("none", gfx_arches=[*TARGETS, "gfx942:xnack"])),
    ("which is none", lambda: make("none", gfx_arches=[*TARGETS, "gfx90a:xnack-:sramecc+"])),
    ("twice", lambda: make("none", gfx_arches=[*TARGETS, "gfx942"])),
    ("has the key '#0'", lambda: make("none", toc={"#0": {}})),
    ("has the key 'a#01'", lambda: make("none", toc={"a#01": {}})),
    ("has the key 'a#9", lambda: make("none", toc={"a#" + "9" * 5000: {}})),
    ("has the key 'a#٣'", lambda: make("none", toc={"a#٣": {}})),
    ("overlaps", lambda: make("none", blobs=[{"offset": 64, "size": 9}, {"offset": 72, "size": 9}])),
    ("leads out", lambda: make("none", blobs=[{"offset": 8, "size": 9}])),
    ("leads out", lambda: make("none", blobs=[{"offset": 1 << 62, "size": 9}])),
    ("leads out", lambda: make("none", blobs=[{"offset": 64, "size": -9}])),
    ("lead out", lambda: make("zstd-per-kernel", zstd_size=1 << 40)),
    ("lead out", lambda: make("zstd-per-kernel", zstd_offset=4)),
    ("leads out", lambda: make("zstd-per-kernel", zstd_size=5000)),
    ("behind its last frame", lambda: make("zstd-per-kernel").replace(b"\4\0\0\0", b"\3\0\0\0", 1)),
]


@pytest.mark.parametrize(("reason", "made"), WRONG)
def test_what_is_malformed_is_refused_with_the_reason(reason: str, made: Callable[[], bytes]) -> None:
    with pytest.raises(WheelError, match=reason):
        opened(made())


def test_an_absurd_count_of_frames_costs_nothing() -> None:
    data = bytearray(make("zstd-per-kernel"))
    data[64:68] = b"\xff\xff\xff\xff"
    with pytest.raises(WheelError, match="cannot have 4294967295 frames"):
        opened(bytes(data))


def test_code_that_unpacks_to_another_size_is_refused() -> None:
    for size in (len(CODES[0]) - 1, len(CODES[0]) + 1):
        archive = opened(make("zstd-per-kernel", entry(original_size=size)))
        with pytest.raises(WheelError, match="its table says"):
            archive.read(archive.entries["lib/a.so#0", "gfx942"])


def test_what_no_entry_names_is_found_by_a_check() -> None:
    with pytest.raises(WheelError, match="entries for 1"):
        list(opened(make("none", entry())).checked())
    data = bytearray(make("none"))
    data[20] = 1
    with pytest.raises(WheelError, match="belong to no code object"):
        list(opened(bytes(data)).checked())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_damage_gives_a_crash_or_a_lie(scheme: str) -> None:
    """A changed byte of code cannot be seen, since the format has no hashes; everything else is."""
    good = make(scheme)
    dice = random.Random(5)  # noqa: S311 - a fixed sequence is the point
    refused = 0
    for number in range(400):
        bad = bytearray(good)
        if number % 2:
            del bad[dice.randrange(len(bad)) :]
        else:
            (table_at,) = struct.unpack_from("<Q", good, 8)
            places = (range(64), range(table_at, len(good)))[number % 4 // 2]
            bad[dice.choice(places)] ^= 1 << dice.randrange(8)
        try:
            archive = opened(bytes(bad))
            found = content(archive)
            list(archive.checked())
        except WheelError:
            refused += 1
            continue
        assert {len(code) for row in found.values() for code in row.values()} <= set(map(len, CODES))
    assert refused > 280


VALUES = [None, True, -1, -33, -129, -(1 << 40), 0, 127, 128, 1 << 63, 1.5, "", "é" * 40, "x" * 70_000, b"\0"]


def test_messagepack_is_read_as_others_write_it() -> None:
    value = {"k" * 40: VALUES, "map": {str(number): [number] for number in range(70_000)}, "": []}
    assert msgpack.loads(msgspec.msgpack.encode(value)) == value
    assert msgpack.loads(b"\xca\x3f\xc0\0\0") == 1.5  # a float of four bytes
    assert msgpack.loads(b"\xc4\x01x\0\0", padded=True) == b"x"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut off"),
        (b"\xa5abcd", "cut off"),
        (b"\xdb\xff\xff\xff\xff", "cut off"),
        (b"\xdd\xff\xff\xff\xff\x01", "4294967295 elements"),
        (b"\xdf\x7f\xff\xff\xff\xa1a\x01", "2147483647 elements"),
        (b"\x82\xa1a\x01\xa1a\x02", "there twice"),
        (b"\x81\x01\x02", "not text"),
        (b"\x81\x91\x02\x02", "nested"),
        (b"\x91" * 100, "nested"),
        (b"\xc1", "no place"),
        (b"\xd4\x01\x02", "no place"),
        (b"\xc7\x01\x01\x01", "no place"),
        (b"\x01\x02", "behind its end"),
        (b"\xa1\xff", "not UTF-8"),
    ],
)
def test_malformed_messagepack_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WheelError, match=reason):
        msgpack.loads(data)


def test_messagepack_of_very_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value of one byte takes a hundred times as much in memory."""
    monkeypatch.setattr(msgpack, "_MOST_VALUES", 1000)
    assert msgpack.loads(b"\xdc\x03\xe7" + b"\x80" * 999) == [{}] * 999
    with pytest.raises(WheelError, match="too many"):
        msgpack.loads(b"\xdc\x03\xe8" + b"\x80" * 1000)


def test_the_reference_of_a_library() -> None:
    made = Reference(kpack_search_paths=("../.kpack/torch_@GFXARCH@.kpack",), kernel_name="lib/libtorch é.so")
    data = kpack.dump_reference(made)
    assert msgspec.msgpack.decode(data) == {
        "kpack_search_paths": ["../.kpack/torch_@GFXARCH@.kpack"],
        "kernel_name": "lib/libtorch é.so",
    }
    assert kpack.load_reference(data + bytes(100)) == made
    with pytest.raises(WheelError, match="malformed"):
        kpack.load_reference(msgspec.msgpack.encode({"kernel_name": 1}))
    with pytest.raises(WheelError, match="behind"):
        kpack.load_reference(data + b"x")
    with pytest.raises(WheelError, match="a section"):
        kpack.load_reference(data + bytes(1 << 16))
    with pytest.raises(WheelError, match="take 65"):
        kpack.dump_reference(Reference(kpack_search_paths=("x" * 65_500,), kernel_name="y"))


def test_a_kernel_name_says_which_build_it_is_of() -> None:
    build = build_of({"lib/liba.so": "0123", "lib/libé.so": "4567"})
    assert build == build_of({"lib/libé.so": "4567", "lib/liba.so": "0123"})
    others = ({"lib/liba.so": "0123"}, {"lib/liba.so": "4567", "lib/libé.so": "0123"}, {})
    assert len({build, *map(build_of, others)}) == 4
    name = kernel_name_of("lib/libé@2.so", build)
    key = key_of(name, 12)
    assert (without_build(name), without_build(key)) == ("lib/libé@2.so", "lib/libé@2.so#12")
    # Other programs write names without it.
    assert without_build("lib/libé@2.so#3") == "lib/libé@2.so#3"
    assert builds_in([key, "lib/libé@2.so#3", name]) == (build,)
