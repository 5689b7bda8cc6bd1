from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.formats.view import read_at_once
from cairn.formats.zip.reader import Archive, Member
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.rewrite.wheel import Edit
from cairn.wheels.verify import Expectation, contents, verify
from helpers.formats import make_bundle, make_code_object, make_dll, make_elf
from helpers.wheels import LINUX, MakeWheel, altered, cairn_wheel

INFO = "demo-1.0.dist-info"
METADATA, RECORD = f"{INFO}/METADATA", f"{INFO}/RECORD"
LIBC = {"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28")}


def codes(wheel: Path, **expected: Any) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.member) for finding in verify(wheel, Expectation(**expected))]


@pytest.fixture
def good(make_wheel: MakeWheel) -> Path:
    lib = make_elf(soname="libdemo.so", needed=("libc.so.6", "libstdc++.so.6"), versions=LIBC)
    ext = make_elf(
        needed=("libdemo.so", "libamdhip64.so.6", "ld-linux-x86-64.so.2"),
        runpath="$ORIGIN/lib:$ORIGIN/../_rocm_sdk_core/lib:${ORIGIN}",
        sections={
            ".hip_fatbin": make_bundle({t: make_code_object(t, b"code") for t in ("gfx942", "gfx1100")})
        },
    )
    device = make_elf(machine=224, needed=("nothing.so",), runpath="/abs")
    return make_wheel(
        tags=LINUX,
        files={"demo/lib/libdemo.so": lib, "demo/_C.so": ext, "demo/k.hsaco": device, "demo/a.py": b""},
    )


ASKED: dict[str, Any] = {
    "targets": ("gfx942", "gfx1100"),
    "require_device_code": True,
    "siblings": {"triton": "3.5.0", "torch": "2.9"},
    "provided_libraries": ("libamdhip64.so*",),
    "python": "3.11",
    "forbidden_strings": ("/builds/123",),
}


def test_a_good_wheel_has_no_findings(good: Path) -> None:
    assert codes(good, **ASKED) == []


def test_every_finding_says_why_and_what_to_do(good: Path) -> None:
    for finding in verify(good, Expectation(targets=("gfx90a",), python="3.12")):
        assert finding.reason
        assert finding.fix
        assert "\n" not in finding.reason + finding.fix


def test_what_is_no_wheel_is_one_finding(tmp_path: Path, make_wheel: MakeWheel) -> None:
    path = tmp_path / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"nonsense")
    assert codes(path) == [("archive", None)]
    assert codes(tmp_path / "demo.whl") == [("archive", None)]
    assert codes(altered(make_wheel(), {f"{INFO}/METADATA": None})) == [("metadata", None)]


