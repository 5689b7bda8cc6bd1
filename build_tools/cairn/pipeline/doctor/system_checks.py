"""The system itself: its kind, its settings, its way to the network."""

from __future__ import annotations

from collections.abc import Iterator

from cairn.pipeline.doctor.machine import Finding, Machine
from cairn.pipeline.doctor.need import Need

_OLDEST_GLIBC = (2, 28)  # of the wheels that are built: manylinux_2_28 (PEP 600)
_LONG = r"HKLM\SYSTEM\CurrentControlSet\Control\FileSystem"
_DEVELOPER = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\AppModelUnlock"
_SHORT_PATH = 40  # characters of a work folder on Windows: a torch tree adds 200, where 260 are the most


def glibc(machine: Machine) -> tuple[int, int] | None:
    """The version of glibc, or None where the C library is a different one."""
    name, _, version = machine.libc.partition(" ")
    parts = version.split(".")
    if name != "glibc" or len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):  # noqa: PLR2004 - major, minor
        return None
    return int(parts[0]), int(parts[1])


def system(machine: Machine, need: Need) -> Iterator[Finding]:
    """Its kind, and whether wheels for Linux load on it."""
    description = ", ".join(
        word
        for word in (
            f"{machine.name} on {machine.architecture}",
            machine.libc,
            "under WSL" if machine.wsl else "",
            f"in a container ({machine.container})" if machine.container else "",
        )
        if word
    )
    is_tested = machine.system == "linux" and machine.architecture in ("x86_64", "amd64")
    if machine.system == "linux" and glibc(machine) is None:
        yield Finding(
            check="system",
            level="missing",
            text=f"{description}: the wheels are for glibc",
            fix="use a system with glibc, or an image: cairn image run no_rocm_image_ubuntu24_04",
        )
    elif machine.system == "linux" and (glibc(machine) or _OLDEST_GLIBC) < _OLDEST_GLIBC:
        yield Finding(
            check="system",
            level="missing",
            text=f"{description}: the wheels need glibc 2.28 or newer",
            fix="update the system, or use an image: cairn image run no_rocm_image_ubuntu24_04",
        )
    elif is_tested or (machine.system == "windows" and not need.builds):
        yield Finding(check="system", level="ok", text=description)
    else:
        yield Finding(
            check="system",
            level="warning",
            text=f"{description}: Cairn has only run on Linux on x86-64",
            fix="see docs/reference/platforms.md for what was proved where",
        )


def windows(machine: Machine, need: Need) -> Iterator[Finding]:
    """Long paths, links and the compiler's environment, which builds on Windows need."""
    facts = machine.windows
    if facts is None:
        return
    if facts.long_paths is False:
        yield Finding(
            check="long paths",
            level="missing" if need.builds else "warning",
            text="paths of more than 260 characters do not work",
            fix=f"reg add {_LONG} /v LongPathsEnabled /t REG_DWORD /d 1 /f",
        )
    elif facts.long_paths:
        yield Finding(check="long paths", level="ok", text="they work")
    work = next((disk.path for disk in machine.disks if disk.role == "work folder"), "")
    if need.builds and len(work) > _SHORT_PATH:
        yield Finding(
            check="work folder",
            level="warning",
            text=f"its path has {len(work)} characters, and compilers on Windows stop at 260",
            fix=r"work in a folder near the root of a drive, such as C:\b",
        )
    if need.builds and facts.developer_mode is False:
        yield Finding(
            check="links",
            level="warning",
            text="only an administrator can make symbolic links, which git has in checkouts",
            fix=f"reg add {_DEVELOPER} /v AllowDevelopmentWithoutDevLicense /t REG_DWORD /d 1 /f",
        )
    if need.builds and not facts.compiler:
        yield Finding(
            check="compiler",
            level="missing",
            text="Microsoft's compiler is not set up for x64 in this shell, as DISTUTILS_USE_SDK=1 asks for",
            fix="run this in the `x64 Native Tools Command Prompt for VS 2022`",
        )


def encoding(machine: Machine, need: Need) -> Iterator[Finding]:  # noqa: ARG001 - every purpose needs it
    """Whether names and files can hold any text."""
    if machine.encoding.replace("-", "").replace("_", "") == "utf8":
        yield Finding(check="encoding", level="ok", text="UTF-8")
        return
    fix = "set PYTHONUTF8=1" if machine.system == "windows" else "export LC_ALL=C.UTF-8"
    yield Finding(
        check="encoding",
        level="warning",
        text=f"{machine.encoding}: a file or folder whose name is not in it cannot be built or installed",
        fix=fix,
    )


def proxy(machine: Machine, need: Need) -> Iterator[Finding]:
    """Whether downloads go through a proxy, and servers of this machine do not."""
    if not machine.proxies:
        return
    text = f"{', '.join(machine.proxies)} set"
    if need.purpose != "install" and not machine.proxy_spares_local:
        yield Finding(
            check="proxy",
            level="warning",
            text=f"{text}: an index that is served on this machine is asked for through it",
            fix="export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost",
        )
        return
    yield Finding(check="proxy", level="note", text=text)
