from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.retry import RetryPolicy
from cairn.store.buckets import client
from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.client import Bucket, connect
from cairn.store.buckets.download import Parts
from helpers.buckets import Server
from helpers.faulty_server import FaultyServer, faulty_server

PARTS = Parts(size=5 << 20, jobs=3)  # the least that S3 takes


@pytest.fixture(scope="session")
def bucket(s3_server: Server) -> Bucket:
    """A connection, to be used with `structs.replace(bucket, name=…)`, and short waits."""
    found = connect("s3://bucket", endpoint_url=s3_server.endpoint)
    return dataclasses.replace(found, policy=RetryPolicy(attempts=4, wait=0.01))


@pytest.fixture
def store(bucket: Bucket, s3_server: Server) -> BucketStore:
    """A new bucket."""
    return BucketStore(dataclasses.replace(bucket, name=s3_server.new_bucket()), parts=PARTS)


@pytest.fixture(scope="session")
def line(s3_server: Server) -> Iterator[FaultyServer]:
    """A line that breaks as a test plans it."""
    with faulty_server(s3_server.endpoint) as found:
        yield found


@pytest.fixture(scope="session")
def connection(line: FaultyServer) -> Bucket:
    """A connection over that line."""
    return dataclasses.replace(
        connect("s3://x", endpoint_url=line.endpoint), policy=RetryPolicy(attempts=3, wait=0.01)
    )


@pytest.fixture
def behind(connection: Bucket, store: BucketStore) -> BucketStore:
    """The new bucket as it is seen over the line."""
    # An outage of the test before is none of this one.
    own = dataclasses.replace(connection, name=store.bucket.name, is_away=threading.Event())
    return BucketStore(own, parts=PARTS)


@pytest.fixture
def impatient(line: FaultyServer, store: BucketStore, monkeypatch: pytest.MonkeyPatch) -> BucketStore:
    """The same, to one who does not wait for an answer for long."""
    monkeypatch.setattr(client, "_READ_TIMEOUT", 0.5)
    connection = connect(store.url, endpoint_url=line.endpoint)
    return BucketStore(dataclasses.replace(connection, policy=RetryPolicy(attempts=3, wait=0.01)))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where downloads lie that were interrupted."""
    monkeypatch.setenv("CAIRN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