def test_names_that_disagree(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    other = wheel.with_name("demo-1.1-py2.py3-none-any.whl")
    wheel.rename(other)
    assert codes(other) == [
        ("version-differs", INFO),
        ("version-differs", METADATA),
        ("tags-differ", f"{INFO}/WHEEL"),
    ]


def test_metadata_that_breaks_the_specification(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(requires=("numpy >>> 2",))
    assert ("requirement-invalid", METADATA) in codes(wheel)
    assert ("metadata-invalid", METADATA) in codes(wheel)


@pytest.mark.parametrize(
    "new",
    [
        b"Metadata-Version: 2.0",  # of wheel before 0.31, which no version of the format ever was
        b"Metadata-Version: 2.1",  # of an older setuptools, which wrote License-File too
        b"Metadata-Version: 2.3\nLicense-Expression: MIT",
    ],
)
def test_a_field_of_a_later_version_of_the_format_is_let_through(make_wheel: MakeWheel, new: bytes) -> None:
    wheel = make_wheel()
    altered(wheel, {METADATA: lambda data: data.replace(b"Metadata-Version: 2.4", new)}, record=True)
    assert codes(wheel) == []


@pytest.mark.parametrize(
    ("tags", "python", "fits"),
    [
        (("cp311-cp311-linux_x86_64",), "3.11", True),
        (("cp311-cp311-linux_x86_64",), "3.12", False),
        (("cp39-abi3-linux_x86_64",), "3.12", True),
        (("cp313-abi3-linux_x86_64",), "3.12", False),
        (("cp39-none-any",), "3.12", False),
        (("py38-none-any",), "3.11", True),
        (("py313-none-any",), "3.11", False),
        (("cp313-cp313t-linux_x86_64",), "3.13", False),
        (("cp313-cp313t-linux_x86_64",), "3.13t", True),
        (("cp39-abi3-linux_x86_64",), "3.13t", False),
        (("py2-none-any", "py3-none-any"), "3.12", True),
    ],
)
def test_python_tags(make_wheel: MakeWheel, tags: tuple[str, ...], python: str, *, fits: bool) -> None:
    assert (codes(make_wheel(tags=tags), python=python) == []) == fits


@pytest.mark.parametrize(
    ("tags", "requires", "python", "fits"),
    [
        (("cp311-cp311-linux_x86_64",), ">=3.12", None, False),
        (("cp311-cp311-linux_x86_64",), ">=3.12", "3.11", False),
        (("cp311-cp311-linux_x86_64",), "<3.11", "3.11", False),
        (("cp311-cp311-linux_x86_64",), ">=3.11.4,<3.12", "3.11", True),
        (("cp311-cp311-linux_x86_64",), "!=3.11.0", None, True),
        (("cp311-none-any", "cp312-none-any"), ">=3.12", None, True),
        (("cp39-abi3-linux_x86_64",), ">=3.10", None, True),
        (("py3-none-any",), ">=3.12", None, True),
        (("py3-none-any",), ">=3.12", "3.11", False),
        (("cp313-cp313t-linux_x86_64",), ">=3.13", "3.13t", True),
    ],
)
def test_a_python_that_the_metadata_exclude_installs_no_wheel(
    make_wheel: MakeWheel, tags: tuple[str, ...], requires: str, python: str | None, *, fits: bool
) -> None:
    wheel = make_wheel(tags=tags)
    altered(wheel, {METADATA: lambda data: data.replace(b">=3.9", requires.encode())}, record=True)
    assert codes(wheel, python=python) == ([] if fits else [("python-tag", METADATA)])


@pytest.mark.parametrize(
    ("file", "old", "new", "code"),
    [
        ("WHEEL", b"Wheel-Version: 1.0\n", b"", "wheel-header"),
        ("WHEEL", b"Wheel-Version: 1.0", b"Wheel-Version: 2.0", "wheel-header"),
        ("WHEEL", b"Purelib: true", b"Purelib: perhaps", "wheel-header"),
        ("WHEEL", b"Root-Is-Purelib: true\n", b"", "wheel-header"),
        ("WHEEL", b"Root", b"Build: 7\nRoot", "wheel-header"),
        ("WHEEL", b"test", b"\xff", "wheel-header"),
        ("WHEEL", b"test", b"te\x0bst", "wheel-header"),
        ("entry_points.txt", b"demo =", b"../demo =", "entry-point"),
        ("entry_points.txt", b"demo =", b".. =", "entry-point"),
        ("entry_points.txt", b"demo =", b"%s =" % (b"x" * 250), "entry-point"),
        ("entry_points.txt", b"demo =", b"con =", "entry-point"),
        ("METADATA", b">=3.9", b">=3.9,<3.0", "python-tag"),
        ("entry_points.txt", b"timeit:main", b"demo", "entry-point"),
        ("entry_points.txt", b"timeit:main", b"demo:main; import os", "entry-point"),
        ("METADATA", b"kept", b"\xff", "metadata-invalid"),
        ("METADATA", b"File: LICENSE", b"File: COPYING", "licence-missing"),
    ],
)
def test_what_installers_refuse_or_take_differently(
    make_wheel: MakeWheel, file: str, old: bytes, new: bytes, code: str
) -> None:
    wheel = make_wheel()
    altered(wheel, {f"{INFO}/{file}": lambda data: data.replace(old, new, 1)}, record=True)
    assert codes(wheel) == [(code, f"{INFO}/{file}")]


def test_installers_take_false_in_capitals_for_false(make_wheel: MakeWheel) -> None:
    """As libucx-cu12 has it: pip compares in lower case, uv and installer ask for `true` alone."""
    wheel = altered(
        make_wheel(), {f"{INFO}/WHEEL": lambda data: data.replace(b"true", b"False")}, record=True
    )
    assert codes(wheel) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("demo-1.0.data/evil/x", "data-folder"),
        ("demo-1.0.data/x", "data-folder"),
        ("other-1.0.data/purelib/x.py", "data-folder"),
    ],
)
def test_files_that_have_no_place_of_their_own(make_wheel: MakeWheel, path: str, code: str) -> None:
    files = {"demo/__init__.py": b"", "demo-1.0.data/scripts/run": b"#!x", path: b"x"}
    wheel = make_wheel(files=files, executables=("demo-1.0.data/scripts/run",))
    assert codes(wheel) == [(code, path)]


