"""Code objects that are not whole and bundles whose headers lie are found, wherever in a wheel they lie."""

from __future__ import annotations

import posixpath
import random
import struct
import time
from pathlib import Path

import pytest

from cairn.formats.kpack import writing
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, Finding, judge, verify
from helpers.formats import (
    make_bundle,
    make_code_object,
    make_dll,
    make_elf,
    packed_bundle,
    plain_bundle,
)
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, MakeWheel

BODY = bytes(range(1, 200)) * 50
WHOLE = make_code_object("gfx942", BODY)
TEXT_AT = 64 + 2 * 56
KINDS = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 1)]
BROKEN = {
    "zeroed": (bytes(len(WHOLE)), "is nothing but zeros"),
    "cut": (WHOLE[:-200], "is cut off"),
    "short": (WHOLE[:40], "is not a 64-bit ELF file"),
    "a text": (
        b"no code at all, and longer than any header would be, as is to be seen",
        "is not a 64-bit ELF file",
    ),
    "without instructions": (
        WHOLE[:TEXT_AT] + bytes(len(BODY)) + WHOLE[TEXT_AT + len(BODY) :],
        "has nothing but zeros for its instructions",
    ),
    "without its end": (WHOLE[:-130] + bytes(130), "has nothing but zeros for its section headers"),
    "for another target": (make_code_object("gfx950", BODY), "is for gfx950"),
    "for the host": (WHOLE[:18] + b"\x3e\0" + WHOLE[20:], "is not for an AMD GPU, but for machine 62"),
    "of a far table": (WHOLE[:32] + struct.pack("<Q", 1 << 40) + WHOLE[40:], "is cut off"),
}


def found(wheel: Path) -> list[Finding]:
    return list(verify(wheel, Expectation()))


def bundle(code: bytes, kind: tuple[int, int]) -> bytes:
    codes = {"gfx942": code, "gfx1100": make_code_object("gfx1100", BODY)}
    return packed_bundle(codes, *kind) if kind[0] else plain_bundle(codes)


def linux(make_wheel: MakeWheel, files: dict[str, bytes]) -> Path:
    return make_wheel(tags=LINUX, files=files)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_code_is_good(make_wheel: MakeWheel, kind: tuple[int, int]) -> None:
    twice = bundle(WHOLE, kind) + bytes(77) + bundle(WHOLE, kind)
    files = {"demo/x.so": make_elf(sections={".hip_fatbin": twice}), "demo/k.hsaco": WHOLE}
    assert found(linux(make_wheel, files)) == []


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("kind", KINDS)
def test_broken_code_in_bundles(make_wheel: MakeWheel, kind: tuple[int, int], what: str) -> None:
    code, reason = BROKEN[what]
    files = {"demo/x.so": make_elf(sections={".hip_fatbin": bundle(WHOLE, kind) + bundle(code, kind)})}
    (finding,) = found(linux(make_wheel, files))
    assert (finding.code, finding.member) == ("code-object-malformed", "demo/x.so")
    assert finding.reason.startswith(f"its code for gfx942 {reason}")


@pytest.mark.parametrize("what", ["zeroed", "cut", "without instructions"])
def test_broken_code_elsewhere(make_wheel: MakeWheel, what: str) -> None:
    code, reason = BROKEN[what]
    dll = make_dll(sections={".hip_fat": bundle(code, (2, 1))})
    (finding,) = found(make_wheel(tags=("py3-none-win_amd64",), files={"demo/x.dll": dll}))
    assert (finding.code, finding.reason) == ("code-object-malformed", f"its code for gfx942 {reason}")
    files = {"demo/k.hsaco": code, "demo/Kernels_gfx942.co": code, "demo/other.co": b"words"}
    for one in found(linux(make_wheel, files)):
        assert one.member in ("demo/k.hsaco", "demo/Kernels_gfx942.co")
        assert one.code in ("code-object-malformed", "binary-malformed")
    assert len({one.member for one in found(linux(make_wheel, files))}) == 2


def test_object_files_have_no_segments_yet(make_wheel: MakeWheel) -> None:
    # As `lib/amdgcn-amd-amdhsa/crt1.o` of LLVM: relocatable, to be linked on the user's machine.
    head = WHOLE[:16] + struct.pack("<H", 1) + WHOLE[18:32] + bytes(8) + WHOLE[40:56] + bytes(2) + WHOLE[58:]
    assert found(linux(make_wheel, {"demo/crt1.o": head})) == []
    assert found(linux(make_wheel, {"demo/crt1.o": head[:-64]}))


