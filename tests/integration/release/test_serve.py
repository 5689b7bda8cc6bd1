from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli import main as program
from cairn.errors import SystemFailureError
from cairn.release.serve.server import Server, serving
from cairn.store.folder import LocalStore
from helpers.release import keys_of, make_wheel, put

JSON = "application/vnd.pypi.simple.v1+json"
NAME = "torch-2.9.0+rocm7.10.0-py3-none-any.whl"


class Client:
    def __init__(self, server: Server) -> None:
        self.port = server.port

    def ask(
        self, path: str, *, method: str = "GET", **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.msg, answer.read()


@pytest.fixture
def wheel(store: LocalStore, tmp_path: Path) -> Path:
    path: Path = make_wheel(tmp_path, "torch", "2.9.0+rocm7.10.0")
    put(store, "release", [path])
    return path


@pytest.fixture
def client(store: LocalStore, wheel: Path) -> Iterator[Client]:
    assert wheel.exists()
    with serving(store.path) as server:
        yield Client(server)


def file_path(store: LocalStore) -> str:
    return "/" + next(key for key in keys_of(store, "files/") if key.endswith(".whl")).replace("+", "%2B")


def test_the_client_gets_the_format_it_accepts(client: Client) -> None:
    status, headers, body = client.ask("/release/simple/torch/", Accept=f"{JSON}, text/html;q=0.1")
    assert (status, headers["Content-Type"], headers["Vary"]) == (200, JSON, "Accept")
    assert body.startswith(b"{")
    status, headers, body = client.ask("/release/simple/torch/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!DOCTYPE html>")
    assert client.ask("/release/simple/torch/", Accept="image/png")[0] == 406
    assert client.ask("/release/simple/torch/index.json")[1]["Content-Type"] == JSON


def test_head_tells_all_but_the_bytes(client: Client, store: LocalStore, wheel: Path) -> None:
    status, headers, body = client.ask(file_path(store), method="HEAD")
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str(wheel.stat().st_size)
    assert headers["Accept-Ranges"] == "bytes"
    assert "immutable" in headers["Cache-Control"]


def test_parts_of_a_file(client: Client, store: LocalStore, wheel: Path) -> None:
    data = wheel.read_bytes()
    path = file_path(store)
    status, headers, body = client.ask(path, Range="bytes=-22")
    assert (status, body) == (206, data[-22:])
    assert headers["Content-Range"] == f"bytes {len(data) - 22}-{len(data) - 1}/{len(data)}"
    status, headers, _ = client.ask(path, Range=f"bytes={len(data)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(data)}")
    assert client.ask(path, Range="bytes=0-3", If_Range='"other"')[2] == data


def test_what_has_not_changed_is_not_sent_again(client: Client, store: LocalStore, tmp_path: Path) -> None:
    _, headers, _ = client.ask("/release/simple/torch/")
    etag = headers["ETag"]
    status, _, body = client.ask("/release/simple/torch/", If_None_Match=etag)
    assert (status, body) == (304, b"")
    put(store, "release", [make_wheel(tmp_path, "torch", "2.9.1")])
    assert client.ask("/release/simple/torch/", If_None_Match=etag)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/release/%2e%2e/%2e%2e/secret",
        "/release/..%2f..%2fsecret",
        "/.locks/x",
        "//etc/passwd",
        "/release//simple/",
        "/link/secret",
        "/%00",
        "/%ff",
        "/release/nothing",
        "/release/simple/torch/../../../notes.txt",
    ],
)
def test_nothing_outside_or_hidden_is_given(client: Client, store: LocalStore, path: str) -> None:
    (store.path.parent / "secret").write_text("secret")
    (store.path / ".locks").mkdir(exist_ok=True)
    (store.path / ".locks" / "x").write_text("secret")
    (store.path / "link").symlink_to(store.path.parent)
    status, _, body = client.ask(path)
    assert status == 404
    assert b"secret" not in body


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "files/notes.txt",
        "files/ab/notes.txt",
        "release/notes.txt",
        "release/simple/torch/notes.txt",
        "release/sets/notes.txt",
        "other/simple/index.html",
        "node_modules/state.json",
        ".git/config",
        "release/.hidden",
        "release/simple/torch/.index.html",
    ],
)
def test_of_a_folder_with_other_files_those_of_the_store_alone_are_given(
    client: Client, store: LocalStore, path: str
) -> None:
    (store.path / path).parent.mkdir(parents=True, exist_ok=True)
    (store.path / path).write_text("secret")
    (store.path / "release" / "simple" / "linked").mkdir()
    (store.path / "release" / "simple" / "linked" / "index.html").symlink_to(store.path / path)
    for asked in (f"/{path}", "/release/simple/linked/", "/release/simple/linked/index.html"):
        status, _, body = client.ask(asked)
        assert (status, b"secret" in body) == (404, False)
    for key in keys_of(store, "release/simple/torch/index"):
        assert client.ask(f"/{key}")[0] == 200


