"""The projects of a stack and the edges between them, as the frozen values that a stack.toml is read into."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import structs

from cairn import datafile, platforms
from cairn.errors import UsageError
from cairn.output import wording

HipifyKind = Literal["build_amd", "torch-utils", "at-build", "none"]
"""Who hipifies: the tree's own `tools/amd_build/build_amd.py`; `torch.utils.hipify` of a torch wheel, run at
checkout; the project's own `setup.py` while it builds; no one."""

PinKind = Literal["related_commits", "ci_commit_pins"]
"""The file of a torch checkout with the commit: in its root, or `.ci/docker/ci_commit_pins/<project>.txt`."""


class Origin(datafile.Value):
    """Where a project's repository comes from; exactly one of `url`, `tree` and `sdist`.

    Attributes:
        url: a git URL, or a path; one that begins with `./` or `../` counts from the stack's folder.
        tree: a folder that describes a repository (`history.toml`), materialized in the cache.
        sdist: an exact requirement such as `torch-scatter==2.1.2`, whose sdist is imported as a repository.
        sha256: of the sdist.
    """

    url: str | None = None
    tree: str | None = None
    sdist: str | None = None
    sha256: str | None = None


class Line(datafile.Value):
    """What one release line changes for a project: its `origin` and `hashtag` where they are different."""

    origin: Origin | None = None
    hashtag: str | None = None


class Environment(datafile.Value):
    """Environment variables of a build, as templates; placeholders: `cairn.build.inputs.variables`.

    Attributes:
        always: of every build.
        linux: of builds on Linux.
        windows: of builds on Windows.
        rocm: of builds for GPUs.
        rocm_linux: of builds for GPUs on Linux.
        rocm_windows: of builds for GPUs on Windows.
        cpu: of builds for the CPU.
    """

    always: Mapping[str, str] = msgspec.field(default_factory=dict)
    linux: Mapping[str, str] = msgspec.field(default_factory=dict)
    windows: Mapping[str, str] = msgspec.field(default_factory=dict)
    rocm: Mapping[str, str] = msgspec.field(default_factory=dict)
    rocm_linux: Mapping[str, str] = msgspec.field(default_factory=dict)
    rocm_windows: Mapping[str, str] = msgspec.field(default_factory=dict)
    cpu: Mapping[str, str] = msgspec.field(default_factory=dict)

    def of(self, system: str, *, cpu: bool) -> Mapping[str, str]:
        """The variables of one build; the later table wins.

        Args:
            system: `linux` or `windows`.
            cpu: it is for the CPU.
        """
        on_system, for_gpu = (
            (self.windows, self.rocm_windows) if system == "windows" else (self.linux, self.rocm_linux)
        )
        return {**self.always, **on_system, **(self.cpu if cpu else {**self.rocm, **for_gpu})}


class Download(datafile.Value):
    """A file that a build would fetch by itself; it is fetched before where a variable names it.

    Attributes:
        name: in `{download:NAME}`, which stands for its folder in variables.
        url: its address; groups of `pattern` stand in braces.
        sha256: of the file; without one, a group of that name, else what the first fetch gave.
        file: a file of the tree that says which one it is.
        pattern: a regular expression with named groups, found in `file`; `.` matches a line's end, too. A
            tree without it does without the download, and without the variables that name it.
        unpack: the build gets the folder of what is in it.
        feature: it is needed where this one of the stack's features is on; everywhere where it is None.
    """

    name: str
    url: str
    sha256: str | None = None
    file: str | None = None
    pattern: str = ""
    unpack: bool = True
    feature: str | None = None


class Carried(datafile.Value):
    """A file that a wheel must have, and that its build backend may leave out.

    Attributes:
        path: in the wheel.
        platform: `linux` or `windows`, on which it counts.
        variable: names the folder of the machine that has the file; empty for the tree, at `path`.
        find: a glob over what is in that folder; the name of the file where it is empty.
        required: the build stops where the variable is not set.
        feature: it counts where this one of the stack's features is on; everywhere where it is None.
    """

    path: str
    platform: Literal["linux", "windows"]
    variable: str = ""
    find: str = ""
    required: bool = False
    feature: str | None = None


