from __future__ import annotations

import builtins
import traceback
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import NetworkError, PrerequisiteError, StoreError, UsageError
from cairn.retry import RetryPolicy
from cairn.store.buckets.bucket import BucketStore
from cairn.store.opening import open_existing, open_folder, open_store
from helpers.trail import ROOT


def test_a_store_is_named_by_path_or_file_url(tmp_path: Path) -> None:
    folder = tmp_path / "a store+1"
    assert open_store(str(folder)).url == str(folder)
    assert open_store(folder.as_uri()).url == str(folder)
    assert open_store(f"FILE://localhost{folder}").url == str(folder)


def test_a_file_is_not_a_store_and_what_must_exist_is_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store at"):
        open_existing(str(tmp_path / "none"))
    path = tmp_path / "file"
    path.touch()
    for url in (str(path), path.as_uri()):
        with pytest.raises(UsageError, match="file is a file, not the folder of a store"):
            open_store(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/x", "ftp"),
        ("https://host/x", "https"),
        # A URL without a folder does not mean the current one.
        *((url, "names no folder|no path") for url in
          ("file://store", "file://host/store", "file://", "file://[x", "file:///", "")),
        *((url, "names no bucket") for url in
          ("s3://", "s3:///prefix", "s3://key:secret@bucket", "s3://bucket/x?versionId=1",
           "s3://Not A Bucket/x", "gs://")),
        *((url, "names no store") for url in ("s3:/bucket/x", "s3:bucket", "file:/store", "az:/container")),
        ("s3://bucket/../x", "cannot name"),
    ],
)  # fmt: skip
def test_a_url_that_is_of_no_store_is_refused(url: str, said: str) -> None:
    with pytest.raises((UsageError, StoreError), match=said):
        open_store(url)


def test_a_bucket_and_a_prefix_are_named_by_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    assert open_store("s3://bucket").url == "s3://bucket"
    assert open_store("s3://bucket/").url == "s3://bucket"
    assert open_store("gs://bucket/a").url == "gs://bucket/a"
    assert open_store("az://container/a/").url == "az://container/a"
    assert open_store("S3://bucket/a/b/", endpoint_url="http://127.0.0.1:1").url == "s3://bucket/a/b"


def test_a_container_of_no_account_is_said_to_lack_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(PrerequisiteError, match="no credentials for Azure Storage") as raised:
        open_store("az://container").read("a")
    assert "AZURE_STORAGE_ACCOUNT_NAME" in (raised.value.tip or "")


def test_the_server_of_a_folder_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--endpoint-url is for a bucket"):
        open_store(str(tmp_path), endpoint_url="http://127.0.0.1:1")
    with pytest.raises(UsageError, match="is not the address of a server"):
        open_store("s3://bucket", endpoint_url="127.0.0.1:1")


@pytest.mark.parametrize("address", ["http://[x", "http://h:99999", "http://h:port", "h:9", "ftp://h"])
def test_the_server_of_a_bucket_is_an_address_wherever_it_is_named(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """obstore would end in a panic."""
    with pytest.raises(UsageError, match="is not the address of a server"):
        open_store("s3://bucket", endpoint_url=address)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)  # of the server that other tests have
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(UsageError, match="is not the address of a server") as raised:
        open_store("s3://bucket")
    assert "correct AWS_ENDPOINT_URL: https://host:port" in (raised.value.tip or "")
    assert open_store("s3://bucket", endpoint_url="http://[::1]:9000/path")


def test_a_profile_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(PrerequisiteError, match="nobody"):
        open_store("s3://bucket")


def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "obstore" or name == "cairn.store.buckets":
            raise ModuleNotFoundError(f"No module named {name!r}", name="obstore")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PrerequisiteError, match="a bucket needs obstore") as raised:
        open_store("s3://bucket")
    assert (raised.value.tip or "").endswith(f"pip install --editable '{ROOT}[s3]'")


def test_what_needs_a_folder_says_so() -> None:
    with pytest.raises(UsageError, match="s3://bucket is a bucket"):
        open_folder("s3://bucket")


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("s3://bucket", "http://name:hunter2@127.0.0.1:9"),
        ("s3://bucket", "http://name:hun%20ter2@h@127.0.0.1:9"),
        ("s3://bucket", "name:hunter2@127.0.0.1:9"),
        ("s3://bucket", "http://na me:hunter2@127.0.0.1:9"),
        ("s3://bucket", "ftp://name:hunter2@127.0.0.1:9"),
        ("s3://name:hunter2@bucket/x", None),
        ("https://name:hunter2@127.0.0.1/x", None),
    ],
)
def test_no_password_is_shown_that_stands_in_an_address(
    url: str, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    lines: list[str] = []
    with pytest.raises((UsageError, NetworkError)) as raised:
        open_store(
            url, endpoint_url=endpoint, retry=RetryPolicy(attempts=2, wait=0.01), say=lines.append
        ).read("a")
    shown = "".join((*traceback.format_exception(raised.value), *lines, raised.value.tip or ""))
    assert "hun" not in shown.replace(__file__, "")
    assert "***@" in str(raised.value)


def test_a_bucket_that_is_shown_shows_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://name:hunter2@127.0.0.1:9")
    store = open_store("s3://bucket")
    assert isinstance(store, BucketStore)
    assert "hunter2" not in repr(store.bucket)
