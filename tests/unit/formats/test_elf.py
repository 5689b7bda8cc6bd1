from __future__ import annotations

import importlib.util
import random
import re
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from cairn.errors import WheelError
from cairn.formats import elf, elf_layout
from cairn.formats import view as formats_view
from cairn.formats.view import BytesView, MemberView
from cairn.formats.zip.reader import Archive
from helpers.formats import make_elf
from helpers.wheels import build_wheel

VERSIONS = {"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28"), "libm.so.6": ("GLIBC_2.27",)}


def full() -> bytes:
    return make_elf(
        soname="libdemo.so.1",
        needed=("libm.so.6", "libc.so.6"),
        runpath="$ORIGIN:$ORIGIN/../lib",
        rpath="/x",
        versions=VERSIONS,
        sections={".text": b"\x90" * 10, ".hip_fatbin": b""},
    )


def test_everything_the_loader_reads(tmp_path: Path) -> None:
    data = full()
    found = elf.read(data)
    assert (found.machine, found.type, found.soname) == ("x86_64", "shared", "libdemo.so.1")
    assert found.needed == ("libm.so.6", "libc.so.6")
    assert found.runpath == ("$ORIGIN", "$ORIGIN/../lib")
    assert found.rpath == ("/x",)
    assert found.version_needs == VERSIONS
    text = found.section(".text")
    assert text is not None
    assert data[text.offset : text.offset + text.size] == b"\x90" * 10
    assert found.section(".nope") is None
    (tmp_path / "x.so").write_bytes(data)
    assert elf.read_file(tmp_path / "x.so") == found


def test_very_long_run_paths_are_read() -> None:
    folders = tuple(f"$ORIGIN/{'x' * 50}{i}" for i in range(500))
    assert elf.read(make_elf(runpath=":".join(folders))).runpath == folders


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + bytes(100), b"\x7fELF\x09\x01" + bytes(100)])
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(WheelError):
        elf.read(data)


def test_version_needs_are_followed_as_the_loader_does() -> None:
    # glibc never looks at DT_VERNEEDNUM: a number that lies must hide nothing.
    data = full()
    for number in (0, 1, 1 << 40):
        entry = struct.pack("<QQ", 0x6FFFFFFF, len(VERSIONS))
        lying = data.replace(entry, struct.pack("<QQ", 0x6FFFFFFF, number))
        assert lying != data
        assert elf.read(lying).version_needs == VERSIONS


@pytest.mark.parametrize("at", [54, 58])
def test_headers_of_another_size_are_refused(at: int) -> None:
    # e_phentsize and e_shentsize: what lies between wrong steps is seen by no two readers alike.
    data = bytearray(full())
    struct.pack_into("<H", data, at, 3)
    with pytest.raises(WheelError, match="impossible size"):
        elf.read(bytes(data))


def test_too_many_names_are_refused_before_they_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_elf(needed=("x" * 500,) * 20)
    assert len(elf.read(data).needed) == 20
    monkeypatch.setattr(elf, "_MOST_NAMES", 9_999)
    with pytest.raises(WheelError, match="9999 bytes of names"):
        elf.read(data)
    monkeypatch.setattr(elf, "_MOST_VERSIONS", 2)
    with pytest.raises(WheelError, match="2 symbol versions"):
        elf.read(full())


def test_a_table_of_names_as_large_as_that_of_tensorflow_is_read() -> None:
    names = tuple(f"_Z{number:02}{'x' * (1 << 20)}" for number in range(80))
    view = formats_view.BytesView(make_elf(defined=names, needed=("libc.so.6",)))
    image = elf.read_view(view, linkage=True)
    assert image.defines is not None
    whole = image.defines[""] == {name.encode() for name in names}  # too long to be shown
    assert whole


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(WheelError, match="empty"):
        elf.read_file(tmp_path / "x")


def test_damage_and_truncation_are_wheel_errors() -> None:
    good = full()
    for length in range(0, len(good), 3):
        with pytest.raises(WheelError):
            elf.read(good[:length])
    dice = random.Random(3)  # noqa: S311 - a fixed sequence is the point
    refused = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
        try:
            elf.read(bytes(data))
        except WheelError:
            refused += 1
    assert refused > 300


def test_a_member_is_read_without_holding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = full()
    noise = random.Random(1).randbytes(3_000_000)  # noqa: S311 - a fixed sequence is the point
    wheel = build_wheel(tmp_path, files={"demo/lib.so": data + noise, "demo/x.bin": noise, "demo/empty": b""})
    monkeypatch.setattr(formats_view, "_HEAD", 300_000)
    seen = bytearray()
    with Archive.open(wheel) as archive:
        member = archive.member("demo/lib.so")
        assert elf.read_view(MemberView(archive, member)) == elf.read(data + noise)
        view = MemberView(archive, member, observer=seen.extend)
        for offset, size in ((2_000_000, 10), (500_000, 700_000), (0, 16), (2_999_990, 10), (100, 400_000)):
            assert view.read(offset, size) == (data + noise)[offset : offset + size]
        view.drain()
        assert seen == data + noise
        with pytest.raises(WheelError):
            view.read(len(data + noise), 1)


