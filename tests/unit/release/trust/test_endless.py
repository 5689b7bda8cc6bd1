"""Servers that do not end: TUF's attack of endless data, on metadata and on a wheel by its address."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cairn.release.index import keys
from cairn.release.trust.signers import PUBLIC_NAME
from helpers.program import Cairn
from helpers.provenance import RELEASER, TESTER, released
from helpers.release import in_folder
from helpers.trust import key_file

BLOCK = b" " * 100_000


class Endless(SimpleHTTPRequestHandler):
    """Serves a folder, but for one file, which never ends."""

    name = ""
    sent = 0

    def do_GET(self) -> None:
        if not self.name or not self.path.endswith(self.name):
            super().do_GET()
            return
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while type(self).sent < 10**9:
                self.wfile.write(BLOCK)
                type(self).sent += len(BLOCK)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Endless, "sent", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/store"
        server.shutdown()


@pytest.mark.parametrize("name", ["timestamp.json", "1.snapshot.json", ".whl", ".whl without a root", ""])
def test_no_more_is_read_than_there_can_be(
    cairn: Cairn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endless: str, name: str
) -> None:
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    made = released(tmp_path)
    in_folder(made.store, tmp_path / "store")
    trust: tuple[object, ...] = ("--allow-unsigned",)
    if "without" not in name:
        key = key_file(tmp_path, RELEASER)
        (tmp_path / PUBLIC_NAME).write_bytes(TESTER.public.pem())
        init = ("trust", "init", "--store", tmp_path / "store", "--root-key", key)
        trust = ("--root", cairn.json(*init, "--tester", tmp_path / PUBLIC_NAME)["root"])
    monkeypatch.setattr(Endless, "name", name.partition(" ")[0])
    wheel = next(one for one in made.made.wheels if one.distribution == "torch")
    address = f"{endless}/{keys.file_key(wheel.sha256, wheel.file_name)}"
    seen = cairn("index", "verify", address, *trust, code=9 if name else 0)
    assert ("larger than what an index has there" in seen.err) == bool(name)
    assert Endless.sent < 3 * 10**7
