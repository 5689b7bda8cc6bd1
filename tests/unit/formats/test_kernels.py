from __future__ import annotations

import random
import struct

import pytest

from cairn.errors import WheelError
from cairn.formats import elf, elf_layout
from cairn.formats.offload import code_object, kernels
from cairn.formats.offload.kernels import Kernel, KernelReader, kernels_of
from cairn.formats.view import BytesView
from helpers.formats import make_bundle, make_code_object, make_elf

ADD = {
    ".name": "_Z3addPf",
    ".symbol": "_Z3addPf.kd",
    ".vgpr_count": 5,
    ".agpr_count": 4,
    ".sgpr_count": 10,
    ".vgpr_spill_count": 2,
    ".sgpr_spill_count": 1,
    ".group_segment_fixed_size": 66,
    ".private_segment_fixed_size": 16,
    ".wavefront_size": 64,
    ".args": [{".name": "x", ".size": 8}],
}
CODE = make_code_object("gfx942", b"abcd", [ADD, {".name": "_Z4lessv"}])
EXPECTED = (
    Kernel("_Z3addPf", "gfx942", 5, 4, 10, 2, 1, lds=66, scratch=16, wavefront=64),
    Kernel("_Z4lessv", "gfx942"),
)


def test_the_metadata_of_each_kernel() -> None:
    assert kernels_of(BytesView(CODE)) == EXPECTED
    assert kernels_of(BytesView(make_code_object("gfx942", b"abcd"))) == ()


@pytest.mark.parametrize(("version", "method"), [(0, 0), (2, 0), (3, 1)])
def test_kernels_are_read_while_the_bundles_are(version: int, method: int) -> None:
    bundle = make_bundle(
        {"gfx942": CODE, "gfx1100": make_code_object("gfx1100", b"x", [ADD])}, version, method
    )
    view = BytesView(make_elf(sections={".hip_fatbin": bundle}))
    reader = KernelReader()
    codes = code_object.of_view(view, elf.read_view(view), reader)
    assert [str(code.target) for code in codes] == ["gfx942", "gfx1100"]
    assert tuple(kernel for kernel in reader.kernels if kernel.target == "gfx942") == EXPECTED
    assert [kernel.name for kernel in reader.kernels if kernel.target == "gfx1100"] == ["_Z3addPf"]
    assert reader.problems == []


def test_broken_metadata_are_a_problem_not_a_crash() -> None:
    chance = random.Random(11)  # noqa: S311 - no secret
    refused = 0
    for _ in range(300):
        broken = bytearray(CODE)
        for _ in range(4):
            broken[chance.randrange(64, len(broken))] = chance.randrange(256)
        try:
            kernels_of(BytesView(bytes(broken)))
        except WheelError:
            refused += 1
    assert refused > 50
    with pytest.raises(WheelError, match="without a name"):
        kernels_of(BytesView(make_code_object("gfx942", b"abcd", [{".name": 5}])))
    reader = KernelReader()
    reader.look_at(CODE[:100])
    assert reader.problems


def test_notes_that_several_segments_have_are_read_once() -> None:
    # The second segment, of the code, becomes one more with the notes.
    twice = CODE[: 64 + 56] + CODE[64 + 112 : 64 + 168] + CODE[64 + 112 :]
    assert kernels_of(BytesView(twice)) == EXPECTED


def test_names_of_functions_are_refused_before_they_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"".join(struct.pack("<IBBHQQ", number, 2, 0, 1, 0, 8) for number in range(100))
    sections = {".dynsym": rows, ".dynstr": b"x" * 999 + b"\0"}
    layout = elf_layout.read(BytesView(make_elf(machine=224, sections=sections)))
    assert len(kernels._code_sizes(layout)) == 100
    monkeypatch.setattr(kernels, "_MOST_NAMES", 90_000)
    with pytest.raises(WheelError, match="90000 bytes of names"):
        kernels._code_sizes(layout)
