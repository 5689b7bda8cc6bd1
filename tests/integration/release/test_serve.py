from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli import main as program
from cairn.errors import SystemFailureError, UsageError
from cairn.release import serve_http
from cairn.release.serve import Server, serving
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.opening import open_store
from cairn.store.protocol import Store, StoredObject
from helpers import buckets as buckets_of
from helpers.release import contents, keys_of, make_wheel, put

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
    with serving(store) as server:
        yield Client(server)


@pytest.fixture(params=["folder", "memory", "bucket"])
def anywhere(request: pytest.FixtureRequest, store: LocalStore, wheel: Path) -> Iterator[Client]:
    """The same index in a store of each kind."""
    assert wheel.exists()
    served: Store = store
    if request.param == "memory":
        served = MemoryStore(contents(store))
    elif request.param == "bucket":
        buckets: buckets_of.Server = request.getfixturevalue("s3_server")
        served = open_store(f"s3://{buckets.new_bucket()}/prefix", endpoint_url=buckets.endpoint)
        for key, data in contents(store).items():
            served.write(key, data)
    with serving(served) as server:
        yield Client(server)


def file_path(store: LocalStore) -> str:
    return "/" + next(key for key in keys_of(store, "files/") if key.endswith(".whl")).replace("+", "%2B")


def test_the_client_gets_the_format_it_accepts(anywhere: Client) -> None:
    status, headers, body = anywhere.ask("/release/simple/torch/", Accept=f"{JSON}, text/html;q=0.1")
    assert (status, headers["Content-Type"], headers["Vary"]) == (200, JSON, "Accept, Accept-Encoding")
    assert body.startswith(b"{")
    status, headers, body = anywhere.ask("/release/simple/torch/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!DOCTYPE html>")
    status, headers, _ = anywhere.ask("/release/simple/torch/", Accept="image/png")
    assert (status, headers["Vary"]) == (406, "Accept")
    assert anywhere.ask("/release/simple/torch/index.json")[1]["Content-Type"] == JSON
    assert anywhere.ask("/release/simple/nothing/", Accept="image/png")[0] == 404


def test_of_two_formats_one_may_be_missing(client: Client, store: LocalStore) -> None:
    store.delete("release/simple/torch/index.html")
    assert client.ask("/release/simple/torch/")[1]["Content-Type"] == JSON
    assert client.ask("/release/simple/torch/", Accept="text/html")[0] == 406
    assert client.ask("/release/simple/torch")[0] == 301


def test_pages_are_compressed_for_whoever_takes_that(anywhere: Client) -> None:
    _, plain, body = anywhere.ask("/release/simple/torch/")
    for _ in range(2):  # made, and then kept
        status, headers, packed = anywhere.ask("/release/simple/torch/", Accept_Encoding="br, gzip;q=0.5")
        assert (status, headers["Content-Encoding"], headers["Vary"]) == (
            200,
            "gzip",
            "Accept, Accept-Encoding",
        )
        assert gzip.decompress(packed) == body
        assert len(packed) == int(headers["Content-Length"]) < len(body)
    # Other bytes under another name, each known again by its own.
    assert headers["ETag"] != plain["ETag"]
    ask = {"Accept_Encoding": "gzip", "If_None_Match": headers["ETag"]}
    status, _, nothing = anywhere.ask("/release/simple/torch/", **ask)
    assert (status, nothing) == (304, b"")
    assert anywhere.ask("/release/simple/torch/", **ask | {"Accept_Encoding": "gzip;q=0"})[2] == body
    part = anywhere.ask("/release/simple/torch/", Accept_Encoding="gzip", Range="bytes=0-4")
    assert (part[0], part[2], "Content-Encoding" in part[1]) == (206, body[:5], False)


def test_files_are_given_as_they_are_even_to_whoever_takes_gzip(
    anywhere: Client, store: LocalStore, wheel: Path
) -> None:
    _, headers, body = anywhere.ask(file_path(store), Accept_Encoding="gzip")
    assert (body, "Content-Encoding" in headers, "Vary" in headers) == (wheel.read_bytes(), False, False)
    assert headers["Content-Type"] == "application/zip"


