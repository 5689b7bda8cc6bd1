"""Probes in a real interpreter, each in a process of its own, on a torch that does what a test asks of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn import venv
from cairn.testing.compat import measure
from cairn.testing.compat.measure import CompatRequest
from cairn.testing.compat.report import CompatReport, Measured, Row, RowTable, load_rows
from helpers.packing import write_wheel

# As much of torch as the probes below ask for. `nvtx` is what misbehaves: its body is the test's.
TORCH = """
import os, signal, sys, time

__version__ = "2.9.1+rocm7.10.0"

class version:
    git_version, hip, cuda = "c" * 40, {hip!r}, None

class _Product:
    def __eq__(self, _other): return self
    def all(self): return True

class _Matrix:
    def __matmul__(self, _other): return _Product()

def ones(*_size): return _Matrix()

class _Nvtx:
    def range_push(self, _text): return 0
    def range_pop(self):
        {body}
        return 0
    def mark(self, _text): pass

GPUS, ALLOCATIONS = {gpus!r}, {allocations!r}

class _Gpu:
    name, gcnArchName = "AMD Instinct", "gfx942:sramecc+:xnack-"

class cuda:
    nvtx = _Nvtx()
    is_available = is_initialized = staticmethod(lambda: GPUS > 0)
    device_count = staticmethod(lambda: GPUS)
    get_device_properties = staticmethod(lambda _index: _Gpu)
    memory_stats = staticmethod(lambda _index: dict([("allocation.all.allocated", ALLOCATIONS)]))

def device(name): return name

class __config__:
    show = staticmethod(lambda: "USE_ONE=ON, USE_OTHER=OFF")