@pytest.mark.parametrize("letter", [*"\u202e\u2066\u200f\u061c\u200b\x9b\xad\u3164\U000e0041"])
def test_names_that_are_shown_as_others(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str], letter: str
) -> None:
    name = f"demo/fdp{letter}yp.py"
    wheel = make_wheel(files={"demo/é.py": b"", "demo/\u05e9\u200d.py": b"", name: b""})
    assert codes(wheel) == [("name-deceives", name)]
    assert cairn_wheel("verify", wheel) == 7
    assert letter not in capsys.readouterr().out
    points = f"{INFO}/entry_points.txt"
    script = f"d{letter}emo =".encode()
    plain = altered(make_wheel(), {points: lambda data: data.replace(b"demo =", script)}, record=True)
    assert ("entry-point", points) in codes(plain)


def test_files_of_other_case_are_two_on_linux(make_wheel: MakeWheel) -> None:
    files = {"demo/a.py": b"", "demo/A.py": b""}
    assert codes(make_wheel(tags=LINUX, files=files)) == []


def test_entry_points_that_are_right(make_wheel: MakeWheel) -> None:
    lines = b"[console_scripts]\na.b-c = demo.x:main.run [fast]\n[other]\nx/y = demo\n"
    wheel = make_wheel(files={"demo/__init__.py": b"", "demo/x.py": b"from os import path as main\n"})
    altered(wheel, {f"{INFO}/entry_points.txt": lines}, record=True)
    assert codes(wheel) == []


def test_what_many_entry_points_lead_to_is_looked_at_once(make_wheel: MakeWheel) -> None:
    names = range(1000)
    module = b"".join(b"def f%d():\n    return %d\n" % (n, n) for n in names)
    lines = "[console_scripts]\n" + "".join(f"s{n} = demo.x:f{n}\n" for n in names)
    others = {f"demo/{n}.txt": b"" for n in names}
    wheel = make_wheel(files={"demo/__init__.py": b"", "demo/x.py": module, **others})
    altered(wheel, {f"{INFO}/entry_points.txt": lines.encode()}, record=True)
    began = time.process_time()
    assert codes(wheel) == []
    assert time.process_time() - began < 8  # 60 s where each is looked up by itself


