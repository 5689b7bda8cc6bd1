"""Checks of the system: its kind and settings, network access, and space on disks and in memory."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cairn.build.engine.schedule import MEMORY_PER_JOB
from cairn.output import console
from cairn.pipeline.doctor.model import Disk, Finding, Machine, Need, missing, note, ok, warning

_OLDEST_GLIBC = (2, 28)  # of the wheels that are built: manylinux_2_28 (PEP 600)
_LONG = r"HKLM\SYSTEM\CurrentControlSet\Control\FileSystem"
_DEVELOPER = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\AppModelUnlock"
_SHORT_PATH = 40  # characters of a work folder on Windows: a torch tree adds 200, where 260 are the most
_OPEN_FILES = 4096  # a link of torch opens an object file for each of its 1,700 sources, and its libraries
_TEMPORARY = 2_000_000_000  # bytes: pip unpacks what it builds there, and compilers write there
_ELSEWHERE = {
    "work folder": "work in a different folder",
    "temporary files": 'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"',
    "cache": 'mkdir -p "$HOME/cairn-cache" && export CAIRN_CACHE_DIR="$HOME/cairn-cache"',
}
_HOMELESS = "export HOME=DIR, or CAIRN_CACHE_DIR=DIR: a folder that you may write to"
_OVER_NETWORK = ("9p", "drvfs", "nfs", "nfs4", "cifs", "smb3")


def glibc(machine: Machine) -> tuple[int, int] | None:
    """Return the version of glibc, or None for another C library."""
    name, _, version = machine.libc.partition(" ")
    parts = version.split(".")
    if name != "glibc" or len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):  # noqa: PLR2004 - major, minor
        return None
    return int(parts[0]), int(parts[1])


def system(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check the kind of the system, and that Linux wheels load on it."""
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
        yield missing(
            "system",
            f"{description}: the wheels are for glibc",
            fix="use a system with glibc, or an image: cairn image run no_rocm_image_ubuntu24_04",
        )
    elif machine.system == "linux" and (glibc(machine) or _OLDEST_GLIBC) < _OLDEST_GLIBC:
        yield missing(
            "system",
            f"{description}: the wheels need glibc 2.28 or newer",
            fix="update the system, or use an image: cairn image run no_rocm_image_ubuntu24_04",
        )
    elif is_tested or (machine.system == "windows" and not need.builds):
        yield ok("system", description)
    else:
        yield warning(
            "system",
            f"{description}: Cairn has only run on Linux on x86-64",
            fix="see docs/reference/platforms.md for what was proved where",
        )


