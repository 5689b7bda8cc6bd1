"""Symbols that wheels want of each other: what the loader would find, and what would keep it from loading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cairn.wheels.verify import Expectation, judge, judge_alone, judge_together, symbols
from helpers.formats import make_elf
from helpers.wheels import MakeWheel, cairn_wheel

SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
GLIBC = {"libc.so.6": ("GLIBC_2.17",)}
MODULE = "audio/m.cpython-311-x86_64-linux-gnu.so"


def so(
    name: str = "",
    *,
    needed: str = "",
    wants: str = "",
    has: str = "",
    weak: str = "",
    run_path: str = "$ORIGIN/../torch/lib",
) -> bytes:
    """A library by its SONAME, or a module, linked with glibc."""
    return make_elf(
        soname=name,
        needed=(*needed.split(), "libc.so.6"),
        versions=GLIBC,
        symbols=("malloc@GLIBC_2.17", *wants.split()),
        weak=weak.split(),
        defined=has.split() or ("PyInit_m",),
        runpath=run_path,
    )


MANYLINUX = ("cp311-cp311-manylinux_2_28_x86_64",)
AT, SUB, FLUSH = "_ZN2at3addEv", "_ZN2at3subEv", "_ZNSo5flushEv"
TORCH = {"torch/lib/libtorch.so": so("libtorch.so", has=f"{AT} c10_init")}
OLD = {**TORCH, "old/libtorch.so": so("libtorch.so", has="c10_init")}
OP = {**TORCH, "torch/lib/libop.so": so("libop.so", wants=AT)}

# By what they show: the libraries of torch, the module of audio, which requires it, and the symbol missed.
CASES: dict[str, tuple[Mapping[str, bytes], bytes, str]] = {
    "in the library of the other wheel": (TORCH, so(needed="libtorch.so", wants=AT), ""),
    "not in that library": (TORCH, so(needed="libtorch.so", wants=SUB), SUB),
    "a name of C": (TORCH, so(needed="libtorch.so", wants="c10_exit"), "c10_exit"),
    "a weak one": (TORCH, so(needed="libtorch.so", weak=SUB), ""),
    "in a library that is not needed": (TORCH, so(wants=AT), AT),
    "a library finds what its user has opened": (OP, so(needed="libop.so libtorch.so"), ""),
    "nobody's": ({}, so(wants=SUB), SUB),
    "libstdc++'s, which is not needed": ({}, so(wants=FLUSH), FLUSH),
    "libstdc++'s, which is needed": ({}, so(needed="libstdc++.so.6", wants=FLUSH), ""),
    "libgcc's, which nothing loads": ({}, so(wants="_Unwind_Resume"), "_Unwind_Resume"),
    "libgcc's, which libstdc++ loads": ({}, so(needed="libstdc++.so.6", wants="_Unwind_Resume"), ""),
    "libgcc's, which a library loads": (
        {**TORCH, "torch/lib/libgcc.so": so("libgcc.so", needed="libgcc_s.so.1")},
        so(needed="libgcc.so", wants="_Unwind_Resume _Unwind_GetIP"),
        "",
    ),
    "in what whoever opens a library may have opened": (
        {
            **TORCH,
            "torch/lib/libone.so": so("libone.so", wants=f"{AT} strange"),
            "torch/lib/libtwo.so": so("libtwo.so", needed="libone.so"),
        },
        so(),
        "",
    ),
    "nobody's, of a library that no module opens": (
        {
            **TORCH,
            "torch/lib/libone.so": so("libone.so", needed="libtorch.so", wants=SUB),
            "torch/lib/libtwo.so": so("libtwo.so", needed="libone.so"),
        },
        so(),
        SUB,
    ),
    "what every Python has loaded": ({}, so(wants="dlopen pthread_create sqrtf PyList_New"), ""),
    "not in the nearer library": (OLD, so(needed="libtorch.so", wants=AT, run_path="$ORIGIN/../old"), AT),
}


def wheel_of(
    make_wheel: MakeWheel, name: str, files: Mapping[str, bytes], tags: tuple[str, ...] = MANYLINUX
) -> Path:
    requires = ("torch==1.0",) if name == "audio" else ()
    files = {f"{name}/__init__.py": b"", **files}
    return make_wheel(name=name, version="1.0", tags=tags, files=files, requires=requires)


@pytest.mark.parametrize("case", CASES)
def test_a_symbol_is_looked_for_in_what_is_loaded_with_it(
    make_wheel: MakeWheel, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    libraries, module, missing = CASES[case]
    wheels = wheel_of(make_wheel, "torch", libraries), wheel_of(make_wheel, "audio", {MODULE: module})
    status = cairn_wheel("verify", *wheels)
    printed = capsys.readouterr().out
    assert status == (7 if missing else 0), printed
    assert printed.count("[symbol-missing]") == bool(missing), printed
    assert not missing or f"it wants {missing}" in printed


@pytest.mark.parametrize(("wants", "missing"), [(AT, 0), (SUB, 1)])
def test_a_wheel_that_an_extra_names_is_loaded_with_it(
    make_wheel: MakeWheel, capsys: pytest.CaptureFixture[str], wants: str, missing: int
) -> None:
    torch = wheel_of(make_wheel, "torch", TORCH)
    files = {MODULE: so(needed="libtorch.so", wants=wants), MODULE.replace("/m.", "/n."): so(has="PyInit_n")}
    files = {"text/__init__.py": b"", **files}
    requires = ("torch==1.0; extra == 'fast'",)
    text = make_wheel(name="text", version="1.0", tags=MANYLINUX, files=files, requires=requires)
    cairn_wheel("verify", torch, text)
    assert capsys.readouterr().out.count("[symbol-missing]") == missing


def test_wheels_for_another_python_or_c_library_are_not_loaded_together(make_wheel: MakeWheel) -> None:
    audio = wheel_of(make_wheel, "audio", {MODULE: so(needed="libtorch.so", wants=AT)})
    expected = Expectation(provided_libraries=("libtorch.so",))
    for tag, is_asked in (
        ("cp311-cp311-manylinux_2_28_x86_64", True),
        ("py3-none-manylinux_2_28_x86_64", True),
        ("cp310-abi3-manylinux_2_28_x86_64", True),
        ("cp312-cp312-manylinux_2_28_x86_64", False),
        ("cp311-cp311-musllinux_1_2_x86_64", False),
    ):
        torch = wheel_of(make_wheel, "torch", TORCH, tags=(tag,))
        alone = {path: judge_alone(path, expected) for path in (torch, audio)}
        verdict = judge_together(alone, {audio: (torch,)})[audio]
        assert any("libtorch.so" in text for text in verdict.not_checked) != is_asked, tag


def test_what_a_library_that_is_not_among_the_wheels_may_have_is_counted(make_wheel: MakeWheel) -> None:
    audio = wheel_of(make_wheel, "audio", {MODULE: so(needed="libtorch.so", wants=f"{AT} PyList_New")})
    verdict = judge(audio, Expectation(provided_libraries=("libtorch.so",)))
    assert verdict.findings == ()
    assert "whether Python, libtorch.so have 2 symbols that it wants" in verdict.not_checked


def test_what_code_opens_for_all_may_have_any_symbol(make_wheel: MakeWheel) -> None:
    opening = {"audio/__init__.py": b"ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)"}
    audio = wheel_of(make_wheel, "audio", {MODULE: so(wants="nk_capabilities"), **opening})
    verdict = judge(audio, Expectation())
    assert verdict.findings == ()
    (text,) = verdict.not_checked
    assert text == "whether libraries that its code opens for all have 1 symbol that it wants"


@pytest.mark.parametrize(
    ("library", "pattern"),
    [("libm.so.6", symbols._OF_PROCESS.fullmatch), ("libstdc++.so.6", symbols._OF_LIBSTDCPP.match)],
)
def test_names_of_the_c_and_cpp_libraries_are_those_of_this_machine(
    library: str, pattern: Callable[[bytes], object]
) -> None:
    """Both are linked with in ways that leave no version: then the name decides."""
    path = next(filter(Path.exists, (Path(folder, library) for folder in SYSTEM)), None)
    if path is None:
        pytest.skip(f"this machine has no {library}")
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()
        names = {each.name.encode() for each in table if each["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS")}
    assert len(names) > 500
    assert sorted(name for name in names if not pattern(name)) == []
