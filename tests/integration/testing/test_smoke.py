import shutil
import sys
from pathlib import Path

import pytest

import cairn
from cairn import files
from cairn.errors import NetworkError, TestsFailedError, UsageError
from cairn.stack import recipe
from cairn.testing import builtin_smoke, junit, record
from cairn.testing.gpus import hangs
from cairn.testing.smoke import SmokeRequest, SmokeResult, require_passed, run_smoke
from cairn.wheels.split.split import split
from helpers.formats import make_code_object
from helpers.hardware import GIB, MI300X, RX7900, Machine, rocminfo, torch_module
from helpers.testing import CompileLibrary, DeviceLibrary, MakeWheel, Serve, Smoke, set_of

NATIVE = f"cp{sys.version_info.major}{sys.version_info.minor}-abi3-linux_x86_64"


def failed(result: SmokeResult) -> set[str]:
    cases = junit.read(result.junit_path).cases
    return {case.name.rpartition("::")[2] for case in cases if case.outcome in ("failed", "error")}


def device_wheel(make_wheel: MakeWheel, name: str, code: bytes) -> Path:
    return make_wheel(name, "1.0", {f"{name}/__init__.py": "", f"{name}/libk.so": code}, tag=NATIVE)


def test_a_good_set_passes_and_its_record_names_its_bytes(
    make_wheel: MakeWheel, smoke: Smoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CAIRN_LEAK", "1")
    alpha = make_wheel("alpha", "1.0+trial.1", {"alpha/__init__.py": "__version__ = '1.0+trial.1'\n"})
    beta = make_wheel(
        "beta", "2.0", {"beta.py": "import alpha\nTWICE = 2\n"}, requires=["alpha==1.0+trial.1"]
    )
    result = smoke(
        [alpha, beta],
        environment={"GIVEN": "1"},
        tests=(
            "import os, sys, beta, pytest\n"
            "def test_two():\n    assert beta.TWICE == 2\n"
            "def test_installed():\n    assert beta.__file__.startswith(sys.prefix)\n"
            "def test_compiled():\n    assert os.path.isfile(beta.__spec__.cached)\n"
            "def test_no_leak():\n    assert 'CAIRN_LEAK' not in os.environ and os.environ['GIVEN'] == '1'\n"
            "def test_device():\n    pytest.skip('no GPU')\n"
        ),
    )
    require_passed(result)
    made = result.record
    assert (made.verdict, made.kind, made.hardware) == ("passed", "smoke", ())
    assert made.sha256s == {files.sha256_of(alpha), files.sha256_of(beta)}
    assert made.counts.skipped == 1
    assert [skip.reason for skip in made.skips] == ["no GPU"]
    assert made.counts.passed == len(junit.read(result.junit_path).cases) - 1 > 10
    assert made.junit_sha256 == files.sha256_of(result.junit_path)
    assert record.read(result.record_path) == made
    assert made.policy is not None
    assert (made.policy.cairn, made.policy.stack_sha256) == (cairn.__version__, None)
    assert made.policy.tests_sha256 == recipe.digest_of_files([tmp_path / "smoke-tests"])
    assert made.policy.builtin_sha256 == recipe.digest_of_files([Path(builtin_smoke.__file__).parent])
    assert not list((result.environment / "lib").rglob("*pytest*"))
    assert "passed" in result.log.read_text(encoding="utf-8")


PLUGIN = """
def pytest_addoption(parser): parser.addoption("--torchdevice-to")
def pytest_configure(config): import alpha; alpha.DEVICE = config.getoption("torchdevice_to")
"""


def test_a_translated_run_is_recorded_as_one_and_passes_for_nobody(
    make_wheel: MakeWheel, smoke: Smoke, device_library: DeviceLibrary
) -> None:
    alpha = device_wheel(make_wheel, "alpha", device_library(["gfx942"]))
    # What TorchDevice has for pytest, without PyTorch.
    members = {"torchdevice/__init__.py": "", "torchdevice/pytest_plugin.py": PLUGIN}
    result = smoke(
        [alpha],
        targets=["gfx942"],
        family="gfx94X-dcgpu",
        translate=make_wheel("torchdevice", "0.1.0", members),
        tests=(
            "import alpha, torchdevice\n"
            "def test_it(record_property):\n"
            "    assert alpha.DEVICE == 'cpu'\n"
            "    record_property('device', 'emulated')\n"
        ),
    )
    made = result.record
    assert (made.verdict, made.translated) == ("untested", "torchdevice 0.1.0")
    assert "translated by torchdevice 0.1.0, so none of them on a GPU" in made.reason
    assert (made.counts.device_passed, made.covered) == (0, {"gfx942": 0})
    assert record.read(result.record_path) == made
    with pytest.raises(TestsFailedError, match="used no GPU"):
        require_passed(result)


@pytest.mark.parametrize("name", ["alpha-1.0-py3-none-any.whl", "torchdevice.whl"])
def test_only_torchdevices_wheel_translates(make_wheel: MakeWheel, smoke: Smoke, name: str) -> None:
    alpha = make_wheel("alpha", "1.0", {"alpha/__init__.py": ""})
    other = alpha.with_name(name)
    if other != alpha:
        shutil.copy(alpha, other)
    with pytest.raises(UsageError, match="has no TorchDevice" if other == alpha else "Invalid wheel"):
        smoke([alpha], tests="def test_it(): pass\n", translate=other)


def test_each_defect_is_found_by_its_check_and_no_other(
    tmp_path: Path,
    make_wheel: MakeWheel,
    smoke: Smoke,
    compile_library: CompileLibrary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "elsewhere.py").write_text("", encoding="utf-8")
    ghost = compile_library("int ghost(void) { return 1; }\n", soname="libghost.so.1")
    (elsewhere / "libghost.so.1").write_bytes(ghost)
    source = "int ghost(void); int haunted(void) { return ghost(); }\n"
    haunted = compile_library(source, "libghost.so.1", soname="libhaunted.so")
    wheels = [
        make_wheel("broken", "1.0", {"broken.py": "raise RuntimeError('as built')\n"}),
        make_wheel("aged", "2.0", {"aged.py": "__version__ = '1.9'\n"}),
        make_wheel("loose", "1.0", {"loose.py": ""}, requires=["aged>=1"]),
        # packaging comes with pytest: it must not be found because of that
        make_wheel("forgetful", "1.0", {"forgetful.py": "import packaging\n"}),
        make_wheel("lonely", "1.0", {"lonely.py": "import elsewhere\n"}),
        # nothing imports the library, and still it must load
        make_wheel(
            "haunted", "1.0", {"haunted/__init__.py": "", "haunted/libhaunted.so": haunted}, tag=NATIVE
        ),
        *wheels_that_want_symbols(make_wheel, compile_library),
        make_wheel("crashing", "1.0", {"crashing.py": "import os\nos._exit(3)\n"}),
        make_wheel("hollow", "1.0", {"hollow-data.txt": ""}),
        make_wheel("sound", "1.0", {"sound.py": "__version__ = '1.0'\n"}),
    ]
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(elsewhere))
    result = smoke(wheels)
    assert result.record.verdict == "failed"
    assert failed(result) == {
        "test_imports[broken]",
        "test_versions_agree[aged]",
        "test_siblings_are_pinned[loose]",
        "test_imports[forgetful]",
        "test_imports[lonely]",
        "test_libraries_load[haunted]",
        "test_needed_libraries_are_in_the_environment_or_promised[haunted]",
        "test_libraries_load[outdated]",
        "test_symbols_are_in_what_is_linked[outdated]",
        # it loads, since something else was loaded before
        "test_symbols_are_in_what_is_linked[lucky]",
        "test_imports[hollow]",
        # a process that dies tells nothing, so nothing that needs it holds
        "test_imports[crashing]",
        "test_versions_agree[crashing]",
        "test_libraries_load[crashing]",
        "test_libraries_come_from_the_environment_or_the_system[crashing]",
        "test_symbols_are_in_what_is_linked[crashing]",
    }
    text = result.junit_path.read_text(encoding="utf-8")
    assert "libghost.so.1: cannot open shared object file" in text
    assert "libhaunted.so needs libghost.so.1" in text
    assert "outdated/liboutdated.so is linked to nothing that has dropped" in text
    assert "lucky/libguest.so is linked to nothing that has host" in text
    assert "as built" in text
    assert "exit code 3" in text
    with pytest.raises(TestsFailedError, match=r"16 of \d+ tests failed"):
        require_passed(result)
    assert len(result.failures) == 5


