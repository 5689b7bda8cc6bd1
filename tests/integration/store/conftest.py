from __future__ import annotations

from dataclasses import replace

import pytest

from cairn.retry import RetryPolicy
from cairn.store.s3.client import Bucket, connect
from helpers.buckets import Server


@pytest.fixture(scope="session")
def bucket(s3_server: Server) -> Bucket:
    """A connection, to be used with `replace(bucket, name=…)`, and short waits."""
    found = connect("s3://bucket", endpoint_url=s3_server.endpoint)
    return replace(found, policy=RetryPolicy(attempts=4, wait=0.01))