def test_symbols_are_those_that_another_reader_sees() -> None:
    """Python's own modules, which have DT_GNU_HASH and hundreds of symbols; pyelftools is the judge."""
    for name in ("_ctypes", "_ssl", "math"):
        spec = importlib.util.find_spec(name)
        if spec is None or not (spec.origin or "").endswith(".so"):
            continue
        path = Path(spec.origin or "")
        with path.open("rb") as file:
            section: Any = ELFFile(file).get_section_by_name(".dynsym")
            rows = [
                (row.name.encode(), row["st_info"]["bind"], row["st_shndx"]) for row in section.iter_symbols()
            ]
        outside = [(name, bind, place) for name, bind, place in rows if bind != "STB_LOCAL"]
        wanted = {name for name, bind, place in outside if place == "SHN_UNDEF" and bind != "STB_WEAK"}
        given = {name for name, _, place in outside if place != "SHN_UNDEF"}
        assert elf.imports(path) == wanted
        assert elf.exports(path, frozenset(name for name, _, _ in rows)) == given
    assert elf.exports(path, frozenset()) == frozenset()


def test_symbols_have_the_versions_that_another_reader_sees() -> None:
    """The C library that this process runs on, which has names in many versions; pyelftools is the judge."""
    maps = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""
    path = next((line.split()[-1] for line in maps.splitlines() if re.search(r"/libc[.-].*so", line)), None)
    if path is None:
        pytest.skip("no C library of Linux to read")
    with Path(path).open("rb") as file:
        judge = ELFFile(file)
        versions: Any = judge.get_section_by_name(".gnu.version")
        defined: Any = judge.get_section_by_name(".gnu.version_d")
        needed: Any = judge.get_section_by_name(".gnu.version_r")
        table: Any = judge.get_section_by_name(".dynsym")
        given, wanted = set(), set()
        for number, row in enumerate(table.iter_symbols()):
            if row["st_info"]["bind"] == "STB_LOCAL" or not row.name:
                continue
            index = versions.get_symbol(number)["ndx"]
            index = index & 0x7FFF if isinstance(index, int) else 0
            if row["st_shndx"] != "SHN_UNDEF":
                names = next(defined.get_version(index)[1]).name if index else ""
                if names != row.name:
                    given.add((row.name, names))
            else:
                wanted.add((row.name, needed.get_version(index)[1].name if index else ""))
    image = elf.read_view(formats_view.BytesView(Path(path).read_bytes()), symbols=True)
    assert {(one.name, one.version) for one in image.exports} == given
    assert {(one.name, one.version) for one in image.imports} == wanted
    assert len(given) > 1000
    assert any(one.library.startswith("ld-linux") for one in image.imports)


@pytest.mark.parametrize("hash_table", ["sysv", "gnu", "gnu, nothing exported"])
def test_what_is_defined_is_seen_outside_where_it_is_listed(tmp_path: Path, hash_table: str) -> None:
    defined = ("one", "two") if "nothing" not in hash_table else ()
    path = tmp_path / "lib.so"
    path.write_bytes(
        make_elf(symbols=("want",), weak=("may",), defined=defined, needed=("x",), hash_table=hash_table)
    )
    assert elf.imports(path) == {b"want"}
    assert elf.exports(path, frozenset((b"want", b"may", b"two", b"three"))) == {
        name.encode() for name in defined if name == "two"
    }


def test_broken_symbol_tables_are_refused_or_read_in_time(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("_ctypes") or importlib.util.find_spec("math")
    assert spec
    data = Path(spec.origin or "").read_bytes()
    chance, path, refused = random.Random(7), tmp_path / "broken.so", 0  # noqa: S311 - no secret
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(8):
            broken[chance.randrange(64, 8192)] = chance.randrange(256)
        path.write_bytes(broken)
        try:
            elf.exports(path, elf.imports(path) | {b"PyInit__ctypes"})
            elf.read_view(formats_view.BytesView(bytes(broken)), symbols=True)
        except WheelError:
            refused += 1
    assert refused


def test_the_versions_of_one_library_in_many_parts_take_time_as_they_are_long() -> None:
    def seconds(count: int) -> float:
        data = make_elf(versions={"a": ("1",), "b": ("2",)})
        at = data.index(struct.pack("<HHI", 1, 1, data.index(b"a\0") - data.index(b"\x001\0a\0")))
        # Behind everything else a chain of Elf_Verneed that all lead to the one Elf_Vernaux.
        place = len(data) + -len(data) % 16
        row = data[at : at + 8]
        chain = (row + struct.pack("<II", 16 * (count - n), 16 if n + 1 < count else 0) for n in range(count))
        data = data.ljust(place, b"\0") + b"".join(chain) + data[at + 16 : at + 28] + bytes(4)
        data = data.replace(struct.pack("<QQ", 0x6FFFFFFE, at), struct.pack("<QQ", 0x6FFFFFFE, place))
        whole = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, len(data), len(data), 4096)
        began = time.process_time()
        assert elf.read(data[:64] + whole + data[64 + 56 :]).version_needs == {"a": ("1",) * count}
        return time.process_time() - began

    assert seconds(100_000) < 10  # 35 s where each part copies those before it


def test_names_of_sections_are_refused_before_they_take_all_time(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = elf_layout.read(BytesView(make_elf(sections={".hip_fatbin": b"x" * 20})))
    assert layout.sections_named(".hip_fatbin")
    monkeypatch.setattr(elf_layout, "_MOST_NAMES", 10)
    with pytest.raises(WheelError, match="10 bytes of names of sections"):
        layout.sections_named(".hip_fatbin")
