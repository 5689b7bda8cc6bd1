"""What a person asks a build to do, and what it answers with."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cairn import targets as gpu
from cairn.build.environment import PipSource
from cairn.rocm.install import SdkInfo
from cairn.stack import Project, Stack

CompilerCache = Literal["ccache", "sccache"]


@dataclass(frozen=True, kw_only=True)
class Sdk:
    """The ROCm SDK a build uses: the environment it is installed in, and what a query of it says.

    Attributes:
        environment: the folder of its virtual environment.
        info: its version and folders.
        digest: sha256 over what is installed, part of every cache key.
    """

    environment: Path
    info: SdkInfo
    digest: str


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """Everything a build is made from.

    Attributes:
        stack: the stack, on its line.
        checkouts: project name to the folder of its checkout; only these are built.
        output_dir: receives the wheels, `set.json`, `manifest.json` and `logs/`.
        work_dir: environments and other things that can be thrown away.
        cache_dir: built wheels by their inputs.
        targets: GPU targets, or `cpu` alone.
        sdk: the installed SDK; None for `cpu`.
        version_suffix: local version of every wheel, with its `+`; empty for none.
        build_number: what upstream's `*_BUILD_NUMBER` variables get.
        features: enabled features, such as `flash_attention`.
        build_env: variables of the person's, by `NAME` or `project:NAME` (`cairn.build.inputs.overrides`).
        jobs: compile jobs over all builds that run side by side.
        clean: throw away what earlier builds left in the trees, and do not read the cache.
        compiler_cache: program put in front of the compilers.
        pip: where build requirements come from.
    """

    stack: Stack
    checkouts: Mapping[str, Path]
    output_dir: Path
    work_dir: Path
    cache_dir: Path
    targets: tuple[str, ...]
    sdk: Sdk | None = None
    version_suffix: str = ""
    build_number: str = "1"
    features: frozenset[str] = frozenset()
    build_env: Mapping[str, str] = field(default_factory=dict)
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    clean: bool = False
    compiler_cache: CompilerCache | None = None
    pip: PipSource = field(default_factory=PipSource)

    @property
    def for_cpu(self) -> bool:
        """Whether this build is without ROCm."""
        return self.targets == (gpu.CPU,)

    def env_of(self, project: Project) -> dict[str, str]:
        """The person's variables for one project; those that name it win."""
        own = f"{project.name}:"
        for_all = {name: value for name, value in self.build_env.items() if ":" not in name}
        return for_all | {n.removeprefix(own): v for n, v in self.build_env.items() if n.startswith(own)}

    def projects(self) -> tuple[Project, ...]:
        """The projects that are built, each after those it needs."""
        return tuple(p for p in self.stack.in_order() if p.name in self.checkouts)


@dataclass(frozen=True, kw_only=True)
class BuiltWheel:
    """One wheel in the output folder.

    Attributes:
        project: the project's name.
        wheel: its file.
        sha256: of the file.
        version: from its METADATA.
        targets: found in its code objects.
        seconds: what building it took, now or when it was put into the cache.
        started: seconds since the epoch when its step began.
        ended: likewise when it was done.
        cached: it was not built now.
    """

    project: str
    wheel: Path
    sha256: str
    version: str
    targets: tuple[str, ...]
    seconds: float
    started: float
    ended: float
    cached: bool


def python_version() -> str:
    """The Python that builds, such as `3.11`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def python_tag() -> str:
    """The tag of the interpreter that builds, such as `cp311` (PEP 425)."""
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def platform_tag() -> str:
    """The platform of the machine that builds, such as `linux_x86_64`."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_") or platform.machine()
