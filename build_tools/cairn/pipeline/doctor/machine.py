"""A machine as `cairn doctor` sees it: nothing here asks the system, so that any machine can be described."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from cairn.datafile import Value

System = Literal["linux", "windows", "darwin"]


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
    disks: tuple[Disk, ...] = ()
    gpu: GpuFacts = msgspec.field(default_factory=GpuFacts)
    groups: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    proxy_spares_local: bool = True
    windows: WindowsFacts | None = None