FORGERY = """import json, os, pathlib
answer = {"imported": ["forger"], "versions": {}, "import_errors": {}, "library_errors": {},
          "program_errors": {}, "mapped": [], "prefixes": []}
words = pathlib.Path("/proc/self/cmdline").read_text().split(chr(0))
pathlib.Path([w for w in words if w][-1]).write_text(json.dumps({"token": "", "answer": answer} | answer))
os._exit(0)
"""


def test_an_import_that_writes_the_answer_or_breaks_the_interpreters_end_fails(
    make_wheel: MakeWheel, smoke: Smoke
) -> None:
    sources = {"forger": FORGERY, "rude": "import atexit, os\natexit.register(os._exit, 3)\n"}
    result = smoke([make_wheel(name, "1.0", {f"{name}.py": text}) for name, text in sources.items()])
    assert {"test_imports[forger]", "test_imports[rude]"} <= failed(result)
    text = result.junit_path.read_text(encoding="utf-8")
    assert "import wrote the answer of the probe" in text
    assert "exit code 3" in text


def wheels_that_want_symbols(make_wheel: MakeWheel, compile_library: CompileLibrary) -> list[Path]:
    """One whose sibling dropped a symbol since then, and one that does not link what it takes one of."""
    before = "int kept(void) { return 1; }\nint dropped(void) { return 2; }\n"
    compile_library(before, soname="libbase.so")
    source = "int kept(void);\nint dropped(void);\nint both(void) { return kept() + dropped(); }\n"
    outdated = compile_library(source, "libbase.so", "-Wl,-rpath,$ORIGIN/../base", soname="liboutdated.so")
    base = compile_library("int kept(void) { return 1; }\n", soname="libbase.so")
    host = compile_library("int host(void) { return 1; }\n", soname="libhost.so")
    guest = compile_library(
        "int host(void); int guest(void) { return host(); }\n", "-Wl,-z,undefs", soname="libguest.so"
    )
    load = "ctypes.CDLL(str(pathlib.Path(__file__).with_name('libhost.so')), mode=ctypes.RTLD_GLOBAL)\n"
    opened = {"lucky/__init__.py": f"import ctypes, pathlib\n{load}", "lucky/libhost.so": host}
    return [
        make_wheel("base", "1.0", {"base/__init__.py": "", "base/libbase.so": base}, tag=NATIVE),
        make_wheel(
            "outdated", "1.0", {"outdated/__init__.py": "", "outdated/liboutdated.so": outdated}, tag=NATIVE
        ),
        make_wheel("lucky", "1.0", {**opened, "lucky/libguest.so": guest}, tag=NATIVE),
    ]


