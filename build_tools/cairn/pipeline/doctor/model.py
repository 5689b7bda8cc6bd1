"""A machine as `cairn doctor` sees it, its purpose, and the findings of the checks.

Nothing here asks the system, so that any machine can be described.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from cairn.datafile import Value

System = Literal["linux", "windows", "darwin"]

Purpose = Literal["build", "install", "test"]
Level = Literal["ok", "note", "warning", "missing"]
_INSTALL = {
    "apt": "apt install {}",
    "dnf": "dnf install {}",
    "zypper": "zypper install {}",
    "pacman": "pacman -S {}",
    "apk": "apk add {}",
    "winget": "winget install {}",
}
# A package's name where it is not the program's.
_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "g++": {
        "dnf": "gcc-c++",
        "zypper": "gcc-c++",
        "pacman": "gcc",
        "winget": "Microsoft.VisualStudio.2022.BuildTools",
    },
    "git": {"winget": "Git.Git"},
    "python-venv": {"apt": "python{}-venv", "dnf": "python3", "zypper": "python3", "pacman": "python"},
    "python-headers": {
        "apt": "python{}-dev",
        "dnf": "python{}-devel",
        "zypper": "python3-devel",
        "pacman": "python",
        "apk": "python3-dev",
    },
}
HostCompiler = Literal["needed", "alone", "brought"]
_DISK = {"build": 40_000_000_000, "install": 15_000_000_000, "test": 15_000_000_000}
"""Bytes where no stack says how many: a torch tree with its build; torch for ROCm, packed and unpacked."""


class PythonFacts(Value):
    """The interpreter that Cairn runs with, or that was named.

    Attributes:
        path: of the program.
        version: all three parts of it.
        implementation: `CPython`, `PyPy`.
        bits: of a pointer.
        venv: it can make environments.
        ensurepip: it can put pip into them.
        headers: its `Python.h` is there.
        system: it came with the system, by its package manager.
    """

    path: str
    version: str
    implementation: str = "CPython"
    bits: int = 64
    venv: bool = True
    ensurepip: bool = True
    headers: bool = True
    system: bool = True


class Disk(Value):
    """A folder that is written to, and what it is on.

    Attributes:
        role: `work folder`, `temporary files`, `cache`.
        path: the folder.
        free: bytes.
        writable: whether we may write there.
        filesystem: its kind, as the system calls it; empty where that is not known.
        no_exec: programs in it are not run (mount option `noexec`).
        ignores_case: `a` and `A` are one file.
    """

    role: str
    path: str
    free: int
    writable: bool = True
    filesystem: str = ""
    no_exec: bool = False
    ignores_case: bool = False


class Device(Value):
    """A device file.

    Attributes:
        path: of it.
        usable: we may read and write it.
        group: that owns it: its name, or its number where this system has no name for it.
    """

    path: str
    usable: bool = True
    group: str = "render"


class GpuFacts(Value):
    """AMD's GPUs in the machine.

    Attributes:
        targets: of each GPU that the kernel's driver describes, in its order.
        visible: those of them that variables such as `ROCR_VISIBLE_DEVICES` leave.
        hidden_by: the variables that leave fewer.
        cards: AMD display controllers and accelerators on the PCI bus, whether a driver has them or not.
        driver: the version of the driver amdgpu that is loaded, `in-tree` for the kernel's own; or None.
        kfd: /dev/kfd, or None.
        render: the files of /dev/dri that programs compute through.
    """

    targets: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    hidden_by: tuple[str, ...] = ("ROCR_VISIBLE_DEVICES",)
    cards: int = 0
    driver: str | None = None
    kfd: Device | None = None
    render: tuple[Device, ...] = ()


class WindowsFacts(Value):
    """Facts that only Windows has.

    Attributes:
        long_paths: paths of more than 260 characters work; None where that is not known.
        developer_mode: links can be made without being an administrator; None where that is not known.
        compiler: the environment of Microsoft's compiler for x64 is set up in this shell.
    """

    long_paths: bool | None = None
    developer_mode: bool | None = None
    compiler: bool = False


class Machine(Value):
    """A machine, as far as a build, an installation or tests depend on it.

    Attributes:
        system: its kind.
        name: of the distribution or system, for people.
        packages: what installs them: `apt`, `dnf`, `zypper`, `pacman`, `apk`, `winget`; or empty.
        architecture: `x86_64`.
        libc: `glibc 2.36`, `musl`; empty where there is neither.
        container: what contains us, such as `docker`; None for a machine of its own.
        wsl: it is the Windows Subsystem for Linux.
        root: we may do everything.
        encoding: of text files and names, in small letters.
        cores: that we may use.
        memory: bytes of memory; None where that is not known.
        memory_free: bytes that are free of them, or that a container may take; None where that is not known.
        open_files: soft and hard limit of a process; None where there is none.
        python: the interpreter.
        programs: version by name, of the programs that are on PATH; empty where one does not say.
        git_settings: by name, the user's settings of git that change files, and git's variables that are set.
        extras: by each extra of Cairn that is not whole: what it lacks, and the line that installs it.
        disks: the folders that are written to.
        gpu: AMD's GPUs.
        groups: names of those that we are in.
        proxies: names of the variables of proxies that are set.
        proxy_spares_local: servers on this machine are reached without a proxy.
        windows: what only Windows has; None elsewhere.
    """

    system: System = "linux"
    name: str
    packages: str = ""
    architecture: str = "x86_64"
    libc: str = "glibc 2.36"
    container: str | None = None
    wsl: bool = False
    root: bool = False
    encoding: str = "utf-8"
    cores: int
    memory: int | None
    memory_free: int | None
    open_files: tuple[int, int] | None = None
    python: PythonFacts
    programs: Mapping[str, str] = msgspec.field(default_factory=dict)
    git_settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    extras: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    disks: tuple[Disk, ...] = ()
    gpu: GpuFacts = msgspec.field(default_factory=GpuFacts)
    groups: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    proxy_spares_local: bool = True
    windows: WindowsFacts | None = None


class Finding(Value):
    """The result of checking one thing.

    Attributes:
        check: the thing, in a word or two.
        level: `missing` for what is needed and not there, `warning` for what will hurt.
        text: what was found.
        fix: a line to type, or what to do where no line does it; None where nothing is to be done.
    """

    check: str
    level: Level
    text: str
    fix: str | None = None


def ok(check: str, text: str) -> Finding:
    """A check that passed."""
    return Finding(check=check, level="ok", text=text)


def note(check: str, text: str, *, fix: str | None = None) -> Finding:
    """A check with information for the user."""
    return Finding(check=check, level="note", text=text, fix=fix)


def warning(check: str, text: str, *, fix: str | None = None) -> Finding:
    """A check with a problem that does not stop the work."""
    return Finding(check=check, level="warning", text=text, fix=fix)


def missing(check: str, text: str, *, fix: str | None = None) -> Finding:
    """A check of something that is needed but missing."""
    return Finding(check=check, level="missing", text=text, fix=fix)


class DoctorReport(Value, tag_field="schema", tag="cairn.doctor/1"):
    """What `cairn doctor --json` prints.

    Attributes:
        purpose: what the machine was checked for.
        machine: all that was judged; `cairn doctor --machine` judges it again, anywhere.
        findings: in the order of the terminal.
    """

    purpose: Purpose
    machine: Machine
    findings: tuple[Finding, ...]


def install_line(machine: Machine, prerequisite: str) -> str:
    """Return the command line that installs a system package."""
    if not machine.packages:
        return f"install {prerequisite} with the package manager of the system"
    version = ".".join(machine.python.version.split(".")[:2])
    package = _PACKAGES.get(prerequisite, {}).get(machine.packages, prerequisite).format(version)
    return as_root(machine, _INSTALL[machine.packages].format(package))


def as_root(machine: Machine, line: str) -> str:
    """Return a command line that runs as root, with `sudo` if needed."""
    return line if machine.root or machine.system == "windows" else f"sudo {line}"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel to be installed, as far as it must fit a machine.

    Attributes:
        name: of the wheel or the address of the index.
        targets: it has device code for; empty where it has none.
        pythons: `3.12` of each Python that it is for; empty for any.
        glibc: the oldest that it loads on, such as (2, 28), or None.
        system: it is for; None for any.
    """

    name: str
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    glibc: tuple[int, int] | None = None
    system: str | None = None


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """The purpose of the machine, and its requirements.

    Attributes:
        purpose: build, installation or tests.
        targets: of the GPUs that must be in the machine; for tests on hardware.
        pythons: of the stack; empty for any.
        compiler: whether the machine's own compiler and Python's headers are `needed`, are all that builds
            (`alone`), or are `brought` by the ROCm SDK.
        disk: bytes that the work folder must have free; None where no stack says.
        offers: what is to be installed.
    """

    purpose: Purpose
    targets: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    compiler: HostCompiler = "needed"
    disk: int | None = None
    offers: tuple[Offer, ...] = ()

    @property
    def builds(self) -> bool:
        """Whether something is compiled."""
        return self.purpose == "build"

    @property
    def required_disk(self) -> int:
        """Bytes that the work folder should have free."""
        return self.disk or _DISK[self.purpose]