def windows(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check long paths, links and the compiler's environment, which builds on Windows need."""
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
        yield ok("long paths", "they work")
    work = next((disk.path for disk in machine.disks if disk.role == "work folder"), "")
    if need.builds and len(work) > _SHORT_PATH:
        yield warning(
            "work folder",
            f"its path has {len(work)} characters, and compilers on Windows stop at 260",
            fix=r"work in a folder near the root of a drive, such as C:\b",
        )
    if need.builds and facts.developer_mode is False:
        yield warning(
            "links",
            "only an administrator can make symbolic links, which git has in checkouts",
            fix=f"reg add {_DEVELOPER} /v AllowDevelopmentWithoutDevLicense /t REG_DWORD /d 1 /f",
        )
    if need.builds and not facts.compiler:
        yield missing(
            "compiler",
            "Microsoft's compiler is not set up for x64 in this shell, as DISTUTILS_USE_SDK=1 asks for",
            fix="run this in the `x64 Native Tools Command Prompt for VS 2022`",
        )


def encoding(machine: Machine, need: Need) -> Iterator[Finding]:  # noqa: ARG001 - every purpose needs it
    """Check that file names and text files can hold any text."""
    if machine.encoding.replace("-", "").replace("_", "") == "utf8":
        yield ok("encoding", "UTF-8")
        return
    fix = "set PYTHONUTF8=1" if machine.system == "windows" else "export LC_ALL=C.UTF-8"
    yield warning(
        "encoding",
        f"{machine.encoding}: a file or folder whose name is not in it cannot be built or installed",
        fix=fix,
    )


def proxy(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check for proxies, and that servers on this machine are reached without them."""
    if not machine.proxies:
        return
    text = f"{', '.join(machine.proxies)} set"
    if need.purpose != "install" and not machine.proxy_spares_local:
        yield warning(
            "proxy",
            f"{text}: an index that is served on this machine is asked for through it",
            fix="export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost",
        )
        return
    yield note("proxy", text)


def disks(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check each folder that is written to."""
    for disk in machine.disks:
        findings = list(_disk(machine, need, disk))
        yield from findings or [ok(disk.role, f"{console.size(disk.free)} free at {disk.path}")]


def _disk(machine: Machine, need: Need, disk: Disk) -> Iterator[Finding]:
    elsewhere = _ELSEWHERE[disk.role] if not disk.path.startswith("~") else _HOMELESS
    if not disk.writable:
        yield missing(disk.role, f"{disk.path} cannot be written to", fix=elsewhere)
        return
    if disk.no_exec and need.purpose != "install":
        yield Finding(
            check=disk.role,
            level="missing" if need.builds else "warning",
            text=f"programs in {disk.path} are not run (noexec), as builds and tests do",
            fix=elsewhere,
        )
    if finding := _room(need, disk):
        yield finding
    if disk.role == "work folder" and need.builds:
        if disk.ignores_case and machine.system != "windows":
            yield warning(
                disk.role,
                f"{disk.path} takes `a` and `A` for one file, and checkouts have both",
                fix=elsewhere,
            )
        if disk.filesystem in _OVER_NETWORK:
            yield warning(
                disk.role,
                f"{disk.path} is on {disk.filesystem}: a checkout of 80,000 files takes minutes there",
                fix="work in a folder of this system's own disk, such as one in $HOME",
            )


def _room(need: Need, disk: Disk) -> Finding | None:
    needed = need.required_disk if disk.role == "work folder" else _TEMPORARY
    if disk.free >= needed:
        return None
    exact = disk.role == "work folder" and need.disk is not None
    about = "" if exact else "about "
    return Finding(
        check=disk.role,
        level="missing" if exact else "warning",
        text=f"{console.size(disk.free)} free at {disk.path}, where {about}{console.size(needed)} are needed",
        fix=f"free some space: du -xhd1 {shlex.quote(disk.path)} | sort -h",
    )


def memory(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check that memory is enough for parallel compilers."""
    if machine.memory is None or machine.memory_free is None:
        return
    has = f"{console.size(machine.memory)}, {console.size(machine.memory_free)} of them free"
    jobs = machine.memory_free // MEMORY_PER_JOB
    if not need.builds or jobs >= machine.cores:
        yield ok("memory", f"{has}; {machine.cores} cores")
        return
    each = console.size(MEMORY_PER_JOB)
    yield warning(
        "memory",
        f"{has}: enough for {max(1, jobs)} of {machine.cores} compilers at once, at {each} each",
        fix=f"build with --jobs {max(1, jobs)}",
    )


def open_files(machine: Machine, need: Need) -> Iterator[Finding]:
    """Check the limit of open files per process."""
    if machine.open_files is None or not need.builds:
        return
    soft, hard = machine.open_files
    if soft >= _OPEN_FILES:
        yield ok("open files", f"{soft} in a process")
        return
    if hard >= _OPEN_FILES:
        fix = f"ulimit -n {hard}"
    elif machine.container:
        fix = "start the container with --ulimit nofile=65536:65536"
    else:
        line = "echo '* hard nofile 65536' >> /etc/security/limits.conf"
        fix = line if machine.root else f'sudo sh -c "{line}", then log in again'
    yield warning("open files", f"{soft} in a process: linking torch takes more", fix=fix)