class Project(datafile.Value):
    """One upstream repository that becomes one wheel.

    Attributes:
        name: the short name used on the command line (`torch`, `vision`).
        distribution: the name of its wheel (`torchvision`).
        checkout_dir: default folder of its checkout, and default `--repo-name`.
        flag: its name in flags of `build_prod_wheels.py` (`--pytorch-vision-dir`); `name` where it is None.
        origin: where it comes from on the default line.
        hashtag: default repo hashtag; `{line}` in it is the name of the release line.
        lines: what is different on some lines, by the name of a line or a pattern such as `release/*`. `load`
            puts here, by name, all that `Stack.lines` and the hashtag say of this project.
        windows: the repository that it comes from on Windows, which torch does not pin.
        pin: where the torch checkout names its commit; None where nothing does.
        hipify: who hipifies it.
        source_dirs: folders of the tree that may hold the build's entry point; the first with one is taken.
        version_file: file with the base version; empty where the built wheel alone knows it.
        version_edit: put the version into the built wheel, for a project that reads no version variable.
        environment: environment variables of its build.
        reads: variables that its build is known to read, by name or pattern (`USE_*`), besides those of
            `environment` and `cmake`. A build sees none that is not named, there or by `--build-env`; where
            one of these is set in the shell, one line says that it is left out.
        build_requires: requirements installed before it is built.
        build_requires_file: a requirements file in its tree, installed too when it is there.
        config_settings: `-C` settings for its build backend.
        cmake: values that its CMakeCache.txt must have once CMake has configured; where it has others, the
            build stops. The user's variables of these names (`--build-env`) are taken instead.
        downloads: files that its build would fetch by itself.
        carries: files that its wheel gets after the build where its backend has left them out.
        empty_dirs: folders made before its build, which would fetch what belongs there and does not need it.
        needs: names of the projects whose wheels must be installed to build it.
        requires: requirements its METADATA must name, as templates; they are exact pins.
        requires_rocm: likewise, only for GPU targets.
        rocm_init: where to write the module that loads the ROCm SDK's libraries.
        device_code: its wheel holds code objects for every GPU target; without, it must hold none.
        smoke_imports: modules that must import from the installed wheel.
        rocm_only: there is no build of it without ROCm; one for the CPU skips it.
        network: its build may use the network; others get none where the machine can do that.
    """

    name: str
    distribution: str
    checkout_dir: str
    flag: str | None = None
    origin: Origin
    hashtag: str
    lines: Mapping[str, Line] = msgspec.field(default_factory=dict)
    windows: Line | None = None
    pin: PinKind | None = None
    hipify: HipifyKind = "none"
    source_dirs: tuple[str, ...] = (".",)
    version_file: str = "version.txt"
    version_edit: bool = False
    environment: Environment = msgspec.field(default_factory=Environment)
    reads: tuple[str, ...] = ()
    build_requires: tuple[str, ...] = ()
    build_requires_file: str | None = None
    config_settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    cmake: Environment = msgspec.field(default_factory=Environment)
    downloads: tuple[Download, ...] = ()
    carries: tuple[Carried, ...] = ()
    empty_dirs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    requires_rocm: tuple[str, ...] = ()
    rocm_init: str | None = None
    device_code: bool = False
    smoke_imports: tuple[str, ...] = ()
    rocm_only: bool = False
    network: bool = False


class Sdk(datafile.Value):
    """The ROCm SDK a stack is built against.

    Attributes:
        version: a ROCm version; None takes the newest of the index.
        build: a command (templates `{python}`, `{stack_dir}`, `{prefix}`, `{targets}`) that makes an
            installed prefix to package, for a stack that brings its own SDK.
        packages: the file that says what of the prefix goes into which package.
        build_requires: requirements of the `build` command.
        machine: a command (templates `{python}`, `{stack_dir}`) that prints what of the machine goes into the
            prefix, such as versions of its packages: where it prints something new, the SDK is made again. It
            fails where something is missing, before anything is downloaded.
        preload: shortnames of libraries that torch loads before its own.
        preload_windows: those on Windows, where they are not the same.
        devices: its runtime can reach a GPU; where it cannot, the GPUs of a machine say nothing about a test.
    """

    version: str | None = None
    build: tuple[str, ...] = ()
    packages: str | None = None
    build_requires: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    preload_windows: tuple[str, ...] = ()
    devices: bool = True

    def preloads(self, system: str) -> tuple[str, ...]:
        """Shortnames of the libraries that torch loads first on `linux` or `windows`."""
        return self.preload_windows or self.preload if system == "windows" else self.preload


class DeviceWheels(datafile.Value):
    """How wheels become host and device wheels, where a build is asked to split them (`--split`).

    Attributes:
        prefix: stands before the names of device wheels: with `amd`, amd-torch-device-gfx942.
        runtime: the first release of ROCm whose runtime finds the code of installed device wheels. Wheels are
            split for no older one, and sets of them are sealed for none.
    """

    prefix: str = ""
    runtime: str = "7.14"


class Broken(datafile.Value):
    """A state of a tree in which a feature does not work on a platform.

    Attributes:
        platform: `linux` or `windows`.
        project: whose tree.
        file: a file of the tree.
        text: what the file has in that state.
    """

    platform: Literal["linux", "windows"]
    project: str
    file: str
    text: str


