"""What `cairn doctor` says and prints, to the letter, of machines that are described by files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from cairn import datafile
from cairn.pipeline.doctor import checks, look
from cairn.pipeline.doctor.model import (
    Device,
    Disk,
    DoctorReport,
    Finding,
    GpuFacts,
    Machine,
    Need,
    Offer,
    PythonFacts,
    WindowsFacts,
)
from cairn.release.pages import targets_file
from helpers.formats import make_bundle, make_code_object, make_elf
from helpers.pages import PYTHON, channel, family
from helpers.program import Cairn, Shown
from helpers.wheels import build_wheel

GB = 1_000_000_000
ROOMY = (
    Disk(role="work folder", path="/home/ann/work", free=500 * GB, filesystem="ext4"),
    Disk(role="temporary files", path="/tmp", free=50 * GB),  # noqa: S108 - described, not used
    Disk(role="cache", path="/home/ann/.cache/cairn", free=500 * GB),
)
RENDER = (Device(path="/dev/dri/renderD128"),)

WORKSTATION = Machine(
    name="Ubuntu 24.04.3 LTS",
    packages="apt",
    libc="glibc 2.39",
    cores=16,
    memory=64 * GB,
    memory_free=60 * GB,
    open_files=(65536, 1048576),
    python=PythonFacts(path="/usr/bin/python3", version="3.12.3"),
    programs={"git": "2.43.0", "c++": "13.3.0", "g++": "13.3.0", "ccache": "4.9.1"},
    disks=ROOMY,
    gpu=GpuFacts(
        targets=("gfx1100",),
        visible=("gfx1100",),
        cards=1,
        driver="6.12.12",
        kfd=Device(path="/dev/kfd"),
        render=RENDER,
    ),
    groups=("ann", "render", "video"),
)
RUNNER = msgspec.structs.replace(  # a container of CI on a machine without a GPU
    WORKSTATION,
    name="Debian GNU/Linux 12 (bookworm)",
    libc="glibc 2.36",
    container="docker",
    root=True,
    cores=4,
    gpu=GpuFacts(),
    groups=("root",),
)
FRESH = msgspec.structs.replace(  # a laptop on which nothing was built yet
    WORKSTATION,
    name="Fedora Linux 42",
    packages="dnf",
    libc="glibc 2.41",
    memory=8 * GB,
    memory_free=5 * GB,
    open_files=(1024, 524288),
    python=PythonFacts(path="/usr/bin/python3", version="3.13.2", venv=False, ensurepip=False, headers=False),
    programs={},
    disks=(
        Disk(role="work folder", path="/mnt/share", free=3 * GB, filesystem="cifs", ignores_case=True),
        Disk(role="temporary files", path="/tmp", free=2 * GB, no_exec=True),  # noqa: S108 - as above
        Disk(role="cache", path="/home/ann/.cache/cairn", free=0, writable=False),
    ),
    gpu=GpuFacts(),
    proxies=("http_proxy",),
    proxy_spares_local=False,
    encoding="ascii",
)


UBUNTU = "Ubuntu 24.04.3 LTS on x86_64"
NAMES = "torch==2.9.0+rocm7.10.0 torchvision==0.24.0+rocm7.10.0 torchaudio==2.9.0+rocm7.10.0"


def described(folder: Path, machine: Machine) -> str:
    path = folder / "machine.json"
    datafile.write(path, DoctorReport(purpose="build", machine=machine, findings=()))
    return str(path)


Doctor = Callable[..., Shown]


@pytest.fixture
def doctor(cairn: Cairn, tmp_path: Path) -> Doctor:
    """`cairn doctor` of a machine."""

    def run(machine: Machine, *words: object, code: int = 0) -> Shown:
        return cairn("doctor", "--machine", described(tmp_path, machine), *words, code=code)

    return run


def lines(found: Sequence[Finding], *levels: str) -> list[tuple[str, str | None]]:
    """What was found at these levels, and the fix."""
    return [(f"{one.check}: {one.text}", one.fix) for one in found if one.level in levels]


def wrong(machine: Machine, **need: object) -> list[tuple[str, str | None]]:
    return lines(checks.diagnose(machine, Need(**need)), "warning", "missing")  # type: ignore[arg-type]


def test_a_container_that_was_given_some_of_the_gpus() -> None:
    closed = Device(path="/dev/dri/renderD129", usable=False)
    gpu = msgspec.structs.replace(WORKSTATION.gpu, render=(*RENDER, closed))
    machine = msgspec.structs.replace(WORKSTATION, container="docker", gpu=gpu)
    assert wrong(machine, purpose="test") == [
        (
            "GPU: 1 of 2 may not be opened, /dev/dri/renderD129: programs have the others",
            "start the container with --group-add=render",
        )
    ]


def test_a_workstation_that_has_everything(doctor: Doctor) -> None:
    out, err = doctor(WORKSTATION, "--for", "build")
    assert err == ""
    assert out == (
        "  ✓ system: Ubuntu 24.04.3 LTS on x86_64, glibc 2.39\n"
        "  ✓ encoding: UTF-8\n"
        "  ✓ Python: CPython 3.12.3 at /usr/bin/python3\n"
        "  ✓ git: 2.43.0\n"
        "  ✓ C++ compiler: c++ 13.3.0\n"
        "  ✓ cmake, ninja: from PyPI, for each build\n"
        "  ✓ compiler cache: ccache 4.9.1\n"
        "  ✓ work folder: 500.0 GB free at /home/ann/work\n"
        "  ✓ temporary files: 50.0 GB free at /tmp\n"
        "  ✓ cache: 500.0 GB free at /home/ann/.cache/cairn\n"
        "  ✓ memory: 64.0 GB, 60.0 GB of them free; 16 cores\n"
        "  ✓ open files: 65536 in a process\n"
        "  ✓ GPU: gfx1100 (RX 7900 XTX); a build needs none\n"
    )
    for purpose in ("install", "test"):
        assert wrong(WORKSTATION, purpose=purpose) == []


def test_a_container_without_a_gpu(doctor: Doctor) -> None:
    out, _ = doctor(RUNNER, "--for", "build", "-q")
    assert out == ""  # nothing is wrong
    nothing = ("GPU: none of AMD's here: wheels for the CPU can be installed and tested", None)
    assert wrong(RUNNER, purpose="install") == [nothing]
    assert wrong(RUNNER, purpose="test", targets=("cpu",)) == [nothing]
    assert wrong(RUNNER, purpose="test", targets=("gfx942",)) == [
        nothing,
        ("targets: no gfx942 here, as was asked for: no GPU", "run this on a machine that has it"),
    ]


def test_a_fresh_laptop(doctor: Doctor) -> None:
    out, err = doctor(FRESH, "--for", "build", "-q", code=3)
    assert out == (
        "  ! encoding: ascii: a file or folder whose name is not in it cannot be built or installed\n"
        "      export LC_ALL=C.UTF-8\n"
        "  ✗ Python's venv: the module is not there\n"
        "      sudo dnf install python3\n"
        "  ✗ Python's headers: there is no Python.h\n"
        "      sudo dnf install python3.13-devel\n"
        "  ✗ git: it is not here\n"
        "      sudo dnf install git\n"
        "  ✗ C++ compiler: there is none, and host code is compiled with it\n"
        "      sudo dnf install gcc-c++\n"
        "  ! work folder: 3.0 GB free at /mnt/share, where about 40.0 GB are needed\n"
        "      free some space: du -xhd1 /mnt/share | sort -h\n"
        "  ! work folder: /mnt/share takes `a` and `A` for one file, and checkouts have both\n"
        "      work in a different folder\n"
        "  ! work folder: /mnt/share is on cifs: a checkout of 80,000 files takes minutes there\n"
        "      work in a folder of this system's own disk, such as one in $HOME\n"
        "  ✗ temporary files: programs in /tmp are not run (noexec), as builds and tests do\n"
        '      mkdir -p "$HOME/tmp" && export TMPDIR="$HOME/tmp"\n'
        "  ✗ cache: /home/ann/.cache/cairn cannot be written to\n"
        '      mkdir -p "$HOME/cairn-cache" && export CAIRN_CACHE_DIR="$HOME/cairn-cache"\n'
        "  ! memory: 8.0 GB, 5.0 GB of them free: enough for 2 of 16 compilers at once, at 2.0 GB each\n"
        "      build with --jobs 2\n"
        "  ! open files: 1024 in a process: linking torch takes more\n"
        "      ulimit -n 524288\n"
        "  ! proxy: http_proxy set: an index that is served on this machine is asked for through it\n"
        "      export no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost\n"
    )
    assert err == (
        "error: a build needs what is missing here: Python's venv, Python's headers, git, C++ compiler, "
        "temporary files, cache\n"
        "  what to do: do what is said below each, then run `cairn doctor` again\n"
    )


IN_CONTAINER = "--device=/dev/kfd --device=/dev/dri --group-add=video --group-add=render"
MI300X = GpuFacts(targets=("gfx942",) * 8, visible=("gfx942",) * 8, cards=8, driver="6.12.12")
CLOSED = msgspec.structs.replace(MI300X, kfd=Device(path="/dev/kfd", usable=False), render=RENDER)
EIGHT = "8x gfx942 (MI300A, MI300X, MI325X)"


@pytest.mark.parametrize(
    ("change", "text", "fix"),
    [
        (
            {"gpu": MI300X, "container": "docker"},
            f"{EIGHT} in the machine, and this container has no /dev/kfd",
            f"start the container with {IN_CONTAINER}",
        ),
        (
            {"gpu": MI300X, "root": True},
            f"{EIGHT}, and there is no /dev/kfd",
            "modprobe -r amdgpu && modprobe amdgpu",
        ),
        (
            {"gpu": CLOSED, "groups": ("ann",)},
            f"{EIGHT}, and /dev/kfd may not be opened: its group is render",
            "sudo usermod -aG render,video $USER, then log out and in again",
        ),
        (
            {"gpu": CLOSED},
            f"{EIGHT}, and /dev/kfd may not be opened: its group is render",
            "log out and in again: your session began before you joined the group",
        ),
        (
            {
                "gpu": msgspec.structs.replace(
                    MI300X,
                    kfd=Device(path="/dev/kfd"),
                    render=(Device(path="/dev/dri/renderD128", usable=False, group="110"),),
                ),
                "container": "podman",
            },
            f"{EIGHT}, and /dev/dri/renderD128 may not be opened: its group is 110",
            "start the container with --group-add=110",
        ),
        (
            # The file is there, and the container is not allowed the device.
            {"gpu": CLOSED, "container": "docker", "root": True},
            f"{EIGHT}, and /dev/kfd may not be opened: its group is render",
            f"start the container with {IN_CONTAINER}",
        ),
        (
            {"gpu": GpuFacts(cards=1)},
            "1 of AMD's on the PCI bus, and the driver amdgpu is not loaded",
            "sudo modprobe amdgpu",
        ),
        (
            {"gpu": GpuFacts(cards=2), "container": "docker", "root": True},
            "2 of AMD's on the PCI bus, and the driver amdgpu is not loaded",
            "on the machine that the container is on: modprobe amdgpu",
        ),
        (
            {"gpu": GpuFacts(cards=1, driver="in-tree")},
            "1 of AMD's on the PCI bus, and amdgpu (in-tree) computes on none",
            "update the kernel or the driver amdgpu: https://rocm.docs.amd.com/projects/install-on-linux/",
        ),
        (
            {"gpu": GpuFacts(), "wsl": True},
            "under WSL no GPU is described to Linux, whatever the machine has",
            "name it: cairn install --gpu 'RX 7900 XTX' --index-url URL",
        ),
        (
            {"gpu": msgspec.structs.replace(WORKSTATION.gpu, visible=())},
            "ROCR_VISIBLE_DEVICES hides every GPU: the machine has gfx1100 (RX 7900 XTX)",
            "unset ROCR_VISIBLE_DEVICES",
        ),
    ],
)
def test_where_the_way_to_a_gpu_ends(change: dict[str, object], text: str, fix: str) -> None:
    machine = msgspec.structs.replace(WORKSTATION, **change)
    for purpose in ("install", "test"):
        assert wrong(machine, purpose=purpose) == [(f"GPU: {text}", fix)]
    assert wrong(machine, purpose="build") == []  # compilers need none


def test_windows(doctor: Doctor) -> None:
    machine = msgspec.structs.replace(
        WORKSTATION,
        system="windows",
        name="Windows-11",
        packages="winget",
        architecture="amd64",
        libc="",
        open_files=None,
        programs={"git": "2.47.0"},
        disks=(
            Disk(role="work folder", path="C:\\Users\\ann\\Documents\\projects\\pytorch-rocm", free=500 * GB),
        ),
        gpu=GpuFacts(),
        python=PythonFacts(path="C:\\Program Files\\Python312\\python.exe", version="3.12.8"),
        windows=WindowsFacts(long_paths=False, developer_mode=False),
    )
    out, err = doctor(machine, "-q", code=3)
    assert out == (
        "  ! system: Windows-11 on amd64: Cairn has only run on Linux on x86-64\n"
        "      see docs/reference/platforms.md for what was proved where\n"
        "  ✗ long paths: paths of more than 260 characters do not work\n"
        "      reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem "
        "/v LongPathsEnabled /t REG_DWORD /d 1 /f\n"
        "  ! work folder: its path has 44 characters, and compilers on Windows stop at 260\n"
        "      work in a folder near the root of a drive, such as C:\\b\n"
        "  ! links: only an administrator can make symbolic links, which git has in checkouts\n"
        "      reg add HKLM\\SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\AppModelUnlock "
        "/v AllowDevelopmentWithoutDevLicense /t REG_DWORD /d 1 /f\n"
        "  ✗ compiler: Microsoft's compiler is not set up for x64 in this shell, "
        "as DISTUTILS_USE_SDK=1 asks for\n"
        "      run this in the `x64 Native Tools Command Prompt for VS 2022`\n"
        "  ! Python: its path has a space, which the build of torchvision does not take "
        "(pytorch/vision#9165)\n"
        "      uv python install 3.12 --install-dir C:\\py\n"
    )
    assert "a build needs what is missing here: long paths, compiler\n" in err
    good = msgspec.structs.replace(
        machine,
        windows=WindowsFacts(long_paths=True, developer_mode=True, compiler=True),
        disks=(Disk(role="work folder", path="C:\\b", free=500 * GB),),
    )
    doctor(good)


def python(version: str, **more: object) -> dict[str, object]:
    return {"python": PythonFacts(path="p", version=version, **more)}  # type: ignore[arg-type]


def programs(git: str, compiler: str) -> dict[str, object]:
    return {"programs": {"git": git, "c++": compiler, "g++": compiler}}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"libc": "musl"}, f"system: {UBUNTU}, musl: the wheels are for glibc"),
        ({"libc": "glibc 2.17"}, f"system: {UBUNTU}, glibc 2.17: the wheels need glibc 2.28 or newer"),
        (python("3.10.1"), "Python: CPython 3.10.1 at p: Python 3.11 or newer is needed"),
        (python("3.11.1", implementation="PyPy"), "Python: PyPy 3.11.1 at p: the wheels are for CPython"),
        (python("3.12.1", bits=32), "Python: CPython 3.12.1 at p: the wheels are for 64 bits"),
        (programs("2.25.1", "13"), "git: 2.25.1: 2.32 or newer is needed"),
        (programs("2.43", "9.2.1"), "C++ compiler: g++ 9.2.1: PyTorch needs 9.3 or newer"),
    ],
)
def test_what_is_too_old_or_of_another_kind(change: dict[str, object], text: str) -> None:
    ((said, fix),) = wrong(msgspec.structs.replace(WORKSTATION, **change), purpose="build")
    assert said == text
    assert fix


def test_debian_without_its_package_for_environments() -> None:
    lacking = msgspec.structs.replace(WORKSTATION.python, ensurepip=False)
    assert wrong(msgspec.structs.replace(WORKSTATION, python=lacking), purpose="build") == [
        ("Python's venv: `python -m venv` fails: ensurepip is not there", "sudo apt install python3.12-venv")
    ]


def test_the_stack_has_a_say(tmp_path: Path, doctor: Doctor) -> None:
    stack = tmp_path / "stack.toml"
    stack.write_text(
        # Not a shipped stack: no machine has the disk that it wants.
        'schema = "cairn.stack/1"\nname = "s"\nline = "l"\ntargets = ["cpu"]\npythons = ["3.11"]\n'
        "disk = 900000000000\nprojects = []\n"
    )
    poor = msgspec.structs.replace(WORKSTATION, programs={"git": "2.43.0"})
    out, _ = doctor(poor, "--stack", str(stack), "-q", code=3)
    assert (
        "✗ Python: CPython 3.12.3 at /usr/bin/python3: the stack is for 3.11\n      uv python install 3.11"
        in out
    )
    assert (
        "✗ C++ compiler: there is none, and the stack is built with it alone\n      sudo apt install g++"
        in out
    )
    assert "✗ work folder: 500.0 GB free at /home/ann/work, where 900.0 GB are needed" in out


def test_a_stack_whose_sdk_brings_everything(doctor: Doctor) -> None:
    sample = str(Path(__file__).parents[4] / "external-builds" / "sample")
    bare = msgspec.structs.replace(
        RUNNER,
        programs={"git": "2.39.5"},
        python=msgspec.structs.replace(RUNNER.python, headers=False),
        gpu=GpuFacts(),
    )
    out, _ = doctor(bare, "--stack", sample, "-q")
    assert out == ""
    out, _ = doctor(bare, "--stack", sample, "--targets", "cpu", "-q", code=3)
    assert "there is none, and the stack is built with it alone" in out


def test_git_settings_that_upstreams_scripts_would_follow() -> None:
    machine = msgspec.structs.replace(WORKSTATION, git_settings={"core.autocrlf": "true", "GIT_DIR": "/x"})
    follows = "Cairn does not follow it, but git in a project's build does"
    assert wrong(machine, purpose="build") == [
        (f"git: core.autocrlf is true: {follows}", "git config --global --unset core.autocrlf"),
        (f"git: GIT_DIR is /x: {follows}", "unset GIT_DIR"),
    ]
    assert wrong(machine, purpose="install") == []


def test_a_wheel_for_something_else() -> None:
    two = msgspec.structs.replace(
        WORKSTATION,
        gpu=msgspec.structs.replace(
            WORKSTATION.gpu, targets=("gfx1036", "gfx1100"), visible=("gfx1036", "gfx1100")
        ),
    )

    def of(machine: Machine, **offer: object) -> list[tuple[str, str | None]]:
        return wrong(machine, purpose="install", offers=(Offer(name="w", **offer),))  # type: ignore[arg-type]

    assert of(WORKSTATION, targets=("gfx942",)) == [
        (
            "wheel: w has no code for gfx1100 (RX 7900 XTX): it has gfx942",
            "cairn install --gpu gfx1100 --index-url URL",
        )
    ]
    assert of(two, targets=("gfx1100", "gfx1201")) == [
        (
            "wheel: w has no code for gfx1036 (Raphael iGPU): it has gfx1100, gfx1201",
            "export ROCR_VISIBLE_DEVICES=1",
        )
    ]
    assert of(WORKSTATION, targets=("gfx11-generic",)) == []
    assert of(RUNNER, targets=("gfx942",)) == [
        ("GPU: none of AMD's here: wheels for the CPU can be installed and tested", None)
    ]
    assert of(WORKSTATION, pythons=("3.11",)) == [
        ("wheel: w is for Python 3.11, and this is 3.12", "uv venv --python 3.11")
    ]
    assert of(WORKSTATION, system="windows") == [("wheel: w is for windows", None)]
    assert of(WORKSTATION, glibc=(2, 40))[0][0] == "wheel: w needs glibc 2.40, and this is 2.39"
    assert of(WORKSTATION, glibc=(2, 9)) == []  # compared as numbers


def test_what_a_wheel_is_for(tmp_path: Path) -> None:
    offers = {
        "cp311-cp311-manylinux_2_28_x86_64": {"pythons": ("3.11",), "glibc": (2, 28), "system": "linux"},
        "cp39-abi3-manylinux2014_x86_64": {"system": "linux"},
        "cp313-cp313t-win_amd64": {"pythons": ("3.13",), "system": "windows"},
        "py3-none-any": {},
    }
    for tag, expected in offers.items():
        wheel = build_wheel(tmp_path, tags=(tag,), pure=tag.endswith("any"))
        assert look.wheel(wheel) == Offer(name=wheel.name, **expected), tag


def test_a_wheel_s_targets_are_read_from_its_code(tmp_path: Path, doctor: Doctor, cairn: Cairn) -> None:
    code = make_elf(sections={".hip_fatbin": make_bundle({"gfx942": make_code_object("gfx942", b"abc")})})
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    wheel = build_wheel(tmp_path, tags=(tag,), pure=False, files={"demo/_C.so": code})
    out, _ = doctor(WORKSTATION, "--for", "install", "--wheel", str(wheel), "-q", code=3)
    assert out == (
        f"  ✗ wheel: demo-1.0-{tag}.whl has no code for gfx1100 (RX 7900 XTX): it has gfx942\n"
        "      cairn install --gpu gfx1100 --index-url URL\n"
    )
    cairn("doctor", "--wheel", described(tmp_path, WORKSTATION), code=7)


def test_an_index(tmp_path: Path, doctor: Doctor) -> None:
    found = targets_file.make("release", (channel(), family()))
    datafile.write(tmp_path / "store" / "release" / "targets.json", found)
    url = (tmp_path / "store" / "release" / "simple").as_uri() + "/"
    here = msgspec.structs.replace(WORKSTATION, python=PythonFacts(path="p", version=f"{PYTHON}.1"))
    out, _ = doctor(here, "--for", "install", "--index-url", url)
    line = f"pip install --index-url {tmp_path.as_uri()}/store/release/gfx110X-all/simple/ {NAMES}"
    assert out.endswith(
        f"  ✓ index: gfx1100: torch, torchvision, torchaudio of release/gfx110X-all\n      {line}\n"
    )
    other = msgspec.structs.replace(
        here, gpu=msgspec.structs.replace(here.gpu, targets=("gfx803",), visible=("gfx803",))
    )
    out, err = doctor(other, "--for", "install", "--index-url", url, "-q", code=3)
    assert out.startswith(
        "  ✗ index: release has nothing for gfx803 (R9 Nano, R9 Fury, R9 Fury X and 3 more)\n"
        "      for this Python and platform it has gfx"
    )
    assert err.startswith("error: an installation needs what is missing here: index\n")


def test_the_answer_for_programs_is_judged_again(tmp_path: Path, doctor: Doctor, cairn: Cairn) -> None:
    out, _ = doctor(FRESH, "--json", code=3)
    answer = json.loads(out)
    assert answer["schema"] == "cairn.doctor/1"
    assert {
        "check": "git",
        "level": "missing",
        "text": "it is not here",
        "fix": "sudo dnf install git",
    } in answer["findings"]
    assert datafile.loads(out, DoctorReport, name="answer").machine == FRESH
    (tmp_path / "bad.json").write_text("{}")
    cairn("doctor", "--machine", tmp_path / "bad.json", code=2)
