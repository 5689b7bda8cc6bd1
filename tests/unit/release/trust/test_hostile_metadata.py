"""Metadata that is nonsense, whoever signed it, and redirects to elsewhere: one line, and the code of it."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cairn.release.index import keys
from cairn.release.provenance import evidence
from cairn.release.provenance.attest import KeyAttester
from cairn.release.trust import root
from cairn.release.trust.metadata import TIMESTAMP, key_of
from helpers.program import Cairn
from helpers.provenance import Released, released, signer
from helpers.release import in_folder
from helpers.trust import BUILDER, OFFLINE, PROMOTER, TESTER, TIMEKEEPER, acting_as, key_file, rooted

Change = Callable[[dict[str, Any]], None]

DEPTH = 100_000


@dataclass(kw_only=True)
class Scene:
    """A store that its promoter has signed, in a folder and on a server that answers as it is told."""

    folder: Path
    made: Released
    root: str
    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)

    @property
    def wheel(self) -> str:
        wheel = next(one for one in self.made.made.wheels if one.distribution == "torch")
        return f"{self.url}/{keys.file_key(wheel.sha256, wheel.file_name)}"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("honest")
    made = released(tmp_path_factory.mktemp("wheels"), attester=KeyAttester(PROMOTER), tested_by=TESTER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_CACHE_DIR", str(folder / "cache"))
        patch.delenv("CAIRN_SIGN_KEY", raising=False)
        evidence.sign_builder(made.store, made.made.id, evidence.of_builder(made.store, made.made), BUILDER)
        trusted = rooted(made.store)
        with acting_as(folder, PROMOTER):
            root.sign_all(made.store, trusted, {})
        in_folder(made.store, folder / "store")
    scene = Scene(folder=folder, made=made, root=trusted.fingerprint)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = self.path.removeprefix("/store/")
            location, data = scene.redirects.get(key), scene.objects.get(key)
            self.send_response(302 if location else 200 if data is not None else 404)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        scene.url = f"http://127.0.0.1:{server.server_port}/store"
        yield scene
        server.shutdown()


@pytest.fixture
def scene(honest: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    shutil.copytree(honest.folder / "cache", tmp_path / "cache")
    shutil.copytree(honest.folder / "store", tmp_path / "store")
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CAIRN_ROOT", honest.root)
    monkeypatch.delenv("CAIRN_SIGN_KEY", raising=False)
    honest.objects = dict(honest.made.store.objects)
    honest.redirects = {}
    return honest


def signed_again(data: bytes, change: Change) -> bytes:
    """Change what is signed, and sign it with every key that there is: a signer that writes nonsense."""
    body = json.loads(data)["signed"]
    change(body)
    text = msgspec.json.encode(body, order="sorted")
    signatures = [
        {"keyid": one.key_id, "sig": one.sign(text).hex()} for one in (PROMOTER, TIMEKEEPER, *OFFLINE)
    ]
    return b'{"signatures":' + json.dumps(signatures).encode() + b',"signed":' + text + b"}"


def of_field(name: str, value: object) -> Callable[[bytes], bytes]:
    return lambda data: signed_again(data, lambda body: body.update({name: value}))


def emptied(name: str) -> Callable[[bytes], bytes]:
    return lambda data: signed_again(data, lambda body: body.update({name: {}}))


def custom(value: object) -> Callable[[bytes], bytes]:
    def change(body: dict[str, Any]) -> None:
        for target in body["targets"].values():
            target["custom"] = value

    return lambda data: signed_again(data, change)


def hashes(value: object) -> Callable[[bytes], bytes]:
    def change(body: dict[str, Any]) -> None:
        for target in body["targets"].values():
            target["hashes"] = value

    return lambda data: signed_again(data, change)


def key_with(**values: object) -> Callable[[bytes], bytes]:
    def change(body: dict[str, Any]) -> None:
        for key in body["keys"].values():
            key.update(values)

    return lambda data: signed_again(data, change)


ROLES = {
    "timestamp": TIMESTAMP,
    "snapshot": key_of("snapshot", 1),
    "targets": key_of("targets", 1),
    "release": key_of("release", 1),
    "bin": key_of("release.bin-0", 1),
    "root": key_of("root", 2),
}
NONSENSE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "a page": lambda _: b"<html>log in</html>",
    "bytes that are no UTF-8": lambda _: b"\xff\xfe\x00",
    "no UTF-8 in a text": lambda data: data.replace(b'"expires":"2', b'"expires":"\xff', 1),
    "no UTF-8 in a name": lambda data: data.replace(b'"expires"', b'"exp\xff":1,"expires"', 1),
    "deep nesting": lambda _: b"[" * DEPTH,
    "deep nesting in what is signed": lambda _: b'{"signatures":[],"signed":' + b'{"a":' * DEPTH,
    "deep nesting, closed": lambda _: b'{"signatures":[],"signed":' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "half a character": lambda data: data.replace(b'"expires":"2', b'"expires":"\\ud800', 1),
    "a signature that is none": lambda data: data.replace(b'"sig":"', b'"sig":"zz', 1),
    "signed: never expires": of_field("expires", "never"),
    "signed: expires without a zone": of_field("expires", "2099-01-01T00:00:00"),
    "signed: expires on no day": of_field("expires", "2099-02-31T00:00:00Z"),
    "signed: expires in the year 10000": of_field("expires", "10000-01-01T00:00:00Z"),
    "signed: expires is a number": of_field("expires", 4),
    "signed: a version below all": of_field("version", -1),
    "signed: a version of 5000 digits": lambda data: signed_again(data, lambda _: None).replace(
        b'"version":', b'"version":' + b"9" * 5000, 1
    ),
    "signed: of another specification": of_field("spec_version", "x"),
}
ONLY: dict[tuple[str, str], Callable[[bytes], bytes]] = {
    ("timestamp", "signed: leads nowhere"): emptied("meta"),
    ("snapshot", "signed: leads nowhere"): emptied("meta"),
    ("release", "signed: names no generation"): emptied("targets"),
    ("release", "signed: a generation without a number"): custom({}),
    ("release", "signed: a generation whose number is a text"): custom({"number": "x", "files": []}),
    ("release", "signed: a ledger that is none"): custom({"number": 1, "files": 2, "ledger": 7}),
    ("release", "signed: an entry of no ledger"): custom({"number": 1, "files": 2, "ledger": [{}, []]}),
    ("release", "signed: a generation without a sha256"): hashes({"md5": "0" * 32}),
    ("release", "signed: a generation without hashes"): hashes({}),
    ("bin", "signed: a file without a sha256"): hashes({"md5": "0" * 32}),
    ("root", "signed: no roles"): emptied("roles"),
    ("root", "signed: no keys"): emptied("keys"),
    ("root", "signed: keys without a value"): key_with(keyval={}),
    ("root", "signed: keys of seven digits"): key_with(keyval={"public": "1234567"}),
    ("root", "signed: keys that are no hex"): key_with(keyval={"public": "z" * 64}),
    ("root", "signed: keys of a kind unknown"): key_with(keytype="rsa", keyval={"public": "x"}),
}
FULLY = ("timestamp", "release", "root")
PARTLY = {"no UTF-8 in a text", "deep nesting in what is signed", "signed: never expires"}
ROWS = {
    (role, name): spoil
    for role in ROLES
    for name, spoil in NONSENSE.items()
    if role in FULLY or name in PARTLY
} | ONLY


@pytest.mark.parametrize(("role", "name"), ROWS, ids=[f"{role}: {name}" for role, name in ROWS])
def test_nonsense_is_one_line(cairn: Cairn, scene: Scene, tmp_path: Path, role: str, name: str) -> None:
    key = ROLES[role]
    objects = scene.made.store.objects
    data = (
        objects[key] if role != "root" else objects[key_of("root", 1)].replace(b'"version":1', b'"version":2')
    )
    spoiled = ROWS[role, name](data)
    scene.objects[key] = spoiled
    place = tmp_path / "store" / key
    place.write_bytes(spoiled)
    store = ("--store", tmp_path / "store")
    promoter = ("--sign-key", key_file(tmp_path, PROMOTER))
    for words, may_pass in (
        (("index", "verify", scene.wheel), False),
        (("trust", "refresh", *store, *promoter), role in ("bin", "release")),
        (("release", "log", *store), role == "bin"),
        (("index", "check", *store), False),
    ):
        shutil.rmtree(tmp_path / "cache")
        shutil.copytree(scene.folder / "cache", tmp_path / "cache")
        place.write_bytes(spoiled)
        try:
            shown = cairn(*words, code=9)
        except AssertionError:
            if not may_pass:
                raise
            shown = cairn(*words)
        assert "Traceback" not in shown.err, words


@pytest.mark.parametrize("key", [TIMESTAMP, key_of("root", 2), "the wheel"])
@pytest.mark.parametrize(
    "location",
    [
        "http://[::1",
        "http://[::1]:x/",
        "http://127.0.0.1:99999/",
        "http://",
        "//[",
        "ftp://127.0.0.1:1/x",
        "file:///etc/passwd",
        "data:text/plain,x",
        "javascript:alert(1)",
        "http://a b/",
        "http://\x7f/",
        "http://.../",
        "http://" + "a" * 70_000,
        "http://xn--\u00e4/",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_redirects_lead_to_no_other_place(cairn: Cairn, scene: Scene, key: str, location: str) -> None:
    name = scene.wheel.removeprefix(f"{scene.url}/") if key == "the wheel" else key
    scene.redirects[name] = location
    shown = cairn("index", "verify", scene.wheel, code=5)
    assert "Traceback" not in shown.err


@pytest.mark.usefixtures("scene")
@pytest.mark.parametrize("role", ["timestamp", "snapshot", "targets"])
def test_a_new_root_waits_for_metadata_that_can_be_signed_anew(
    cairn: Cairn, tmp_path: Path, role: str
) -> None:
    place = tmp_path / "store" / ROLES[role]
    place.write_bytes(NONSENSE["signed: never expires"](place.read_bytes()))
    (tmp_path / "new.pub").write_bytes(signer(31).public.pem())
    keys_of_root = [word for one in OFFLINE[:2] for word in ("--root-key", key_file(tmp_path, one))]
    for added in ("builder", "timestamp", "promoter"):
        change = ("trust", "change", *keys_of_root, "--add", f"{added}={tmp_path / 'new.pub'}")
        promoter = ("--sign-key", key_file(tmp_path, PROMOTER))
        cairn(*change, *promoter, "--store", tmp_path / "store", code=9)
        assert not (tmp_path / "store" / ROLES["root"]).exists()
