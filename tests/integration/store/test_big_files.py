"""Files in parts: sent and fetched side by side, resumed, shared, and never believed without their sha256."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cairn.errors import NetworkError, StoreError
from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.download import SHA256
from cairn.store.opening import open_store
from cairn.store.protocol import DamagedObjectError
from helpers.buckets import Server
from helpers.faults import Fault, Plan
from helpers.faulty_server import FaultyServer
from helpers.release import keys_of

BYTES = os.urandom(17 << 20)  # four parts of 5 MiB, the last one smaller
DIGEST = hashlib.sha256(BYTES).hexdigest()
KEY = f"files/{DIGEST[:2]}/{DIGEST}/torch-1.0+rocm-py3-none-any.whl"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "torch-1.0+rocm-py3-none-any.whl"
    path.write_bytes(BYTES)
    return path


def parts_sent(line: FaultyServer) -> int:
    return sum("partNumber=" in path for kind, path in line.plan.requests if kind == "PUT")


def parts_fetched(line: FaultyServer) -> int:
    return Counter(kind for kind, _ in line.plan.requests)["GET"]


def test_a_big_file_comes_back_as_it_was(store: BucketStore, source: Path, s3_server: Server) -> None:
    arrived, fetched = list[int](), list[int]()
    assert store.put_file(KEY, source, on_bytes=arrived.append)
    found = s3_server.client.head_object(Bucket=store.bucket.name, Key=KEY)
    assert found["ETag"].endswith('-4"')
    assert found["ContentType"] == "application/zip"
    assert found["CacheControl"] == "public, max-age=31536000, immutable"
    assert found["Metadata"] == {SHA256: DIGEST}
    with store.as_file(KEY, on_bytes=fetched.append) as path:
        assert (path.name, path.read_bytes()) == (source.name, BYTES)
    assert not path.exists()
    assert sum(arrived) == sum(fetched) == len(BYTES)
    assert len(arrived) == 4
    assert list(store.strays()) == []


def test_a_file_that_is_there_is_not_sent_again(
    store: BucketStore, behind: BucketStore, line: FaultyServer, source: Path
) -> None:
    store.put_file(KEY, source)
    line.plan = Plan()
    assert not behind.put_file(KEY, source)
    assert [kind for kind, _ in line.plan.requests] == ["HEAD"]


def test_an_upload_that_was_interrupted_is_sent_anew(
    store: BucketStore, behind: BucketStore, line: FaultyServer, source: Path
) -> None:
    # It looks for the object, begins an upload and sends two parts; the third breaks, as often as it is sent.
    line.plan = Plan(Fault.FAILED, 5, times=999)
    with pytest.raises(NetworkError):
        behind.put_file(KEY, source)
    assert not store.exists(KEY)
    assert list(store.strays()) == []
    line.plan = Plan()
    arrived = list[int]()
    assert behind.put_file(KEY, source, on_bytes=arrived.append)
    assert parts_sent(line) == 4
    assert sum(arrived) == len(BYTES)
    assert store.read(KEY).data == BYTES


def test_a_part_that_breaks_is_sent_again_alone(
    behind: BucketStore, line: FaultyServer, source: Path, s3_server: Server
) -> None:
    line.plan = Plan(Fault.FAILED, 4)
    arrived = list[int]()
    assert behind.put_file(KEY, source, on_bytes=arrived.append)
    assert parts_sent(line) == 5
    assert sum(arrived) == len(BYTES)
    assert "Uploads" not in s3_server.client.list_multipart_uploads(Bucket=behind.bucket.name)


def test_a_big_object_is_renewed_with_its_bytes(store: BucketStore, source: Path) -> None:
    store.put_file(KEY, source)
    before = store.stat(KEY)
    time.sleep(1.1)
    store.renew(KEY)
    after = store.stat(KEY)
    assert before is not None
    assert after is not None
    assert after.modified > before.modified
    assert after.sha256 == DIGEST
    assert store.read(KEY).data == BYTES
    assert list(store.strays()) == []


def test_two_who_send_the_same_file_at_once_both_succeed(store: BucketStore, source: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: store.put_file(KEY, source), range(3)))
    assert store.read(KEY).data == BYTES


def test_what_someone_else_put_meanwhile_is_not_replaced(
    store: BucketStore, behind: BucketStore, line: FaultyServer, tmp_path: Path
) -> None:
    source = tmp_path / "small"
    source.write_bytes(b"ours")
    line.plan = Plan()
    line.before = lambda number: store.write("files/small", b"theirs") if number == 2 else None
    try:
        with pytest.raises(StoreError, match="was written by someone else, with other bytes"):
            behind.put_file("files/small", source)
        assert store.read("files/small").data == b"theirs"
        store.delete("files/small")
        line.plan = Plan()
        line.before = lambda number: store.write("files/small", b"ours") if number == 2 else None
        behind.put_file("files/small", source)
    finally:
        line.before = lambda _number: None


def test_a_file_that_changes_while_it_is_sent_does_not_stay(
    behind: BucketStore, store: BucketStore, line: FaultyServer, source: Path
) -> None:
    def change(number: int) -> None:
        if number == 2:  # it begins the upload
            with source.open("r+b") as file:
                file.write(b"changed")

    line.plan, line.before = Plan(), change
    try:
        with pytest.raises(StoreError, match="was changed while it was sent"):
            behind.put_file(KEY, source)
    finally:
        line.before = lambda _number: None
    assert not store.exists(KEY)


def test_a_download_that_was_interrupted_is_resumed(
    store: BucketStore, behind: BucketStore, line: FaultyServer, source: Path, cache: Path
) -> None:
    store.put_file(KEY, source)
    line.plan = Plan(Fault.FAILED, 4, times=99)
    with pytest.raises(NetworkError), behind.as_file(KEY):
        pass
    assert len((cache / "downloads" / DIGEST / "done").read_text().split()) == 2
    line.plan = Plan()
    fetched = list[int]()
    with behind.as_file(KEY, on_bytes=fetched.append) as path:
        assert path.read_bytes() == BYTES
    assert parts_fetched(line) == 2
    assert sum(fetched) == len(BYTES)
    assert [entry.name for entry in (cache / "downloads").iterdir()] == [f"{DIGEST}.lock"]


def test_what_an_interrupted_download_left_is_not_believed(
    store: BucketStore, source: Path, cache: Path
) -> None:
    store.put_file(KEY, source)
    left = cache / "downloads" / DIGEST
    left.mkdir(parents=True)
    (left / "data").write_bytes(bytes(len(BYTES)))
    (left / "done").write_text("0\n1\n2\n")
    with store.as_file(KEY) as path:
        assert path.read_bytes() == BYTES


@pytest.mark.parametrize("data", [b"small", BYTES], ids=["small", "big"])
def test_bytes_that_are_not_those_of_the_sha256_are_not_handed_out(
    store: BucketStore, s3_server: Server, data: bytes
) -> None:
    s3_server.client.put_object(
        Bucket=store.bucket.name, Key="a", Body=data, Metadata={SHA256: hashlib.sha256(b"else").hexdigest()}
    )
    with pytest.raises(DamagedObjectError, match="is not what was put there"):
        store.read("a")
    with pytest.raises(DamagedObjectError), store.as_file("a"):
        pass


def test_what_others_put_has_no_sha256_and_is_read_all_the_same(
    store: BucketStore, s3_server: Server
) -> None:
    s3_server.client.put_object(Bucket=store.bucket.name, Key="a", Body=BYTES)
    found = store.stat("a")
    assert found is not None
    assert found.sha256 is None
    assert store.read("a").data == BYTES
    with store.as_file("a") as path:
        assert path.read_bytes() == BYTES


def test_a_listing_goes_on_beyond_a_thousand(store: BucketStore) -> None:
    keys = [f"a/{number:04}" for number in range(1005)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: store.write(key, b""), keys))
    assert keys_of(store) == keys
    assert keys_of(store, "a/1") == keys[1000:]


def test_what_a_console_makes_is_a_stray(store: BucketStore, s3_server: Server) -> None:
    for key in ("folder/", ".hidden", "fine"):
        s3_server.client.put_object(Bucket=store.bucket.name, Key=key, Body=b"")
    assert keys_of(store) == ["fine"]
    strays = list(store.strays())
    assert [(stray.kind, stray.name) for stray in strays] == [("foreign", ".hidden"), ("foreign", "folder")]
    for stray in strays:
        store.discard(stray)
    # obstore cannot name an object with a slash at its end.
    assert [stray.name for stray in store.strays()] == ["folder"]


def test_a_folder_that_a_console_made_of_the_prefix_itself_is_a_stray(
    store: BucketStore, s3_server: Server
) -> None:
    below = open_store(f"{store.url}/wheels", endpoint_url=s3_server.endpoint)
    prefix = f"{store.bucket.prefix}wheels/"
    s3_server.client.put_object(Bucket=store.bucket.name, Key=prefix, Body=b"")
    below.write("a", b"1")
    assert keys_of(below) == ["a"]
    (stray,) = below.strays()
    assert (stray.kind, stray.size) == ("foreign", 0)


@pytest.mark.parametrize("call", ["store.read('a')", "list(store.list(''))", "store.put_file('a', source)"])
def test_an_interrupt_ends_the_wait_for_a_server_that_is_silent(
    source: Path, s3_server: Server, call: str
) -> None:
    program = (
        "import sys; from pathlib import Path; from cairn.store.opening import open_store\n"
        f"source = Path({str(source)!r}); store = open_store('s3://b', endpoint_url=sys.argv[1])\n"
        f"{call}\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", program, endpoint]
        env = os.environ | s3_server.environment
        with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as child:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                child.send_signal(signal.SIGINT)
                _, errors = child.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors


def test_an_interrupted_upload_is_taken_back(store: BucketStore, source: Path, s3_server: Server) -> None:
    sent: list[int] = []

    def interrupt(count: int) -> None:
        sent.append(count)
        if len(sent) == 1:
            os.kill(os.getpid(), signal.SIGINT)  # this is the thread that sends: it goes on
            time.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        store.put_file(KEY, source, on_bytes=interrupt)
    end = time.monotonic() + 20
    time.sleep(2)
    while time.monotonic() < end and uploads_of(store, s3_server):
        time.sleep(0.1)
    assert uploads_of(store, s3_server) == []
    assert not store.exists(KEY)
    assert len(sent) == 1


def uploads_of(store: BucketStore, server: Server) -> list[object]:
    """The uploads that have begun and not ended."""
    answer = server.client.list_multipart_uploads(Bucket=store.bucket.name)
    return list(answer.get("Uploads", []))


@pytest.mark.parametrize("key", ["a//b", "a/../c", "a/./c"])
def test_a_listing_with_a_name_that_no_key_can_have_fails_by_that_name(
    store: BucketStore, s3_server: Server, key: str
) -> None:
    store.write("a/0", b"1")
    s3_server.client.put_object(Bucket=store.bucket.name, Key=key, Body=b"22")
    for listing in (store.list(""), store.strays()):
        with pytest.raises(StoreError, match=re.escape(key)) as caught:
            list(listing)
        assert caught.value.tip == "remove that object, which no store can name"
    s3_server.client.delete_object(Bucket=store.bucket.name, Key=key)
    assert keys_of(store) == ["a/0"]


def test_what_anyone_may_read_is_read_without_credentials(
    store: BucketStore, s3_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("a", b"1")
    s3_server.client.put_object_acl(Bucket=store.bucket.name, Key="a", ACL="public-read")
    for name in s3_server.environment:
        monkeypatch.delenv(name)
    assert open_store(store.url, endpoint_url=s3_server.endpoint, public=True).read("a").data == b"1"
