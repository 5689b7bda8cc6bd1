"""Room: on disks, in memory, and for open files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from cairn.output import console
from cairn.pipeline.doctor.machine import Disk, Finding, Machine
from cairn.pipeline.doctor.need import Need

_OPEN_FILES = 4096  # a link of torch opens an object file for each of its 1,700 sources, and its libraries
_TEMPORARY = 2_000_000_000  # bytes: pip unpacks what it builds there, and compilers write there
_ELSEWHERE = {
    "work folder": "work in a different folder",
    "temporary files": 'mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"',
    "cache": 'mkdir -p "$HOME/cairn-cache" && export CAIRN_CACHE_DIR="$HOME/cairn-cache"',
}
_HOMELESS = "export HOME=DIR, or CAIRN_CACHE_DIR=DIR: a folder that you may write to"
_OVER_NETWORK = ("9p", "drvfs", "nfs", "nfs4", "cifs", "smb3")


def disks(machine: Machine, need: Need) -> Iterator[Finding]:
    """Each folder that is written to."""
    for disk in machine.disks:
        findings = list(_disk(machine, need, disk))
        yield from findings or [
            Finding(check=disk.role, level="ok", text=f"{console.size(disk.free)} free at {disk.path}")
        ]


def _disk(machine: Machine, need: Need, disk: Disk) -> Iterator[Finding]:
    elsewhere = _ELSEWHERE[disk.role] if not disk.path.startswith("~") else _HOMELESS
    if not disk.writable:
        yield Finding(
            check=disk.role, level="missing", text=f"{disk.path} cannot be written to", fix=elsewhere
        )
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
            yield Finding(
                check=disk.role,
                level="warning",
                text=f"{disk.path} takes `a` and `A` for one file, and checkouts have both",
                fix=elsewhere,
            )
        if disk.filesystem in _OVER_NETWORK:
            yield Finding(
                check=disk.role,
                level="warning",
                text=f"{disk.path} is on {disk.filesystem}: a checkout of 80,000 files takes minutes there",
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
    """How many compilers may run at once."""
    if machine.memory is None or machine.memory_free is None:
        return
    has = f"{console.size(machine.memory)}, {console.size(machine.memory_free)} of them free"
    jobs = machine.memory_free // need.memory_per_job
    if not need.builds or jobs >= machine.cores:
        yield Finding(check="memory", level="ok", text=f"{has}; {machine.cores} cores")
        return
    each = console.size(need.memory_per_job)
    yield Finding(
        check="memory",
        level="warning",
        text=f"{has}: enough for {max(1, jobs)} of {machine.cores} compilers at once, at {each} each",
        fix=f"build with --jobs {max(1, jobs)}",
    )


def open_files(machine: Machine, need: Need) -> Iterator[Finding]:
    """How many files a process may have open."""
    if machine.open_files is None or not need.builds:
        return
    soft, hard = machine.open_files
    if soft >= _OPEN_FILES:
        yield Finding(check="open files", level="ok", text=f"{soft} in a process")
        return
    if hard >= _OPEN_FILES:
        fix = f"ulimit -n {hard}"
    elif machine.container:
        fix = "start the container with --ulimit nofile=65536:65536"
    else:
        line = "echo '* hard nofile 65536' >> /etc/security/limits.conf"
        fix = line if machine.root else f'sudo sh -c "{line}", then log in again'
    yield Finding(
        check="open files",
        level="warning",
        text=f"{soft} in a process: linking torch takes more",
        fix=fix,
    )
