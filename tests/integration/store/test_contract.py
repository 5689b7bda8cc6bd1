from __future__ import annotations

from dataclasses import replace

import pytest

from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.client import Bucket
from helpers.buckets import Server
from helpers.store_contract import StoreContract


class TestBucket(StoreContract):
    @pytest.fixture
    def store(self, s3_server: Server, bucket: Bucket) -> BucketStore:
        return BucketStore(replace(bucket, name=s3_server.new_bucket()))


class TestPrefix(StoreContract):
    @pytest.fixture
    def store(self, s3_server: Server, bucket: Bucket) -> BucketStore:
        whole = replace(bucket, name=s3_server.new_bucket())
        for other in ("wheels", "wheels2/x", "wheels/rocm", "wheels/rocm2"):
            BucketStore(whole).write(other, b"of someone else")
        return BucketStore(replace(whole, prefix="wheels/rocm/"))