class Feature(datafile.Value):
    """A part of the wheels that is on by default only where it can work.

    Attributes:
        needs: projects that must be built too.
        needs_windows: those on Windows, where they are not the same.
        targets: beginnings of the targets that have it; one match is enough.
        broken: where it does not work.
    """

    needs: tuple[str, ...] = ()
    needs_windows: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()


RecordKind = Literal["smoke", "suite", "compat"]
"""What a test record is of: the smoke tests, or a project's own suite."""


class Floor(datafile.Value):
    """The fewest tests that a record must have to count as passed.

    Attributes:
        tests: fewest that ran.
        device_tests: fewest that passed on a GPU; of no account in a set for the CPU.
        configs: of suites, the configurations of which each must have passed; any one where empty.
    """

    tests: int = 1
    device_tests: int = 1
    configs: tuple[str, ...] = ()


class Gate(datafile.Value):
    """What a set of the stack must have to be promoted, besides what every set must have.

    Attributes:
        required: names of the projects that each set must have; where empty, all of the stack, but those of
            `rocm_only` in a set for the CPU.
        records: the kinds of test record that each target must have a passed one of, with their floors.
        allow: a file that says which findings of `verify` are known and let through, by builds as well
            (`schema = "cairn.allow/1"`), seen from the stack's folder.
        notify: a command that gets each promotion and refusal, as JSON on its standard input
            (`cairn.release.gate.judgement`); its working folder is the stack's.
        rebuilds: how many of `rebuilders` must have built the set again and got the same wheels.
        rebuilders: whose verdicts count: a name, and the id of the key (`cairn challenge`).
    """

    required: tuple[str, ...] = ()
    records: Mapping[RecordKind, Floor] = msgspec.field(default_factory=lambda: {"smoke": Floor()})
    allow: str | None = None
    notify: tuple[str, ...] = ()
    rebuilds: int = 0
    rebuilders: Mapping[str, str] = msgspec.field(default_factory=dict)


class Budget(datafile.Value):
    """The most that a wheel may have, or may lose or gain against the last set of the index; None: any.

    Attributes:
        wheel_size: bytes of the wheel.
        installed_size: bytes of its files, unpacked.
        spills: registers that its kernels keep in memory, for which there was no room.
        targets_lost: targets that it has no device code for any more.
        kernels_lost: kernels that it lost, each counted once for each target that it still has code for.
        symbols_lost: symbols that its libraries no longer export.
        namespaces: of C++, such as `at` or `c10::cuda`: only symbols in one count; all where it is empty.
        new_requirements: distributions that it did not require.
        loosened_requirements: distributions of which it required an exact version, and takes others now.
        import_seconds: that its import takes in the smoke test, in the fastest of its runs.
    """

    wheel_size: int | None = None
    installed_size: int | None = None
    spills: int | None = None
    targets_lost: int | None = None
    kernels_lost: int | None = None
    symbols_lost: int | None = None
    namespaces: tuple[str, ...] = ()
    new_requirements: int | None = None
    loosened_requirements: int | None = None
    import_seconds: float | None = None


class Cost(datafile.Value):
    """What a project takes, or the ROCm SDK, as far as somebody measured it; for orientation, no limit.

    Attributes:
        download: bytes that a first checkout, or the SDK, fetches.
        disk: bytes that its checkout and its build leave.
        cpu_hours: hours of one core that its build takes without any target.
        hours_per_target: and for each target.
    """

    download: int = 0
    disk: int = 0
    cpu_hours: float = 0.0
    hours_per_target: float = 0.0


class Consumer(datafile.Value):
    """A project that depends on the stack's and is built elsewhere: whom a new set must not break.

    Attributes:
        name: its distribution.
        wheels: its wheels on this machine, seen from the stack's folder; `*` stands for anything in a file
            name. Where there are none, pip fetches one.
        requirement: what pip fetches, such as `torch-scatter==2.1.2`; the newest where it is None.
        index_url: where from; the index that pip is set up for where it is None.
        index: of the store that the set is in, such as `release`: the wheels are those of the last set there
            of the stack called `name`.
    """

    name: str
    wheels: tuple[str, ...] = ()
    requirement: str | None = None
    index_url: str | None = None
    index: str | None = None


