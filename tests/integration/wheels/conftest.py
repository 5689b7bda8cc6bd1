"""Libraries compiled by zig for an old glibc, and wheels made of them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from helpers.packing import write_wheel
from helpers.wheels import assert_sound, pip_install

Compile = Callable[..., bytes]


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    folder = tmp_path_factory.mktemp("zig")

    def compile_(name: str, source: str, *options: str, links: Sequence[str] = ()) -> bytes:
        (folder / f"{name}.c").write_text(source)
        # Without -O, zig makes a C runtime for debugging first, in 25 CPU seconds.
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.28", "-s", "-O1"]
        command += ["-shared", f"-Wl,-soname,{name}", "-o", name, f"{name}.c", *options, "-L.", *links]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return (folder / name).read_bytes()

    return compile_


@pytest.fixture(scope="session")
def pack_into() -> Callable[..., Path]:
    """Packs a wheel of some members, into a folder."""

    def pack_(
        folder: Path,
        members: Mapping[str, bytes],
        *,
        tag: str = "py3-none-linux_x86_64",
        requires: Sequence[str] = (),
    ) -> Path:
        programs = [name for name in members if "bin/" in name]
        return write_wheel(folder, "demo", "1.0", members, requires=requires, tag=tag, executables=programs)

    return pack_


@pytest.fixture
def pack(pack_into: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    return functools.partial(pack_into, tmp_path / "built")


@pytest.fixture
def accepted(tmp_path: Path) -> Callable[[Path], None]:
    """Every judge that others trust; unzip where there is one."""

    def check(wheel: Path) -> None:
        if shutil.which("unzip"):
            subprocess.run(["unzip", "-tq", str(wheel)], check=True, capture_output=True)
        assert_sound(wheel)
        ignored = "W004,W009,W101,W102,W201"
        judge = [sys.executable, "-m", "check_wheel_contents", "--ignore", ignored, str(wheel)]
        judged = subprocess.run(judge, check=False, capture_output=True, text=True)
        assert judged.returncode == 0, judged.stdout + judged.stderr
        pip_install("--target", tmp_path / f"site-{wheel.stem}", wheel)

    return check
