"""Mach-O files put together byte by byte, and what our reader makes of them."""

from __future__ import annotations

import contextlib
import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import WheelError
from cairn.formats import macho
from cairn.formats.image import Image
from cairn.formats.view import BytesView
from helpers.formats import make_macho, make_universal, signed

X86_64 = 0x01000007
FILE = make_macho(
    ("@rpath/liba.dylib", "/usr/lib/libSystem.B.dylib"),
    name="@rpath/libdemo.dylib",
    weak=("/opt/weak.dylib",),
    run_paths=("@loader_path/../lib",),
    minimum=(12, 3),
    defined=("PyInit_demo", "other"),
    wanted=("PyList_New", "_Py_Dealloc", "malloc"),
)


def test_what_the_loader_reads() -> None:
    (found,) = macho.read_view(BytesView(FILE), python=True)
    assert found == Image(
        format="macho",
        machine="arm64",
        type="library",
        soname="@rpath/libdemo.dylib",
        needed=("@rpath/liba.dylib", "/usr/lib/libSystem.B.dylib"),
        rpath=("@loader_path/../lib",),
        minimum_macos=(12, 3),
        systems=frozenset({"macOS"}),
        python_defined=frozenset(["PyInit_demo"]),
        python_wanted=frozenset(["PyList_New", "_Py_Dealloc"]),
        is_signature_unread=True,  # it has a place for one, and no hash in it
    )
    (plain,) = macho.read_view(BytesView(FILE))
    assert (plain.python_defined, plain.python_wanted) == (frozenset(), frozenset())


def test_every_part_of_a_universal_file() -> None:
    data = make_universal(make_macho(machine=X86_64, kind=8, minimum=(10, 9)), FILE)
    assert macho.is_macho(data[:8])
    one, other = macho.read_view(BytesView(data), python=True)
    assert (one.machine, one.type, one.minimum_macos) == ("x86_64", "bundle", (10, 9))
    assert other.python_defined == frozenset(["PyInit_demo"])


def test_what_is_none() -> None:
    java = struct.pack(">IHH", 0xCAFEBABE, 0, 52)  # a class file of Java begins alike
    assert not macho.is_macho(java)
    for data in (java, b"", b"\x7fELF" + bytes(60), struct.pack(">II", 0xCAFEBABE, 0)):
        with pytest.raises(WheelError):
            macho.read_view(BytesView(data))


@given(st.data())
def test_broken_files_end_in_an_error_of_ours(data: st.DataObject) -> None:
    whole = make_universal(FILE, make_macho(machine=X86_64)) if data.draw(st.booleans()) else FILE
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WheelError):
        macho.read_view(BytesView(bytes(broken)), python=True)


def test_the_parts_of_powerpc_are_read_too() -> None:
    head = struct.pack(">8I", 0xFEEDFACF, 0x01000012, 0, 6, 0, 0, 0, 0)
    (one,) = macho.read_view(BytesView(head))
    assert (macho.is_macho(head), one.machine) == (True, "ppc64")


def test_names_are_refused_before_they_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_macho((), defined=[f"_Py{number}{'x' * 100}" for number in range(20)])
    (one,) = macho.read_view(BytesView(data), python=True)
    assert len(one.python_defined) == 20
    monkeypatch.setattr(macho, "_MOST_NAMES", 1000)
    with pytest.raises(WheelError, match="1000 bytes of names"):
        macho.read_view(BytesView(data), python=True)


def test_a_second_symbol_table_is_refused() -> None:
    # Each would be read, though all of them are one: as many as there is room for in the load commands.
    data = make_macho((), defined=("a",), name="x" * 16)
    assert macho.read_view(BytesView(data))
    at = 32
    while struct.unpack_from("<I", data, at) != (2,):
        at += struct.unpack_from("<II", data, at)[1]
    command = data[at : at + 24]
    count, length = struct.unpack_from("<II", data, 16)
    two = bytearray(data[:32] + command + data[32:])
    struct.pack_into("<II", two, 16, count + 1, length + 24)
    with pytest.raises(WheelError, match="or several"):
        macho.read_view(BytesView(bytes(two)), symbols=True)


@pytest.mark.parametrize(("count", "refusal"), [(16, ""), (17, "17 parts"), (100_000, "100000 parts")])
def test_hashes_of_a_signature_are_compared_once(count: int, refusal: str) -> None:
    data = signed(make_macho((), code=bytes(range(256)) * 3000))
    place = data.index(struct.pack("<II", 0x1D, 24)) + 8
    at, size = struct.unpack_from("<II", data, place)
    # The hash of the first page has to be right, since the page has the size of the signature.
    index = struct.pack(">I", count) + struct.pack(">II", 0, 12 + 8 * count) * count
    data = bytearray(data[: at + 8] + index + data[at + 20 :])
    struct.pack_into("<I", data, place + 4, size + 8 * (count - 1))
    directory = at + 12 + 8 * count
    data[directory + 44 : directory + 76] = hashlib.sha256(data[:4096]).digest()
    (image,) = macho.read_view(BytesView(bytes(data)))
    assert refusal in image.refusal
    assert bool(image.refusal) == bool(refusal)


def test_hashes_of_nothing_are_not_compared() -> None:
    data = bytearray(signed(make_macho((), code=b"x")))
    at = data.index(b"\xfa\xde\x0c\x02")
    struct.pack_into(">I", data, at + 28, 1 << 32 - 1)  # nCodeSlots
    assert not macho.read_view(BytesView(signed(make_macho((), code=b"x"))))[0].is_signature_unread
    data[at + 36] = 0  # hashSize
    (image,) = macho.read_view(BytesView(bytes(data)))
    assert (image.refusal, image.is_signature_unread) == ("", True)


def test_a_second_signature_is_refused() -> None:
    data = signed(make_macho(()))
    at = data.index(struct.pack("<II", 0x1D, 24))
    count, length = struct.unpack_from("<II", data, 16)
    two = bytearray(data[:32] + data[at : at + 24] + data[32:])
    struct.pack_into("<II", two, 16, count + 1, length + 24)
    (image,) = macho.read_view(BytesView(bytes(two)))
    assert "2 signatures" in image.refusal