def test_bundles_in_files_of_their_own(make_wheel: MakeWheel) -> None:
    files = {
        "demo/a_gfx942.co": bundle(WHOLE, (2, 1)),
        "demo/b.hsaco": bundle(BROKEN["cut"][0], (0, 0)),
        "demo/c.hsaco": bundle(WHOLE, (2, 1))[:-9],
    }
    assert [(f.code, f.member) for f in found(linux(make_wheel, files))] == [
        ("code-object-malformed", "demo/b.hsaco"),
        ("bundle-malformed", "demo/c.hsaco"),
    ]


@pytest.mark.parametrize(
    ("version", "at", "layout"), [(1, 8, "<I"), (2, 12, "<I"), (3, 16, "<Q")], ids=["v1", "v2", "v3"]
)
@pytest.mark.parametrize("method", [0, 1])
def test_headers_of_compressed_bundles_that_lie(
    make_wheel: MakeWheel, version: int, method: int, at: int, layout: str
) -> None:
    good = bundle(WHOLE, (version, method))
    size = struct.calcsize(layout)
    (plain,) = struct.unpack_from(layout, good, at)
    larger = good[:at] + struct.pack(layout, plain + 1) + good[at + size :]
    digest = good[: at + size] + bytes([good[at + size] ^ 1]) + good[at + size + 1 :]
    lies = {"larger": larger, "hash": digest}
    if version > 1:
        (total,) = struct.unpack_from(layout, good, 8)
        lies["longer"] = good[:8] + struct.pack(layout, total + 5) + good[8 + size :] + b"extra"
    for lie in lies.values():
        files = {"demo/x.so": make_elf(sections={".hip_fatbin": lie + bytes(50)})}
        (finding,) = found(linux(make_wheel, files))
        # Where the end of a bundle is not known, nothing behind it can be read.
        assert finding.code == ("binary-malformed" if version == 1 and lie is larger else "bundle-malformed")
        assert "its header say" in finding.reason


def test_code_in_device_wheels(make_wheel: MakeWheel, tmp_path: Path) -> None:
    whole = linux(make_wheel, {"demo/x.so": make_hip_library([bundle(WHOLE, (0, 0))])})
    device = next(path for path in split(whole, tmp_path / "split") if "gfx942" in path.name)
    assert found(device) == []
    name = "demo/.kpack/demo_gfx942.kpack"
    with writing(tmp_path / "zeroed", group="demo", family="gfx942", targets=["gfx942"]) as made:
        made.name("x.so", 0, "gfx942", made.add([bytes(len(WHOLE))], len(bytes(len(WHOLE)))))
    bad = edit_wheel(device, Edit(replace_files={name: tmp_path / "zeroed"}), tmp_path / "bad")
    assert [(f.code, f.member, f.reason) for f in found(bad)] == [
        ("code-object-malformed", name, "its code for gfx942 is nothing but zeros")
    ]


def test_many_bundles_take_as_long_as_they_are_large(make_wheel: MakeWheel) -> None:
    filler = random.Random(1).randbytes(17 << 20)  # noqa: S311 - no compression is the point

    # Beyond what a view holds of the beginning, going back would unpack the member again for each bundle.
    def seconds(count: int) -> float:
        one = bundle(WHOLE, (1, 1)).ljust(1 << 12, b"\0")
        files = {"demo/x.so": make_elf(sections={".rodata": filler, ".hip_fatbin": one * count})}
        wheel = linux(make_wheel, files)
        least = float("inf")
        for _ in range(3):
            began = time.process_time()
            assert found(wheel) == []
            least = min(least, time.process_time() - began)
        return least

    assert seconds(800) < 12 * seconds(100)