def test_what_is_no_plain_file_is_not_waited_for(client: Client, store: LocalStore) -> None:
    key = f"files/ab/{'ab' * 32}/torch-1.0-py3-none-any.whl"
    (store.path / key).parent.mkdir(parents=True)
    os.mkfifo(store.path / key)
    assert client.ask(f"/{key}")[0] == 404


@pytest.mark.parametrize("head", ["Content-Length: 41", "Transfer-Encoding: chunked"])
def test_the_body_of_a_request_is_not_taken_for_the_next_one(client: Client, head: str) -> None:
    # Behind a proxy, the answer to a request hidden in a body would go to a different client.
    hidden = "GET /release/simple/ HTTP/1.1\r\nHost: y\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(f"GET /nothing HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n{hidden}".encode())
        answers = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answers.startswith(b"HTTP/1.1 404 ")
    assert answers.count(b"HTTP/1.1 ") == 1


def test_a_folder_that_is_no_store_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("secret")
    assert program.main(["index", "serve", str(tmp_path)]) == 9
    said = capsys.readouterr().err
    assert f"{tmp_path} is not a store" in said
    assert "cairn index publish --store" in said
    (tmp_path / "notes.txt").unlink()
    (tmp_path / ".git").mkdir()
    assert program.main(["index", "serve", str(tmp_path)]) == 9
    assert "is not a store" in capsys.readouterr().err
    assert program.main(["index", "serve", str(tmp_path / "none")]) == 9
    assert "there is no store at" in capsys.readouterr().err


def test_a_folder_without_a_slash_leads_to_the_one_with(client: Client) -> None:
    status, headers, _ = client.ask("/release/simple/torch")
    assert (status, headers["Location"]) == (301, "./torch/")


def test_a_port_in_use_is_said_in_one_line_with_a_way_out(store: LocalStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(SystemFailureError, match=f"port {port}") as caught,
            serving(store.path, port=port),
        ):
            pass
    assert caught.value.tip is not None
    assert "--port" in caught.value.tip


@pytest.mark.parametrize("port", [-1, 70000])
def test_what_is_no_port_is_refused(store: LocalStore, port: int) -> None:
    with pytest.raises(SystemFailureError, match="not a valid port"), serving(store.path, port=port):
        pass


@pytest.mark.parametrize("host", ["ü..x", "a..b", "x" * 300, "nosuchhost.invalid"])
def test_what_is_no_address_of_ours_is_said_in_one_line(store: LocalStore, host: str) -> None:
    with pytest.raises(SystemFailureError, match="cannot listen on"), serving(store.path, host=host):
        pass


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_interrupted(
    store: LocalStore, wheel: Path, sign: signal.Signals
) -> None:
    assert wheel.exists()
    command = [sys.executable, "-m", "cairn", "index", "serve", str(store.path), "--port", "0"]
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        assert url.endswith("/release/simple/")
        child.send_signal(sign)
        _, errors = child.communicate(timeout=30)
    assert child.returncode == 0
    assert "Traceback" not in errors