class Stack(datafile.Value, tag_field="schema", tag="cairn.stack/1"):
    """The projects, the edges between them, and the defaults of a run.

    Attributes:
        name: what reports and sets call it.
        line: default release line.
        targets: default targets, `cpu` for a stack without ROCm.
        lines: the release lines, each with the hashtags (project name to hashtag) that are not the project's
            own; an entry for just this line in the project wins. A project whose hashtag is `{line}` follows
            them all by name.
        environment: variables of every project's build; a project's own win, whichever table has them.
        sdk: the ROCm SDK; None for a stack without ROCm.
        version_suffix: local version of the wheels for a stack without ROCm, such as `+cpu`.
        extra_wheels: requirements installed into every build and smoke environment, from the user's index.
        smoke_tests: folders with the pytest smoke tests of the installed wheels.
        projects: in any order.
        install: distributions that users ask pip for; the others come with them. All when empty.
        features: name to when it is on, for `{on_or_off:NAME}`.
        device_wheels: how its wheels are split.
        gate: what promotion demands of its sets.
        budgets: project to the most that its wheel may have, lose or gain; the gate refuses more.
        costs: project, or `sdk`, to what it takes; said before a build by one line begins.
        consumers: who depends on its wheels. The gate refuses a set that breaks one which works with the last
            set of the index.
        pythons: versions of Python that its sets are built for, such as `3.11`; the build's where empty.
        platforms: such as `linux_x86_64`; the build's where empty.
        host_compiler: its builds for GPUs take the machine's C++ compiler and Python's headers too, as those
            of PyTorch do; false where the ROCm SDK brings all.
        disk: bytes that a first run of the trail leaves in its work folder; None where it was not measured.
        folder: where the stack.toml is; set by `load`, as `file`.
        file: what the stack.toml is called; empty for a stack that was read from none.
    """

    name: str
    line: str
    targets: tuple[str, ...]
    projects: tuple[Project, ...]
    lines: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    environment: Environment = msgspec.field(default_factory=Environment)
    sdk: Sdk | None = None
    version_suffix: str | None = None
    extra_wheels: tuple[str, ...] = ()
    smoke_tests: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    features: Mapping[str, Feature] = msgspec.field(default_factory=dict)
    device_wheels: DeviceWheels = msgspec.field(default_factory=DeviceWheels)
    gate: Gate = msgspec.field(default_factory=Gate)
    budgets: Mapping[str, Budget] = msgspec.field(default_factory=dict)
    costs: Mapping[str, Cost] = msgspec.field(default_factory=dict)
    consumers: tuple[Consumer, ...] = ()
    pythons: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    disk: int | None = None
    host_compiler: bool = True
    folder: str = ""
    file: str = ""

    def project(self, name: str) -> Project:
        """The project called `name`.

        Raises:
            UsageError: there is none.
        """
        for project in self.projects:
            if name in (project.name, project.distribution):
                return project
        raise UsageError(
            f"the stack {self.name} has no project {name!r}",
            tip=wording.did_you_mean(name, [p.name for p in self.projects], what="its projects are"),
        )

    @property
    def makes_sdk(self) -> bool:
        """Whether builds make its ROCm SDK themselves."""
        return self.sdk is not None and bool(self.sdk.build)

    @property
    def takes_sdk(self) -> bool:
        """Whether builds for GPUs take its ROCm SDK from an index."""
        return self.sdk is not None and not self.sdk.build

    @property
    def reaches_gpus(self) -> bool:
        """Whether its tests can use a GPU of the machine; see `Sdk.devices`."""
        return self.sdk is None or self.sdk.devices

    def in_order(self) -> tuple[Project, ...]:
        """The projects, each after those it needs; otherwise in the order of the file."""
        return tuple(p for rank in self.ranks() for p in rank)

    def ranks(self) -> tuple[tuple[Project, ...], ...]:
        """The projects in ranks: those of one rank need only earlier ranks, and may be built side by side."""
        # A rank is what graphlib calls ready at once; within it, the order of the file.
        sorter = graphlib.TopologicalSorter({p.name: p.needs for p in self.projects})
        sorter.prepare()
        ranks = []
        while ready := sorter.get_ready():
            ranks.append(tuple(p for p in self.projects if p.name in ready))
            sorter.done(*ready)
        return tuple(ranks)

    def line_names(self) -> tuple[str, ...]:
        """Every release line of the stack, sorted."""
        return tuple(sorted({*self.lines, self.line, *(name for p in self.projects for name in p.lines)}))

    def for_line(self, line: str | None) -> Stack:
        """This stack with origins and hashtags of a release line.

        Raises:
            UsageError: the stack has no such line.
        """
        name = line or self.line
        if name not in self.line_names():
            tip = wording.did_you_mean(name, self.line_names(), what="its lines are")
            raise UsageError(f"the stack {self.name} has no line {name!r}", tip=tip)
        projects = []
        for project in self.projects:
            settings, pin = project.lines.get(name, Line()), project.pin
            if project.windows is not None and platforms.here.stack_section() == "windows":
                settings, pin = project.windows, None
            origin, hashtag = settings.origin or project.origin, settings.hashtag or project.hashtag
            projects.append(structs.replace(project, origin=origin, hashtag=hashtag, pin=pin))
        return structs.replace(self, line=name, projects=tuple(projects))
