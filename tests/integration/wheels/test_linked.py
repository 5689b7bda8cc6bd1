"""Real binaries: compiled, packed, repaired, edited, verified and loaded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from cairn.errors import UsageError, WheelError
from cairn.formats import elf
from cairn.wheels.contents import binaries
from cairn.wheels.metadata import wheel_info
from cairn.wheels.repair import repair_linked
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify import Expectation, verify
from helpers.wheels import assert_sound, call, members_of, pip_install, unpack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="builds and loads Linux libraries")

Compile = Callable[..., bytes]
Pack = Callable[..., Path]

SDK = "int hip_answer(void) { return 42; }"
CORE = """
#include <math.h>
#include <stdio.h>
int hip_answer(void);
int core(int x) { puts(""); return (int)pow(x, 2) + hip_answer(); }
"""
EXT = "int core(int x);\nint extension(int x) { return core(x) + 1; }"


@pytest.fixture(scope="module")
def libraries(compile_library: Compile) -> dict[str, bytes]:
    sdk = compile_library("libamdhip64.so.6", SDK)
    core = compile_library(
        "libcore.so",
        CORE,
        "-Wl,-rpath,$ORIGIN/../../_rocm_sdk_core/lib",
        links=("-l:libamdhip64.so.6", "-lm"),
    )
    ext = compile_library("ext.so", EXT, "-Wl,-rpath,$ORIGIN/lib", links=("-l:libcore.so",))
    return {"sdk": sdk, "core": core, "ext": ext}


@pytest.fixture
def wheel(libraries: dict[str, bytes], pack: Pack) -> Path:
    members = {
        "demo/__init__.py": b"",
        "demo/ext.so": libraries["ext"],
        "demo/lib/libcore.so": libraries["core"],
        "demo/bin/tool": b"#!/bin/sh\n",
    }
    return pack(members, requires=("rocm==7.10.0",))


def test_our_reader_agrees_with_pyelftools(libraries: dict[str, bytes], tmp_path: Path) -> None:
    for name, data in libraries.items():
        path = tmp_path / name
        path.write_bytes(data)
        ours = elf.read_file(path)
        with path.open("rb") as file:
            theirs = ELFFile(file)
            dynamic = next(s for s in theirs.iter_sections() if isinstance(s, DynamicSection))
            tags = [(tag.entry.d_tag, tag) for tag in dynamic.iter_tags()]
            assert list(ours.needed) == [tag.needed for kind, tag in tags if kind == "DT_NEEDED"]
            assert [ours.soname] == [tag.soname for kind, tag in tags if kind == "DT_SONAME"]
            paths = [tag.runpath for kind, tag in tags if kind == "DT_RUNPATH"]
            assert ":".join(ours.runpath) == "".join(paths)
            assert {s.name: s.offset for s in ours.sections} == {
                s.name: s["sh_offset"] for s in theirs.iter_sections()
            }
            needs = theirs.get_section_by_name(".gnu.version_r")
            expected = {}
            if isinstance(needs, GNUVerNeedSection):
                for need, versions in needs.iter_versions():
                    expected[need.name] = {version.name for version in versions}
            assert {name: set(found) for name, found in ours.version_needs.items()} == expected


def test_a_linked_wheel_gets_its_tag_and_works(
    wheel: Path, libraries: dict[str, bytes], accepted: Callable[[Path], None], tmp_path: Path
) -> None:
    made = repair_linked(wheel, tmp_path / "out", exclude=("libamdhip64.so.*",))
    policy = wheel_info.read(made).tags[0].split("-")[2]
    assert policy.startswith("manylinux_2_")
    assert int(policy.split("_")[2]) <= 28
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(made)], check=True, capture_output=True, text=True
    )
    assert "manylinux" in shown.stdout
    expected = Expectation(
        targets=("cpu",), provided_libraries=("libamdhip64.so.*",), forbidden_strings=(str(tmp_path),)
    )
    assert verify(made, expected) == ()
    accepted(made)
    site = tmp_path / f"site-{made.stem}"
    (site / "_rocm_sdk_core" / "lib").mkdir(parents=True)
    (site / "_rocm_sdk_core" / "lib" / "libamdhip64.so.6").write_bytes(libraries["sdk"])
    assert call(site / "demo/ext.so", "extension(3)") == "52"


def test_an_edited_wheel_is_accepted_by_every_judge(
    wheel: Path, accepted: Callable[[Path], None], tmp_path: Path
) -> None:
    edit = Edit(
        version="1.0+rocm7.10.0",
        build="3",
        tags=("py3-none-manylinux_2_28_x86_64",),
        add_files={"demo/data,1.txt": b"x"},
    )
    made = edit_wheel(wheel, edit, tmp_path / "out")
    accepted(made)
    site = tmp_path / f"site-{made.stem}"
    assert os.access(site / "demo" / "bin" / "tool", os.X_OK)
    assert (site / "demo-1.0+rocm7.10.0.dist-info" / "METADATA").is_file()


@pytest.mark.slow
def test_uv_installs_an_edited_wheel(wheel: Path, tmp_path: Path) -> None:
    edit = Edit(version="1.1", tags=("py3-none-manylinux_2_28_x86_64",), remove_requirements=("rocm",))
    made = edit_wheel(wheel, edit, tmp_path / "out")
    command = [sys.executable, "-m", "uv", "pip", "install", "--no-index", "--no-config", "--target"]
    subprocess.run([*command, str(tmp_path / "site"), str(made)], check=True, capture_output=True)
    assert (tmp_path / "site" / "demo-1.1.dist-info" / "RECORD").is_file()


def test_a_missing_library_is_bundled_by_auditwheel(
    compile_library: Compile,
    pack: Pack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sdk").mkdir()
    (tmp_path / "sdk" / "libfoo.so").write_bytes(compile_library("libfoo.so", "int foo(void) { return 1; }"))
    source = """
        #include <stdlib.h>
        int foo(void);
        int user(void) { return reallocarray(0, 1, 1) ? foo() : 0; }
    """
    user = compile_library("user.so", source, "-D_GNU_SOURCE", links=("-l:libfoo.so",))
    members = {"demo/__init__.py": b"", "demo/bin/tool": b"#!/bin/sh\n"}
    members["demo-1.0.data/platlib/demo/user.so"] = user
    wheel = pack(members, tag="py3-none-manylinux_2_17_x86_64")
    with pytest.raises(WheelError, match=r"libfoo\.so"):
        repair_linked(wheel, tmp_path / "out", exclude=())
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "sdk"))
    with pytest.raises(WheelError, match=r"libfoo\.so"):  # which may be another on the next machine
        repair_linked(wheel, tmp_path / "out", exclude=())
    monkeypatch.chdir(tmp_path)
    made = repair_linked(wheel, tmp_path / "out", exclude=(), search=[Path("sdk")])
    assert made.name == "demo-1.0-py3-none-manylinux_2_26_x86_64.whl"  # and no longer 2_17
    assert_sound(made)
    pip_install("--target", tmp_path / "site", made)
    assert call(tmp_path / "site/demo/user.so", "user()") == "1"
    assert verify(made, Expectation()) == ()
    names = {binary.path for binary in binaries.read_wheel(made)}
    assert any(name.startswith("demo.libs/libfoo-") for name in names)
    with zipfile.ZipFile(made) as archive:
        assert archive.getinfo("demo/bin/tool").external_attr >> 16 & 0o111
    again = repair_linked(wheel, tmp_path / "again", exclude=(), search=[tmp_path / "sdk"])
    assert again.read_bytes() == made.read_bytes()


def test_run_paths_to_the_sdk(
    compile_library: Compile,
    pack: Pack,
    libraries: dict[str, bytes],
    accepted: Callable[[Path], None],
    tmp_path: Path,
) -> None:
    site = tmp_path / "env"
    for folder in ("_rocm_sdk_core/lib", "_rocm_sdk_core/lib/rocm_sysdeps/lib", "_rocm_sdk_libraries_x/lib"):
        (site / folder).mkdir(parents=True)
    (site / "_rocm_sdk_core/lib/libamdhip64.so.6").write_bytes(libraries["sdk"])
    (site / "_rocm_sdk_core/lib/rocm_sysdeps/lib/libdrm.so.2").write_bytes(libraries["sdk"])
    (site / "_rocm_sdk_libraries_x/lib/libopened.so.1").write_bytes(libraries["sdk"])
    # Nothing says where the SDK is, and one of its libraries is opened by name alone.
    source = """
        #include <dlfcn.h>
        int hip_answer(void);
        int answer(void) { return dlopen("libopened.so.1", RTLD_NOW) ? hip_answer() : -1; }
    """
    core = compile_library("libanswer.so", source, links=("-l:libamdhip64.so.6",))
    wheel = pack({"demo/__init__.py": b"", "demo/lib/libanswer.so": core, "demo/ext.so": libraries["ext"]})
    made = repair_linked(wheel, tmp_path / "out", exclude=("libcore.so",), sdk=site)
    accepted(made)
    found = {binary.path: binary for binary in binaries.read_wheel(made)}
    assert found["demo/lib/libanswer.so"].rpath == (
        "$ORIGIN/../../_rocm_sdk_core/lib",
        "$ORIGIN/../../_rocm_sdk_core/lib/rocm_sysdeps/lib",
        "$ORIGIN/../../_rocm_sdk_libraries_x/lib",
    )
    assert found["demo/ext.so"].runpath == ("$ORIGIN/lib",)
    provided = Expectation(provided_libraries=("libamdhip64.so.*", "libcore.so"))
    assert verify(made, provided) == ()
    unpack(site, made)
    assert call(site / "demo/lib/libanswer.so", "answer()") == "42"
    again = repair_linked(made, tmp_path / "again", exclude=("libcore.so",), sdk=site)
    assert again.read_bytes() == made.read_bytes()
    with pytest.raises(UsageError, match="no ROCm SDK"):
        repair_linked(wheel, tmp_path / "out", exclude=(), sdk=tmp_path)


GOMP = Path("/usr/lib/x86_64-linux-gnu/libgomp.so.1")


@pytest.mark.skipif(
    not GOMP.exists() or shutil.which("dpkg") is None, reason="no libgomp that a Debian package owns"
)
def test_what_auditwheel_bundles_keeps_its_sbom(
    compile_library: Compile, pack: Pack, libraries: dict[str, bytes], tmp_path: Path
) -> None:
    site = tmp_path / "env"
    (site / "_rocm_sdk_core" / "lib").mkdir(parents=True)
    (site / "_rocm_sdk_core" / "lib" / "libamdhip64.so.6").write_bytes(libraries["sdk"])
    source = """
        int omp_get_max_threads(void);
        int hip_answer(void);
        int user(void) { return omp_get_max_threads() > 0 ? hip_answer() : 0; }
    """
    links = ("-l:libamdhip64.so.6", "-Wl,--allow-shlib-undefined", str(GOMP))
    user = compile_library("user.so", source, links=links)
    wheel = pack({"demo/__init__.py": b"", "demo/user.so": user})
    made = repair_linked(wheel, tmp_path / "out", exclude=(), sdk=site, search=(GOMP.parent,))
    assert verify(made, Expectation(provided_libraries=("libamdhip64.so.*",))) == ()
    found = {binary.path: binary for binary in binaries.read_wheel(made)}
    assert found["demo/user.so"].rpath == ("$ORIGIN/../_rocm_sdk_core/lib", "$ORIGIN/../demo.libs")
    changed = edit_wheel(made, Edit(version="2.0"), tmp_path / "edited")
    for path, version in ((made, "1.0"), (changed, "2.0")):
        sbom = json.loads(members_of(path)[f"demo-{version}.dist-info/sboms/auditwheel.cdx.json"])
        assert any("libgomp" in component["name"] for component in sbom["components"])
    unpack(site, changed)
    assert call(site / "demo/user.so", "user()") == "42"


@pytest.mark.slow
def test_too_new_symbols_are_refused_for_an_old_tag(
    compile_library: Compile, pack: Pack, tmp_path: Path
) -> None:
    # Of glibc 2.28, for which all libraries here are compiled: zig makes a C runtime for each other version.
    new = compile_library("new.so", "#include <threads.h>\nint f(void) { thrd_yield(); return 0; }")
    wheel = pack({"demo/new.so": new})
    made = repair_linked(wheel, tmp_path / "out", exclude=())
    assert "manylinux_2_28" in made.name
    with pytest.raises(WheelError):
        repair_linked(wheel, tmp_path / "old", exclude=(), platform="manylinux_2_17_x86_64")
    lying = edit_wheel(wheel, Edit(tags=("py3-none-manylinux_2_17_x86_64",)), tmp_path / "lying")
    assert [finding.code for finding in verify(lying, Expectation())] == ["symbols-too-new"]


@pytest.mark.parametrize("bundles", [False, True])
def test_a_library_of_the_wheel_itself_is_found_where_nothing_tells_the_loader(
    *, bundles: bool, compile_library: Compile, pack: Pack, tmp_path: Path
) -> None:
    """As in torchaudio, which loads its `libtorchaudio.so` from Python before what needs it."""
    base = compile_library("libbase.so", "int base(void) { return 41; }")
    other = compile_library("libother.so", "int other(void) { return 1; }")
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "libother.so").write_bytes(other)
    source = "int base(void);\nint other(void);\nint user(void) { return base() + other(); }"
    user = compile_library("user.so", source, links=("-l:libbase.so", "-l:libother.so"))
    members = {"demo/__init__.py": b"", "demo/user.so": user, "demo/lib/libbase.so": base}
    if not bundles:
        members["demo/more/libother.so"] = other
    wheel = pack(members)
    made = repair_linked(wheel, tmp_path / "out", exclude=(), search=(tmp_path / "system",))
    assert verify(made, Expectation(targets=("cpu",))) == ()
    unpack(tmp_path / "site", made)
    assert call(tmp_path / "site/demo/user.so", "user()") == "42"
