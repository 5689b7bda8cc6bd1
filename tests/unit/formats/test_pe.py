from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from cairn.errors import WheelError
from cairn.formats import pe
from cairn.formats.view import BytesView
from helpers.formats import DLL_SECTION_AT, make_dll


def test_what_the_loader_reads() -> None:
    data = make_dll(
        ("KERNEL32.dll", "amdhip64_7.dll"), ("rocblas.dll",), name="demo.pyd", old_delayed=("old.dll",)
    )
    parsed = pe.read(data)
    assert parsed.needed == ("kernel32.dll", "amdhip64_7.dll", "rocblas.dll", "old.dll")
    assert parsed.machine == "win_amd64"
    bare = pe.read(make_dll(machine=0xAA64))
    assert (bare.needed, bare.machine) == ((), "win_arm64")


@pytest.mark.parametrize(
    "data",
    [b"", b"MZ", b"MZ" + bytes(100), b"\x7fELF" + bytes(100), b"MZ" + bytes(58) + struct.pack("<I", 1 << 31)],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(WheelError):
        pe.read(data)


def test_a_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.dll"
    path.write_bytes(make_dll(("a.dll",)))
    assert pe.read_file(path).needed == ("a.dll",)
    path.write_bytes(b"")
    with pytest.raises(WheelError, match="empty"):
        pe.read_file(path)


def test_names_and_tables_that_do_not_end() -> None:
    data = make_dll(("a.dll",))
    endless = data.replace(b"a.dll\0\0", b"a.dllll")
    with pytest.raises(WheelError, match="does not end"):
        pe.read(endless)
    (at,) = struct.unpack_from("<I", data, 64 + 24 + 112 + 8)
    moved = bytearray(data)
    struct.pack_into("<I", moved, 64 + 24 + 112 + 8, at + 100_000)
    with pytest.raises(WheelError, match="outside of every section"):
        pe.read(bytes(moved))


def test_every_damage_is_refused_or_read() -> None:
    chance = random.Random(11)  # noqa: S311 - the same damage each time
    whole = make_dll(("a.dll", "b.dll"), ("c.dll",), name="me.dll", old_delayed=("d.dll",))
    for _ in range(5000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        cut = chance.choice((len(data), chance.randrange(len(data))))
        try:
            pe.read(bytes(data[:cut]))
        except WheelError:
            continue


def test_sections_are_refused_before_they_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Sections may share their bytes in the file, so that many of them cost nothing there.
    data = make_dll(("a.dll",), sections={".far": b"x.dll\0" + bytes(90_000)})
    name_at = data.index(struct.pack("<I", DLL_SECTION_AT + data.index(b"a.dll") - data.index(b".far") - 40))
    far = data[:name_at] + struct.pack("<I", DLL_SECTION_AT + 0x100000) + data[name_at + 4 :]
    assert pe.read(far).needed == ("x.dll",)
    monkeypatch.setattr(pe, "_MOST_HELD", 90_000)
    assert pe.read(data).needed == ("a.dll",)
    with pytest.raises(WheelError, match="more room"):
        pe.read(far)


def test_long_names_of_templates_are_read() -> None:
    # Of MSVC's linker they may have 4,096 characters, and more where clang has compiled.
    name = "?" + "x" * 5000
    data = make_dll(("a.dll",), functions={"a.dll": [name]}, exports=[name])
    parsed = pe.read_view(BytesView(data), symbols=True)
    assert {symbol.name for symbol in (*parsed.exports, *parsed.imports)} == {name}


def test_names_and_rows_that_are_shared_are_refused_before_they_take_all_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = make_dll(("a.dll",) * 20, functions={"a.dll": ["f" * 100] * 50})
    assert len(pe.read_view(BytesView(data), symbols=True).imports) == 1
    for limit, number in (("_MOST_NAMES", 900), ("_MOST_TEXT", 90_000)):
        with monkeypatch.context() as patch:
            patch.setattr(pe, limit, number)
            with pytest.raises(WheelError, match="more than"):
                pe.read_view(BytesView(data), symbols=True)


def test_sections_may_stand_in_any_order() -> None:
    # The loader takes them in that of their addresses; names are looked for among them by address.
    data = make_dll(sections={f".s{number}": b"x" for number in range(2000)}, exports=["f"] * 2000)
    begin, end = 64 + 24 + 240, 64 + 24 + 240 + 40 * 2001
    rows = [data[at : at + 40] for at in range(begin, end, 40)]
    data = data[:begin] + b"".join(reversed(rows)) + data[end:]  # that with the names comes last
    assert pe.read_view(BytesView(data), symbols=True).exports


def test_all_that_counts_of_a_section_is_in_the_file() -> None:
    # On disk a section is padded to the alignment of the file, of which the loader misses nothing.
    data = make_dll(sections={".reloc": b"x" * 600})
    at = data.index(b".reloc") + 8
    padded = data[:at] + struct.pack("<I", 500) + data[at + 4 :]
    assert [pe.read(each).refusal for each in (data, padded[:-100])] == ["", ""]
    assert pe.read(padded[:-101]).refusal == "1 bytes of its section .reloc are not in the file"
