"""Wheels written by hand, small native libraries, and an index on 127.0.0.1."""

import base64
import functools
import hashlib
import html
import http.server
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename

from cairn.testing.smoke import SmokeRequest, SmokeResult, run_smoke
from cairn.wheels import wheelset as wheel_sets
from cairn.wheels.wheelset import WheelSet

MakeWheel = Callable[..., Path]
Serve = Callable[[Sequence[Path]], str]
Compile = Callable[..., bytes]


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    """Write a wheel: `make_wheel(name, version, {path: content}, requires=[...], tag=...)`."""

    def make(
        name: str,
        version: str,
        members: Mapping[str, str | bytes],
        *,
        requires: Sequence[str] = (),
        tag: str = "py3-none-any",
        executable: Sequence[str] = (),
    ) -> Path:
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
        pure = "true" if tag.endswith("any") else "false"
        wheel = f"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
        content = {**members, f"{info}/METADATA": metadata, f"{info}/WHEEL": wheel}
        data = {path: text.encode() if isinstance(text, str) else text for path, text in content.items()}
        rows = [f"{path},sha256={digest(value)},{len(value)}" for path, value in data.items()]
        data[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        target = tmp_path / "wheels" / f"{name}-{version}-{tag}.whl"
        target.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, value in data.items():
                member = zipfile.ZipInfo(path)
                member.external_attr = (0o100755 if path in executable else 0o100644) << 16
                archive.writestr(member, value)
        return target

    return make


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serve wheels as a package index of its own; gives its URL."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(wheels: Sequence[Path]) -> str:
        root = tmp_path / f"index{len(servers)}"
        for wheel in wheels:
            page = root / "simple" / canonicalize_name(parse_wheel_filename(wheel.name)[0])
            page.mkdir(parents=True, exist_ok=True)
            (page / wheel.name).write_bytes(wheel.read_bytes())
            with (page / "index.html").open("a", encoding="utf-8") as file:
                digest_of = hashlib.sha256(wheel.read_bytes()).hexdigest()
                name = html.escape(wheel.name)
                link = f"{name.replace('+', '%2B')}#sha256={digest_of}"
                file.write(f'<!DOCTYPE html>\n<a href="{link}">{name}</a>\n')
        handler = functools.partial(QuietHandler, directory=str(root))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/simple/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def compile_library(tmp_path: Path) -> Compile:
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


def bundle(targets: Sequence[str]) -> bytes:
    """A plain offload bundle with a code object of 64 bytes for each target."""
    ids = ["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{t}" for t in targets)]
    head = len(b"__CLANG_OFFLOAD_BUNDLE__") + 8 + sum(24 + len(i) for i in ids)
    table, body = b"", b""
    for name in ids:
        code = b"" if name.startswith("host") else b"\x7fELF\x02\x01\x01" + bytes(57)
        table += struct.pack("<QQQ", head + len(body), len(code), len(name)) + name.encode()
        body += code
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(ids)) + table + body


@pytest.fixture
def device_library(tmp_path: Path, compile_library: Compile) -> Callable[[Sequence[str]], bytes]:
    """A shared library with device code for these targets."""

    def build(targets: Sequence[str]) -> bytes:
        (tmp_path / "native").mkdir(exist_ok=True)
        (tmp_path / "native" / "bundle.bin").write_bytes(bundle(targets))
        code = '.section .hip_fatbin,\\"a\\",@progbits\\n.incbin \\"bundle.bin\\"\\n.text\\n'
        return compile_library(f'__asm__("{code}");\nint answer(void) {{ return 42; }}\n', soname="libk.so")

    return build


def set_of(wheels: Sequence[Path], *, targets: Sequence[str] = ("cpu",), family: str = "cpu") -> WheelSet:
    return wheel_sets.make(
        wheels,
        manifest_sha256="0" * 64,
        stack="trial",
        python="3.11",
        platform="linux_x86_64",
        family=family,
        targets=targets,
    )


@pytest.fixture
def smoke(tmp_path: Path, serve: Serve) -> Callable[..., SmokeResult]:
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


@pytest.fixture
def make_set() -> Callable[..., WheelSet]:
    """Describe wheels as a set."""
    return set_of


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
