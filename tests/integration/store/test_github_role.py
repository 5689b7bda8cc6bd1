"""The credentials of a role in a job of GitHub's, from stand-ins for the servers that give them."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cairn.errors import CairnError
from cairn.store import opening
from cairn.store.protocol import CredentialsError

ROLE = "arn:aws:iam::123456789012:role/builder"


class Cloud(ThreadingHTTPServer):
    """GitHub's tokens, Amazon's credentials and a bucket, at one address.

    Attributes:
        lifetime: of the credentials.
        exchanged: the token of each exchange.
        signed: with which access key each request to the bucket was signed.
        refusal: the code with which an exchange is refused; None for none.
        away: how many further requests for credentials are answered 503.
    """

    lifetime = timedelta(hours=1)
    refusal: str | None = None
    away = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exchanged: list[str] = []
        self.signed: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Cloud

    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path)
        if path.path == "/token":
            known = self.headers["Authorization"] == "bearer job"
            audience = urllib.parse.parse_qs(path.query)["audience"] == ["sts.amazonaws.com"]
            self._answer(200 if known and audience else 403, json.dumps({"value": "token of the job"}))
            return
        key = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        self.server.signed.append(key[1] if key else "")
        self._answer(200, "bytes")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in urllib.parse.parse_qs(body).items()}
        if self.server.away:
            self.server.away -= 1
            self._answer(503, "")
        elif self.server.refusal:
            error = f"<Code>{self.server.refusal}</Code><Message>Not authorized to perform it</Message>"
            self._answer(403, f"<ErrorResponse><Error>{error}</Error></ErrorResponse>")
        else:
            assert (form["Action"], form["RoleArn"]) == ("AssumeRoleWithWebIdentity", ROLE)
            self.server.exchanged.append(form["WebIdentityToken"])
            until = (datetime.now(UTC) + self.server.lifetime).isoformat().replace("+00:00", "Z")
            self._answer(
                200,
                f"<Credentials><AccessKeyId>KEY{len(self.server.exchanged)}</AccessKeyId>"
                "<SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>"
                f"<Expiration>{until}</Expiration></Credentials>",
            )

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """The servers, and the variables of a job that may take the role, with older credentials beside."""
    with Cloud() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {
            "AWS_ROLE_ARN": ROLE,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_STS": server.url,
            "AWS_ENDPOINT_URL_S3": server.url,
            "AWS_ACCESS_KEY_ID": "OLD",
            "AWS_SECRET_ACCESS_KEY": "old",
            "AWS_SESSION_TOKEN": "old",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{server.url}/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "job",
        }.items():
            monkeypatch.setenv(name, value)
        yield server
        server.shutdown()


def test_credentials_are_fetched_once_while_they_live(cloud: Cloud) -> None:
    store = opening.open_store("s3://bucket/wheels")
    assert cloud.exchanged == []  # and not before they are needed
    for _ in range(3):
        assert store.read("key").data == b"bytes"
    assert cloud.exchanged == ["token of the job"]
    assert cloud.signed == ["KEY1"] * 3


def test_they_are_renewed_before_they_expire(cloud: Cloud) -> None:
    """A step may take longer than any credentials live."""
    cloud.lifetime = timedelta(seconds=1)
    store = opening.open_store("s3://bucket/wheels")
    for _ in range(3):
        store.read("key")
        threading.Event().wait(1.1)
    assert len(cloud.exchanged) >= 3
    assert cloud.signed[0] != cloud.signed[-1]
    assert "OLD" not in cloud.signed


def test_a_server_of_credentials_that_is_away_for_a_moment_is_asked_again(cloud: Cloud) -> None:
    cloud.away = 1
    assert opening.open_store("s3://bucket/wheels").read("key").data == b"bytes"


def test_a_role_that_the_job_may_not_take_is_an_error_that_says_so(cloud: Cloud) -> None:
    cloud.refusal = "AccessDenied"
    with pytest.raises(CairnError) as caught:
        opening.open_store("s3://bucket/wheels").read("key")
    assert f"{ROLE} cannot be taken by this job: 403 AccessDenied" in str(caught.value)
    assert "trust policy" in str(caught.value.tip)
    assert isinstance(caught.value, CredentialsError)
    assert cloud.signed == []


def test_elsewhere_the_variables_count(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL")
    opening.open_store("s3://bucket/wheels").read("key")
    assert (cloud.signed, cloud.exchanged) == (["OLD"], [])
