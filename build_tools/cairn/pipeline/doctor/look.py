"""Describe this machine: its system, folders and GPUs, and the programs on PATH.

Linux's files are read below a root folder, so that tests can describe any machine by such files.
"""

from __future__ import annotations

import contextlib
import locale
import os
import platform
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import parse_wheel_filename

from cairn import extras, files, interpreters, platforms, process
from cairn.errors import PrerequisiteError, ProcessError, UsageError
from cairn.image_engines import ENGINES
from cairn.pipeline.doctor.model import (
    Device,
    Disk,
    GpuFacts,
    Machine,
    Offer,
    PythonFacts,
    System,
    WindowsFacts,
)
from cairn.testing.gpus import kernel
from cairn.testing.gpus.visible import visible_gpus
from cairn.wheels.contents import summary
from cairn.wheels.metadata.wheel_info import split_label

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

_AMD = "0x1002"  # PCI vendor of AMD's graphics
_CLASSES = ("0x03", "0x12")  # PCI base classes: display controller, processing accelerator
# The runtime counts by the first of these; HIP counts what it leaves by the second, or by the third instead.
_HIDING = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_PROGRAMS = (
    *("git", "c++", "g++", "clang++", "hipcc", "cmake", "ninja"),
    *("ccache", "sccache", *ENGINES),
)
_TIMEOUT = 20  # seconds for a version
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")
# Settings that change what a checkout has, by their names in `git config` (git-config(1)).
_CHANGING = re.compile(r"core\.(?:autocrlf|eol|symlinks|filemode|fsmonitor|worktree|hookspath)")
_HARMLESS = {
    "core.autocrlf": ("false",),
    "core.symlinks": ("true",),
    "core.filemode": ("true",),
    "core.eol": ("lf",),
}
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")

_SYSTEMS = {
    "linux": "linux",
    "manylinux": "linux",
    "musllinux": "linux",
    "win": "windows",
    "macosx": "darwin",
}


def here(
    work: Path, python: Path, *, root: Path = Path("/"), environment: Mapping[str, str] | None = None
) -> Machine:
    """Describe this machine.

    Args:
        work: the work folder; it need not be there yet.
        python: the interpreter that is used.
        root: the folder with Linux's own files.
        environment: the variables; ours by default.
    """
    variables = os.environ if environment is None else environment
    release, facts = _os_release(root), interpreters.describe(python)
    memory, free = platforms.here.memory(root) or (None, None)
    kind: System = "darwin" if platforms.here.name() == "darwin" else "linux"
    windows = None
    if platforms.here.stack_section() == "windows":
        kind, settings = "windows", platforms.here.settings()
        windows = WindowsFacts(
            long_paths=settings.get("long_paths"),
            developer_mode=settings.get("developer_mode"),
            # vcvarsall.bat sets both; the second says for what.
            compiler="VSCMD_VER" in variables and variables.get("VSCMD_ARG_TGT_ARCH") == "x64",
        )
    return Machine(
        system=kind,
        name=release.get("PRETTY_NAME") or platform.platform(terse=True),
        packages=_packages(kind, release),
        architecture=platform.machine().lower(),
        libc=_libc(),
        container=_container(root, variables),
        wsl="microsoft" in files.text_or_empty(root / "proc/sys/kernel/osrelease").lower(),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        encoding=locale.getpreferredencoding(do_setlocale=False).lower(),
        cores=_cores(root),
        memory=memory,
        memory_free=free,
        open_files=_open_files(),
        python=PythonFacts(
            **{name: value for name, value in facts.items() if name in PythonFacts.__struct_fields__},
            path=str(python),
        ),
        extras={
            extra: (", ".join(lacking), extras.line(extra))
            for extra in ("build", "test")
            if (lacking := extras.missing(extra))
        },
        programs=program_versions(),
        git_settings=git_settings(variables),
        disks=disks(work, root),
        gpu=gpu_facts(root, variables),
        groups=groups(),
        proxies=tuple(name for name in sorted(variables) if name.lower() in _PROXIES and variables[name]),
        proxy_spares_local=_spares_local(variables),
        windows=windows,
    )


def _os_release(root: Path) -> dict[str, str]:
    """Read os-release(5)."""
    text = files.text_or_empty(root / "etc/os-release") or files.text_or_empty(root / "usr/lib/os-release")
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
    runtime = variables.get("container") or files.text_or_empty(root / "run/systemd/container").strip()
    if runtime:
        return runtime
    match = _IN_CGROUP.search(files.text_or_empty(root / "proc/1/cgroup"))
    return match[1] if match else None


def _cores(root: Path) -> int:
    """Count the cores that we may run on, at most a container's quota (cgroup v2, `cpu.max`; v1, CFS)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    groups = root / "sys/fs/cgroup"
    old = [files.text_or_empty(groups / f"cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    quota, _, period = (files.text_or_empty(groups / "cpu.max").strip() or " ".join(old)).partition(" ")
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
    """Whether 127.0.0.1 is reached without a proxy, by the rules of Python and so of pip."""
    hosts = next((variables[name] for name in ("no_proxy", "NO_PROXY") if variables.get(name)), "")
    # `proxy_bypass_environment` is what requests asks too (urllib, "no_proxy").
    return bool(urllib.request.proxy_bypass_environment("127.0.0.1", {"no": hosts}))  # type: ignore[attr-defined]


def disks(work: Path, root: Path = Path("/")) -> tuple[Disk, ...]:
    """Describe the work folder, the folder of temporary files, and Cairn's cache."""
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
    writable = ignores_case = False
    # Permissions do not tell: a file system may be read-only, or of another user's (root of NFS).
    with (
        contextlib.suppress(OSError),
        tempfile.NamedTemporaryFile(dir=existing, prefix=".cairn-doctor-a") as file,
    ):
        trial = Path(file.name)
        writable, ignores_case = True, trial.with_name(trial.name.upper()).exists()
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


