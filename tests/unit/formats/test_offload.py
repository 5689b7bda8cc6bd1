from __future__ import annotations

import contextlib
import random
import struct

import pytest

from cairn import targets
from cairn.errors import WheelError
from cairn.formats.offload import bundle, code_object
from cairn.formats.offload.code_object import CodeObject
from cairn.formats.view import BytesView
from helpers.formats import make_bundle, make_elf

CODES = {
    "gfx942": b"\x7fELF" * 100,
    "gfx90a:sramecc+:xnack-": b"code",
    "gfx11-generic": b"x",
    "gfx9-4-generic": b"y",
}
KINDS = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


def read(data: bytes) -> tuple[CodeObject, ...]:
    return tuple(code_object.read_range(BytesView(data), 0, len(data)))


def found(data: bytes) -> dict[str, int]:
    return {str(code.target): code.size for code in read(data)}


@pytest.mark.parametrize(("version", "method"), KINDS)
def test_targets_and_sizes(version: int, method: int) -> None:
    data = make_bundle(CODES, version, method)
    assert found(data) == {target: len(code) for target, code in CODES.items()}
    assert all(code.compressed == bool(version) for code in read(data))


def test_bundles_one_after_the_other() -> None:
    data = b""
    starts = []
    for version, method in KINDS:
        data += bytes(-len(data) % 4096)
        starts.append(len(data))
        data += make_bundle({f"gfx90{version}": bytes(200_000)}, version, method)
    assert [code.offset for code in read(data + bytes(100_000))] == starts


def test_nothing_and_padding_hold_nothing() -> None:
    assert read(b"") == ()
    assert read(bytes(200_000)) == ()


@pytest.mark.parametrize("target", ["sm_90", "gfxyz", "gfx942:xnack", ""])
def test_an_entry_that_names_no_target_is_refused(target: str) -> None:
    with pytest.raises(WheelError, match="names no target"):
        read(make_bundle({target: b"x"}))


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"CCOB",
        struct.pack("<4sHH", b"CCOB", 4, 1) + bytes(100),
        struct.pack("<4sHH", b"CCOB", 2, 7) + bytes(100),
        struct.pack("<4sHHIIQ", b"CCOB", 2, 1, 10**6, 100, 0) + b"x" * 100,
        struct.pack("<4sHHIIQ", b"CCOB", 2, 1, 0, 100, 0) + b"x" * 100,
        b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 1 << 60),
        b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 0, 1 << 60, 3) + b"abc",
        b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 0, 0, 1 << 60),
    ],
)
def test_malformed_bundles_are_refused(data: bytes) -> None:
    with pytest.raises(WheelError):
        read(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (struct.pack("<4sHHIIQ", b"CCOB", 2, 1, 10**6, 100, 0) + b"x" * 100, "where 124 are left"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<QQQQ", 1, 0, 99, 3) + b"abc", "leads out of it"),
    ],
)
def test_a_bundle_that_leads_out_of_itself_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(WheelError, match=said):
        read(data)


class Noting:
    """A checker that notes complaints about bundles."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def look(self, entries: object, content: object) -> None:
        pass

    def complain(self, reason: str) -> None:
        self.noted.append(reason)


def test_a_compressed_bundle_that_is_cut_off_behind_its_code_is_told() -> None:
    data = bytearray(make_bundle(CODES, 2))[:-2]  # of the checksum at the end of a zlib stream
    struct.pack_into("<I", data, 8, len(data))
    checker = Noting()
    list(bundle.read_range(BytesView(bytes(data)), 0, len(data), checker))
    assert checker.noted == ["a compressed offload bundle does not end"]


@pytest.mark.parametrize(("version", "method"), KINDS)
def test_damage_is_a_wheel_error(version: int, method: int) -> None:
    good = make_bundle(CODES, version, method)
    dice = random.Random(5)  # noqa: S311 - a fixed sequence is the point
    refused = 0
    for number in range(300):
        data = bytearray(good)
        data[dice.randrange(min(len(data), 120))] = dice.randrange(256)
        try:
            read(bytes(data[: dice.randrange(1, len(data))] if number % 3 == 0 else data))
        except WheelError:
            refused += 1
    assert refused > 50


def test_the_codes_of_a_whole_library() -> None:
    section = make_bundle({"gfx942": b"a"}) + make_bundle({"gfx1100": b"b"}, 3, 1)
    library = make_elf(sections={".hip_fatbin": section})
    assert [str(code.target) for code in code_object.of_elf(library)] == ["gfx942", "gfx1100"]


# The flags that clang 22 writes.
@pytest.mark.parametrize(
    ("flags", "abi_version", "target"),
    [
        (0x54C, 4, "gfx942"),
        (0x53F, 4, "gfx90a"),
        (0xE3F, 4, "gfx90a:sramecc+:xnack-"),
        (0xB30, 3, "gfx908:sramecc-:xnack+"),
        (0x330, 1, "gfx908:sramecc+:xnack+"),
        (0x02F, 1, "gfx906"),
        (0x041, 2, "gfx1100"),
        (0x04E, 4, "gfx1201"),
        (0x0100055F, 4, "gfx9-4-generic"),
        (0x01000054, 4, "gfx11-generic"),
    ],
)
def test_a_code_object_of_its_own(flags: int, abi_version: int, target: str) -> None:
    data = make_elf(machine=224, flags=flags, abi_version=abi_version)
    (code,) = code_object.of_elf(data)
    assert (str(code.target), code.size, code.compressed) == (target, len(data), False)


@pytest.mark.parametrize("processor", [0, 1, 0x1F, 0x27, 0x60, 0xFF])
def test_a_code_object_for_nobody_is_refused(processor: int) -> None:
    with pytest.raises(WheelError, match="unknown processor"):
        code_object.of_elf(make_elf(machine=224, flags=processor))


def test_every_target_has_the_number_of_its_code_objects() -> None:
    numbers = {}
    for number in range(0x20, 0x100):
        with contextlib.suppress(WheelError):
            numbers[code_object.target_of(BytesView(make_elf(machine=224, flags=number))).processor] = number
    assert {*targets.known_targets(), *targets.unbuilt_targets()} <= set(numbers)
    assert numbers["gfx1250-strict"] == 0xEB


@pytest.mark.parametrize("ident", [b"\x01\x01", b"\x02\x02"])
def test_a_code_object_of_32_bits_or_the_other_byte_order_is_refused(ident: bytes) -> None:
    """Its flags stand elsewhere, and would name some target all the same."""
    data = make_elf(machine=224, flags=0x04C)
    with pytest.raises(WheelError, match="not a 64-bit little-endian ELF file"):
        code_object.target_of(BytesView(data[:4] + ident + data[6:]))
