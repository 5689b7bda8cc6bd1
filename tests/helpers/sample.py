"""Checking the sample's repositories out and building their wheels, as upstream's scripts would."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn import process

SAMPLE = Path(__file__).resolve().parents[2] / "external-builds" / "sample"
NAMES = ("torch", "torchaudio", "torchvision", "triton")
# What a developer's own environment may hold and the builds would read.
READ_BY_BUILDS = ("BUILD_", "CXX", "CMAKE_", "FORCE_CUDA", "LDFLAGS", "MAX_JOBS", "PIP_", "PYTORCH_", "ROCM_")


def environment(**more: str) -> dict[str, str]:
    """Ours without what the builds read, and `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*READ_BY_BUILDS, "TRITON_", "USE_"))}
    # Tools of the interpreter that runs the tests, such as ziglang's, come first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return kept | {"PATH": path, "PIP_CONFIG_FILE": os.devnull, "MAX_JOBS": "2"} | more


def checkout(origins: Mapping[str, Path], name: str, target: Path, *, branch: str = "release/2.9") -> Path:
    """Clone one of the sample's repositories, with its submodules."""
    command = ["git", "-c", "protocol.file.allow=always", "clone", "--quiet", "--recurse-submodules"]
    process.run([*command, "--branch", branch, str(origins[name]), str(target)], confined=False)
    return target


def hipify(tree: Path) -> str:
    """Hipify a checkout of torch with its own script; the answer is what it printed."""
    # From elsewhere: the script must find its tree by itself.
    return process.run(
        [sys.executable, str(tree / "tools/amd_build/build_amd.py")], cwd=tree.parent, confined=False
    ).output


def build_wheel(tree: Path, target: Path, **variables: str) -> str:
    """Build a wheel as a user would; the answer is the build's output."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(tree)]
    return process.run(command, env=environment(**variables), check=True, confined=False).output


@dataclass(frozen=True, kw_only=True)
class Built:
    """The four wheels of one build, and an environment with them.

    Attributes:
        trees: the checkouts, by distribution.
        wheels: the wheels, by distribution.
        python: of the environment that has the wheels installed.
        site: its site-packages.
        variables: what the builds were given, besides versions.
    """

    trees: Mapping[str, Path]
    wheels: Mapping[str, Path]
    python: Path
    site: Path
    variables: Mapping[str, str]


def empty_environment(folder: Path) -> tuple[Path, Path]:
    """An interpreter without packages, and its site-packages."""
    process.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], confined=False)
    return folder / "bin" / "python", next(folder.glob("lib/python3*/site-packages"))


def install(python: Path, *wheels: Path) -> None:
    """Install wheels, and nothing else, into an environment."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps"]
    process.run([*command, *map(str, wheels)], env=environment(), confined=False)


def build_all(origins: Mapping[str, Path], folder: Path, variables: Mapping[str, str], suffix: str) -> Built:
    """Check out release/2.9 and build the four wheels, each with upstream's variables."""
    branches = {"triton": "release/3.5.x"}
    trees = {
        name: checkout(origins, name, folder / name, branch=branches.get(name, "release/2.9"))
        for name in NAMES
    }
    python, site = empty_environment(folder / "venv")
    if "ROCM_HOME" in variables:
        hipify(trees["torch"])
        if variables["ROCM_HOME"] != "/usr":
            # Where the ROCm SDK's packages have it, so that nothing but RPATHs leads there.
            (site / "_rocm_sdk_core").mkdir()
            (site / "_rocm_sdk_core" / "lib").symlink_to(Path(variables["ROCM_HOME"], "lib"))
    own = own_variables(suffix)
    wheels = {}
    for name in ("triton", "torch", "torchaudio", "torchvision"):
        out = folder / "out" / name
        build_wheel(trees[name], out, PYTHONPATH=str(site), **variables, **own[name])
        wheels[name] = next(out.glob("*.whl"))
        install(python, wheels[name])
    return Built(trees=trees, wheels=wheels, python=python, site=site, variables=variables)


def own_variables(suffix: str) -> Mapping[str, Mapping[str, str]]:
    """What upstream's scripts tell each project."""
    sibling = {"BUILD_NUMBER": "1", "PYTORCH_VERSION": f"2.9.0{suffix}"}
    return {
        "triton": {"TRITON_WHEEL_VERSION_SUFFIX": suffix, "TRITON_WHEEL_NAME": "triton"},
        "torch": {
            "PYTORCH_BUILD_VERSION": f"2.9.0{suffix}",
            "PYTORCH_BUILD_NUMBER": "1",
            "PYTORCH_EXTRA_INSTALL_REQUIREMENTS": f"triton==3.5.0{suffix}|rocm[libraries]==7.10.0",
            "USE_CUDA": "OFF",
        },
        "torchaudio": {"BUILD_VERSION": f"2.9.0{suffix}", "USE_FFMPEG": "1", **sibling},
        "torchvision": {"BUILD_VERSION": f"0.24.0{suffix}", "TORCHVISION_USE_NVJPEG": "0", **sibling},
    }
