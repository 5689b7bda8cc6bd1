"""The requests for which a bucket does not rely on obstore, and the credentials of all, without a server."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from cairn.errors import CairnError, NetworkError, StoreError
from cairn.retry import RetryPolicy
from cairn.store.buckets.client import Bucket, connect
from cairn.store.protocol import CredentialsError

ENDPOINT = "https://s3.example:9000"
SECRETS = ("AKIAEXAMPLE", "session-token", "X-Amz-Signature=")

Answer = Callable[[str], requests.Response]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")


def bucket(monkeypatch: pytest.MonkeyPatch, answer: Answer, endpoint: str = ENDPOINT) -> Bucket:
    """A bucket whose server answers so to the address of a request."""

    def get(url: str, **_options: object) -> requests.Response:
        return answer(requests.Request("GET", url).prepare().url or "")

    monkeypatch.setattr(requests, "get", get)
    return replace(connect("s3://wheels", endpoint_url=endpoint), policy=RetryPolicy(attempts=1))


def answering(body: str, status: int = 200) -> requests.Response:
    """An answer as servers of buckets give it: XML in UTF-8, whose type names no encoding."""
    response = requests.Response()
    response.status_code = status
    response.encoding = "ISO-8859-1"  # which requests takes for `text/xml` without one
    response._content = body.encode()
    return response


def page(name: str, more: str = "<IsTruncated>false</IsTruncated>") -> str:
    entry = f"<Contents><Key>{name}</Key><Size>1</Size></Contents>"
    return f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{more}{entry}</ListBucketResult>'


def listing(monkeypatch: pytest.MonkeyPatch, body: str, endpoint: str = ENDPOINT) -> tuple[list[str], str]:
    """The names that a listing gives, and the address that it asked."""
    asked: list[str] = []

    def answer(url: str) -> requests.Response:
        asked.append(url)
        return answering(body)

    names = [item["path"] for item in bucket(monkeypatch, answer, endpoint).list_raw("")]
    (url,) = asked
    return names, url


@pytest.mark.parametrize("tail", ["", "/", "//"])
def test_a_slash_at_the_end_of_the_address_of_a_server_is_none_of_the_path(
    monkeypatch: pytest.MonkeyPatch, tail: str
) -> None:
    names, url = listing(monkeypatch, page("a//b"), f"{ENDPOINT}{tail}")
    assert (names, url.partition("?")[0]) == (["a//b"], f"{ENDPOINT}/wheels")


def test_a_region_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert "%2Feu-west-1%2Fs3%2F" in listing(monkeypatch, page("a"))[1]


def test_an_access_key_that_is_empty_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert connect("s3://wheels", endpoint_url=ENDPOINT, public=True).settings["skip_signature"] is True


def test_names_that_a_server_does_not_encode_are_read_as_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listing(monkeypatch, page("é//ü &amp; %41"))[0] == ["é//ü & %41"]


def failure_of(connection: Bucket) -> tuple[CairnError, str]:
    """The error of a listing, and the traceback that `--debug` shows."""
    with pytest.raises(CairnError) as caught:
        list(connection.list_raw(""))
    return caught.value, "".join(traceback.format_exception(caught.value))


def no_answer(url: str) -> requests.Response:
    path = url.removeprefix(ENDPOINT)
    raise requests.ConnectionError(f"Max retries exceeded with url: {path} (Caused by Refused('[111]'))")


def refusal(url: str) -> requests.Response:
    body = f"<Error><Code>SignatureDoesNotMatch</Code><CanonicalRequest>{url}</CanonicalRequest></Error>"
    return answering(body, 403)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [(no_answer, NetworkError, "Refused"), (refusal, CredentialsError, "refuses the secret key")],
)
def test_no_credentials_are_shown_where_a_request_fails(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, kind: type[CairnError], said: str
) -> None:
    error, shown = failure_of(bucket(monkeypatch, answer))
    assert type(error) is kind
    assert said in str(error)
    assert [one for one in SECRETS if one in shown] == []


@pytest.mark.parametrize(
    "body",
    [
        "<html><title>Sign in</title></html>",
        page("a").partition("<Size>")[0],
        page("a", "<IsTruncated>true</IsTruncated>"),
    ],
    ids=["a web page", "cut off", "no way to the next page"],
)
def test_an_answer_that_is_no_whole_list_is_not_taken_for_one(
    monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    error, _ = failure_of(bucket(monkeypatch, lambda _url: answering(body)))
    assert type(error) is StoreError
    assert "s3://wheels: the server does not list all of it" in str(error)