def test_a_program_needs_its_libraries_too(
    make_wheel: MakeWheel, smoke: Smoke, compile_library: CompileLibrary
) -> None:
    for name in ("shipped", "ghost"):
        compile_library(f"int {name}(void) {{ return 1; }}\n", soname=f"lib{name}.so")
    source = "int {0}(void); int main(void) {{ return {0}(); }}\n"
    programs = {
        name: compile_library(source.format(name), "-fPIE", "-pie", f"lib{name}.so", soname=f"use-{name}")
        for name in ("shipped", "ghost")
    }
    library = compile_library("int shipped(void) { return 1; }\n", soname="libshipped.so")

    def wheel(name: str, program: bytes) -> Path:
        members = {f"{name}/__init__.py": "", f"{name}/run": program, f"{name}/libshipped.so": library}
        return make_wheel(name, "1.0", members, tag=NATIVE, executables=(f"{name}/run",))

    result = smoke([wheel("whole", programs["shipped"]), wheel("haunted", programs["ghost"])])
    assert failed(result) == {
        "test_libraries_load[haunted]",
        "test_needed_libraries_are_in_the_environment_or_promised[haunted]",
    }
    assert result.failures[0].endswith("haunted/run: cannot find libghost.so")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def test_a():\n    pytest.skip('no GPU')\n", "all 1 tests were skipped"),
        ("def test_a():\n    os._exit(0)\n", "left no results"),
        ("VALUE = 1\n", "no test was collected"),
        # A failure in the stack's own tests fails `cairn test smoke` in test_cli.py.
        pytest.param(
            "def test_a():\n    assert 1 == 2\n", "test_a: assert 1 == 2", marks=pytest.mark.by_hand
        ),
        pytest.param("raise ValueError('at import')\n", "tests failed", marks=pytest.mark.by_hand),
    ],
)
def test_the_stacks_own_tests_are_judged(make_wheel: MakeWheel, smoke: Smoke, body: str, reason: str) -> None:
    result = smoke([make_wheel("alpha", "1.0", {"alpha.py": ""})], tests=f"import os, pytest\n{body}")
    assert result.record.verdict == "failed"
    assert reason in result.record.reason
    assert record.read(result.record_path) == result.record


