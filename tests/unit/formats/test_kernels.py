from __future__ import annotations

import random

import pytest

from cairn.errors import WheelError
from cairn.formats import elf
from cairn.formats.offload import code_object
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
