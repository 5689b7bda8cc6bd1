"""A bucket to send requests to: each is tried again where that may help, and what failed is explained."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import boto3
import botocore
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from cairn import retry
from cairn.errors import UsageError
from cairn.output import Progress, silent
from cairn.retry import RetryPolicy
from cairn.store.protocol import checked
from cairn.store.s3.errors import Place, translated

T = TypeVar("T")

JOBS = 8
"""Requests that one transfer makes side by side: enough to fill a line, few enough for a small server."""

_CONNECTIONS = 64  # that are kept; several transfers may run at once
_CONNECT_TIMEOUT = 10.0  # seconds
_READ_TIMEOUT = 60.0  # seconds without a byte

# What boto3 takes; Amazon and others allow less, and say so.
_NAME = re.compile(r"[a-zA-Z0-9.\-_]{1,255}")

Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket, or what is below a prefix in it.

    Attributes:
        name: the bucket.
        prefix: what every key in it begins with; empty, or with a slash at the end.
        client: of boto3, which threads may share.
        policy: how often a request is tried again.
        say: told of every try that failed.
    """

    name: str
    prefix: str
    client: Any
    policy: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=6, wait=0.5, factor=2.0))
    say: Progress = silent

    @property
    def url(self) -> str:
        """How a user names it."""
        return f"s3://{self.name}/{self.prefix}".rstrip("/")

    def ask(self, operation: str, key: str | None, **arguments: object) -> Answer:
        """Send one request, as often as it takes.

        Args:
            operation: boto3's name of it.
            key: of the store, not of the bucket; None for a request about no single object.
            arguments: boto3's.

        Raises:
            NetworkError: the last try failed too.
            StoreError: the server refuses.
        """
        return self.trying(lambda: self.ask_once(operation, key, **arguments))

    def ask_once(self, operation: str, key: str | None, **arguments: object) -> Answer:
        """`ask` with one try."""
        named = {} if key is None else {"Key": f"{self.prefix}{key}"}
        send = getattr(self.client, operation)
        return self.explained(lambda: send(Bucket=self.name, **named, **arguments), key)

    def explained(self, work: Callable[[], T], key: str | None) -> T:
        """What `work` returns; a failure of boto3 in it is raised as what it means."""
        try:
            return work()
        except (BotoCoreError, ClientError, ResponseParserError, ConnectionError) as error:
            place = Place(
                url=self.url if key is None else f"s3://{self.name}/{self.prefix}{key}",
                bucket=self.name,
                endpoint=self.client.meta.endpoint_url,
                whole=key is None,
            )
            raise translated(error, place) from error

    def trying(self, work: Callable[[], T]) -> T:
        """What `work` returns, after as many network faults as the policy allows."""
        return retry.retrying(work, retry=self.policy, say=self.say)


def connect(
    url: str, *, endpoint_url: str | None = None, public: bool = False, say: Progress = silent
) -> Bucket:
    """The bucket, and what is below the prefix, that `s3://bucket/prefix` names; nothing is sent.

    Args:
        url: the bucket and the prefix.
        endpoint_url: the server; None for the user's settings (`AWS_ENDPOINT_URL_S3`), else Amazon's.
        public: where the user has no credentials, requests are not signed: anyone may read some buckets.
        say: told of every try that failed.

    Raises:
        UsageError: the URL names no bucket, or has a prefix that no store can have.
        PrerequisiteError: the user's settings name a profile that there is not.
    """
    name, _, prefix = url.partition("://")[2].partition("/")
    prefix = prefix.strip("/")
    if not _NAME.fullmatch(name) or "?" in prefix:
        raise UsageError(f"{url} names no bucket", tip="write s3://bucket or s3://bucket/prefix")
    if prefix:
        checked(prefix)
    if endpoint_url is not None and urllib.parse.urlsplit(endpoint_url).scheme not in ("http", "https"):
        raise UsageError(
            f"{endpoint_url} is not the address of a server", tip="write --endpoint-url https://host:port"
        )
    place = Place(url=url, bucket=name, endpoint=endpoint_url or "S3")
    try:
        client = _client(endpoint_url, public=public)
    except (BotoCoreError, ValueError) as error:
        raise translated(error, place) from error
    return Bucket(name=name, prefix=f"{prefix}/" if prefix else "", client=client, say=say)


def _client(endpoint_url: str | None, *, public: bool) -> Any:  # noqa: ANN401 - boto3 makes its classes when it runs
    core = botocore.session.Session()
    session = boto3.session.Session(botocore_session=core)
    settings = core.get_scoped_config().get("s3", {})
    style = settings.get("addressing_style") if isinstance(settings, dict) else None
    signature = botocore.UNSIGNED if public and session.get_credentials() is None else None
    client = _with_style(session, endpoint_url, style or "auto", signature)
    # Amazon wants the bucket in the name of the server; elsewhere such a name seldom exists.
    if style is None and ".amazonaws." not in client.meta.endpoint_url:
        client = _with_style(session, endpoint_url, "path", signature)
    return client


def _with_style(
    session: boto3.session.Session, endpoint_url: str | None, style: str, signature: object
) -> Any:  # noqa: ANN401 - see above
    config = Config(
        retries={"total_max_attempts": 1},  # `Bucket.trying` does it, and knows which writes have conditions
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
        max_pool_connections=_CONNECTIONS,
        s3={"addressing_style": style},
        signature_version=signature,
        # boto3's own checksums (since 1.36) travel in a form that other servers refuse. We have our sha256,
        # and Content-MD5 on the way there.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="cairn",
    )
    # Amazon's servers outside of the user's region say where the bucket is; others want any region at all.
    region = session.region_name or os.environ.get("AWS_REGION") or "us-east-1"
    return session.client("s3", endpoint_url=endpoint_url, region_name=region, config=config)