def test_record_lies_are_all_told(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(files={f"{name}.py": name.encode() for name in "abcde"})

    def spoil(record: bytes) -> bytes:
        rows = [row for row in record.splitlines(keepends=True) if not row.startswith(b"d.py")]
        return b"".join(rows).replace(b"c.py,sha256=", b"c.py,md5=")

    changes = {"a.py": b"changed", "b.py": None, "demo/new.py": b"", RECORD: spoil}
    assert codes(altered(wheel, changes)) == [
        ("record-hash", "a.py"),
        ("record-size", "a.py"),
        ("record-absent", "b.py"),
        ("record-hash", "c.py"),
        ("record-missing", "d.py"),
        ("record-missing", "demo/new.py"),
    ]


def test_record_must_list_itself_and_hash_the_rest(make_wheel: MakeWheel) -> None:
    def spoil(record: bytes) -> bytes:
        rows = [row for row in record.splitlines() if not row.startswith(RECORD.encode())]
        return b"\n".join(b"demo/__init__.py,," if b"__init__" in row else row for row in rows)

    assert codes(altered(make_wheel(), {RECORD: spoil})) == [
        ("record-missing", RECORD),
        ("record-hash", "demo/__init__.py"),
    ]


def test_content_that_does_not_unpack(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(files={"a.py": bytes(range(200))})
    data = bytearray(wheel.read_bytes())
    data[60] ^= 0xFF
    wheel.write_bytes(data)
    assert ("content", "a.py") in codes(wheel)


@pytest.mark.parametrize("name", ["demo/core.so", "demo/core.dll"])
def test_a_binary_that_does_not_unpack_is_not_called_malformed(make_wheel: MakeWheel, name: str) -> None:
    bundle = make_bundle({"gfx942": make_code_object("gfx942", b"code")})
    make = (
        make_elf(sections={".hip_fatbin": bundle})
        if name.endswith(".so")
        else make_dll(sections={".hip_fat": bundle})
    )
    wheel = make_wheel(files={name: make[: len(make) // 2]})
    # Both headers promise all of it, and what is packed is the first half.
    there, promised = (struct.pack("<L", size) for size in (len(make) // 2, len(make)))
    data = wheel.read_bytes()
    assert data.count(there) == 2
    wheel.write_bytes(data.replace(there, promised))
    found = [code for code, member in codes(wheel) if member == name]
    assert found == ["content", "record-size"]


def test_run_bits(make_wheel: MakeWheel) -> None:
    program = make_elf(interpreter=True)
    files = {"demo/bin/run": b"#!/bin/sh\n", "demo/run.sh": b"#!/bin/sh\n", "demo/prog": program}
    assert codes(make_wheel(tags=LINUX, files=files)) == [
        ("not-executable", "demo/bin/run"),
        ("not-executable", "demo/prog"),
    ]
    kept = make_wheel(tags=LINUX, files=files, executables=("demo/bin/run", "demo/prog"))
    assert codes(kept) == []
    script = {"demo/bin/run": b"#!/bin/sh\n"}
    assert codes(make_wheel(tags=("py3-none-win_arm64",), files=script)) == []
    assert codes(make_wheel(files=script)) == [("not-executable", "demo/bin/run")]


def test_forbidden_texts_are_found_wherever_a_piece_ends(make_wheel: MakeWheel) -> None:
    text = "/home/builder/pytorch"
    big = bytearray(b"x" * 600_000)
    big[(1 << 18) - 5 : (1 << 18) + 16] = text.encode()
    wheel = make_wheel(
        files={"demo/big.bin": bytes(big), "demo/small": text.encode(), "demo/clean": b"/home"}
    )
    found = verify(wheel, Expectation(forbidden_strings=(text, "", "absent")))
    assert [(f.code, f.member) for f in found] == [
        ("forbidden-text", "demo/big.bin"),
        ("forbidden-text", "demo/small"),
    ]


def test_platform_tags(make_wheel: MakeWheel) -> None:
    def wheel(tag: str, **properties: object) -> Path:
        return make_wheel(tags=(tag,), files={"demo/x.so": make_elf(**properties)})

    assert codes(wheel("py3-none-any")) == [("binary-in-pure-wheel", None)]
    assert codes(wheel("py3-none-linux_x86_64")) == [("platform-tag", None)]
    assert codes(wheel("py3-none-linux_x86_64"), require_platform_tag=False) == []
    assert codes(wheel("py3-none-manylinux_2_17_x86_64", versions=LIBC)) == [("symbols-too-new", "demo/x.so")]
    assert codes(wheel("py3-none-manylinux2014_x86_64", versions=LIBC)) == [("symbols-too-new", "demo/x.so")]
    assert codes(wheel("py3-none-manylinux_2_28_x86_64", versions=LIBC)) == []
    assert codes(wheel("py3-none-manylinux_2_28_aarch64")) == [("machine", "demo/x.so")]


def test_symbols_that_no_manylinux_tag_allows(make_wheel: MakeWheel) -> None:
    def found(*symbols: str, needed: str) -> list[tuple[str, str | None]]:
        binary = make_elf(needed=(needed,), symbols=symbols)
        return codes(make_wheel(tags=("py3-none-manylinux_2_28_x86_64",), files={"demo/x.so": binary}))

    assert found("inflate", "inflate_fast_by_us", needed="libz.so.1") == []
    assert found("inflate", "inflate_fast", needed="libz.so.1") == [("symbols-too-new", "demo/x.so")]
    assert found("inflate_fast", needed="libm.so.6") == []


@pytest.mark.parametrize("kind", ["sysv", "gnu", "gnu, nothing exported", ""])
def test_symbols_that_a_binary_loads_without_are_no_need(make_wheel: MakeWheel, kind: str) -> None:
    def found(**symbols: object) -> list[tuple[str, str | None]]:
        binary = make_elf(needed=("libc.so.6",), hash_table=kind, **symbols)
        return codes(make_wheel(tags=("py3-none-manylinux_2_17_x86_64",), files={"demo/x.so": binary}))

    newer = ("__cxa_thread_atexit_impl",)
    assert found(symbols=("malloc",), weak=newer) == []
    assert found(symbols=("malloc",), defined=newer) == []
    libc = {"libc.so.6": ("GLIBC_2.17",)}
    assert found(symbols=("malloc@GLIBC_2.17",), lookalikes=newer, versions=libc) == []
    assert found(symbols=("malloc", *newer), weak=("free",)) == [("symbols-too-new", "demo/x.so")]
    assert found(symbols=("malloc@GLIBC_2.18",), weak=newer, versions={"libc.so.6": ("GLIBC_2.18",)}) == [
        ("symbols-too-new", "demo/x.so")
    ]


def test_what_lies_in_the_wheel_is_promised_by_no_system(make_wheel: MakeWheel) -> None:
    user = make_elf(needed=("libz.so.1",), symbols=("inflate_fast",), versions={"libz.so.1": ("ZLIB_1.9",)})
    files = {"demo/x.so": user, "demo/libz.so.1": make_elf(soname="libz.so.1")}
    assert codes(make_wheel(tags=LINUX, files=files)) == []


def test_two_names_of_one_promise_break_it_once(make_wheel: MakeWheel) -> None:
    binary = make_elf(needed=("libfar.so", "libfurther.so"), versions=LIBC)
    platforms = ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_24_x86_64")
    wheel = make_wheel(tags=tuple(f"py3-none-{name}" for name in platforms), files={"demo/x.so": binary})
    found = verify(wheel, Expectation())
    assert [(finding.code, finding.member) for finding in found] == [
        ("needed", "demo/x.so"),
        ("symbols-too-new", "demo/x.so"),
    ]
    assert "libfar.so, libfurther.so" in found[0].reason
    assert "manylinux_2_17 " in found[1].reason


def test_systems_with_musl_promise_its_library(make_wheel: MakeWheel) -> None:
    def wheel(*needed: str) -> Path:
        return make_wheel(
            tags=("py3-none-musllinux_1_2_x86_64",), files={"demo/x.so": make_elf(needed=needed)}
        )

    assert codes(wheel("libc.musl-x86_64.so.1", "libz.so.1")) == []
    assert codes(wheel("libc.so.6")) == [("needed", "demo/x.so")]
    assert codes(wheel("libstdc++.so.6")) == [("needed", "demo/x.so")]


def test_a_library_that_a_requirement_may_have_is_not_called_missing_from_it(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(
        tags=LINUX,
        files={"demo/x.so": make_elf(needed=("libtorch.so",))},
        requires=("torch==1.0", 'numpy; extra == "fast"'),
    )
    (finding,) = verify(wheel, Expectation())
    assert "(not given: torch, which it requires)" in finding.reason
    (finding,) = verify(wheel, Expectation(beside={"torch": ("1.0",)}))
    assert "not given" not in finding.reason


def test_binaries_for_another_machine_may_be_there_on_purpose(make_wheel: MakeWheel) -> None:
    small = make_elf(machine=3, soname="libattach_x86.so")
    tag = "cp311-cp311-manylinux_2_28_x86_64"

    def found(**files: bytes) -> list[tuple[str, str | None]]:
        return codes(make_wheel(tags=(tag,), files={f"demo/{name}.so": data for name, data in files.items()}))

    assert found(_C=make_elf(), attach_x86=small) == []
    assert found(attach_x86=small) == [("machine", "demo/attach_x86.so")]
    assert found(_C=make_elf(), attach_x86_64=small) == [("machine", "demo/attach_x86_64.so")]
    assert found(_C=make_elf(), libattach32bit=small) == []
    assert found(_C=make_elf(), libattacharm64=make_elf(machine=183)) == []
    assert found(_C=make_elf(), attach=small) == [("machine", "demo/attach.so")]
    assert found(_C=make_elf(needed=("libattach_x86.so",)), attach_x86=small) == [
        ("machine", "demo/attach_x86.so")
    ]


def test_programs_for_several_systems_may_lie_in_a_pure_wheel(make_wheel: MakeWheel) -> None:
    program, library = make_elf(pie=True), make_elf()
    files = {"demo/linux/manager": program, "demo/cli-32.exe": make_dll(machine=0x14C)}
    executables = ("demo/linux/manager",)
    assert codes(make_wheel(files=files, executables=executables)) == []
    assert codes(make_wheel(files=files)) == [("not-executable", "demo/linux/manager")]
    named = {**files, "demo/attach_amd64.so": library, "demo/attach_amd64.dll": make_dll()}
    assert codes(make_wheel(files=named, executables=executables)) == []
    mixed = {**named, "demo/_C.so": library, "demo/x.pyd": make_dll(exports=("PyInit_x",))}
    (finding,) = verify(make_wheel(files=mixed, executables=executables), Expectation())
    assert finding.code == "binary-in-pure-wheel"
    assert finding.reason.endswith("it holds demo/_C.so, demo/x.pyd")


def test_a_run_path_is_not_said_to_be_what_nobody_knows(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(tags=LINUX, files={"demo/x.so": make_elf(runpath="/opt/rocm/lib:lib:/opt/rocm/lib")})
    absolute, relative = (finding.reason for finding in verify(wheel, Expectation()))
    assert absolute.startswith("it looks for libraries in '/opt/rocm/lib', an absolute path")
    assert relative.startswith("it looks for libraries in 'lib', which counts from the folder")


def test_what_is_installed_with_it_must_be_what_it_requires(make_wheel: MakeWheel) -> None:
    def found(requirement: str, *versions: str, tag: str = "py3-none-any") -> list[tuple[str, str | None]]:
        wheel = make_wheel(requires=(requirement,), tags=(tag,))
        return codes(wheel, beside={"triton": versions})

    unmet = [("requirement-unmet", f"{INFO}/METADATA")]
    assert found("Triton==3.5.0", "3.4.0") == unmet
    assert found("triton==3.5.0", "3.4.0", "3.5.0") == []
    assert found("triton>=3", "3.5.0a0+rocm7.10") == []
    assert found("triton==3.5.0; sys_platform == 'win32'", "3.4.0", tag=LINUX[0]) == []
    assert found("triton==3.5.0; sys_platform == 'win32'", "3.4.0", tag="py3-none-win_amd64") == unmet
    assert found("triton==3.5.0; platform_machine == 'x86_64'", "3.4.0", tag=LINUX[0]) == unmet
    assert found("triton==3.5.0; python_version < '3.11'", "3.4.0", tag=LINUX[0]) == []
    assert found("triton==3.5.0; extra == 'fast'", "3.4.0") == []
    # A wheel of the stable ABI is installed for newer Pythons than that of its tag.
    for tag, older, newer in (("cp37-abi3", [], unmet), ("cp399-abi3", [], unmet)):
        wheel_tag = f"{tag}-manylinux_2_28_x86_64"
        assert found("triton<3; python_version < '3.9'", "3.4.0", tag=wheel_tag) == older
        assert found("triton<3; python_version >= '3.9'", "3.4.0", tag=wheel_tag) == newer
    assert found("triton<3; python_version < '3.90'", "3.4.0", tag="cp399-abi3-manylinux_2_28_x86_64") == []


def test_needed_libraries(good: Path, make_wheel: MakeWheel) -> None:
    assert codes(good) == [("needed", "demo/_C.so")]
    elf = make_elf(needed=("libc.so.6", "libcudart.so.12", "libtorch_cpu.so"))
    wheel = make_wheel(tags=LINUX, files={"demo/x.so": elf})
    (finding,) = verify(wheel, Expectation(provided_libraries=("libtorch*.so",)))
    assert finding.reason == (
        "it needs libcudart.so.12: not in the wheel, not on every system of manylinux_2_28, "
        "not in a wheel given beside it (not given: filelock, triton, which it requires)"
    )


@pytest.mark.parametrize(
    ("path", "fine"),
    [
        ("$ORIGIN", True),
        ("$ORIGIN/../../_rocm_sdk_core/lib", True),
        ("${ORIGIN}/x", True),
        ("$ORIGIN/../../../lib", False),
        ("/opt/rocm/lib", False),
        ("$ORIGIN:/opt/rocm/lib", False),
        ("$ORIGIN:/builds/pytorch/lib64", False),
        ("$ORIGIN:/usr/lib/../../home/me/lib", False),
        ("$ORIGIN:/library", False),
        # Behind the wheel's own folders the system's change nothing; before them, they hide what it has.
        ("$ORIGIN:$ORIGIN/../lib:/lib/intel64:/lib/intel64_win", True),
        ("$ORIGIN:/usr/lib/x86_64-linux-gnu:/usr/local/lib", True),
        ("/usr/lib64", True),
        ("/usr/lib64:$ORIGIN", False),
        ("$ORIGIN:/usr/lib64:$ORIGIN/../lib", False),
        ("$ORIGIN:", False),
        ("lib", False),
        ("$ORIGINAL/lib", False),
    ],
)
@pytest.mark.parametrize("kind", ["rpath", "runpath"])
def test_run_paths(make_wheel: MakeWheel, path: str, kind: str, *, fine: bool) -> None:
    wheel = make_wheel(tags=LINUX, files={"demo/lib/x.so": make_elf(**{kind: path})})
    assert codes(wheel) == ([] if fine else [("rpath", "demo/lib/x.so")])


def test_a_library_of_the_wheel_is_not_looked_for_in_the_folders_of_the_system_alone(
    make_wheel: MakeWheel,
) -> None:
    for path, fine in (("/usr/lib64", False), ("$ORIGIN:/usr/lib64", True)):
        user = make_elf(needed=["libx.so"], runpath=path)
        files = {"demo/lib/u.so": user, "demo/lib/libx.so": make_elf(soname="libx.so")}
        assert codes(make_wheel(tags=LINUX, files=files)) == ([] if fine else [("rpath", "demo/lib/u.so")])


def test_targets(good: Path) -> None:
    def told(*targets: str) -> list[str]:
        asked = ASKED | {"targets": targets}
        return [f"{f.code}: {f.reason}" for f in verify(good, Expectation(**asked))]

    assert told("gfx942") == ["targets-unexpected: it has code that was not asked for: gfx1100"]
    assert told("gfx942", "gfx1100", "gfx90a", "gfx950") == [
        "targets-missing: it has no code for gfx90a, gfx950"
    ]
    assert told("cpu") == [
        "targets-unexpected: it has code that was not asked for: gfx942, gfx1100",
        "targets-unexpected: it has code that was not asked for: gfx942",  # a code object of its own
    ]
    assert len(told("gfx9", "gfx110")) == 3


def test_a_wheel_without_device_code(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(tags=LINUX, files={"demo/x.so": make_elf()})
    assert codes(wheel, targets=("gfx942",)) == []
    assert codes(wheel, targets=("cpu",), require_device_code=True) == []
    assert codes(wheel, targets=("gfx942",), require_device_code=True) == [("no-device-code", None)]


def test_empty_and_malformed_code_objects(make_wheel: MakeWheel) -> None:
    files = {
        "demo/empty.so": make_elf(sections={".hip_fatbin": make_bundle({"gfx942": b""})}),
        "demo/odd.so": make_elf(sections={".hip_fatbin": b"garbage"}),
    }
    assert codes(make_wheel(tags=LINUX, files=files), targets=("gfx942",)) == [
        ("code-object-empty", "demo/empty.so"),
        ("binary-malformed", "demo/odd.so"),
    ]


@pytest.mark.parametrize(
    ("requirement", "code"),
    [
        ("torch==2.9.0+rocm7.10.0", None),
        ("Torch == 2.9.0+ROCm7.10.0 ; sys_platform == 'linux'", None),
        ("torch===2.9.0+rocm7.10.0", None),
        ("numpy", None),
        ("demo[fast]==1.0", None),
        ("demo[fast] ; extra == 'fast'", None),
        ("torch==2.9.0", "sibling-not-exact"),
        ("torch", "sibling-not-exact"),
        ("torch>=2.9.0,==2.9.0+rocm7.10.0", "sibling-not-exact"),
        ("torch==2.9.*", "sibling-not-exact"),
        ("demo==1.0", "requires-itself"),
        ("numpy @ file:///tmp/numpy.whl", "requirement-url"),
    ],
)
def test_requirements(make_wheel: MakeWheel, requirement: str, code: str | None) -> None:
    found = codes(make_wheel(requires=(requirement,)), siblings={"torch": "2.9.0+rocm7.10.0", "demo": "1.0"})
    assert found == ([(code, METADATA)] if code else [])


def test_an_edited_wheel_verifies(good: Path, tmp_path: Path) -> None:
    result = rewrite_wheel.edit_wheel(good, Edit(version="2.0+rocm7.10.0", build="5"), tmp_path / "out")
    assert codes(result, **ASKED) == []


@pytest.mark.parametrize("command", [("verify",), ("show",)])
def test_a_wheel_alone_is_opened_once_and_each_of_its_binaries_unpacked_once(
    make_wheel: MakeWheel, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    wheel = make_wheel(tags=LINUX, files={"demo/x.so": make_elf(), "demo/text.py": b"x = 1\n" * 100})
    opened: list[Path] = []
    unpacked: list[str] = []
    open_archive, unpack = Archive.open.__func__, Archive.stream_unchecked  # type: ignore[attr-defined]

    def opening(cls: type[Archive], path: Path, **options: object) -> Archive:
        opened.append(path)
        return open_archive(cls, path, **options)  # type: ignore[no-any-return]

    def unpacking(self: Archive, member: Member) -> Iterator[bytes]:
        unpacked.append(member.name)
        return unpack(self, member)

    def unpacking_at_once(archive: Archive, member: Member) -> bytes | None:
        content = read_at_once(archive, member)
        unpacked.extend([member.name] if content is not None else [])
        return content

    monkeypatch.setattr(Archive, "open", classmethod(opening))
    monkeypatch.setattr(contents, "read_at_once", unpacking_at_once)
    monkeypatch.setattr(Archive, "stream_unchecked", unpacking)
    assert cairn_wheel(*command, wheel) == 0
    assert opened == [wheel]
    assert unpacked.count("demo/x.so") == 1
    assert unpacked.count("demo/text.py") == (command == ("verify",))
