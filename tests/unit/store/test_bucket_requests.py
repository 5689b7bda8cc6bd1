"""The credentials and the region of a bucket's requests, without a server."""

from __future__ import annotations

import dataclasses
import traceback
from pathlib import Path

import pytest

from cairn.errors import NetworkError
from cairn.retry import RetryPolicy
from cairn.store.buckets.bucket import BucketStore
from cairn.store.buckets.client import connect

ENDPOINT = "https://s3.example:9000"
SECRETS = ("AKIAEXAMPLE", "session-token", "X-Amz-Signature=")


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")


def test_a_region_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert connect("s3://wheels", endpoint_url=ENDPOINT).objects.config["region"] == "eu-west-1"


def test_an_access_key_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert connect("s3://wheels", endpoint_url=ENDPOINT, public=True).settings["skip_signature"] is True


def test_no_credentials_are_shown_where_a_listing_fails() -> None:
    nowhere = connect("s3://wheels", endpoint_url="http://127.0.0.1:1")  # where nothing listens
    with pytest.raises(NetworkError) as caught:
        list(BucketStore(dataclasses.replace(nowhere, policy=RetryPolicy(attempts=1))).list(""))
    shown = "".join(traceback.format_exception(caught.value))
    assert [secret for secret in SECRETS if secret in shown] == []