def test_rocblas_has_data_for_every_target(make_wheel: MakeWheel) -> None:
    def problems(*names: str, size: int = 1, targets: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
        files = {f"demo/lib/rocblas/library/{name}": bytes(size) for name in names}
        files["demo/lib/librocblas.so.4"] = make_elf(sections={".hip_fatbin": bundle(WHOLE, (0, 0))})
        wheel = linux(make_wheel, files)
        return [(one.code, one.reason) for one in verify(wheel, Expectation(targets=targets)) if one.member]

    lazy, generic = "TensileLibrary_lazy_{}.dat", "TensileLibrary_lazy_gfx11-generic.dat"
    first, second = lazy.format("gfx942"), lazy.format("gfx1100")
    assert problems(first, second) == problems(first, generic) == problems("TensileLibrary.dat") == []
    lacking = [("targets-missing", "it has no kernels for gfx1100, and some for gfx942")]
    assert problems(first) == problems(first, targets=("gfx942", "gfx1100")) == lacking
    assert problems(first, second, size=0) == [
        ("code-object-empty", f"it is to have kernels for {name}, and is empty")
        for name in ("gfx1100", "gfx942")
    ]


LISTS = ("TensileLibrary_lazy_{}.dat", "TensileLibrary_BB_HPA_l_Ailk_{}.co", "extop_{}.co")
SHARED = "hipblasltTransform.hsaco"
PAIR = ("gfx942", "gfx1100")
ONE = make_elf(sections={".hip_fatbin": make_bundle({"gfx942": WHOLE})})


def files_of(layout: str, *targets: str, names: tuple[str, ...] = LISTS) -> dict[str, bytes]:
    """Data of hipBLASLt for these targets, all in one folder, or since ROCm 7.13 in one for each."""
    code = {target: make_code_object(target, BODY) for target in targets}
    return {layout.format(target) + name.format(target): code[target] for target in targets for name in names}


@pytest.mark.parametrize(
    ("files", "targets", "reasons"),
    [
        # Those that the library is built for must have data; gfx1030, which it is not for, has none.
        (files_of("", *PAIR), (*PAIR, "gfx1030"), []),
        (files_of("", "gfx942"), PAIR, ["it has no kernels for gfx1100, and some for gfx942"]),
        (files_of("", "gfx942"), ("gfx942", "gfx1030"), []),
        (files_of("", "gfx942"), None, ["it has no kernels for gfx1100, and some for gfx942"]),
        # What has some files needs the list of all of them, and what others have.
        (files_of("", *PAIR, names=LISTS[:2]), PAIR, []),
        (
            files_of("", "gfx942") | files_of("", "gfx1100", names=LISTS[1:]),
            PAIR,
            ["it has kernels for gfx1100, and lacks TensileLibrary_lazy_gfx1100.dat"],
        ),
        (
            files_of("", "gfx942") | files_of("", "gfx1100", names=LISTS[:2]),
            PAIR,
            ["it has kernels for gfx1100, and lacks extop_gfx1100.co"],
        ),
        (files_of("", *PAIR, names=LISTS[1:2]) | {"TensileLibrary.dat": b"x"}, PAIR, []),
        (files_of("{}/", *PAIR, names=("TensileLibrary_lazy_{}.dat.zlib", *LISTS[1:])), PAIR, []),
        (
            files_of("{}/", "gfx942") | files_of("{}/", "gfx1100", names=LISTS[2:]),
            PAIR,
            ["it has kernels for gfx1100, and lacks TensileLibrary_lazy_gfx1100.dat"],
        ),
        # The host wheel of a split has none but what is for all targets.
        ({}, PAIR, []),
        # A fat wheel takes of ROCm what is for its own GPUs, and the libraries as they are.
        (files_of("", "gfx942") | {"../x.so": ONE}, None, []),
    ],
)
@pytest.mark.parametrize("library", ["hipblaslt", "hipsparselt"])
def test_libraries_that_are_not_for_every_gpu_have_data_for_those_that_they_are_for(
    make_wheel: MakeWheel,
    library: str,
    files: dict[str, bytes],
    targets: tuple[str, ...] | None,
    reasons: list[str],
) -> None:
    folder = f"demo/lib/{library}/library/"
    content = {posixpath.normpath(folder + name): data for name, data in files.items()}
    every = {target: make_code_object(target, BODY) for target in PAIR}
    if library == "hipblaslt":  # which has one code object file for all of them, and none in the library
        content |= {folder + SHARED: make_bundle(every), "demo/lib/libhipblaslt.so.1": make_elf()}
    else:
        code = make_elf(sections={".hip_fatbin": make_bundle(every)})
        content["demo/lib/libhipsparselt.so.0"] = code
    verdict = judge(linux(make_wheel, content), Expectation(targets=targets))
    data = [one for one in verdict.findings if "library" in (one.member or "").rpartition("/")[2]]
    assert [one.reason for one in data] == reasons
    assert {(one.code, one.member) for one in data} <= {("targets-missing", folder.rstrip("/"))}
    assert not [text for text in verdict.not_checked if "data for each target" in text]


def test_rccl_has_its_kernels_itself(make_wheel: MakeWheel) -> None:
    for content, lacking in (
        (make_elf(), ["it has no device code, and RCCL has its kernels nowhere else"]),
        (make_elf(sections={".hip_fatbin": bundle(WHOLE, (0, 0))}), []),
    ):
        files = {"demo/lib/librccl.so.1": content, "demo/share/rccl/msccl-algorithms/a.xml": b"x"}
        verdict = judge(linux(make_wheel, files), Expectation())
        assert [one.reason for one in verdict.findings] == lacking
