"""The values of a build: the user's request (`Job`), the resolved `BuildRequest`, and the `BuiltWheel`."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from cairn import files, interpreters
from cairn import targets as gpu
from cairn.build import cache
from cairn.build.build_options import CompilerCache, RunOptions
from cairn.build.cache import SharedCache
from cairn.build.engine.events import CacheStatistics
from cairn.errors import UsageError
from cairn.interpreters import Interpreter
from cairn.rocm.install import SdkInfo
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Project, Stack
from cairn.venv import PackageSource
from cairn.wheels.metadata import rocm_version

_BUILD_NUMBER = re.compile(r"[0-9]{1,9}")  # torch's setup.py computes with it


class SdkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which ROCm SDK to install.

    Attributes:
        source: where pip finds the packages.
        version: ROCm's version, or what it must be (`>1.0`); None takes the newest.
        extras: of the `rocm` package, such as `libraries` and `devel`.
        family: GPU family whose libraries are chosen; None leaves the choice to the `rocm` package.
        digest: of the packages at the source, where it is known: then their address does not matter.
        reviewed: file name to the sha256 that it may have, of all that may be installed; None for anything.
    """

    source: PackageSource = msgspec.field(default_factory=PackageSource)
    version: str | None = None
    extras: tuple[str, ...] = ("libraries", "devel")
    family: str | None = None
    digest: str | None = None
    reviewed: Mapping[str, str] | None = None

    @property
    def exact(self) -> str | None:
        """The version that is named exactly; None where the index decides."""
        return self.version if self.version and self.version[0] not in "<>=!~" else None

    def identity(self) -> str:
        """The identity of the installation."""
        place = self.digest or str(self.source)
        return f"{place} version={self.version} extras={sorted(self.extras)} family={self.family}"


class InstalledSdk(msgspec.Struct, frozen=True, kw_only=True):
    """The ROCm SDK of a build: the environment it is installed in, and its own description.

    Attributes:
        environment: the folder of its virtual environment.
        info: its version and folders.
        digest: sha256 over what is installed, part of every cache key.
        files: its distributions, file name to sha256; empty for one that an older Cairn installed.
        source: where pip found it.
    """

    environment: Path
    info: SdkInfo
    digest: str
    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    source: PackageSource = msgspec.field(default_factory=PackageSource)