# What of triton's own interface is asked for; it has code for one target, whatever it is asked for.
TRITON = {
    "triton/__init__.py": (
        "import struct\n"
        "from triton import language\n"
        "def jit(function):\n    return function\n"
        "class Compiled:\n    def __init__(self, code):\n        self.asm = {'hsaco': code}\n"
        "def compile(source, target):\n"
        "    if target.arch == 'gfx1030':\n"
        "        import os\n"
        "        os.write(2, b\"k.py:1:1: error: unsupported target: 'gfx1030'\")\n"
        "        raise RuntimeError('PassManager::run failed')\n"
        # An Elf64_Ehdr for EM_AMDGPU with EF_AMDGPU_MACH_AMDGCN_GFX942.
        "    head = struct.pack('<HHIQQQIHHHHHH', 3, 224, 1, 0, 0, 0, 0x4C, 64, 56, 0, 64, 0, 0)\n"
        "    return Compiled(b'\\x7fELF\\x02\\x01\\x01\\x40\\x04' + bytes(7) + head)\n"
    ),
    "triton/language.py": "constexpr = int\n",
    "triton/compiler.py": "def ASTSource(fn, signature, constexprs):\n    return fn\n",
    "triton/backends/__init__.py": "",
    "triton/backends/compiler.py": (
        "class GPUTarget:\n    def __init__(self, backend, arch, warp_size):\n        self.arch = arch\n"
    ),
    "triton/backends/amd/__init__.py": "",
    "triton/backends/amd/compiler.py": "",
}


def test_device_code_must_be_exactly_what_was_asked_for(
    make_wheel: MakeWheel, smoke: Smoke, device_library: DeviceLibrary
) -> None:
    targets = ("gfx942", "gfx1030", "gfx1100")
    whole = device_wheel(make_wheel, "whole", device_library(targets))
    part = device_wheel(make_wheel, "part", device_library(["gfx942"]))
    triton = make_wheel("triton", "3.5.0", TRITON)
    halves = split(device_wheel(make_wheel, "halved", device_library(targets)), part.parent / "split")
    files_of_code = {f"kernels/{name}.hsaco": make_code_object(name, b"code") for name in targets[:2]}
    kernels = make_wheel("kernels", "1.0", {"kernels/__init__.py": "", **files_of_code}, tag=NATIVE)
    result = smoke([whole, part, triton, kernels, *halves], targets=targets, family="mixed")
    assert failed(result) == {
        "test_code_objects_are_what_was_asked_for[part]",
        "test_triton_compiles_a_kernel[gfx1100]",
    }
    assert any("asked for gfx1100, triton compiled for gfx942" in reason for reason in result.failures)
    assert [skip.reason for skip in result.record.skips] == ["triton does not know gfx1030"]


def test_a_cpu_set_must_have_no_device_code(
    make_wheel: MakeWheel, smoke: Smoke, device_library: DeviceLibrary
) -> None:
    result = smoke([device_wheel(make_wheel, "dev", device_library(["gfx942"]))])
    assert failed(result) == {
        "test_code_objects_are_what_was_asked_for[dev]",
        "test_the_set_has_device_code_where_it_is_for_a_gpu",
    }


