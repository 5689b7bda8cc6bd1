"""Each system's module, on Linux: that of Windows as far as it computes."""

import errno
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from cairn import platforms
from cairn.platforms import System, posix, windows


def test_this_system_is_known() -> None:
    assert platforms.here is (windows if os.name == "nt" else posix)
    assert re.fullmatch(r"[a-z][a-z0-9._-]*", platforms.here.name())


@pytest.mark.parametrize(("system", "scheme"), [(posix, "posix_venv"), (windows, "nt_venv")])
def test_an_environment_is_laid_out_as_sysconfig_says(tmp_path: Path, system: System, scheme: str) -> None:
    given = {name: str(tmp_path) for name in ("base", "platbase", "installed_base", "installed_platbase")}
    paths = {name: Path(text) for name, text in sysconfig.get_paths(scheme, given).items()}
    assert system.programs_of(tmp_path) == paths["scripts"]
    assert system.python_of(tmp_path).parent == paths["scripts"]
    assert system.packages_of(tmp_path)[0] == paths["purelib"]
    paths["purelib"].mkdir(parents=True)
    assert system.packages_of(tmp_path)[0] == paths["purelib"]


def test_packages_of_another_python_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "lib" / "python3.99" / "site-packages"
    folder.mkdir(parents=True)
    assert posix.packages_of(tmp_path) == (folder,)
    ours = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    ours.mkdir(parents=True)
    assert posix.packages_of(tmp_path)[0] == ours


def test_a_folder_is_not_renamed_to_where_one_is(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    with pytest.raises(OSError, match="not empty") as caught:
        (tmp_path / "a").replace(tmp_path / "b")
    assert caught.value.errno in platforms.here.folder_in_the_way()
    assert errno.EACCES in windows.folder_in_the_way()


def test_windows_ends_a_program_and_its_children_by_the_system_s_own_taskkill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SYSTEMROOT", "D:\\Win")
    assert windows.kill_command(42) == ("D:\\Win\\System32\\taskkill.exe", "/F", "/T", "/PID", "42")
    assert windows.own_group() == {"creationflags": 0x200}  # subprocess.CREATE_NEW_PROCESS_GROUP
    assert (windows.name(), windows.stack_section()) == ("windows", "windows")


def test_windows_kill_ends_the_program_even_without_taskkill() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        windows.kill(child)
        assert child.wait(10) != 0


# What Python has on POSIX alone, and what pyproject.toml installs on Linux alone.
_ABSENT = """
import importlib, os, pkgutil, signal, sys
import distributed, obstore.store, pypi_attestations  # they ask by themselves which system it is
for name in ("auditwheel", "fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("copy_file_range", "fork", "geteuid", "getuid", "killpg", "setsid", "sysconf", "uname"):
    delattr(os, name)
for name in ("SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1"):
    delattr(signal, name)
import cairn
names = [module.name for module in pkgutil.walk_packages(cairn.__path__, "cairn.")]
# These run where torch, or an SDK, is.
elsewhere = ("cairn.rocm.runtime", "cairn.testing.builtin_smoke", "cairn.testing.compat.probes.")
ours = [name for name in names if not name.startswith(elsewhere)]
for name in ours:
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "an import took Ctrl-C for itself"
print(len(ours))
"""


def test_every_module_can_be_imported_without_what_windows_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", _ABSENT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


MEMORY = "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:   12000000 kB\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 16000000 kB\n"}, None),
        ({"proc/meminfo": MEMORY}, (16384000000, 12288000000)),
        ({"proc/meminfo": MEMORY, "sys/fs/cgroup/memory.max": "max\n"}, (16384000000, 12288000000)),
        (
            {
                "proc/meminfo": MEMORY,
                "sys/fs/cgroup/memory.max": "4000000000\n",
                "sys/fs/cgroup/memory.current": "1000000000\n",
            },
            (4000000000, 3000000000),
        ),
        (
            {
                "proc/meminfo": MEMORY,
                "sys/fs/cgroup/memory.max": "4000000000\n",
                "sys/fs/cgroup/memory.current": "4000000001\n",
            },
            (4000000000, 0),
        ),
        ({"proc/meminfo": MEMORY, "sys/fs/cgroup/memory.max": "4000000000\n"}, (4000000000, 4000000000)),
        (
            {
                "proc/meminfo": MEMORY,
                "sys/fs/cgroup/memory.max": "4000000000\n",
                "sys/fs/cgroup/memory.current": "3900000000\n",
                "sys/fs/cgroup/memory.stat": "anon 900000000\nfile 3000000000\ninactive_file 2500000000\n",
            },
            (4000000000, 2600000000),
        ),
        (
            {
                "proc/meminfo": MEMORY,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000000000\n",
                "sys/fs/cgroup/memory/memory.stat": "inactive_file 7\ntotal_inactive_file 500000000\n",
            },
            (4000000000, 3500000000),
        ),
        (
            {
                "proc/meminfo": MEMORY,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            },
            (16384000000, 12288000000),
        ),
    ],
)
def test_memory(tmp_path: Path, files: Mapping[str, str], expected: tuple[int, int] | None) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert posix.memory(tmp_path) == expected
