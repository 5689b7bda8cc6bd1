"""How many bytes pip fetches to choose torch, torchvision and torchaudio from an index of 60 nightlies.

    python benchmarks/index_resolve.py

The last nights lack a project or two, as happens when a build fails, so pip has to go back. The same wheels
are offered twice: by `cairn index serve`, and on the pages that many indexes have, HTML without metadata
beside the files. Between pip and each server stands a proxy that counts. The wheels are small here (half a
megabyte); a real torch wheel has hundreds.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cairn.release.index import keys
from cairn.release.publish.files import publish
from cairn.release.serve import serving
from cairn.store.folder import LocalStore

NIGHTS = 60
PAYLOAD = 500_000  # bytes of each wheel
ASKED = ("torch", "torchvision", "torchaudio")


def nightly(folder: Path, night: int) -> Iterator[Path]:
    """The wheels of one night; the last five lack torchaudio, the last three torchvision too."""
    rocm = f"rocm7.10.0a2026{1 + night // 28:02}{1 + night % 28:02}"
    torch = f"2.10.0+{rocm}"
    yield wheel(folder, "triton", f"3.6.0+{rocm}")
    yield wheel(folder, "torch", torch, f"triton==3.6.0+{rocm}")
    if night < NIGHTS - 3:
        yield wheel(folder, "torchvision", f"0.25.0+{rocm}", f"torch=={torch}")
    if night < NIGHTS - 5:
        yield wheel(folder, "torchaudio", f"2.10.0+{rocm}", f"torch=={torch}")


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    """A wheel of a payload that does not compress."""
    info = f"{name}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/payload", os.urandom(PAYLOAD))
        archive.writestr(f"{info}/METADATA", head + lines)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


class _Proxy(socketserver.ThreadingTCPServer):
    """Passes bytes on to a server of this machine, and counts those that come back."""

    daemon_threads = True
    passed = 0
    to = 0

    class Handler(socketserver.BaseRequestHandler):
        """One connection of pip's."""

        def handle(self) -> None:
            """Pass on what either side says until both have ended."""
            server = self.server
            assert isinstance(server, _Proxy)  # noqa: S101 - the only server that has this handler
            with socket.create_connection(("127.0.0.1", server.to)) as behind:
                thread = threading.Thread(target=self.forward, args=(behind,), daemon=True)
                thread.start()
                with contextlib.suppress(OSError):
                    while data := behind.recv(1 << 16):
                        server.passed += len(data)
                        self.request.sendall(data)
                with contextlib.suppress(OSError):
                    self.request.shutdown(socket.SHUT_RDWR)
                thread.join()

        def forward(self, behind: socket.socket) -> None:
            """What pip asks."""
            with contextlib.suppress(OSError):
                while data := self.request.recv(1 << 16):
                    behind.sendall(data)
                behind.shutdown(socket.SHUT_WR)


def fetched(port: int, path: str) -> int:
    """The bytes that pip receives while it chooses from the index at a path of a local server."""
    with _Proxy(("127.0.0.1", 0), _Proxy.Handler) as proxy:
        proxy.to = port
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        command = [sys.executable, "-m", "pip", "install", "--isolated", "--dry-run", "--ignore-installed"]
        command += [
            "--quiet",
            "--no-cache-dir",
            "--index-url",
            f"http://127.0.0.1:{proxy.server_address[1]}/{path}",
        ]
        subprocess.run([*command, *ASKED], check=True, stdout=subprocess.DEVNULL)
        proxy.shutdown()
        return proxy.passed


def plain_pages(folder: Path, wheels: list[Path]) -> None:
    """The index that has nothing but links."""
    for name in ("triton", *ASKED):
        page = folder / "simple" / name
        page.mkdir(parents=True)
        own = [path.name for path in wheels if path.name.startswith(f"{name}-")]
        links = "".join(f'<a href="/{n.replace("+", "%2B")}">{n}</a><br>\n' for n in own)
        page.joinpath("index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def main() -> int:
    """Make the wheels, count both, print both and the ratio."""
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        folder = Path(name)
        wheels = [path for night in range(NIGHTS) for path in nightly(folder, night)]
        store = LocalStore(folder / "store")
        publish(store, "staging", wheels)
        with serving(store) as server:
            ours = fetched(server.port, keys.simple_prefix("staging"))
        plain_pages(folder, wheels)

        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
                """Say nothing."""

        handler = functools.partial(Quiet, directory=name)
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as plain:
            threading.Thread(target=plain.serve_forever, daemon=True).start()
            theirs = fetched(plain.server_address[1], "simple/")
            plain.shutdown()
    print(f"pip chooses {', '.join(ASKED)} from {NIGHTS} nightlies")
    print(f"{'links alone':28}{theirs / 1e6:10.3f} MB")
    print(f"{'cairn index serve':28}{ours / 1e6:10.3f} MB")
    print(f"{'ratio':28}{theirs / ours:9.1f}x")
    return int(ours > 1_000_000)


if __name__ == "__main__":
    sys.exit(main())
