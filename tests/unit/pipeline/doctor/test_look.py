"""What `cairn doctor` reads of a machine, from the files by which Linux describes one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn.errors import UsageError
from cairn.pipeline.doctor import look

MOUNTS = (
    "22 1 0:20 / / rw,relatime - ext4 /dev/sda rw\n"
    "23 22 0:21 / {0} rw,nosuid,noexec,relatime shared:2 - tmpfs tmpfs rw\n"
    "24 22 0:22 / {0}/with\\040space rw,relatime - cifs //server rw\n"
)


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_this_machine(tmp_path: Path) -> None:
    found = look.here(tmp_path / "not there yet", Path(sys.executable))
    assert found.system == "linux"
    assert found.python.version == ".".join(map(str, sys.version_info[:3]))
    assert found.python.venv
    assert found.cores >= 1
    assert found.memory is not None
    assert found.memory_free is not None
    assert 0 < found.memory_free <= found.memory
    assert found.programs["git"].startswith("2.")
    assert [disk.role for disk in found.disks] == ["work folder", "temporary files", "cache"]
    assert all(disk.writable and disk.free for disk in found.disks)
    assert list(tmp_path.iterdir()) == []  # nothing is made


NODE = "sys/class/kfd/kfd/topology/nodes"
CARD = "sys/bus/pci/devices/0000:03:00.0"


def test_gpus(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            f"{NODE}/0/properties": "gfx_target_version 0\n",
            f"{NODE}/1/properties": "gfx_target_version 110000\n",
            f"{NODE}/2/properties": "gfx_target_version 90402\n",
            f"{CARD}/vendor": "0x1002\n",
            f"{CARD}/class": "0x030000\n",
            "sys/bus/pci/devices/0000:04:00.0/vendor": "0x1002\n",
            "sys/bus/pci/devices/0000:04:00.0/class": "0x120000\n",
            "sys/bus/pci/devices/0000:04:00.1/vendor": "0x1002\n",
            "sys/bus/pci/devices/0000:04:00.1/class": "0x040300\n",  # sound over HDMI
            "sys/bus/pci/devices/0000:05:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:05:00.0/class": "0x030000\n",
            "sys/module/amdgpu/version": "6.12.12\n",
            "dev/kfd": "",
            "dev/dri/card0": "",
            "dev/dri/renderD128": "",
        },
    )
    found = look.gpu_facts(root, {"ROCR_VISIBLE_DEVICES": "1"})
    assert (found.targets, found.visible, found.cards) == (("gfx1100", "gfx942"), ("gfx942",), 2)
    assert found.driver == "6.12.12"
    assert found.kfd is not None
    assert (found.kfd.path, found.kfd.usable) == ("/dev/kfd", True)
    assert [device.path for device in found.render] == ["/dev/dri/renderD128"]
    (root / "sys/module/amdgpu/version").unlink()
    assert look.gpu_facts(root, {}).driver == "in-tree"


def test_a_device_that_is_not_there_or_cannot_be_opened(tmp_path: Path) -> None:
    found = look.gpu_facts(tmp_path, {})
    assert (found.targets, found.cards, found.driver, found.kfd, found.render) == ((), 0, None, None, ())
    root = tree(tmp_path, {"dev/dri/card0": ""})
    (root / "dev/kfd").mkdir()  # which even root cannot open to write
    found = look.gpu_facts(root, {})
    assert found.kfd is not None
    assert not found.kfd.usable


def test_something_that_is_no_python(tmp_path: Path) -> None:
    for number, script in enumerate(("exit 1", "echo hello", "echo '[]'", "echo '{}'")):
        program = tmp_path / f"python{number}"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        with pytest.raises(UsageError, match="is not a Python that runs"):
            look.here(tmp_path, program)


@pytest.mark.parametrize(
    ("files", "variables", "expected"),
    [
        ({}, {}, None),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"proc/1/cgroup": "0::/\n"}, {}, None),
        ({"proc/1/cgroup": "0::/kubepods.slice/x\n"}, {}, "kubepods"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "systemd-nspawn"}, "systemd-nspawn"),
        ({"run/systemd/container": "lxc\n"}, {}, "lxc"),
    ],
)
def test_containers(
    tmp_path: Path, files: Mapping[str, str], variables: Mapping[str, str], expected: str | None
) -> None:
    assert look._container(tree(tmp_path, files), variables) == expected


def test_cores_of_a_container(tmp_path: Path) -> None:
    all_of_them = len(os.sched_getaffinity(0))
    assert look._cores(tmp_path) == all_of_them
    for number, (limit, cores) in enumerate((("max 100000", all_of_them), ("50000 100000", 1))):
        root = tree(tmp_path / str(number), {"sys/fs/cgroup/cpu.max": f"{limit}\n"})
        assert look._cores(root) == cores
    group = "sys/fs/cgroup/cpu/cpu.cfs"  # under an old kernel
    for quota, cores in (("-1", all_of_them), ("", all_of_them), ("x", all_of_them), ("150000", 1)):
        files = {f"{group}_quota_us": f"{quota}\n", f"{group}_period_us": "100000\n"}
        assert look._cores(tree(tmp_path / f"old {quota}", files)) == min(cores, all_of_them)


BOTH = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("variables", "visible", "hidden_by"),
    [
        ({}, ("gfx1100", "gfx942"), ()),
        ({"ROCR_VISIBLE_DEVICES": "0,1"}, ("gfx1100", "gfx942"), ()),
        ({"HIP_VISIBLE_DEVICES": "1"}, ("gfx942",), ("HIP_VISIBLE_DEVICES",)),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, (), ("CUDA_VISIBLE_DEVICES",)),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "-1"}, ("gfx1100",), ("HIP_VISIBLE_DEVICES",)),
        # The second counts what the first leaves.
        (dict.fromkeys(BOTH, "1"), (), BOTH),
    ],
)
def test_variables_that_hide_gpus(
    tmp_path: Path, variables: Mapping[str, str], visible: tuple[str, ...], hidden_by: tuple[str, ...]
) -> None:
    versions = {"0": "0", "1": "110000", "2": "90402", "x": "90402"}
    files = {f"{NODE}/{number}/properties": f"gfx_target_version {v}\n" for number, v in versions.items()}
    found = look.gpu_facts(tree(tmp_path, files), variables)
    assert (found.visible, found.hidden_by) == (visible, hidden_by)


def test_devices_of_other_vendors_are_none_of_amd_s(tmp_path: Path) -> None:
    vendors = {"renderD128": "0x8086\n", "renderD129": "0x1002\n", "renderD130": "0x10de\n"}
    files = {f"sys/class/drm/{name}/device/vendor": vendor for name, vendor in vendors.items()}
    root = tree(tmp_path, files | dict.fromkeys((f"dev/dri/{name}" for name in vendors), ""))
    (root / "dev/dri/renderD131").touch()  # in a container without /sys
    found = [device.path for device in look.gpu_facts(root, {}).render]
    assert found == ["/dev/dri/renderD129", "/dev/dri/renderD131"]


def test_a_machine_without_a_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    assert str(look._temporary()) == str(tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody without a name")
@pytest.mark.parametrize(
    ("home", "path"), [({}, "~/.cache/cairn"), ({"HOME": "closed"}, "closed/home/.cache/cairn")]
)
def test_a_user_without_a_home(tmp_path: Path, home: Mapping[str, str], path: str) -> None:
    """As in a container that is started with a number for its user."""
    (tmp_path / "closed/home").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    code = (
        "import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); from pathlib import Path\n"
        "from cairn.pipeline.doctor import look; from cairn import datafile\n"
        "os.setgroups([]); os.setuid(54321)\n"
        "print(json.dumps([datafile.to_plain(disk) for disk in look.disks(Path('/'))]))"
    )
    env = {name: str(tmp_path / value / "home") for name, value in home.items()}
    words = [sys.executable, "-c", code, json.dumps(sys.path)]
    done = subprocess.run(words, env=env, cwd="/", check=True, capture_output=True, text=True)
    cache = json.loads(done.stdout)[-1]
    assert (cache["role"], cache["writable"]) == ("cache", False)
    assert cache["path"].endswith(path)


def test_a_git_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_bytes(b"\x7fELF")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look.git_settings({"GIT_DIR": "x"}) == {"GIT_DIR": "x"}
    assert look.program_versions() == {"git": ""}


def test_distributions(tmp_path: Path) -> None:
    ubuntu = tree(
        tmp_path, {"etc/os-release": 'NAME="X"\nID=mint\nID_LIKE="ubuntu debian"\nPRETTY_NAME="Mint 22"\n'}
    )
    release = look._os_release(ubuntu)
    assert release["PRETTY_NAME"] == "Mint 22"
    assert look._packages("linux", release) == "apt"
    assert look._packages("linux", {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}) == "dnf"
    assert look._packages("linux", {"ID": "unheard-of"}) == ""
    assert look._packages("windows", {}) == "winget"


def test_disks(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    tree(tmp_path, {"proc/self/mountinfo": MOUNTS.format(tmp_path)})
    temporary, spaced = (
        look._disk("work folder", path, look._mounts(tmp_path)) for path in (tmp_path, folder / "new")
    )
    assert (temporary.filesystem, temporary.no_exec, temporary.ignores_case) == ("tmpfs", True, False)
    assert (spaced.filesystem, spaced.no_exec, spaced.path) == ("cifs", False, str(folder / "new"))
    assert list(folder.iterdir()) == []


def test_whether_local_servers_are_reached() -> None:
    assert not look._spares_local({"http_proxy": "http://p:1"})
    assert look._spares_local({"http_proxy": "http://p:1", "no_proxy": "localhost,127.0.0.1"})
    assert look._spares_local({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"})
    assert not look._spares_local({"http_proxy": "http://p:1", "no_proxy": ".example"})


def test_git_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert look.git_settings({}) == {}
    for name, value in (("core.autocrlf", "true"), ("core.symlinks", "true"), ("user.name", "ann")):
        subprocess.run(["git", "config", "--global", name, value], check=True)
    assert look.git_settings({"GIT_DIR": "x"}) == {"GIT_DIR": "x", "core.autocrlf": "true"}


def test_a_program_that_says_nothing_useful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in (
        ("git", "exit 3"),
        ("hipcc", "echo HIP version: 6.2.41133-dd7f95766"),
        ("cmake", "echo"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look.program_versions() == {"git": "", "hipcc": "6.2.41133", "cmake": ""}
