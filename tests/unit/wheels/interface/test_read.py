from __future__ import annotations

import struct

import pytest

from cairn.formats.image import Symbol
from cairn.wheels.interface.operators import Operator, OperatorReader
from cairn.wheels.interface.read import read_interface
from helpers.formats import make_bundle, make_code_object, make_dll, make_elf, make_macho
from helpers.wheels import LINUX, MakeWheel

KERNEL = {".name": "_Z3addPf", ".vgpr_count": 5}
LIBRARY = make_elf(
    needed=("libc.so.6",),
    symbols=("printf", "own"),
    weak=("__cxa_finalize",),
    defined=("exported",),
    sections={
        ".rodata": b"x\0demo::add(Tensor x) -> Tensor\0y",
        ".comment": b"GCC: (GNU) 13.3.1\0AMD clang version 20.0\0GCC: (GNU) 13.3.1\0",
        ".hip_fatbin": make_bundle({"gfx942": make_code_object("gfx942", b"a", [KERNEL])}),
    },
)


def test_what_a_wheel_offers_and_wants(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(
        tags=LINUX,
        files={
            "demo/__init__.py": b"def f(x): ...\n",
            "demo/lib/libdemo.so": LIBRARY,
            "demo/lib/libown.so": make_elf(defined=("own",)),
            "demo/lib/broken.so": LIBRARY[:200],
            "demo/x.dll": make_dll(
                ("kernel32.dll",), functions={"kernel32.dll": ("Sleep",)}, exports=("run",)
            ),
            "demo/y.dylib": make_macho(defined=("macs",)),
            "demo/k.hsaco": make_code_object("gfx1100", b"b", [KERNEL]),
        },
        requires=("numpy", "x; extra == 'fast'"),
    )
    read = read_interface(wheel)
    assert read.requires_dist == ("numpy", "x; extra == 'fast'")
    assert read.licences == ("LICENSE",)
    assert read.exported >= {"exported", "own", "run", "macs"}
    assert read.imported == {Symbol("printf"), Symbol("Sleep", library="kernel32.dll")}
    assert read.operators == {Operator("demo", "add", "(Tensor x) -> Tensor")}
    library = next(one for one in read.libraries if one.path == "demo/lib/libdemo.so")
    assert library.compilers == ("GCC: (GNU) 13.3.1", "AMD clang version 20.0")
    assert {(one.name, one.target, one.vgprs) for one in read.kernels} == {
        ("_Z3addPf", "gfx942", 5),
        ("_Z3addPf", "gfx1100", 5),
    }
    assert read.targets == ("gfx942", "gfx1100")
    assert read.python is not None
    assert set(read.python.names) == {"demo", "demo.f"}
    assert [text.partition(":")[0] for text in read.unread] == ["demo/lib/broken.so"]
    assert read.files["demo/__init__.py"].size == 14


def test_python_names_are_left_out_where_nobody_asks(make_wheel: MakeWheel) -> None:
    read = read_interface(make_wheel(), python=False)
    assert read.python is None
    assert read.unread == ()
    assert (read.libraries, read.kernels, read.targets) == ((), frozenset(), ())


def test_bytes_that_several_segments_load_are_looked_at_once(
    make_wheel: MakeWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 200
    rows = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 20, 1 << 20, 4096) * count
    header = bytearray(LIBRARY[:64])
    struct.pack_into("<H", header, 56, count)
    library = (bytes(header) + rows + b"\0demo::add(Tensor x) -> Tensor\0").ljust(1 << 20, b"\0")
    struct.pack_into("<Q", header, 40, 0)  # no sections
    struct.pack_into("<HH", header, 60, 0, 0)
    library = bytes(header) + library[64:]
    fed: list[int] = []
    feed = OperatorReader.feed

    def counting(self: OperatorReader, piece: bytes) -> None:
        fed.append(len(piece))
        feed(self, piece)

    monkeypatch.setattr(OperatorReader, "feed", counting)
    read = read_interface(make_wheel(tags=LINUX, files={"demo/x.so": library}), python=False)
    assert read.operators == {Operator("demo", "add", "(Tensor x) -> Tensor")}
    assert sum(fed) == 1 << 20
