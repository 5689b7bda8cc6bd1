"""Device code taken out of libraries that were put together byte by byte; pyelftools reads what comes out."""

from __future__ import annotations

import io
import itertools
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from cairn.errors import WheelError
from cairn.formats.offload import detach
from cairn.formats.offload.detach import Undo
from cairn.formats.view import BytesView, FileView
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.hip_library import (
    GLOBAL_DATA,
    RELATIVE,
    WRAPPER,
    in_memory,
    in_row,
    make_hip_library,
    section_of,
    word,
)

CODES = {
    "gfx942": make_code_object("gfx942", random.Random(1).randbytes(9000)),  # noqa: S311 - fixed content
    "gfx90a:xnack+": make_code_object("gfx90a", b"with xnack" * 900),
}
KINDS = [(0, 0), (1, 0), (2, 0), (2, 1), (3, 1)]
BUNDLES = [make_bundle(CODES, *kind) for kind in KINDS]
REFERENCE = b"what leads to the archive"


def detached(data: bytes, tmp_path: Path) -> tuple[bytes, Undo]:
    library = detach.read(BytesView(data))
    assert library is not None
    undo = detach.detach(library, REFERENCE, tmp_path / "host.so")
    return (tmp_path / "host.so").read_bytes(), undo


OPTIONS: list[dict[str, Any]] = [
    {},
    {"relocations": "relr"},
    {"relocations": "rel"},
    {"relocations": "symbols"},
    {"relocations": "none", "kind": 2},
    {"interpreter": True},
    {"page": 1 << 16},
    {"page": 1 << 21},
    {"behind": b""},
    {"behind": b"", "bss": 0},
    {"trailing": b"what a signer has put behind it" * 99},
    {"leads": [4, 0, 1, 0, 2, 3]},
    {"leads": [n % 5 for n in range(100)], "relocations": "relr"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_code_goes_and_all_else_stays_where_it_was(options: dict[str, Any], tmp_path: Path) -> None:
    data = make_hip_library(BUNDLES, **options)
    before = ELFFile(io.BytesIO(data))
    code = section_of(before, ".hip_fatbin")
    host, undo = detached(data, tmp_path)
    after = ELFFile(io.BytesIO(host))

    gone = section_of(after, ".hip_fatbin")
    assert gone["sh_type"] == "SHT_NOBITS"
    room = 4096 if options.get("kind") == 2 or options.get("interpreter") else 0  # of a program
    assert (gone["sh_addr"], gone["sh_size"]) == (code["sh_addr"] + room, code["sh_size"] - room)
    assert not any(bytes(value) in host for value in CODES.values())
    if options.get("page", 0) <= 4096:
        assert len(host) < len(data) - code["sh_size"] + 3 * 4096
    reference = section_of(after, ".rocm_kpack_ref")
    assert reference.data() == REFERENCE
    assert reference["sh_flags"] == 2  # SHF_ALLOC

    # In memory all is as before but the code, and the wrappers with what fills in their pointers.
    old, new = in_memory(data), in_memory(host)
    pointer = reference["sh_addr"]
    section = section_of(after, ".hipFatBinSegment")
    count = section["sh_size"] // 24
    assert count == len(options.get("leads", BUNDLES))
    changed = {*range(code["sh_addr"], code["sh_addr"] + code["sh_size"]), *range(64)}
    changed |= {*range(section["sh_addr"], section["sh_addr"] + section["sh_size"])}
    for number in range(count):
        at = section["sh_addr"] + 24 * number
        assert [word(new, at, 4), word(new, at + 4, 4), word(new, at + 16, 8)] == [0x4B504948, 1, number]
    end = max(old) + 1
    different = {
        at for at in old.keys() | {a for a in new if a < end} if old.get(at) != new.get(at)
    } - changed
    if (relocations := options.get("relocations", "rela")) in ("rela", "symbols"):
        start = 64 + 56 * before.num_segments()
        places = range(start, start + 24 * count)  # the addends in the table of relocations, and their types
        assert different <= set(places)
        assert all((at - places.start) % 24 >= (16 if relocations == "rela" else 8) for at in different)
        assert all(word(new, places.start + 24 * n + 8, 8) == RELATIVE for n in range(count))
        assert all(word(new, places.start + 24 * n + 16, 8) == pointer for n in range(count))
    else:
        assert not different
    assert all(word(new, section["sh_addr"] + 24 * n + 8, 8) == pointer for n in range(count))
    assert host.count(options.get("trailing", b"\x7fELF")) == 1

    # And back, but for the code itself.
    detach.attach(tmp_path / "host.so", undo, tmp_path / "again.so")
    again = (tmp_path / "again.so").read_bytes()
    start = code["sh_offset"]
    assert again == data[:start] + bytes(code["sh_size"]) + data[start + code["sh_size"] :]


def test_program_headers_are_on_a_page_of_their_own(tmp_path: Path) -> None:
    """The C library takes them for a part of the segment whose last page they share: there is .bss."""
    host, _ = detached(make_hip_library(BUNDLES), tmp_path)
    file = ELFFile(io.BytesIO(host))
    segments = [s.header for s in file.iter_segments()]
    (table,) = (s for s in segments if s.p_type == "PT_PHDR")
    assert (table.p_offset, table.p_filesz) == (file.header.e_phoff, 56 * file.header.e_phnum)
    *others, own = (s for s in segments if s.p_type == "PT_LOAD")
    assert own.p_offset == table.p_offset
    assert own.p_vaddr == table.p_vaddr
    assert all(-(-(s.p_offset + s.p_filesz) // 4096) * 4096 <= own.p_offset for s in others)
    assert all(s.p_vaddr + s.p_memsz <= own.p_vaddr for s in others)
    assert sorted(others, key=lambda s: s.p_vaddr) == others


def test_code_of_less_than_a_page_is_taken_too(tmp_path: Path) -> None:
    data = make_hip_library([make_bundle({"gfx942": b"x"})])
    host, undo = detached(data, tmp_path)
    assert undo.removed == 0
    assert b"__CLANG_OFFLOAD_BUNDLE__" not in host
    detach.attach(tmp_path / "host.so", undo, tmp_path / "again.so")
    assert len((tmp_path / "again.so").read_bytes()) == len(data)


def test_a_library_without_device_code_is_none() -> None:
    assert detach.read(BytesView(make_elf(soname="x"))) is None


def test_a_library_that_was_done_already_is_none(tmp_path: Path) -> None:
    host, _ = detached(make_hip_library(BUNDLES), tmp_path)
    assert detach.read(BytesView(host)) is None


def wrapper(pointer: int = 0, *, magic: int = 0x48495046, version: int = 1, unused: int = 0) -> bytes:
    return WRAPPER.pack(magic, version, pointer, unused)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("1 of its 5 bundles have no wrapper, the first at byte", {"leads": [0, 1, 2, 4]}),
    ("5 of its 5 bundles have no wrapper", {"leads": [], "wrappers": b""}),
    ("not a row of wrappers", {"wrappers": bytes(25)}),
    ("wrapper 0 is of an unknown kind or version", {"wrappers": wrapper(magic=1) * 5}),
    ("wrapper 0 is of an unknown kind or version", {"wrappers": wrapper(version=2) * 5}),
    ("wrapper 0 has something where there is nothing", {"wrappers": wrapper(unused=1 << 40) * 5}),
    ("nothing relocates its wrapper 0", {"relocations": "none"}),
    ("nothing relocates its wrapper 5", {"wrappers": wrapper() * 6}),
    ("two relocations change its wrapper", {"more_relocations": [(8, 8, 4096)]}),
    ("relocated by type 8", {"more_relocations": [(16, 8 | 1 << 32, 0)], "relocations": "symbols"}),
    (
        "leads to its device code too",
        {"more_relocations": [(24 * 5 + 8, GLOBAL_DATA | 1 << 32, 0)], "relocations": "symbols"},
    ),
    ("relocated by type 1", {"more_relocations": [(16, 1 | 1 << 32, 0)]}),
    ("which is no pointer", {"more_relocations": [(24 * 5 - 4, 8, 0)]}),
    ("leads to its device code too", {"more_relocations": [(24 * 5 + 8, 8, 4096)]}),
    ("for machine 183", {"machine": 183}),
    ("not aligned to pages", {"page": 16}),
]


@pytest.mark.parametrize(("reason", "options"), REFUSED)
def test_what_cannot_be_explained_is_refused_with_the_reason(reason: str, options: dict[str, Any]) -> None:
    with pytest.raises(WheelError, match=reason):
        detach.read(BytesView(make_hip_library(BUNDLES, **options)))


def test_a_wrapper_that_leads_into_a_bundle_is_refused() -> None:
    data = bytearray(make_hip_library(BUNDLES))
    at = data.index(struct.pack("<QQq", *struct.unpack_from("<QQq", data, 64 + 4 * 56)))
    data[at + 16] += 1
    with pytest.raises(WheelError, match="wrapper 0 does not lead to the beginning of a bundle"):
        detach.read(BytesView(bytes(data)))


def test_a_program_with_little_code_is_refused(tmp_path: Path) -> None:
    library = detach.read(BytesView(make_hip_library(BUNDLES[1:2], interpreter=True)))
    assert library is not None
    with pytest.raises(WheelError, match="nowhere to go"):
        detach.detach(library, bytes(9000), tmp_path / "x")


def test_code_that_shares_its_bytes_with_something_else_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_hip_library(BUNDLES))
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    _, places = in_row(BUNDLES)
    (code_at,) = struct.unpack_from("<Q", data, sections_at + 64 + 24)
    # .shstrtab, the last section, in the middle of the code as well.
    names = data[struct.unpack_from("<Q", data, sections_at + 4 * 64 + 24)[0] :][:47]
    at = code_at + places[1] - 100
    data[at : at + len(names)] = names
    struct.pack_into("<Q", data, sections_at + 4 * 64 + 24, at)
    with pytest.raises(WheelError):
        library = detach.read(BytesView(bytes(data)))
        assert library is not None
        detach.detach(library, REFERENCE, tmp_path / "x")


def test_no_damage_gives_a_crash(tmp_path: Path) -> None:
    good = make_hip_library(BUNDLES, trailing=b"x" * 50)
    dice = random.Random(9)  # noqa: S311 - a fixed sequence is the point
    sections_at = struct.unpack_from("<Q", good, 40)[0]
    (wrappers_at,) = struct.unpack_from("<Q", good, sections_at + 2 * 64 + 24)
    places = [*range(16, 64 + 4 * 56 + 5 * 24), *range(wrappers_at, len(good))]
    refused = 0
    for number in range(150):
        bad = bytearray(good)
        if number % 5:
            bad[dice.choice(places)] ^= 1 << dice.randrange(8)
        else:
            del bad[dice.randrange(len(bad)) :]
        (tmp_path / "bad.so").write_bytes(bad)
        try:
            with (tmp_path / "bad.so").open("rb") as file:
                library = detach.read(FileView(file))
                if library is not None:
                    undo = detach.detach(library, REFERENCE, tmp_path / "host.so")
                    detach.attach(tmp_path / "host.so", undo, tmp_path / "again.so")
        except WheelError:
            refused += 1
            continue
        if library is not None:
            again = (tmp_path / "again.so").read_bytes()
            code = library.code
            begin, end = code.offset, code.offset + code.size
            assert (again[:begin], again[end:]) == (bytes(bad[:begin]), bytes(bad[end:]))
    assert refused > 35


@pytest.mark.parametrize(
    "change",
    [
        {"size": 1 << 61},
        {"removed": -4096},
        {"removed_at": 1 << 40},
        {"patches": ((1 << 40, "00"),)},
        {"patches": ((-1, "00"),)},
        {"patches": ((1, "zz"),)},
    ],
)
def test_a_damaged_undo_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    _, undo = detached(make_hip_library(BUNDLES), tmp_path)
    fields = {name: getattr(undo, name) for name in ("size", "removed_at", "removed", "patches")}
    with pytest.raises(WheelError, match="not the library"):
        detach.attach(tmp_path / "host.so", Undo(**{**fields, **change}), tmp_path / "again.so")
    assert not (tmp_path / "again.so").exists()


def test_every_reference_that_leads_to_code_is_seen() -> None:
    """Also one of DT_RELR, whose value stands in the word itself."""
    data = bytearray(make_hip_library(BUNDLES, relocations="relr"))
    assert detach.read(BytesView(bytes(data))) is not None
    at = 64 + 4 * 56 + 8  # the bit map: another bit is another word, with what stands there for its value
    bits = struct.unpack_from("<Q", data, at)[0]
    for bit in itertools.islice((b for b in range(1, 64) if not bits >> b & 1), 3):
        changed = bytearray(data)
        struct.pack_into("<Q", changed, at, bits | 1 << bit)
        with pytest.raises(WheelError, match="which is no pointer"):
            detach.read(BytesView(bytes(changed)))