"""

Measure = Callable[..., CompatReport]


def written(body: str, hip: str | None = "7.1.2", gpus: int = 0, allocations: int = 0) -> str:
    return TORCH.format(body=body, hip=hip, gpus=gpus, allocations=allocations)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> venv.VirtualEnvironment:
    return venv.create(tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture
def measured(environment: venv.VirtualEnvironment, tmp_path: Path) -> Measure:
    """Measure probes with a torch of this body, and perhaps for HIP."""

    def run(
        *probes: str,
        body: str = "pass",
        hip: str | None = "7.1.2",
        gpus: int = 0,
        allocations: int = 0,
        **more: object,
    ) -> CompatReport:
        text = body if body.startswith("import torch") else written(body, hip, gpus, allocations)
        # A second torch of the same size in the same second would be taken for the first by its bytecode.
        shutil.rmtree(environment.site_packages / "__pycache__", ignore_errors=True)
        environment.site_packages.joinpath("torch.py").write_text(text, encoding="utf-8")
        listed = tuple(Row(cells=(probe,), probe=probe) for probe in probes)
        table = RowTable(id="t", page="p", section="s", columns=("Row",), claim="supported", rows=listed)
        request = CompatRequest(python=environment.python, tables=[table], work_dir=tmp_path / "work", **more)  # type: ignore[arg-type]
        return measure.measure(request)

    return run


def results(report: CompatReport) -> list[Measured]:
    return [row.measured for _, row in report.rows]


def test_what_works_is_supported_and_what_is_tested_is_named(measured: Measure) -> None:
    report = measured("wheel.project", "devices.nvtx", "wheel.line 2.9 stable", "wheel.line 2.8 stable")
    assert [found.support for found in results(report)] == ["supported"] * 3 + ["not measurable"]
    assert results(report)[3].reason == "this wheel is 2.9.1+rocm7.10.0"
    assert (report.tested.torch, report.tested.hip, report.tested.gpus) == ("2.9.1+rocm7.10.0", "7.1.2", ())
    assert report.tested.python == ".".join(map(str, sys.version_info[:3]))


def test_a_setting_is_read_from_the_build(measured: Measure) -> None:
    found = results(measured(*(f"wheel.built_with USE_{name}" for name in ("ONE", "OTHER", "NO"))))
    assert [(one.support, one.reason) for one in found] == [
        ("supported", ""),
        ("unsupported", "USE_OTHER is on: it is OFF"),
        ("not measurable", "this torch does not say what USE_NO was"),
    ]


def test_without_a_gpu_what_needs_one_is_not_measured(measured: Measure) -> None:
    (found,) = results(measured("devices.graph"))
    assert (found.support, found.reason, found.checks) == ("not measurable", "no GPU", ())
    (found,) = results(measured("devices.graph", hip=None))
    assert found.reason == "this torch is built for the CPU"


def test_a_gpu_is_named_where_memory_of_it_was_allocated_and_nowhere_else(measured: Measure) -> None:
    report = measured("wheel.project", gpus=1, allocations=3)
    assert report.tested.gpus == ("gfx942",)
    assert [found.device for found in results(report)] == ["gfx942"]
    assert results(measured("wheel.project", gpus=1))[0].device == ""


def test_a_translation_that_was_asked_for_is_measured_and_named(measured: Measure, tmp_path: Path) -> None:
    # What probes ask of TorchDevice, without PyTorch.
    enable = "def enable(target):\n    import torch; torch.translated_to = target\n"
    members = {"torchdevice/__init__.py": enable, "torchdevice/pytest_plugin.py": ""}
    wheel = write_wheel(tmp_path, "torchdevice", "0.1.0", members)
    report = measured("wheel.project", "devices.graph", hip=None, gpus=1, translate=wheel)
    assert report.translated == "torchdevice 0.1.0"
    # This torch has no graphs, which is found out now.
    assert [found.support for found in results(report)] == ["supported", "unsupported"]
    assert report.tested.gpus == ("AMD Instinct",)


def test_a_translation_of_torch_cuda_is_no_gpu(measured: Measure) -> None:
    """TorchDevice and its like say that CUDA is available on what is there."""
    report = measured("wheel.project", "devices.graph", hip=None, gpus=1, allocations=3)
    project, graph = results(report)
    assert report.tested.gpus == ()
    assert (project.support, project.device) == ("supported", "")
    assert (graph.support, graph.reason) == ("not measurable", "this torch is built for the CPU")


@pytest.mark.skipif(os.name != "posix", reason="signals of Linux")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the process was ended by SIGSEGV"),
        ("os._exit(0)", "the process ended with exit code 0"),
        ("print('dying'); sys.stdout.flush(); os._exit(3)", "the process ended with exit code 3: dying"),
        ("time.sleep(600)", "it did not end within 3 seconds"),
        ("raise RuntimeError('no such library')", "RuntimeError: no such library"),
        ("sys.exit(0)", "the process ended with exit code 0"),
    ],
)
def test_what_goes_wrong_costs_its_own_row_alone(measured: Measure, body: str, reason: str) -> None:
    limit = 3.0 if "sleep" in body else 60.0
    broken, whole = results(measured("devices.nvtx", "wheel.project", body=body, timeout=limit))
    assert (broken.support, broken.reason) == ("unsupported", f"ranges: {reason}")
    assert whole.support == "supported"


def test_a_torch_that_does_not_import_is_asked_once(measured: Measure, tmp_path: Path) -> None:
    report = measured("wheel.project", "devices.nvtx", body="import torch.missing")
    assert {found.support for found in results(report)} == {"unsupported"}
    assert "torch.missing" in report.tested.problem
    answers = (tmp_path / "work" / "answers").glob("*.jsonl")
    assert [path.name for path in answers] == ["harness.describe.jsonl"]


def test_the_cause_of_a_failed_import_of_a_companion_is_named(
    measured: Measure, environment: venv.VirtualEnvironment
) -> None:
    info = environment.site_packages / "torchtext-0.18.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: torchtext\nVersion: 0.18.0\n")
    environment.site_packages.joinpath("torchtext.py").write_text(
        "raise OSError('libtorch_hip.so: no such file')"
    )
    found, missing = results(
        measured("companions.imports torchtext torchtext", "companions.imports torchtune torchtune")
    )
    assert (found.support, found.found) == ("unsupported", "0.18.0")
    assert "libtorch_hip.so" in found.reason
    assert (missing.support, missing.reason) == ("not measurable", "torchtune is not installed")


def test_probes_cannot_import_cairn_or_see_the_callers_settings(
    measured: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "torch.py").write_text("raise AssertionError('the wrong torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("ROCM_PATH", "/opt/rocm-of-the-caller")
    body = (
        "__import__('importlib.util').util.find_spec('cairn') and 1 / 0; 'ROCM_PATH' in os.environ and 1 / 0"
    )
    assert results(measured("devices.nvtx", body=body))[0].support == "supported"


def test_a_row_has_the_variables_that_it_names(environment: venv.VirtualEnvironment, tmp_path: Path) -> None:
    body = "0 if os.environ.get('PYTORCH_NO_CUDA_MEMORY_CACHING') else 1 / 0"
    environment.site_packages.joinpath("torch.py").write_text(written(body), encoding="utf-8")
    row = Row(cells=("a",), probe="devices.nvtx", environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    other = Row(cells=("b",), probe="devices.nvtx")
    table = RowTable(id="t", page="p", section="s", columns=("Row",), rows=(row, other))
    request = CompatRequest(python=environment.python, tables=[table], work_dir=tmp_path / "work")
    assert [found.support for found in results(measure.measure(request))] == ["supported", "unsupported"]


def test_versions_of_libraries_are_read_from_the_sdk(
    measured: Measure, environment: venv.VirtualEnvironment, tmp_path: Path
) -> None:
    probes = [f"libraries.version {name}" for name in ("rccl rccl", "hipblas hipblas", "- hipcub", "rpp rpp")]
    assert {found.reason for found in results(measured(*probes))} == {"no ROCm is installed here"}

    root = environment.site_packages / "_rocm_sdk_core"
    (root / "lib" / "cmake" / "hipblas").mkdir(parents=True)
    source = "int ncclGetVersion(int *version) { *version = 22105; return 0; }"
    library = root / "lib" / "librccl.so.1"
    # Without libraries, for which zig would make a C runtime first.
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", "-nostdlib"]
    subprocess.run(
        [*compiler, "-x", "c", "-", "-o", library], input=source, text=True, check=True, cwd=tmp_path
    )
    (root / "lib" / "libhipblas.so.3").write_bytes(library.read_bytes())
    version = root / "lib" / "cmake" / "hipblas" / "hipblas-config-version.cmake"
    version.write_text('set(PACKAGE_VERSION "3.1.0")\n', encoding="utf-8")

    rccl, hipblas, hipcub, rpp = results(measured(*probes))
    assert (rccl.support, rccl.found) == ("supported", "2.21.5")
    assert (hipblas.support, hipblas.found) == ("supported", "3.1.0")
    assert (hipcub.support, hipcub.reason[:18]) == ("not measurable", "it is headers only")
    assert (rpp.support, rpp.reason) == ("unsupported", "it is there: the ROCm here does not have it")


@pytest.mark.by_hand
def test_a_real_torch_is_measured_truthfully(tmp_path: Path) -> None:
    """CAIRN_TEST_TORCH is an interpreter with PyTorch; one for the CPU must not seem to support a GPU."""
    python = os.environ.get("CAIRN_TEST_TORCH")
    if not python:
        pytest.skip("CAIRN_TEST_TORCH names no interpreter with PyTorch")
    names = ("torch.float16", "torch.uint16", "torch.cuda.CUDAGraph", "Gloo", "rocm and hip name no device")
    tables, folder = load_rows(), tmp_path / "work"
    report = measure.measure(
        CompatRequest(
            python=Path(python), tables=tables, work_dir=folder, selects=lambda _, row: row in names
        )
    )
    found = {row.name: row.measured for _, row in report.rows}
    assert set(found) == set(names)
    assert report.tested.torch
    assert not report.tested.problem
    assert found["Gloo"].support == found["rocm and hip name no device"].support == "supported"
    if report.tested.gpus:
        assert found["torch.float16"].device == report.tested.gpus[0]
        return
    assert not any(one.device for one in found.values())
    assert [(found[name].support, found[name].on_cpu) for name in names[:3]] == [
        ("not measurable", "supported"),
        ("not measurable", "partial"),
        ("not measurable", None),
    ]
