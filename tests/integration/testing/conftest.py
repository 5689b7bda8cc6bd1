"""Wheels written by hand, small native libraries, and an index on 127.0.0.1."""

import contextlib
import functools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cairn.testing.smoke import SmokeRequest, SmokeResult, run_smoke
from helpers.formats import plain_bundle
from helpers.packing import write_wheel
from helpers.serving import serving
from helpers.testing import (
    CompileLibrary,
    DeviceLibrary,
    MakeWheel,
    Serve,
    Smoke,
    set_of,
    write_index,
)

CODE = b"\x7fELF\x02\x01\x01" + bytes(57)


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    """Write a wheel: `make_wheel(name, version, {path: content}, requires=[...], tag=...)`."""
    return functools.partial(write_wheel, tmp_path / "wheels")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve wheels as a package index of its own; gives its URL."""
    with contextlib.ExitStack() as servers:
        count = 0

        def start(wheels: Sequence[Path]) -> str:
            nonlocal count
            count += 1
            root = tmp_path / f"index{count}"
            root.mkdir()
            write_index(root, wheels)
            return f"{servers.enter_context(serving(root))}/simple/"

        yield start


@pytest.fixture
def compile_library(tmp_path: Path) -> CompileLibrary:
    """Compile C into a shared library: `compile_library(source, "-L…", …, soname=…)`; gives its bytes."""

    def build(source: str, *arguments: str, soname: str) -> bytes:
        folder = tmp_path / "native"
        folder.mkdir(exist_ok=True)
        (folder / "source.c").write_text(source, encoding="utf-8")
        target = folder / soname
        # `-pie` among the arguments makes a program instead
        kind = () if "-pie" in arguments else ("-shared", f"-Wl,-soname,{soname}")
        command = [sys.executable, "-m", "ziglang", "cc", "-fPIC", "-O1", "-Wl,--no-gc-sections", *kind]
        subprocess.run([*command, "source.c", "-o", soname, *arguments], cwd=folder, check=True)
        return target.read_bytes()

    return build


@pytest.fixture
def device_library(tmp_path: Path, compile_library: CompileLibrary) -> DeviceLibrary:
    """A shared library with device code for these targets."""

    def build(targets: Sequence[str]) -> bytes:
        (tmp_path / "native").mkdir(exist_ok=True)
        (tmp_path / "native" / "bundle.bin").write_bytes(plain_bundle(dict.fromkeys(targets, CODE)))
        code = '.section .hip_fatbin,\\"a\\",@progbits\\nbundle: .incbin \\"bundle.bin\\"\\n'
        code += '.section .hipFatBinSegment,\\"aw\\",@progbits\\n.p2align 3\\n'
        code += ".long 0x48495046, 1\\n.quad bundle, 0\\n.text\\n"
        return compile_library(f'__asm__("{code}");\nint answer(void) {{ return 42; }}\n', soname="libk.so")

    return build


@pytest.fixture
def smoke(tmp_path: Path, serve: Serve) -> Smoke:
    """Smoke-test wheels from an index of their own; `tests` is the source of the stack's tests."""

    def run(
        wheels: Sequence[Path],
        *,
        tests: str | None = None,
        targets: Sequence[str] = ("cpu",),
        family: str = "cpu",
        **more: Any,
    ) -> SmokeResult:
        if tests is not None:
            (tmp_path / "smoke-tests").mkdir()
            (tmp_path / "smoke-tests" / "test_it.py").write_text(tests, encoding="utf-8")
            more["smoke_tests"] = (tmp_path / "smoke-tests",)
        request = SmokeRequest(
            wheel_set=set_of(wheels, targets=targets, family=family),
            work_dir=tmp_path / "work",
            **{"index_url": serve(wheels), "gpus": tmp_path / "no-gpus", **more},
        )
        return run_smoke(request)

    return run
