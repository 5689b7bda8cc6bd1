from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cairn.cli import main as program
from cairn.cli.guard import guarded
from cairn.cli.upstream import scripts
from cairn.errors import UsageError, WheelError
from cairn.formats import cyclonedx, elf
from cairn.formats.image import Image
from cairn.formats.offload import code_object as offload_code_object
from cairn.targets import parse_target_id
from cairn.wheels import sbom
from cairn.wheels.fat import build, package_files
from cairn.wheels.fat.build import FatReport
from cairn.wheels.metadata import wheel_info
from cairn.wheels.rewrite import wheel as rewrite_wheel
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.wheels import LINUX, MakeWheel, lie_about_new_files, members_of

HOOKED = b"from . import _rocm_init\n_rocm_init.initialize()\n"
MODULE = b'def initialize():\n    f(preload_shortnames=["amdhip64", "miopen"], check_version="7")\n'
REQUIRES = ("rocm[libraries]==7.10.0", "rocm-sdk-core==7.10.0", "triton==3.5.0", "filelock")


Linked = Callable[..., Path]
Fat = Callable[..., FatReport]


class Rocm:
    """A ROCm tree whose libraries are put together byte by byte."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hip = root / "lib" / "libamdhip64.so.7.0.1"
        (root / "lib").mkdir(parents=True)

    def add(self, soname: str, *needed: str, at: str = "lib", **properties: object) -> Path:
        """A library under its full version, with the usual links to it."""
        folder = self.root / at
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{soname}.0.1"
        path.write_bytes(make_elf(soname=soname, needed=needed, **properties))
        path.chmod(0o755)
        (folder / soname).symlink_to(path.name)
        bare = soname.partition(".so")[0] + ".so"
        if not (folder / bare).exists():
            (folder / bare).symlink_to(soname)
        return path

    def data(self, path: str, *names: str) -> None:
        for name in names:
            file = self.root / path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            code = re.fullmatch(r"\w+_(gfx\w+)\.co", name)
            file.write_bytes(make_code_object(code[1], name.encode()) if code else name.encode())


def hip_runtime(**more: Any) -> bytes:
    return make_elf(soname="libamdhip64.so.7", needed=("libc.so.6",), **more)


@pytest.fixture
def rocm(tmp_path: Path) -> Rocm:
    tree = Rocm(tmp_path / "rocm tree é")
    opens = {"sections": {".rodata": b"libamd_comgr.so.3\0"}}
    tree.add(
        "libamdhip64.so.7", "libhsa-runtime64.so.1", "libc.so.6", runpath="$ORIGIN/../lib:/opt/x", **opens
    )
    tree.add("libhsa-runtime64.so.1", "libc.so.6", at="lib64")
    tree.add("libamd_comgr.so.3", at="deep/below")
    tree.add("libMIOpen.so.1", "libamdhip64.so.7", "librocblas.so.5")
    tree.add("librocblas.so.5", "libamdhip64.so.7")
    tree.data("lib/rocblas/library", "a_gfx942.co", "a_gfx1100.co", "all.dat")
    tree.data("share/miopen/db", "gfx942130.db.txt", "gfx110030.db.txt", "gfx90a68.db.txt")
    return tree


@pytest.fixture
def linked(make_wheel: MakeWheel) -> Linked:
    def make(*needed: str, files: Mapping[str, bytes] | None = None, **properties: object) -> Path:
        code = make_bundle({"gfx942": make_code_object("gfx942", b"code")})
        core = make_elf(
            soname="libdemo_hip.so",
            needed=needed or ("libamdhip64.so.7", "libc.so.6"),
            runpath="$ORIGIN/../../_rocm_sdk_core/lib:$ORIGIN",
            sections={".hip_fatbin": code},
        )
        content = {
            "demo/__init__.py": HOOKED,
            "demo/_rocm_init.py": MODULE,
            "demo/_C.so": make_elf(needed=("libdemo_hip.so",), rpath="$ORIGIN/lib"),
            "demo/lib/libdemo_hip.so": core,
            "demo/bin/tool": b"#!/bin/sh\n",
            **(files or {}),
        }
        settings = {"version": "2.0+rocm7.10.0", "tags": LINUX, "requires": REQUIRES, **properties}
        return make_wheel(files=content, executables=("demo/bin/tool",), **settings)

    return make


@pytest.fixture
def fat(linked: Linked, rocm: Rocm, tmp_path: Path) -> Fat:
    """Makes a fat wheel of a linked one, in the folder `out`."""

    def make(wheel: Path | None = None, *, out: str = "out", tree: Rocm = rocm, **options: Any) -> FatReport:
        wheel = wheel or linked()
        return build.make(build.FatRequest(wheel=wheel, rocm=tree.root, output_dir=tmp_path / out, **options))

    return make


def members(report: FatReport) -> dict[str, bytes]:
    return members_of(Path(report.wheel))


def read(report: FatReport, member: str) -> Image:
    return elf.read(members(report)[member])


def left_out(report: FatReport, name: str) -> set[str]:
    """Why something was left out."""
    return {entry.reason for entry in report.left_out if entry.name == name}


def test_libraries_come_under_their_sonames_and_are_loaded(fat: Fat, linked: Linked, tmp_path: Path) -> None:
    wheel = linked()
    before = wheel.read_bytes()
    report = fat(wheel)
    assert wheel.read_bytes() == before
    assert os.listdir(tmp_path / "out") == [Path(report.wheel).name]
    with zipfile.ZipFile(report.wheel) as archive:
        modes = {m.filename: m.external_attr >> 16 & 0o777 for m in archive.infolist()}
    libraries = {name for name in modes if name.startswith("demo/lib/lib")}
    assert libraries == {
        "demo/lib/libdemo_hip.so",
        "demo/lib/libMIOpen.so.1",
        "demo/lib/libamd_comgr.so.3",
        "demo/lib/libamdhip64.so.7",
        "demo/lib/libhsa-runtime64.so.1",
        "demo/lib/librocblas.so.5",
    }
    assert modes["demo/lib/libamdhip64.so.7"] == 0o755
    assert modes["demo/bin/tool"] == 0o755
    for name in libraries:
        parsed = read(report, name)
        assert (parsed.rpath, parsed.runpath) == (("$ORIGIN",), ())
    assert read(report, "demo/_C.so").rpath == ("$ORIGIN/lib",)
    assert report.changed == ("demo/lib/libdemo_hip.so",)
    text = members(report)["demo/_rocm_init.py"].decode()
    names: dict[str, object] = {}
    exec(compile(text, "_rocm_init.py", "exec"), names)  # noqa: S102 - our own module
    # In order of need: what a library opens by name is loaded before it looks for that elsewhere.
    assert names["_LIBRARIES"] == ("libamd_comgr.so.3", "libamdhip64.so.7", "libMIOpen.so.1")
    assert "rocm_sdk" not in text


def test_the_wheel_is_one_of_its_own(fat: Fat) -> None:
    report = fat()
    info = wheel_info.read(Path(report.wheel))
    assert info.file_name == f"demo-2.0+fat.rocm7.10.0-{LINUX[0]}.whl"
    assert (info.version, info.dist_info) == ("2.0+fat.rocm7.10.0", "demo-2.0+fat.rocm7.10.0.dist-info")
    assert info.requires_dist == ("triton==3.5.0", "filelock")
    assert report.dropped == ("rocm", "rocm-sdk-core")
    with pytest.raises(WheelError, match="already"):
        fat(Path(report.wheel), out="again")
    named = fat(version="9.9+mine")
    assert wheel_info.read(Path(named.wheel)).version == "9.9+mine"


def test_a_worse_wheel_is_not_left(
    fat: Fat, rocm: Rocm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a library has in the tree already is said, and not held against the wheel.
    rocm.hip.write_bytes(hip_runtime(stack=7))
    assert [f.code for f in verify(Path(fat(out="stack").wheel), Expectation())] == ["executable-stack"]
    rocm.hip.write_bytes(hip_runtime(sections={".hip_fatbin": make_bundle({"gfx942": b"code"})}))
    with pytest.raises(WheelError, match=r"would be worse .*\[code-object-malformed\] demo/lib/libamdhip64"):
        fat()
    rocm.hip.write_bytes(hip_runtime())
    lie_about_new_files(monkeypatch)
    with pytest.raises(WheelError, match=r"would be worse .*\[record-hash\]"):
        fat()
    assert not (tmp_path / "out").exists()


def test_run_paths_count_from_where_a_module_is_installed(fat: Fat, linked: Linked) -> None:
    files = {"demo-2.0+rocm7.10.0.data/platlib/demo/_D.so": make_elf(needed=("libamdhip64.so.7",))}
    report = fat(linked(files=files))
    assert read(report, "demo-2.0+fat.rocm7.10.0.data/platlib/demo/_D.so").rpath == ("$ORIGIN/lib",)


def test_only_data_of_wanted_targets(fat: Fat, rocm: Rocm) -> None:
    report = fat()
    data = {name for name in members(report) if "/rocblas/" in name or "/miopen/" in name}
    assert data == {
        "demo/lib/rocblas/library/a_gfx942.co",
        "demo/lib/rocblas/library/all.dat",
        "demo/share/miopen/db/gfx942130.db.txt",
    }
    parts = {part.name: part for part in report.parts}
    assert parts["lib/rocblas/library"].sizes == {
        "gfx942": (rocm.root / "lib/rocblas/library/a_gfx942.co").stat().st_size,
        "any": len("all.dat"),
    }
    assert any("1 files" in reason for reason in left_out(report, "lib/rocblas/library"))
    assert left_out(report, "libhipblas")
    chosen = members(fat(out="other", targets=(parse_target_id("gfx11-generic"),)))
    assert "demo/lib/rocblas/library/a_gfx1100.co" in chosen
    assert "demo/lib/rocblas/library/a_gfx942.co" not in chosen
    without = fat(targets=(parse_target_id("gfx950"),))
    assert "it has no file for gfx950" in left_out(without, "lib/rocblas/library")


def test_data_in_a_folder_named_by_a_version_stays_there(fat: Fat, linked: Linked, rocm: Rocm) -> None:
    # As Debian's rocBLAS looks for it.
    shutil.rmtree(rocm.root / "lib" / "rocblas")
    rocm.data("lib/rocblas/4.4.1/library", "a_gfx942.co", "a_gfx1100.co")
    names = members(fat(linked("librocblas.so.5")))
    assert {name for name in names if "/rocblas/" in name} == {"demo/lib/rocblas/4.4.1/library/a_gfx942.co"}


def test_miopen_works_without_its_databases(fat: Fat, linked: Linked, rocm: Rocm) -> None:
    shutil.rmtree(rocm.root / "share" / "miopen")
    report = fat(linked("libMIOpen.so.1"))
    assert "demo/lib/libMIOpen.so.1" in members(report)
    assert left_out(report, "share/miopen/db") == {"the ROCm tree has none for libMIOpen.so.1"}


def test_needs_are_renamed_to_sonames(fat: Fat, linked: Linked, rocm: Rocm) -> None:
    (rocm.root / "lib" / "libodd.so").write_bytes(make_elf(needed=("/abs/lib/libamdhip64.so",)))
    report = fat(linked("libamdhip64.so", "libodd.so"))
    assert read(report, "demo/lib/libdemo_hip.so").needed == ("libamdhip64.so.7", "libodd.so")
    assert read(report, "demo/lib/libodd.so").needed == ("libamdhip64.so.7",)


def test_what_is_missing_is_named(fat: Fat, linked: Linked, rocm: Rocm, tmp_path: Path) -> None:
    wheel = linked("libamdhip64.so.7", "libhipfft.so.0", "libnowhere.so.3")
    with pytest.raises(
        WheelError, match=r"libhipfft\.so\.0 .*libnowhere\.so\.3 \(needed by libdemo_hip\.so\)"
    ):
        fat(wheel)
    for path in (rocm.root / "deep" / "below").iterdir():
        path.unlink()
    with pytest.raises(WheelError, match=r"amd_comgr \(needed by libamdhip64"):
        fat()
    assert not (tmp_path / "out").exists()


def test_libraries_that_need_each_other_are_loaded_after_what_they_need(
    fat: Fat, linked: Linked, rocm: Rocm
) -> None:
    rocm.add("libhipa.so.1", "libhipb.so.1", "libamdhip64.so.7")
    rocm.add("libhipb.so.1", "libhipc.so.1", "libamdhip64.so.7")
    rocm.add("libhipc.so.1", "libhipa.so.1", "libhipc.so.1")
    rocm.add("libhipd.so.1", "libhipb.so.1")
    report = fat(linked("libhipd.so.1", "libc.so.6"))
    order = [part.name for part in report.parts if part.name.startswith("lib/lib")]
    ring = [order.index(f"lib/libhip{letter}.so.1") for letter in "abc"]
    assert order.index("lib/libamdhip64.so.7") < max(ring) < order.index("lib/libhipd.so.1")


def test_what_other_wheels_supply_is_left(fat: Fat, linked: Linked) -> None:
    report = fat(linked("libamdhip64.so.7", "libtorch.so"), provided=("libtorch*.so",))
    assert read(report, "demo/lib/libdemo_hip.so").needed == ("libamdhip64.so.7", "libtorch.so")


@pytest.mark.parametrize("glob", ["libamd_comgr.so.*", "libamd_comgr.so.3", "libamd_comgr*", "*_comgr.so*"])
def test_what_is_opened_by_name_may_be_supplied_by_other_wheels(fat: Fat, linked: Linked, glob: str) -> None:
    report = fat(linked("libc.so.6"), provided=(glob, "libMIOpen.so*"), libraries=("libhsa-runtime64",))
    carried = {part.name for part in report.parts}
    assert not {"lib/libamd_comgr.so.3", "lib/libMIOpen.so.1"} & carried
    assert left_out(report, "amd_comgr") == {"a different wheel supplies it"}
    assert b"comgr" not in members(report)["demo/_rocm_init.py"]


def test_a_library_opened_by_name_is_demanded_of_those_that_have_the_name(fat: Fat, rocm: Rocm) -> None:
    shutil.rmtree(rocm.root / "deep")
    rocm.hip.write_bytes(make_elf(soname="libamdhip64.so.7", needed=("libc.so.6",)))
    report = fat()
    assert left_out(report, "amd_comgr") == {
        "the tree has none; libamdhip64.so.7 opens it where there is one"
    }


def test_missing_data_is_named(fat: Fat, rocm: Rocm) -> None:
    (rocm.root / "lib" / "rocblas").rename(rocm.root / "elsewhere")
    with pytest.raises(WheelError, match=r"rocblas/library for librocblas\.so\.5"):
        fat()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"demo/__init__.py": b""}, r"demo/__init__\.py .* does not import _rocm_init"),
        ({"demo/_rocm_init.py": b"def initialize(): pass\n"}, "does not say preload_shortnames"),
        ({"demo/_rocm_init.py": b"def initialize(:\n"}, "not valid Python"),
        ({"demo/_rocm_init.py": MODULE.replace(b"miopen", b"rocm-openblas")}, "rocm-openblas"),
    ],
)
def test_a_module_without_its_anchor_or_library_is_named(
    fat: Fat, linked: Linked, files: dict[str, bytes], problem: str
) -> None:
    with pytest.raises(WheelError, match=problem):
        fat(linked(files=files))


def test_wheels_that_cannot_be_fat(fat: Fat, linked: Linked, make_wheel: MakeWheel, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no ROCm"):
        fat(make_wheel())
    with pytest.raises(WheelError, match="no ROCm"):
        fat(linked(tags=("cp311-cp311-macosx_11_0_arm64",)))
    with pytest.raises(WheelError, match="device code"):
        fat(make_wheel(tags=LINUX))
    with pytest.raises(UsageError, match="no folder"):
        build.make(build.FatRequest(wheel=linked(), rocm=tmp_path / "none", output_dir=tmp_path / "out"))


def test_libraries_that_cannot_be_bundled(fat: Fat, rocm: Rocm) -> None:
    whole = rocm.hip.read_bytes()
    foreign = bytearray(whole)
    foreign[18:20] = (183).to_bytes(2, "little")
    for content, problem in ((b"", "empty"), (whole[:90], "header"), (bytes(foreign), "aarch64")):
        rocm.hip.write_bytes(content)
        with pytest.raises(WheelError, match=rf"libamdhip64\.so.* cannot be bundled: .*{problem}"):
            fat()


def test_newer_libraries_make_the_tag_newer(fat: Fat, rocm: Rocm) -> None:
    rocm.hip.write_bytes(hip_runtime(versions={"libc.so.6": ("GLIBC_2.34",)}))
    report = fat()
    assert report.wheel.endswith("-cp311-cp311-manylinux_2_34_x86_64.whl")
    rocm.hip.write_bytes(hip_runtime(versions={"libc.so.6": ("GLIBC_2.99",)}))
    with pytest.raises(WheelError, match=r"GLIBC_2\.99"):
        fat()


def test_a_wheel_that_was_never_repaired_is_judged_too(fat: Fat, linked: Linked) -> None:
    new = make_elf(needed=("libc.so.6",), versions={"libc.so.6": ("GLIBC_2.35",)})
    report = fat(linked(tags=("cp311-cp311-linux_x86_64",), files={"demo/_C.so": new}))
    assert report.wheel.endswith("-manylinux_2_35_x86_64.whl")


def test_links_in_circles_and_out_of_the_tree(fat: Fat, rocm: Rocm, tmp_path: Path) -> None:
    library = rocm.root / "lib" / "rocblas" / "library"
    (library / "loop").symlink_to(library)
    (library / "dangling.dat").symlink_to(tmp_path / "nothing")
    (tmp_path / "outside.dat").write_bytes(b"content")
    (library / "link.dat").symlink_to(tmp_path / "outside.dat")
    report = fat()
    found = members(report)
    assert found["demo/lib/rocblas/library/link.dat"] == b"content"
    assert not [name for name in found if "loop" in name or "dangling" in name]


def test_packages_of_the_sdk_are_a_tree(fat: Fat, tmp_path: Path) -> None:
    site = tmp_path / "site"
    core = Rocm(site / "_rocm_sdk_core")
    core.add("libamdhip64.so.7")
    core.add("libamd_comgr.so.3")
    libraries = Rocm(site / "_rocm_sdk_libraries_gfx94X")
    libraries.add("libMIOpen.so.1", "libamdhip64.so.7")
    libraries.data("share/miopen/db", "gfx942.kdb")
    report = fat(tree=core)
    assert {part.name for part in report.parts} == {
        "lib/libMIOpen.so.1",
        "lib/libamdhip64.so.7",
        "lib/libamd_comgr.so.3",
        "share/miopen/db",
    }


def test_the_version_of_a_fat_wheel() -> None:
    assert package_files.fat_version("2.9.0+rocm7.10.0") == "2.9.0+fat.rocm7.10.0"
    assert package_files.fat_version("2.9.0") == "2.9.0+fat"
    assert package_files.fat_version("2.12.0a0+git1a2b.rocm7.13.0") == "2.12.0a0+fat.git1a2b.rocm7.13.0"


def test_the_script_and_the_command_write_the_same_wheel(
    linked: Linked, rocm: Rocm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = linked()
    script = tmp_path / "patch_fat_wheel.py"
    arguments = [str(wheel), str(rocm.root)]
    for_linux, for_windows = (scripts.patch_fat_wheel(script, windows=windows) for windows in (False, True))
    assert guarded(for_linux.parse_args([*arguments, "--output-path", str(tmp_path / "a")])) == 0
    told = capsys.readouterr().out
    assert "lib/libamdhip64.so.7" in told
    assert "requires no longer: rocm" in told
    assert "skipped libhipblas, " in told
    command = ["wheel", "fat", "--json", "--output-dir", str(tmp_path / "b"), *arguments]
    assert program.main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["targets"] == ["gfx942"]
    (first,), (second,) = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    assert first.read_bytes() == second.read_bytes()
    assert report["wheel"] == str(second)
    refused = [*arguments, "--output-path", str(tmp_path / "c")]
    assert guarded(for_windows.parse_args(refused)) == UsageError.exit_code
    assert "use patch_fat_wheel.py" in capsys.readouterr().err


def test_the_package_tells_the_version_it_has(fat: Fat, linked: Linked) -> None:
    text = b"# 2.0+rocm7.10.0\n__version__: str = '2.0+rocm7.10.0'\nhip = '7.10.0'\n"
    report = fat(linked(files={"demo/version.py": text}))
    found = members(report)["demo/version.py"]
    assert found == text.replace(b"str = '2.0+rocm", b"str = '2.0+fat.rocm")
    for other in (b"__version__ = '1.9'\n", b"__version__ = f()\n", b"not Python\n"):
        report = fat(linked(files={"demo/version.py": other}))
        assert members(report)["demo/version.py"] == other


def test_all_that_is_listed_can_be_demanded(fat: Fat, rocm: Rocm) -> None:
    (rocm.root / ".info").mkdir()
    (rocm.root / ".info" / "version").write_text("7.13.0\n")
    with pytest.raises(WheelError, match="libhipblas") as caught:
        fat(strict=True)
    assert "libhipfile" not in str(caught.value)
    with pytest.raises(WheelError, match=r"has no libnothing \(needed by the command line\)"):
        fat(libraries=("libnothing",))
    report = fat()
    for name in ("libhipfile", "librocm_smi64"):
        assert left_out(report, name) == {"not part of ROCm 7.13.0"}


def test_one_version_of_a_library_is_enough(fat: Fat, rocm: Rocm) -> None:
    rocm.add("libamdhip64.so.10")
    report = fat()
    names = {part.name for part in report.parts}
    assert "lib/libamdhip64.so.7" in names
    assert "lib/libamdhip64.so.10" not in names


def test_a_text_among_the_libraries(fat: Fat, rocm: Rocm) -> None:
    (rocm.root / "lib" / "librccl.so").write_text("GROUP ( librccl.so.1 )")
    with pytest.raises(WheelError, match=r"librccl\.so cannot be bundled: not an ELF file"):
        fat()


def test_the_bill_of_materials_names_what_came_in(
    fat: Fat, linked: Linked, rocm: Rocm, tmp_path: Path
) -> None:
    (rocm.root / ".info").mkdir()
    (rocm.root / ".info" / "version").write_text("7.10.0")
    (rocm.root / "lib/rocblas/library/a_gfx942.co").write_bytes(make_code_object("gfx942", b"code"))
    alone = fat(out="alone")
    source = cyclonedx.Source(name="torch", commit="a" * 40, origin="https://example.com/torch.git")
    listed = sbom.add(linked(), tmp_path / "listed", sources=(source,), rocm_version="7.10.0")
    extended = fat(listed, out="extended")
    for report in (alone, extended):
        inside = members(report)
        found = json.loads(inside["demo-2.0+fat.rocm7.10.0.dist-info/sboms/cairn.cdx.json"])
        digest = hashlib.sha256(inside["demo/lib/libamdhip64.so.7"]).hexdigest()
        parts = {part["name"]: part for part in found["components"]}
        assert parts["libamdhip64.so.7"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
        assert parts["rocm"]["version"] == "7.10.0"
        own = found["metadata"]["component"]
        assert own["version"] == "2.0+fat.rocm7.10.0"
        refs = {entry["ref"]: entry.get("dependsOn", ()) for entry in found["dependencies"]}
        assert set(refs[own["bom-ref"]]) == {part["bom-ref"] for part in found["components"]}
        assert verify(Path(report.wheel), Expectation()) == ()
    assert parts["torch"]["version"] == source.commit


def test_code_for_other_targets_is_taken_out(fat: Fat, rocm: Rocm) -> None:
    bodies = {
        "gfx942": b"for 942",
        "gfx942:xnack+": b"more",
        "gfx1100": b"for 1100",
        "gfx9-4-generic": b"any",
    }
    codes = {target: make_code_object(target, body) for target, body in bodies.items()}
    plain, packed = make_bundle(codes), make_bundle(codes, version=2, method=1)
    rocm.hip.write_bytes(hip_runtime(sections={".hip_fatbin": plain + bytes(64) + packed}))
    before = rocm.hip.read_bytes()
    report = fat(targets=(parse_target_id("gfx942"),))
    assert rocm.hip.read_bytes() == before
    data = members(report)["demo/lib/libamdhip64.so.7"]
    found = [(str(code.target), code.compressed) for code in offload_code_object.of_elf(data)]
    kept = {"gfx942", "gfx942:xnack+", "gfx9-4-generic"}
    assert {target for target, compressed in found if not compressed} == kept
    assert {target for target, compressed in found if compressed} == codes.keys()
    assert b"for 942" in data
    assert b"for 1100" not in data
    assert left_out(report, "lib/libamdhip64.so.7") == {
        f"its code for gfx1100 ({len(codes['gfx1100'])} bytes) was taken out"
    }
    part = next(part for part in report.parts if part.name == "lib/libamdhip64.so.7")
    assert part.sizes["gfx942"] == 2 * len(codes["gfx942"])


def test_libraries_for_other_targets_alone_are_told(fat: Fat, rocm: Rocm) -> None:
    code = make_bundle({"gfx1100": make_code_object("gfx1100", b"code")})
    rocm.hip.write_bytes(hip_runtime(sections={".hip_fatbin": code}))
    report = fat()
    assert "it has no code for gfx942" in left_out(report, "lib/libamdhip64.so.7")
    # Nothing but zeros would be left of 17 MB: our own reader would refuse that as a bomb.
    large = make_bundle({"gfx1100": make_code_object("gfx1100", os.urandom(17 << 20))})
    rocm.hip.write_bytes(hip_runtime(sections={".hip_fatbin": large}))
    report = fat(out="large")
    assert wheel_info.read(Path(report.wheel)).version == report.version


def test_extras_of_the_sdk_alone_are_gone(fat: Fat, linked: Linked, tmp_path: Path) -> None:
    wheel = linked()
    device = 'rocm-sdk-device-gfx942==7.10.0; extra == "device-gfx942"'
    change = rewrite_wheel.Edit(
        add_extras=("device-gfx942", "tools"),
        add_requirements=(device, 'rocm[devel]; extra == "tools"', 'ninja; extra == "tools"'),
    )
    wheel = rewrite_wheel.edit_wheel(wheel, change, tmp_path / "edited")
    report = fat(wheel)
    info = wheel_info.read(Path(report.wheel))
    assert info.extras == ("fast", "tools")
    assert info.requires_dist == ("triton==3.5.0", "filelock", 'ninja; extra == "tools"')