def test_a_gpu_set_must_have_device_code(make_wheel: MakeWheel, smoke: Smoke) -> None:
    result = smoke([make_wheel("alpha", "1.0", {"alpha.py": ""})], targets=("gfx942",), family="gfx94X-dcgpu")
    assert failed(result) == {"test_the_set_has_device_code_where_it_is_for_a_gpu"}
    assert [skip.reason for skip in result.record.skips] == ["triton is not installed"]


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        (90402, "pass", ("failed", "0 tests passed on a GPU")),
        (90402, "record_property('device', 'gfx942')", ("passed", "1 of them on gfx942")),
        # What is no target of the set: unit/testing/test_verdict.py judges a dozen such.
        pytest.param(90500, "pass", ("invalid", "gfx950"), marks=pytest.mark.by_hand),
        pytest.param(
            90402,
            "record_property('device', 'gfx90a')",
            ("invalid", "computed on gfx90a"),
            marks=pytest.mark.by_hand,
        ),
    ],
)
def test_the_gpus_of_the_machine_count(
    version: int, body: str, expected: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.getfixturevalue("monkeypatch").delenv("ROCR_VISIBLE_DEVICES", raising=False)
    (tmp_path / "nodes" / "0").mkdir(parents=True)
    (tmp_path / "nodes" / "0" / "properties").write_text(f"gfx_target_version {version}\n")
    code = request.getfixturevalue("device_library")(["gfx942"])
    result = request.getfixturevalue("smoke")(
        [device_wheel(request.getfixturevalue("make_wheel"), "dev", code)],
        tests=f"def test_a(record_property):\n    {body}\n",
        targets=("gfx942",),
        family="gfx94X-dcgpu",
        gpus=tmp_path / "nodes",
    )
    verdict, reason = expected
    assert result.record.verdict == verdict
    assert reason in result.record.reason


@pytest.mark.by_hand
@pytest.mark.parametrize("others", [1, 0])
def test_a_gpu_that_hangs_in_the_tests_is_named_and_they_run_on_the_other(
    others: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hangs, "LIMIT", 2.0)
    machine, dead = Machine(tmp_path), tmp_path / "dead"
    for number in range(1, 2 + others):
        machine.node(number, MI300X, place=number << 8)
    first = f'[ -e {dead} ] && [ "$ROCR_VISIBLE_DEVICES" = 0 ]'
    machine.program("rocminfo", rocminfo(), then=f"{first} && exec /bin/sleep 60")
    body = f"""
import os, pathlib, time
def test_a(record_property):
    if os.environ.get("ROCR_VISIBLE_DEVICES") != "1":
        pathlib.Path({str(dead)!r}).touch()
        time.sleep(3600)
    record_property("device", "gfx942")
"""
    code = request.getfixturevalue("device_library")(["gfx942"])
    made = request.getfixturevalue("smoke")(
        [device_wheel(request.getfixturevalue("make_wheel"), "dev", code)],
        tests=body,
        targets=("gfx942",),
        family="gfx94X-dcgpu",
        gpus=machine.nodes,
        environment={"PATH": str(machine.programs)},
        timeout=60.0,
    ).record
    assert made.verdict == ("passed" if others else "failed"), made.reason
    assert [gpu.pci for gpu in made.hanging] == ["0000:01:00.0"]
    assert [gpu.pci for gpu in made.gpus] == ["0000:02:00.0" if others else "0000:01:00.0"]


def test_a_set_for_gpus_is_untested_without_one(
    make_wheel: MakeWheel, smoke: Smoke, device_library: DeviceLibrary
) -> None:
    wheel = device_wheel(make_wheel, "dev", device_library(["gfx942"]))
    tests = "def test_a():\n    pass\n"
    result = smoke([wheel], tests=tests, targets=("gfx942",), family="gfx94X-dcgpu")
    assert (result.record.verdict, result.record.counts.failed) == ("untested", 0)
    assert record.read(result.record_path) == result.record
    with pytest.raises(TestsFailedError, match="used no GPU"):
        require_passed(result)
    require_passed(result, or_untested=True)


def test_a_torch_that_calls_the_gpu_by_a_different_name_proves_nothing(
    tmp_path: Path, make_wheel: MakeWheel, smoke: Smoke, device_library: DeviceLibrary
) -> None:
    machine = Machine(tmp_path)
    machine.node(1, RX7900, gib=24)
    members = {
        "torch/__init__.py": torch_module(("gfx942", "AMD Instinct MI300X", 24)),
        "torch/libk.so": device_library(["gfx942", "gfx1100"]),
    }
    wheel = make_wheel("torch", "1.0", members, tag=NATIVE)
    targets = ("gfx942", "gfx1100")
    tests = "def test_a(record_property):\n    record_property('device', 'gfx1100')\n"
    result = smoke([wheel], tests=tests, targets=targets, family="mixed", gpus=machine.nodes)
    made = record.read(result.record_path)
    assert (made.verdict, made.hardware) == ("invalid", ("gfx1100",))
    assert "torch sees gfx942, not among what the machine has for it: gfx1100" in made.reason
    assert (made.covered, made.not_covered) == ({"gfx942": 0, "gfx1100": 1}, ("gfx942",))
    assert (made.gpus[0].node, made.gpus[0].memory_bytes) == (1, 24 * GIB)


def test_other_bytes_under_the_same_name_are_not_tested(
    tmp_path: Path, make_wheel: MakeWheel, serve: Serve
) -> None:
    wheel_set = set_of([make_wheel("alpha", "1.0", {"alpha.py": "A = 1\n"})])
    other = make_wheel("alpha", "1.0", {"alpha.py": "A = 2\n"})
    request = SmokeRequest(wheel_set=wheel_set, work_dir=tmp_path / "work", index_url=serve([other]))
    with pytest.raises(TestsFailedError, match=r"other bytes for alpha 1\.0"):
        run_smoke(request)
    assert not (tmp_path / "work" / "record.json").exists()


def test_what_the_index_lacks_cannot_be_installed(make_wheel: MakeWheel, smoke: Smoke) -> None:
    wheel = make_wheel("alpha", "1.0", {"alpha.py": ""}, requires=["packaging>=24"])
    with pytest.raises(TestsFailedError, match="No matching distribution found for packaging"):
        smoke([wheel])


def test_an_index_that_is_not_there_is_a_matter_of_the_network(make_wheel: MakeWheel, smoke: Smoke) -> None:
    wheel = make_wheel("alpha", "1.0", {"alpha.py": ""})
    with pytest.raises(NetworkError, match="could not reach"):
        smoke([wheel], index_url="http://127.0.0.1:9/simple/", environment={"PIP_RETRIES": "1"})


def test_what_cannot_be_meant_is_refused_before_anything_runs(
    tmp_path: Path, make_wheel: MakeWheel, smoke: Smoke
) -> None:
    wheel = make_wheel("alpha", "1.0", {"alpha.py": ""})
    with pytest.raises(UsageError, match="no index"):
        smoke([wheel], index_url=None)
    with pytest.raises(UsageError, match="no smoke tests at"):
        smoke([wheel], smoke_tests=(tmp_path / "none",))
    assert not (tmp_path / "work").exists()


def test_wheels_in_a_folder_need_no_index_and_what_else_is_in_the_output_folder_stays(
    make_wheel: MakeWheel, smoke: Smoke
) -> None:
    alpha = make_wheel("alpha", "1.0", {"alpha/__init__.py": ""})
    first = smoke([alpha])
    folder = first.record_path.parent
    (folder / "thesis.txt").write_text("precious")
    (folder / "more/deep").mkdir(parents=True)
    (folder / "more/deep/data.bin").write_bytes(b"\0\1")
    again = smoke([alpha], index_url=None, find_links=(str(alpha.parent),))
    require_passed(again)
    assert 0 < again.record.import_seconds < 60
    assert again.record_path == first.record_path
    assert (folder / "thesis.txt").read_text() == "precious"
    assert (folder / "more/deep/data.bin").read_bytes() == b"\0\1"


def test_an_output_folder_with_another_persons_environment_is_refused(
    make_wheel: MakeWheel, smoke: Smoke
) -> None:
    alpha = make_wheel("alpha", "1.0", {"alpha/__init__.py": ""})
    folder = smoke([alpha]).record_path.parent
    shutil.rmtree(folder)
    (folder / "venv").mkdir(parents=True)
    (folder / "venv/mine.py").write_text("mine")
    (folder / "record.json").write_text("mine")
    with pytest.raises(UsageError, match=r"record\.json, venv, which Cairn did not make"):
        smoke([alpha])
    assert (folder / "venv/mine.py").read_text() == "mine"
    assert (folder / "record.json").read_text() == "mine"
