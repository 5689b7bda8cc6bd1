"""The commands that the SDK's packages put on PATH, from artifacts in the shape of TheRock's build."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cairn.rocm import package, packages_toml
from cairn.rocm.package import PackageRequest, WrittenPackage
from cairn.wheels.verify import Expectation, verify
from helpers.rocm import make_environment

VERSION = "7.14.0"
ECHO = '#!/bin/sh\necho "$(basename "$0") $*"\n'
# Artifact to its files: text, or a link (`->`). It lacks `roc-obj*` and `rocprof-sys-causal`.
SHAPE = {
    "base_lib_generic": {".info/version": f"{VERSION}\n"},
    "core-hip_run_generic": {"bin/hipcc": ECHO, "bin/hipconfig": ECHO},
    "amd-llvm_run_generic": {
        "lib/llvm/bin/clang-22": ECHO,
        "lib/llvm/bin/offload-arch": ECHO,
        **{
            f"lib/llvm/bin/{name}": "->clang-22"
            for name in ("amdclang", "amdclang++", "amdclang-cl", "amdclang-cpp", "amdflang", "amdlld")
        },
    },
    "core-amdsmi_run_generic": {
        "libexec/amdsmi_cli/amdsmi_cli.py": ECHO,
        "bin/amd-smi": "->../libexec/amdsmi_cli/amdsmi_cli.py",
    },
    "hipify_run_generic": {"bin/hipify-clang": ECHO, "bin/hipify-perl": ECHO},
    "base_run_generic": {"bin/rocm-smi": ECHO, "bin/rocm_agent_enumerator": ECHO},
    "core-runtime_run_generic": {"bin/rocminfo": ECHO},
    "rocgdb_run_generic": {"bin/rocgdb": ECHO, "bin/roccoremerge": ECHO},
    "rocprofiler-sdk_run_generic": {
        f"bin/{name}": ECHO
        for name in (
            *("rocpd", "rocpd2csv", "rocpd2otf2", "rocpd2pftrace", "rocpd2summary"),
            *("rocprofv3", "rocprofv3-attach", "rocprofv3-avail"),
        )
    },
    "rocprofiler-systems_run_generic": {
        **{f"bin/rocprof-sys-{name}": ECHO for name in ("attach", "avail", "instrument", "python", "sample")},
        "bin/rocprof-sys-run": '#!/bin/sh\necho "$LD_LIBRARY_PATH"\n',
        "lib/rocprofiler-systems/data": "x",
        "include/other": "not for the profiler",
    },
    "rocprofiler-compute_run_generic": {
        "libexec/rocprofiler-compute/rocprof-compute": '#!/bin/sh\necho "$PYTHONPATH"\n',
        "bin/rocprof-compute": "->../libexec/rocprofiler-compute/rocprof-compute",
    },
    "blas_lib_gfx942": {"lib/rocblas/library/Kernels_gfx942.dat": "x"},
}
LINKS = {path for path, text in SHAPE["amd-llvm_run_generic"].items() if text == "->clang-22"}
MISSING = ("roc-obj", "roc-obj-extract", "roc-obj-ls")


def write_artifacts(root: Path, *without: str) -> Path:
    for artifact, files in SHAPE.items():
        if artifact in without:
            continue
        stage = f"part/{artifact}/stage"
        (root / artifact).mkdir(parents=True)
        (root / artifact / "artifact_manifest.txt").write_text(f"{stage}\n")
        for name, text in files.items():
            path = root / artifact / stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("->"):
                path.symlink_to(text[2:])
            else:
                path.write_text(text)
                path.chmod(0o755 if text.startswith("#!") else 0o644)
    return root


def pip(python: Path, dists: Path, *requirements: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index"]
    command += ["--find-links", str(dists)]
    return subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def dists(tmp_path_factory: pytest.TempPathFactory) -> tuple[WrittenPackage, ...]:
    folder = tmp_path_factory.mktemp("sdk")
    request = PackageRequest(
        artifacts=write_artifacts(folder / "artifacts"),
        version=VERSION,
        targets=("gfx942",),
        output_dir=folder / "dists",
    )
    return package.package(request)


@pytest.fixture(scope="module")
def scripts(dists: tuple[WrittenPackage, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = make_environment(tmp_path_factory.mktemp("venv") / "venv")
    installed = pip(python, dists[0].path.parent, f"rocm[libraries,profiler]=={VERSION}")
    assert (installed.returncode, installed.stderr) == (0, "")
    return python.parent


def run(scripts: Path, name: str, *words: str) -> tuple[int, str]:
    """What a command of PATH returns and prints."""
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LD_LIBRARY_PATH": "/mine"}
    done = subprocess.run([name, *words], capture_output=True, text=True, check=False, env=environment)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_each_command_starts_its_program_or_says_what_is_missing(
    dists: tuple[WrittenPackage, ...], scripts: Path
) -> None:
    described = packages_toml.therock()
    commands = {**described.core.scripts, **described.profiler.scripts}
    assert (len(described.core.scripts), len(described.profiler.scripts)) == (28, 8)
    answers = {name: run(scripts, name, "--x y") for name in commands}
    absent = {"roc-obj", "roc-obj-extract", "roc-obj-ls", "rocprof-sys-causal"}
    said = {name: (127, f"{name}: this build of ROCm 7.14.0 has no {commands[name]}") for name in absent}
    assert {name: answers[name] for name in absent} == said
    for name in commands.keys() - absent - {"rocprof-sys-run", "rocprof-compute"}:
        program = "clang-22" if commands[name] in LINKS else {"amd-smi": "amdsmi_cli.py"}.get(name, name)
        assert answers[name] == (0, f"{program} --x y"), name
    status, searched = answers["rocprof-sys-run"]
    assert (status, searched.split(":")[-1]) == (0, "/mine")
    assert Path(searched.split(":")[0]).match("_rocm_profiler/lib")
    status, python_path = answers["rocprof-compute"]
    assert status == 0
    assert Path(python_path.split(":")[0]).match("_rocm_profiler/libexec/rocprofiler-compute")
    told = {dist.distribution: dist.absent for dist in dists if dist.absent}
    assert told == {"rocm-sdk-core": MISSING, "rocm-profiler": ("rocprof-sys-causal",)}


def test_a_program_is_started_under_the_name_of_its_command(scripts: Path) -> None:
    (clang,) = scripts.parent.glob("lib/*/site-packages/_rocm_sdk_core/lib/llvm/bin/clang-22")
    shutil.copy("/bin/bash", clang)  # prints its argv[0]; clang compiles C++ where that ends in clang++
    try:
        answer = run(scripts, "amdclang++", "-c", "echo $0")
    finally:
        clang.write_text(ECHO)
    assert answer == (0, str(clang.with_name("amdclang++")))


def test_a_program_that_cannot_start_is_named(scripts: Path) -> None:
    (clang,) = scripts.parent.glob("lib/*/site-packages/_rocm_sdk_core/lib/llvm/bin/clang-22")
    clang.chmod(0o644)
    try:
        assert run(scripts, "amdclang++") == (127, f"amdclang++: cannot start {clang}: Permission denied")
    finally:
        clang.chmod(0o755)


def test_commands_of_compilers_unpack_the_development_files_and_those_of_the_machine_do_not(
    dists: tuple[WrittenPackage, ...], new_environment: Path
) -> None:
    installed = pip(new_environment, dists[0].path.parent, f"rocm[devel]=={VERSION}")
    assert installed.returncode == 0, installed.stderr
    devel = next(new_environment.parents[1].glob("lib/*/site-packages")) / "_rocm_sdk_devel"
    assert run(new_environment.parent, "rocminfo") == (0, "rocminfo")
    assert not devel.exists()
    assert run(new_environment.parent, "hipcc") == (0, "hipcc")
    assert (devel / "bin/hipcc").exists()


def test_the_wheels_with_commands_are_whole(dists: tuple[WrittenPackage, ...]) -> None:
    for dist in dists:
        if dist.path.suffix == ".whl":
            assert verify(dist.path, Expectation()) == (), dist.path.name


def test_pip_refuses_an_extra_whose_package_the_artifacts_lack(tmp_path: Path, new_environment: Path) -> None:
    without = ("rocprofiler-systems_run_generic", "rocprofiler-compute_run_generic")
    artifacts = write_artifacts(tmp_path / "artifacts", *without)
    dists = tmp_path / "dists"
    request = PackageRequest(artifacts=artifacts, version=VERSION, targets=("gfx942",), output_dir=dists)
    made = package.package(request)
    assert made[-1].absent == ("rocm-profiler",)
    refused = pip(new_environment, dists, f"rocm[profiler]=={VERSION}")
    assert refused.returncode == 1
    assert f"No matching distribution found for rocm-profiler=={VERSION}" in refused.stderr
    assert pip(new_environment, dists, f"rocm=={VERSION}").returncode == 0
