"""What a requirement asks of another wheel's extras is there: pip only warns, and installs nothing for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cairn.wheels.verify import Expectation, judge
from helpers.formats import make_elf
from helpers.release import make_wheel as make_release_wheel
from helpers.wheels import LINUX, MakeWheel, build_wheel, cairn_wheel

MODULE = "demo/m.cpython-311-x86_64-linux-gnu.so"
REQUIRED = ["gstream; extra == 'fast'", "other; sys_platform == 'darwin'"]
LOADS = {"demo/n.cpython-311-x86_64-linux-gnu.so": make_elf(defined=("PyInit_n",))}


@pytest.mark.parametrize(
    ("requirement", "lacking"),
    [
        ("rocm[Lib.Raries,devel]==7.10.0", ""),
        ("rocm[libraries]==7.10.0", "libraries"),
        ("rocm[devel,libraries,profiler]", "libraries, profiler"),
        ("rocm[libraries] ; extra == 'gpu'", "libraries"),
        ("rocm[libraries] ; sys_platform == 'win32'", ""),
        ("rocm[libraries] ; python_version < '3' and extra == 'gpu'", ""),
        ("rocm[libraries]==7.9.0", ""),  # which is another finding
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_the_extra_of_a_requirement_is_declared_by_the_wheel_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], requirement: str, lacking: str, *, linked: bool
) -> None:
    tag = "py3-none-manylinux_2_28_x86_64" if "win32" in requirement else "py3-none-any"
    torch = make_release_wheel(tmp_path, "torch", "2.9", requires=[requirement], extras=["gpu"], tag=tag)
    rocm = make_release_wheel(tmp_path / "sdk", "rocm", "7.10.0", extras=["devel", "lib_raries"])
    beside = ("--find-links", rocm.parent) if linked else (rocm,)
    cairn_wheel("verify", torch, *beside)
    printed = capsys.readouterr().out
    assert ("[extra-undeclared]" in printed) == bool(lacking)
    assert f"which has no extra {lacking}\n" in printed or not lacking


@pytest.mark.parametrize(
    ("requires", "library", "brought"),
    [
        # As Kivy has it: GStreamer comes with a wheel of its extra `media` alone, and SDL2 with one always.
        (["kivy_deps.gstreamer~=0.3.3; extra == 'base'"], "libgstreamer-1.0.so.0", True),
        (["kivy-deps.sdl2~=0.8.0", "kivy_deps.sdl2_dev~=0.8.0; extra == 'base'"], "libSDL2-2.0.so.0", False),
        (["kivy_deps.sdl2~=0.8.0; extra == 'base'"], "libSDL2_image-2.0.so.0", True),
        (["kivy-deps.glew~=0.3; sys_platform == 'linux' and extra == 'base'"], "libglew32.so.2", True),
        (["nvidia-cudnn-cu12; extra == 'base'"], "libcudnn.so.9", True),
        (["pytest; extra == 'base'"], "libSDL2.so.0", False),
        (["kivy_deps.sdl2~=0.8.0"], "libSDL2.so.0", False),  # which is missing where it is not given
        (["demo-libs; extra == 'base'"], "libdemo.so.1", False),  # its own name says nothing
        (["rocm-sdk-libraries; extra == 'base'"], "librocm_sysdeps_liblzma.so.5", False),
        (["no requirement; extra == 'base'"], "libno.so.5", False),
    ],
)
def test_a_library_that_a_wheel_of_an_extra_brings_is_a_note(
    make_wheel: MakeWheel, requires: list[str], library: str, *, brought: bool
) -> None:
    module = make_elf(needed=[library, "libgobject-3.so"], defined=("PyInit_m",))  # one of them is enough
    files = {"demo/m.cpython-311-x86_64-linux-gnu.so": module, **LOADS}
    verdict = judge(make_wheel(tags=LINUX, files=files, requires=requires), Expectation())
    (needed,) = (
        one
        for one in (*verdict.findings, *verdict.notes)
        if one.code in ("needed", "optional-plugin") and library in one.reason
    )
    assert (needed in verdict.notes) == brought
    assert ("its extra base names" in needed.reason) == brought
    assert ("not checked" in needed.reason) == brought


@pytest.mark.parametrize(
    ("libraries", "loads", "code"),
    [
        (("libgstream.so.0",), LOADS, 0),
        (("libgstream.so.0",), {}, 7),  # no module loads without it
        (("libother.so.0",), LOADS, 7),
        ((), LOADS, 7),
        (None, LOADS, 0),
        (None, {}, 7),
    ],
)
def test_of_a_wheel_of_an_extra_that_is_there_the_files_count(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    libraries: tuple[str, ...] | None,
    loads: dict[str, bytes],
    code: int,
) -> None:
    module = make_elf(needed=["libgstream.so.0"], defined=("PyInit_m",), runpath="$ORIGIN/../gstream")
    files = {MODULE: module, **loads}
    wheel = build_wheel(tmp_path, tags=LINUX, files=files, requires=REQUIRED)
    beside: list[Path] = []
    if libraries is not None:
        shipped = {f"gstream/{name}": make_elf() for name in libraries}
        tags = ("py3-none-manylinux_2_28_x86_64",)
        library = build_wheel(tmp_path / "sdk", name="gstream", tags=tags, files=shipped, requires=())
        beside = [library]
    capsys.readouterr()
    cairn_wheel("verify", wheel, *beside)
    printed = capsys.readouterr().out
    assert (f"[needed] {MODULE}" in printed) == bool(code)
    assert ("gstream, which has it" in printed) == ("libgstream.so.0" in (libraries or ()))
    assert "other" not in printed
    assert ("gstream, which was not given: not checked" in printed) == (libraries is None)
    brings = libraries is None or "libgstream.so.0" in libraries
    assert ("no module is loaded without" in printed) == (brings and not loads)