def test_a_changed_page_is_compressed_again(client: Client, store: LocalStore, tmp_path: Path) -> None:
    before = client.ask("/release/simple/torch/", Accept_Encoding="gzip")[2]
    put(store, "release", [make_wheel(tmp_path, "torch", "2.9.1")])
    after = client.ask("/release/simple/torch/", Accept_Encoding="gzip")[2]
    assert (b"2.9.1" in gzip.decompress(before), b"2.9.1" in gzip.decompress(after)) == (False, True)


@pytest.fixture
def compressed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was compressed, each time."""
    pages: list[bytes] = []
    really = gzip.compress

    def compress(data: bytes, level: int, *, mtime: float) -> bytes:
        pages.append(data)
        return really(data, level, mtime=mtime)

    monkeypatch.setattr(gzip, "compress", compress)
    serve_http._compressed.cache_clear()
    return pages


class Counting(MemoryStore):
    """A page, and how often each object was read."""

    def __init__(self) -> None:
        super().__init__({"release/simple/one/index.html": b"one " * 1_000})
        self.read_keys: list[str] = []

    def read(self, key: str) -> StoredObject:
        self.read_keys.append(key)
        return super().read(key)


def test_a_page_costs_one_read_of_the_store(compressed: list[bytes]) -> None:
    store = Counting()
    with serving(store) as server:
        ask = {"Accept_Encoding": "gzip"}
        etag = Client(server).ask("/release/simple/one/", **ask)[1]["ETag"]
        assert Client(server).ask("/release/simple/one/", If_None_Match=etag, **ask)[0] == 304
    assert store.read_keys == ["release/simple/one/index.html"] * 2
    assert len(compressed) == 1


def test_head_tells_all_but_the_bytes(anywhere: Client, store: LocalStore, wheel: Path) -> None:
    status, headers, body = anywhere.ask(file_path(store), method="HEAD", Range="bytes=0-3")
    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str(wheel.stat().st_size)
    assert headers["Accept-Ranges"] == "bytes"
    assert "immutable" in headers["Cache-Control"]
    for path in ("/release/simple/torch/", "/release/state.json", "/nothing", "/release/simple/torch"):
        told, got = (anywhere.ask(path, method=method) for method in ("HEAD", "GET"))
        assert (told[0], told[1].get("ETag"), told[2]) == (got[0], got[1].get("ETag"), b"")
        assert told[1]["Content-Length"] == str(len(got[2]))


def test_what_may_be_kept_and_for_how_long(anywhere: Client, store: LocalStore) -> None:
    assert anywhere.ask("/release/state.json")[1]["Cache-Control"] == "no-cache"
    assert anywhere.ask("/release/simple/torch/")[1]["Cache-Control"] == "public, max-age=60"
    assert "immutable" in anywhere.ask(f"{file_path(store)}.metadata")[1]["Cache-Control"]


def test_a_plus_is_a_plus_encoded_or_not(anywhere: Client, store: LocalStore, wheel: Path) -> None:
    path = file_path(store)
    assert "%2B" in path
    for spelt in (path, path.replace("%2B", "+"), path.replace("%2B", "%2b")):
        assert anywhere.ask(spelt)[2] == wheel.read_bytes()
    assert anywhere.ask(path.replace("%2B", "%20"))[0] == 404


def test_parts_of_a_file(anywhere: Client, store: LocalStore, wheel: Path) -> None:
    client = anywhere
    data = wheel.read_bytes()
    path = file_path(store)
    status, headers, body = client.ask(path, Range="bytes=-22")
    assert (status, body) == (206, data[-22:])
    assert headers["Content-Range"] == f"bytes {len(data) - 22}-{len(data) - 1}/{len(data)}"
    etag = headers["ETag"]
    status, headers, _ = client.ask(path, Range=f"bytes={len(data)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(data)}")
    assert client.ask(path, Range="bytes=0-3", If_Range='"other"')[2] == data
    assert client.ask(path, Range="bytes=0-3", If_Range="Sun, 22 Nov 2099 00:00:00 GMT")[2] == data
    assert client.ask(path, Range="bytes=0-3", If_Range=etag)[2] == data[:4]
    assert client.ask(path, Range="bytes=5-7")[2] == data[5:8]
    assert client.ask(path, Range="bytes=5-")[2] == data[5:]
    assert client.ask(path, Range="bytes=0-1,4-5")[2] == data


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-4", slice(0, 5)),
        ("bytes=-300000", slice(None)),
        ("bytes=8-999999", slice(8, None)),
        ("bytes=-", None),
        ("bytes=4-2", None),
        ("pages=1-2", None),
        ("bytes=0-" + "9" * 5_000, None),
    ],
)
def test_a_part_that_is_none_is_the_whole(
    client: Client, store: LocalStore, wheel: Path, header: str, part: slice | None
) -> None:
    status, _, body = client.ask(file_path(store), Range=header)
    assert (status, body) == (200 if part is None else 206, wheel.read_bytes()[part or slice(None)])


def test_an_empty_object_has_no_part(client: Client, store: LocalStore) -> None:
    store.write("release/status.html", b"")
    assert client.ask("/release/status.html")[::2] == (200, b"")
    assert client.ask("/release/status.html", Range="bytes=0-")[0] == 416


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
    assert status in (400, 404)
    assert b"secret" not in body


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "files/notes.txt",
        "files/ab/notes.txt",
        "release/notes.txt",
        "release/notes",
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


def test_an_address_that_is_not_quite_right_leads_to_the_right_one(client: Client) -> None:
    for path, location in (
        ("/release/simple/torch", "./torch/"),
        ("/release/simple", "./simple/"),
        ("/release/simple/Torch/", "../torch/"),
    ):
        status, headers, _ = client.ask(path)
        assert (status, headers["Location"]) == (301, location)
    assert client.ask("/release/simple/nothing")[0] == 404


def test_a_port_in_use_is_said_in_one_line_with_a_way_out(store: LocalStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(SystemFailureError, match=f"port {port}") as caught,
            serving(store, port=port),
        ):
            pass
    assert caught.value.tip is not None
    assert "--port" in caught.value.tip


@pytest.mark.parametrize("port", [-1, 70000])
def test_what_is_no_port_is_refused(store: LocalStore, port: int) -> None:
    with pytest.raises(UsageError, match="not a valid port"), serving(store, port=port):
        pass


def test_the_command_refuses_what_is_no_port(
    store: LocalStore, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wheel.exists()
    assert program.main(["index", "serve", str(store.path), "--port", "99999"]) == 2
    assert "choose one from 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["ü..x", "a..b", "x" * 300, "nosuchhost.invalid", "9.9.9.9"])
def test_what_is_no_address_of_ours_is_said_in_one_line_with_what_to_do(store: LocalStore, host: str) -> None:
    with pytest.raises(SystemFailureError, match="cannot listen on") as caught, serving(store, host=host):
        pass
    assert "name an address of this machine with --host" in str(caught.value.tip)


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
    assert f"how to install it: {url.removesuffix('release/simple/')}\n" in errors
    assert "Traceback" not in errors


def test_a_wheel_of_an_index_is_shown_where_it_lies(
    client: Client, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = f"http://127.0.0.1:{client.port}/release/simple/"
    assert program.main(["wheel", "show", f"{index}#torch==2.9.0", "--json"]) == 0
    out, err = capsys.readouterr()
    (summary,) = json.loads(out)
    assert (summary["file_name"], summary["size"]) == (wheel.name, wheel.stat().st_size)
    assert summary["unread"] is not None
    assert "fetched by 1 request\n" in err
    assert program.main(["diff", f"{index}#torch==2.9.0", str(wheel)]) == 0
    assert capsys.readouterr().out.startswith("no difference in what was read")
    assert program.main(["wheel", "verify", f"{index}#torch==2.9.0"]) == 0
    assert "as published" in capsys.readouterr().err