def _mounts(root: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Map mount points to filesystem type and options; the last mount on a point counts (proc(5))."""
    options = {}
    for line in files.text_or_empty(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) > 5:  # noqa: PLR2004 - id, parent, device, root, mount point, options
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            options[os.path.normpath(point)] = (kind, frozenset(fields[5].split(",")))
    return options


def gpu_facts(root: Path, variables: Mapping[str, str]) -> GpuFacts:
    """Describe the GPUs; see `GpuFacts`."""
    targets = kernel.gpu_names(root / kernel.KFD_NODES.relative_to("/"))
    rocr, hip, cuda = _HIDING
    hidden_by = tuple(name for name in (rocr, hip if hip in variables else cuda) if name in variables)
    visible = targets
    for name in hidden_by:
        visible = visible_gpus(visible, variables[name])
    cards = [
        device
        for device in root.glob("sys/bus/pci/devices/*")
        if files.text_or_empty(device / "vendor").strip() == _AMD
        and files.text_or_empty(device / "class").startswith(_CLASSES)
    ]
    module, kfd = root / "sys/module/amdgpu", root / "dev/kfd"
    # Only a driver that was installed beside the kernel's has a version of its own (DKMS).
    driver = (files.text_or_empty(module / "version").strip() or "in-tree") if module.is_dir() else None
    # The devices that AMD's GPUs compute through; where nothing says whose one is, it may be AMD's.
    render = [
        path
        for path in sorted(root.glob("dev/dri/renderD*"))
        if files.text_or_empty(root / "sys/class/drm" / path.name / "device/vendor").strip() in ("", _AMD)
    ]
    return GpuFacts(
        targets=targets,
        visible=visible,
        hidden_by=hidden_by if visible != targets else (),
        cards=len(cards),
        driver=driver,
        kfd=_device(kfd, root) if kfd.exists() else None,
        render=tuple(_device(path, root) for path in render),
    )


def _device(path: Path, root: Path) -> Device:
    # Permissions do not tell: a container may have the file and not be allowed the device (cgroups(7)).
    try:
        os.close(os.open(path, os.O_RDWR))
        usable = True
    except OSError:
        usable = False
    try:
        group = path.group()
    except (KeyError, OSError, NotImplementedError):  # a number without a name here
        group = str(path.stat().st_gid)
    return Device(path=f"/{path.relative_to(root).as_posix()}", usable=usable, group=group)


def groups() -> tuple[str, ...]:
    """Return the names of our groups, including those that we joined after this session began."""
    try:
        import grp  # noqa: PLC0415 - not on Windows
        import pwd  # noqa: PLC0415 - not on Windows
    except ImportError:
        return ()
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, a number without a name
        user = ""
    ours = set(os.getgroups())
    return tuple(
        sorted(group.gr_name for group in grp.getgrall() if group.gr_gid in ours or user in group.gr_mem)
    )


def program_versions() -> dict[str, str]:
    """Return the versions, by name, of the programs on PATH."""
    versions = {}
    for name in filter(shutil.which, _PROGRAMS):
        versions[name] = ""
        with contextlib.suppress(PrerequisiteError, ProcessError):
            result = process.run([name, "--version"], timeout=_TIMEOUT, check=False)
            match = _VERSION.search(result.output.partition("\n")[0])
            versions[name] = match[0] if match and result.returncode == 0 else ""
    return versions


def git_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return git settings that change files, and git's variables, which a hook that calls us sets."""
    settings = {name: variables[name] for name in _GIT_VARIABLES if name in variables}
    if shutil.which("git") is None:
        return settings
    words = ["git", "config", "--global", "--list"]
    try:
        result = process.run(words, check=False, timeout=_TIMEOUT, separate_stderr=True, confined=False)
    except (PrerequisiteError, ProcessError):  # one that does not start, which is a finding of its own
        return settings
    for line in result.output.splitlines() if result.returncode == 0 else ():
        name, _, value = line.partition("=")
        if _CHANGING.fullmatch(name) and value.lower() not in _HARMLESS.get(name, ()):
            settings[name] = value
    return settings


def wheel(path: Path) -> Offer:
    """Return what a wheel requires of a machine.

    Raises:
        WheelError: it is not a wheel.
    """
    contents = summary.summarise(path)
    tags = parse_wheel_filename(split_label(contents.file_name)[0])[3]
    # A wheel for the stable ABI, or without extension modules, is for later Pythons too (PEP 384, PEP 425).
    exact = {tag.interpreter for tag in tags if tag.abi.startswith(tag.interpreter)}
    glibcs = [
        (int(words[1]), int(words[2]))
        for tag in tags
        if (words := tag.platform.split("_"))[0] == "manylinux" and len(words) > 2  # noqa: PLR2004 - and a version
    ]
    systems = {_SYSTEMS.get(tag.platform.partition("_")[0].rstrip("0123456789")) for tag in tags}
    return Offer(
        name=path.name,
        targets=contents.targets,
        pythons=tuple(sorted(f"{name[2]}.{name[3:]}" for name in exact)),
        glibc=min(glibcs, default=None),
        system=next(iter(systems)) if len(systems) == 1 else None,
    )
