from __future__ import annotations

import pytest

from cairn.errors import WheelError
from cairn.wheels.contents import binaries
from helpers.formats import make_bundle, make_elf
from helpers.wheels import MakeWheel


def test_targets_of_each_library_and_of_the_wheel(make_wheel: MakeWheel) -> None:
    first = make_elf(
        sections={".hip_fatbin": make_bundle({"gfx942": b"a"}) + make_bundle({"gfx1100": b"b"}, 3, 1)}
    )
    second = make_elf(sections={".hip_fatbin": make_bundle({"gfx942": b"a"}, 2, 1), ".data": b"1"})
    wheel = make_wheel(files={"demo/a.so": first, "demo/b.so": second, "demo/c.so": make_elf()})
    assert binaries.targets_of(wheel) == ("gfx942", "gfx1100")
    assert [library.targets for library in binaries.read_wheel(wheel)] == [
        ("gfx942", "gfx1100"),
        ("gfx942",),
        (),
    ]


def test_code_objects_count_as_targets_of_a_wheel(make_wheel: MakeWheel) -> None:
    files = {"demo/a.hsaco": make_elf(machine=224), "demo/b.co": make_elf(machine=224, flags=0x41)}
    wheel = make_wheel(files=files | {"demo/__init__.py": b""})
    assert binaries.targets_of(wheel) == ("gfx942", "gfx1100")


def test_a_broken_library_is_named(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(files={"demo/bad.so": make_elf(needed=("libc.so.6",))[:100]})
    with pytest.raises(WheelError, match=r"demo/bad\.so"):
        binaries.read_wheel(wheel)