Variant: TypeAlias = tuple[str | None, str | None, str]
"""Which of several builds in one run a job is: release line, None for that of the checkouts; family as the
user named it, None for the targets of the job; version of its Python."""


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a user that a build takes as they are.

    Attributes:
        stack: the stack, as loaded; that of a `BuildRequest` is on its line.
        checkouts: project name to folder.
        output_dir: receives the wheels, `set.json`, `manifest.json` and `logs/`.
        build_number: what upstream's `*_BUILD_NUMBER` variables get.
        clean: throw away what earlier builds left in the trees, and do not read the cache.
        compiler_cache: program put in front of the compilers.
        shared_cache: the cache that machines share, behind the folder of this one; None for no such.
        python: the interpreter that the wheels are built with and for.
        run: how its steps are run.
        trees: the folder with the trees that this build has to itself; None builds in the checkouts.
        split: leave host and device wheels of the projects that have device code.
        frozen: the manifest that the set is of, which other Pythons and families share, and that each tree
            must be of at the moment it is built; None makes one of what was built from.
    """

    stack: Stack
    checkouts: Mapping[str, Path]
    output_dir: Path
    build_number: str = "1"
    clean: bool = False
    compiler_cache: CompilerCache | None = None
    shared_cache: SharedCache | None = None
    python: Interpreter = msgspec.field(default_factory=interpreters.current)
    run: RunOptions = msgspec.field(default_factory=RunOptions)
    trees: Path | None = None
    split: bool = False
    frozen: Manifest | None = None

    def settings(self) -> dict[str, Any]:
        """These fields alone, by name."""
        return {name: getattr(self, name) for name in BuildSettings.__struct_fields__}


class Job(BuildSettings, frozen=True, kw_only=True):
    """A build as a user asks for it; `cairn.build.job.resolve` makes a `BuildRequest` of it.

    Attributes:
        line: release line that the user named; None takes that of the checkouts.
        vouched: all that it is made from was reviewed, or signed by the builders of this name (`Vouch.name`);
            empty for others, whose wheels could have the same key and be made with another SDK.
        required: projects that must be built; others are skipped where their checkout is missing.
        sdk: which ROCm SDK, if one is installed now.
        install_rocm: install it first.
        targets: as the user wrote them; None takes what the SDK serves, or the stack's.
        version_suffix: as the user wrote it; None derives it from the SDK.
        features: features switched on or off; others as the stack says.
        channel: channel the SDK must be of, such as `nightly`; None takes any.
        jobs: compile jobs at once; 0 is one per processor.
        build_env: variables for builds, as the user wrote them (`cairn.build.inputs.variables`).
        env_dir: where environments are kept; None is a folder in the cache that belongs to the stack.
        variant: which of several it is; None for one alone.
    """

    line: str | None = None
    vouched: str = ""
    required: frozenset[str] = frozenset()
    sdk: SdkRequest = msgspec.field(default_factory=SdkRequest)
    install_rocm: bool = False
    targets: str | None = None
    version_suffix: str | None = None
    features: Mapping[str, bool] = msgspec.field(default_factory=dict)
    channel: str | None = None
    jobs: int = 0
    build_env: tuple[str, ...] = ()
    env_dir: Path | None = None
    variant: Variant | None = None

    def __post_init__(self) -> None:
        if self.version_suffix:
            rocm_version.check_suffix(self.version_suffix)
        if not _BUILD_NUMBER.fullmatch(self.build_number):
            raise UsageError(
                f"{self.build_number[:100]!r} is not a build number", tip="it is a number such as 1 or 2"
            )

    def environments(self) -> Path:
        """Where this job keeps its environments."""
        if self.env_dir is not None:
            return self.env_dir.absolute()
        # Two copies of one stack, in different folders, must not share environments.
        name = hashlib.sha256(os.fsencode(self.stack.folder)).hexdigest()[:12]
        return files.cache_dir() / "envs" / f"{self.stack.name}-{name}-{self.python.tag}"

    def for_cpu(self) -> bool:
        """Whether this job is without ROCm; targets that cannot be read are not `cpu`."""
        if self.stack.sdk is None:
            return True
        try:
            return self.targets is not None and gpu.parse_targets(self.targets) == (gpu.CPU,)
        except UsageError:
            return False  # `cairn.build.preflight` reports it


class BuildRequest(BuildSettings, frozen=True, kw_only=True):
    """Everything a build is made from, with nothing left open; only its checkouts are built.

    Attributes:
        work_dir: environments and other things that can be thrown away.
        cache_dir: built wheels by their inputs.
        targets: GPU targets, or `cpu` alone.
        sdk: the installed SDK; None for `cpu`.
        version_suffix: local version of every wheel, with its `+`, before `suffix_of`; empty for none.
        features: enabled features, such as `flash_attention`.
        build_env: the user's variables, by `NAME` or `project:NAME` (`cairn.build.inputs.variables`).
        jobs: compile jobs over all builds that run side by side.
        pip: where build requirements come from.
    """

    work_dir: Path
    cache_dir: Path
    targets: tuple[str, ...]
    sdk: InstalledSdk | None = None
    version_suffix: str = ""
    features: frozenset[str] = frozenset()
    build_env: Mapping[str, str] = msgspec.field(default_factory=dict)
    jobs: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    pip: PackageSource = msgspec.field(default_factory=PackageSource)

    @property
    def wheel_cache(self) -> cache.WheelCache:
        """Where built wheels are kept."""
        return cache.of_build(self.cache_dir, self.shared_cache)

    @property
    def for_cpu(self) -> bool:
        """Whether this build is without ROCm."""
        return self.targets == (gpu.CPU,)

    def env_of(self, project: Project) -> dict[str, str]:
        """The user's variables for one project; those that name it win."""
        prefix = f"{project.name}:"
        for_all = {name: value for name, value in self.build_env.items() if ":" not in name}
        return for_all | {
            n.removeprefix(prefix): v for n, v in self.build_env.items() if n.startswith(prefix)
        }

    def has_network(self, project: Project) -> bool:
        """Whether the build of a project has the network: its own need, or its compiler cache's."""
        remote = os.environ.get("CCACHE_REMOTE_STORAGE", "") if self.compiler_cache == "ccache" else ""
        is_remote = any(not url.startswith("file:") for url in remote.split())  # ccache(1): URLs and blanks
        return project.network or is_remote or self.compiler_cache == "sccache"

    def again(self, project: Project) -> int:
        """How many earlier manifests have the version of a project."""
        sources = self.frozen.projects if self.frozen is not None else ()
        return next((source.again for source in sources if source.name == project.name), 0)

    def suffix_of(self, project: Project) -> str:
        """The local version of a project's wheel, with its `+`; empty for none."""
        return rocm_version.again(self.version_suffix, self.again(project))

    def place_of(self, project: Project) -> Path:
        """The folder where builds of a project keep files outside of its tree."""
        return (self.trees or self.work_dir) / project.name

    def tree_of(self, project: Project) -> Path:
        """Where a project is built: its checkout, or a copy of it that this build has to itself."""
        return self.checkouts[project.name] if self.trees is None else self.place_of(project) / "tree"

    def launchers_of(self, project: Project) -> Path:
        """Where the launchers of the compiler cache are for a project: CMake keeps this path in its tree."""
        return self.place_of(project) / "launchers"

    def packages(self) -> PackageSource:
        """Where build requirements come from: the wheels built before are among them."""
        return dataclasses.replace(self.pip, find_links=(*self.pip.find_links, str(self.output_dir)))

    def projects(self) -> tuple[Project, ...]:
        """The projects that are built, each after those it needs."""
        return tuple(p for p in self.stack.in_order() if p.name in self.checkouts)


class BuiltWheel(msgspec.Struct, frozen=True, kw_only=True):
    """One wheel in the output folder, or the host wheel and the device wheels that it was split into.

    Attributes:
        project: the project's name.
        wheel: its file; the host wheel, where it was split.
        devices: its device wheels, where it was split.
        whole: the wheel that others are built against.
        sha256: of `wheel`.
        version: from its METADATA.
        targets: found in its code objects, and those of its device wheels.
        seconds: what building it took, now or when it was put into the cache.
        started: seconds since the epoch when its step began.
        ended: likewise when it was done.
        cached: it was not built now.
        first_key: the key it was first built under, by which builds against it know it.
        origin: `built` now, found in the `local` cache, or fetched from the `shared` one.
        builder: who built it (`cairn.build.cache.CacheEntry`).
        compiler_cache: what the compiler cache counted; None where it was not built, or without one.
        edited: the tree was edited while it was built: the exact sources of the wheel are unknown.
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
    first_key: str = ""
    origin: Literal["built", "local", "shared"] = "built"
    builder: str = ""
    compiler_cache: CacheStatistics | None = None
    devices: tuple[Path, ...] = ()
    whole: Path | None = None
    edited: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """Its files in a set."""
        return (self.wheel, *self.devices)
