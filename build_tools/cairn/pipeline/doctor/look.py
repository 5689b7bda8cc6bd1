"""Describes the machine that we run on: the system, and the folders that are written to.

What Linux says in files is read below a root folder, so that tests can describe any machine by such files.
"""

from __future__ import annotations

import locale
import os
import platform
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from cairn import files, platforms
from cairn.errors import UsageError
from cairn.pipeline.doctor import look_gpu, look_programs
from cairn.pipeline.doctor.machine import Disk, Machine, System, WindowsFacts

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_MANAGERS = {
    "apt": ("debian", "ubuntu"),
    "dnf": ("fedora", "rhel", "centos", "almalinux", "rocky", "amzn"),
    "zypper": ("suse", "opensuse", "sles"),
    "pacman": ("arch",),
    "apk": ("alpine",),
}
# What a container engine leaves for the programs in it: podman(1), systemd(1) "container"; docker's own.
_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman"}
_IN_CGROUP = re.compile(r"\b(docker|kubepods|containerd|lxc|libpod)\b")


def here(
    work: Path, python: Path, *, root: Path = Path("/"), environment: Mapping[str, str] | None = None
) -> Machine:
    """This machine.

    Args:
        work: the work folder; it need not be there yet.
        python: the interpreter that is used.
        root: where Linux's own files are.
        environment: the variables; ours by default.
    """
    variables = os.environ if environment is None else environment
    release = _os_release(root)
    memory, free = platforms.here.memory(root) or (None, None)
    kind = _system()
    return Machine(
        system=kind,
        name=release.get("PRETTY_NAME") or platform.platform(terse=True),
        packages=_packages(kind, release),
        architecture=platform.machine().lower(),
        libc=_libc(),
        container=_container(root, variables),
        wsl="microsoft" in _text(root / "proc/sys/kernel/osrelease").lower(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        encoding=locale.getpreferredencoding(do_setlocale=False).lower(),
        cores=_cores(root),
        memory=memory,
        memory_free=free,
        open_files=_open_files(),
        python=look_programs.python(python),
        programs=look_programs.programs(),
        git_settings=look_programs.git_settings(variables),
        disks=disks(work, root),
        gpu=look_gpu.gpus(root, variables),
        groups=look_gpu.groups(),
        proxies=tuple(name for name in sorted(variables) if name.lower() in _PROXIES and variables[name]),
        proxy_spares_local=_spares_local(variables),
        windows=_windows(variables) if kind == "windows" else None,
    )


def _system() -> System:
    if platforms.here.stack_section() == "windows":
        return "windows"
    return "darwin" if platforms.here.name() == "darwin" else "linux"


def _os_release(root: Path) -> dict[str, str]:
    """os-release(5)."""
    text = _text(root / "etc/os-release") or _text(root / "usr/lib/os-release")
    pairs = re.findall(r"^([A-Z_]+)=[\"']?(.*?)[\"']?$", text, re.MULTILINE)
    return dict(pairs)


def _packages(kind: System, release: Mapping[str, str]) -> str:
    if kind == "windows":
        return "winget"
    alike = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return next((manager for manager, names in _MANAGERS.items() if alike.intersection(names)), "")


def _libc() -> str:
    name, version = platform.libc_ver()
    if name:
        return f"{name} {version}"
    # platform knows glibc alone; musl's loader is always at this name (musl, "Guidelines for distributions").
    return "musl" if any(Path("/lib").glob("ld-musl-*")) else ""


def _container(root: Path, variables: Mapping[str, str]) -> str | None:
    for name, engine in _MARKS.items():
        if (root / name).exists():
            return engine
    if "KUBERNETES_SERVICE_HOST" in variables:
        return "kubernetes"
    runtime = variables.get("container") or _text(root / "run/systemd/container").strip()
    if runtime:
        return runtime
    match = _IN_CGROUP.search(_text(root / "proc/1/cgroup"))
    return match[1] if match else None


def _cores(root: Path) -> int:
    """Those that we may run on, and no more than a container is given (cgroup v2, `cpu.max`; v1, CFS)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    groups = root / "sys/fs/cgroup"
    old = [_text(groups / f"cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    quota, _, period = (_text(groups / "cpu.max").strip() or " ".join(old)).partition(" ")
    if quota.isdecimal() and period.isdecimal() and int(period):
        return max(1, min(allowed, int(quota) // int(period)))
    return allowed


def _open_files() -> tuple[int, int] | None:
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = 1 << 30  # what RLIM_INFINITY means here
    return (endless if soft < 0 else soft, endless if hard < 0 else hard)


def _spares_local(variables: Mapping[str, str]) -> bool:
    """Whether 127.0.0.1 is reached without a proxy, as Python and so pip decide it."""
    hosts = next((variables[name] for name in ("no_proxy", "NO_PROXY") if variables.get(name)), "")
    # `proxy_bypass_environment` is what requests asks too (urllib, "no_proxy").
    return bool(urllib.request.proxy_bypass_environment("127.0.0.1", {"no": hosts}))  # type: ignore[attr-defined]


def _windows(variables: Mapping[str, str]) -> WindowsFacts:
    settings = platforms.here.settings()
    return WindowsFacts(
        long_paths=settings.get("long_paths"),
        developer_mode=settings.get("developer_mode"),
        # vcvarsall.bat sets both; the second says for what.
        compiler="VSCMD_VER" in variables and variables.get("VSCMD_ARG_TGT_ARCH") == "x64",
    )


def disks(work: Path, root: Path = Path("/")) -> tuple[Disk, ...]:
    """The work folder, that of temporary files, and Cairn's cache."""
    mounts = _mounts(root)
    facts = (_disk("work folder", work.absolute(), mounts), _disk("temporary files", _temporary(), mounts))
    try:
        return (*facts, _disk("cache", files.cache_dir(), mounts))
    except UsageError:  # a number without a name, which has no home
        return (*facts, Disk(role="cache", path="~/.cache/cairn", free=0, writable=False))


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir()).absolute()
    except FileNotFoundError:  # none of its candidates can be written to: the first that users mean
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - to be named, and not written to


def _disk(role: str, path: Path, mounts: dict[str, tuple[str, frozenset[str]]]) -> Disk:
    existing = next((folder for folder in (path, *path.parents) if _is_folder(folder)), path)
    try:
        free = shutil.disk_usage(existing).free
    except OSError:
        free = 0
    writable, ignores_case = _try(existing)
    above = [str(folder) for folder in (existing, *existing.parents)]
    kind, options = next((mounts[name] for name in above if name in mounts), ("", frozenset[str]()))
    return Disk(
        role=role,
        path=str(path),
        free=free,
        writable=writable,
        filesystem=kind,
        no_exec="noexec" in options,
        ignores_case=ignores_case,
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # below a folder of another user
        return False


def _try(folder: Path) -> tuple[bool, bool]:
    """Whether we may write in a folder, and whether a file is found there by its name in capitals."""
    # Permissions do not tell: a file system may be read-only, or of another user's (root of NFS).
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".cairn-doctor-a") as file:
            here = Path(file.name)
            return True, here.with_name(here.name.upper()).exists()
    except OSError:
        return False, False


def _mounts(root: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Mount point to kind and options; of several on one point the last counts (proc(5), mountinfo)."""
    options = {}
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) > 5:  # noqa: PLR2004 - id, parent, device, root, mount point, options
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            options[os.path.normpath(point)] = (kind, frozenset(fields[5].split(",")))
    return options


def _text(path: Path) -> str:
    """A file of the system's; empty where it is not there, or hidden from a container."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
