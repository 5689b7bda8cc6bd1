"""Libraries with less device code; pyelftools reads what comes out, and the reader of split wheels."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from cairn.errors import WheelError
from cairn.formats.offload import detach, trim
from cairn.formats.offload.record import unpacking
from cairn.formats.view import BytesView, FileView
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import RELATIVE, in_memory, make_hip_library, section_of, word

RANDOM = random.Random(2)  # noqa: S311 - fixed content
CODES = {
    "gfx942": make_code_object("gfx942", RANDOM.randbytes(20_000)),
    "gfx90a": make_code_object("gfx90a", RANDOM.randbytes(5_000)),
    "gfx90a:xnack+": make_code_object("gfx90a", RANDOM.randbytes(6_000)),
    "gfx1100": make_code_object("gfx1100", RANDOM.randbytes(9_000)),
}
BUNDLES = [make_bundle(CODES, *kind) for kind in [(0, 0), (1, 0), (2, 1), (3, 1)]]


def trimmed(data: bytes, processors: set[str], folder: Path) -> bytes:
    library = detach.read(BytesView(data))
    assert library is not None
    trim.trim(library, processors, folder / "trimmed.so")
    return (folder / "trimmed.so").read_bytes()


def codes_of(path: Path) -> list[dict[str, bytes]]:
    """What each wrapper of a library leads to: code by target."""
    with path.open("rb") as file:
        library = detach.read(FileView(file))
        assert library is not None
        bundles = []
        for bundle in library.bundles:
            with unpacking(library.layout.view, bundle, path.parent) as content:
                entries = bundle.device_entries
                bundles.append({e.id.partition("--")[2]: b"".join(content.code(e)) for e in entries})
        return [bundles[lead] for lead in library.leads]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"relocations": "relr"},
    {"relocations": "rel"},
    {"relocations": "symbols", "leads": [3, 0, 1, 0, 2, 2]},
    {"page": 1 << 16},
    {"behind": b""},
    {"behind": b"", "bss": 0},
    {"trailing": b"what a signer has put behind it" * 99},
    {"leads": [3, 0, 1, 0, 2, 2]},
]


@pytest.mark.parametrize("names", ["gfx942", "gfx90a", "gfx1100 gfx942", "gfx1030"])
@pytest.mark.parametrize("options", OPTIONS)
def test_code_for_others_goes_and_all_else_stays_where_it_was(
    options: dict[str, Any], names: str, tmp_path: Path
) -> None:
    processors = set(names.split())
    data = make_hip_library(BUNDLES, **options)
    after = trimmed(data, processors, tmp_path)
    assert len(after) < len(data) or options.get("page", 0) > 4096
    for target, code in CODES.items():
        stays = target.partition(":")[0] in processors
        assert (bytes(code) in after) is stays
    wanted = {target: code for target, code in CODES.items() if target.partition(":")[0] in processors}
    leads = options.get("leads", range(len(BUNDLES)))
    assert codes_of(tmp_path / "trimmed.so") == [wanted] * len(leads)

    # In memory all is as before but the code, and the pointers of the wrappers with what fills them in.
    old, new = in_memory(data), in_memory(after)
    before = ELFFile(io.BytesIO(data))
    code, wrappers = (section_of(before, name) for name in (".hip_fatbin", ".hipFatBinSegment"))
    changed = {*range(code["sh_addr"], code["sh_addr"] + code["sh_size"]), *range(64)}
    changed |= {*range(wrappers["sh_addr"], wrappers["sh_addr"] + wrappers["sh_size"])}
    end = max(old) + 1
    different = {a for a in old.keys() | {a for a in new if a < end} if old.get(a) != new.get(a)} - changed
    relocations = options.get("relocations", "rela")
    if relocations in ("rela", "symbols"):
        start = 64 + 56 * before.num_segments()
        pointers = [word(new, wrappers["sh_addr"] + 24 * n + 8, 8) for n in range(len(leads))]
        # Those that named a symbol are as the others afterwards.
        assert [word(new, start + 24 * n + 8, 8) for n in range(len(leads))] == [RELATIVE] * len(leads)
        assert [word(new, start + 24 * n + 16, 8) for n in range(len(leads))] == pointers
        different -= {*range(start, start + 24 * len(leads))}
        if relocations == "symbols":
            start += 24 * (len(leads) + 1)
            assert [word(new, start + 24 * n + 8, 8) for n in range(len(leads))] == pointers
            different -= {*range(start, start + 24 * len(leads))}
    assert not different
    small = section_of(ELFFile(io.BytesIO(after)), ".hip_fatbin")
    assert small["sh_addr"] == code["sh_addr"]
    assert small["sh_size"] < code["sh_size"]


def test_with_nothing_to_take_out_the_library_stays_as_it_is(tmp_path: Path) -> None:
    data = make_hip_library(BUNDLES)
    assert trimmed(data, {"gfx942", "gfx90a", "gfx1100"}, tmp_path) == data


def test_code_of_less_than_a_page_is_taken_too(tmp_path: Path) -> None:
    data = make_hip_library([make_bundle({"gfx942": b"here", "gfx1100": b"gone"})])
    after = trimmed(data, {"gfx942"}, tmp_path)
    assert b"here" in after
    assert b"gone" not in after


def test_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="it is a program"):
        trimmed(make_hip_library(BUNDLES, interpreter=True), {"gfx942"}, tmp_path)


def test_code_that_would_grow_is_refused(tmp_path: Path) -> None:
    # The entry of the host has no bytes, and says that they are at the very beginning.
    bundle = bytearray(make_bundle({"gfx942": b"here" * 99, "gfx1100": b"gone"}))
    bundle[32:40] = bytes(8)
    data = make_hip_library([bytes(bundle)], trailing=b"behind")
    with pytest.raises(WheelError, match="more room"):
        trimmed(data, {"gfx942"}, tmp_path)
