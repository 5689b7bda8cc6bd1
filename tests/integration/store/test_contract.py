from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.client import Bucket, connect
from helpers.buckets import Server
from helpers.http_proxy import proxy
from helpers.store_contract import StoreContract


class TestBucket(StoreContract):
    @pytest.fixture
    def store(self, s3_server: Server, bucket: Bucket) -> BucketStore:
        return BucketStore(dataclasses.replace(bucket, name=s3_server.new_bucket()))


class TestVirtualHosts(StoreContract):
    """The bucket is in the name of the server, which a proxy finds."""

    @pytest.fixture
    def store(self, s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketStore]:
        with proxy(s3_server.endpoint) as address:
            monkeypatch.setenv("http_proxy", address)
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true")
            connection = connect(f"s3://{s3_server.new_bucket()}/wheels", endpoint_url="http://s3.lab.test")
            yield BucketStore(connection)


class TestPrefix(StoreContract):
    @pytest.fixture
    def store(self, s3_server: Server, bucket: Bucket) -> BucketStore:
        whole = dataclasses.replace(bucket, name=s3_server.new_bucket())
        for other in ("wheels", "wheels2/x", "wheels/rocm", "wheels/rocm2"):
            BucketStore(whole).write(other, b"of someone else")
        return BucketStore(dataclasses.replace(whole, prefix="wheels/rocm/"))
