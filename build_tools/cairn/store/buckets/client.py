"""The client of a bucket: its credentials, also those of a GitHub job, retries, and failures explained."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import requests
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from cairn import concurrency, retry
from cairn.errors import CairnError, NetworkError, PrerequisiteError, UsageError
from cairn.output import Progress, safe_text, silent
from cairn.retry import RetryPolicy
from cairn.store.buckets.errors import Place, translated
from cairn.store.protocol import CredentialsError, valid_key

if TYPE_CHECKING:
    from obstore.store import S3Credential


_AUDIENCE = "sts.amazonaws.com"
_TIMEOUT = 30.0  # seconds
_ANSWER = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration|Code|Message)>([^<]*)<")
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(kw_only=True)
class GitHubRole:
    """Gives obstore the credentials of a role; called again shortly before they expire.

    Attributes:
        role: its ARN.
        token_url: GitHub's server of tokens, as the job has it.
        token: what the job shows there.
        sts_url: Amazon's server of credentials.
        say: told of every try that failed.
        failure: of the last try; obstore hands on its text alone.
    """

    role: str
    token_url: str
    token: str = field(repr=False)
    sts_url: str
    say: Progress = silent
    failure: CairnError | None = None
    config: Mapping[str, str] = field(default_factory=dict)  # obstore looks for settings there

    @classmethod
    def of_job(cls, say: Progress = silent) -> GitHubRole | None:
        """The role that `AWS_ROLE_ARN` names, in a job that may have a token; None elsewhere."""
        role, url, token = (
            os.environ.get(name, "")
            for name in ("AWS_ROLE_ARN", "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN")
        )
        if not (role and url and token):
            return None
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        sts = os.environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws.com"
        return cls(role=role, token_url=url, token=token, sts_url=sts, say=say)

    def __call__(self) -> S3Credential:
        """Fetch credentials.

        Raises:
            CredentialsError: GitHub gives no token, or the role's trust policy does not take it.
            NetworkError: a server does not answer.
        """
        try:
            credentials = retry.retrying(self._fetch, retry=RetryPolicy(), say=self.say)
        except CairnError as error:
            self.failure = error
            raise
        self.failure = None
        return credentials

    def _fetch(self) -> S3Credential:
        try:
            answer = requests.get(
                self.token_url,
                params={"audience": _AUDIENCE},
                headers={"Authorization": f"bearer {self.token}"},
                timeout=_TIMEOUT,
            )
            token = str(_good(answer, "GitHub gives the job no token").json()["value"])
            form = {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": self.role,
                "RoleSessionName": f"cairn-{os.environ.get('GITHUB_RUN_ID', 'job')}",
                "WebIdentityToken": token,
            }
            answer = requests.post(self.sts_url, data=form, timeout=_TIMEOUT)
            fields = dict(_ANSWER.findall(_good(answer, f"{self.role} cannot be taken by this job").text))
            return {
                "access_key_id": fields["AccessKeyId"],
                "secret_access_key": fields["SecretAccessKey"],
                "token": fields["SessionToken"],
                "expires_at": datetime.fromisoformat(fields["Expiration"]),
            }
        except requests.ConnectionError as error:
            raise NetworkError(f"no answer from {error.request.url if error.request else 'STS'}") from None
        except requests.Timeout:
            raise NetworkError("GitHub or STS took too long to give credentials") from None
        except (KeyError, ValueError):
            raise CredentialsError(f"there are no credentials of {self.role} in the answer of STS") from None


def _good(answer: requests.Response, problem: str) -> requests.Response:
    if answer.status_code in _TRANSIENT:
        raise NetworkError(f"{answer.url.partition('?')[0]} answers {answer.status_code}")
    if not answer.ok:
        fields = dict(_ANSWER.findall(answer.text))
        why = f"{answer.status_code} {fields.get('Code', '')} {fields.get('Message', '')}".strip()
        raise CredentialsError(
            f"{problem}: {why}",
            tip="the role's trust policy must name this repository and the job's environment; "
            "the job needs `id-token: write`",
        )
    return answer


T = TypeVar("T")

_CONNECT_TIMEOUT = 10.0  # seconds
_READ_TIMEOUT = 60.0  # seconds without a byte
# While a part is sent nothing comes back: so long may a slow line take for one.
_SEND_TIMEOUT = 900.0
_PART_TRIES = 4  # that obstore makes of each part of a big file by itself

_NAME = re.compile(r"[a-zA-Z0-9.\-_]{1,255}")  # of a bucket; servers allow less, and say so
_ADDRESS = re.compile(r"https?://[^\s/]+(/\S*)?", re.IGNORECASE)  # of a server
_KINDS: Mapping[str, Callable[..., ObjectStore]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_ENDPOINTS = {"s3": "aws_endpoint_url_s3", "gs": "base_url", "az": "endpoint"}  # obstore's settings
_CLOUDS = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure Storage"}
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
# The variables that name credentials themselves. Who has none of them has a profile, a role or nothing.
_KEYS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    "az": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_ID", "AZURE_STORAGE_TOKEN"),
}


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket, or a prefix in one.

    Attributes:
        scheme: whose protocol it speaks: `s3`, `gs` or `az`.
        name: the bucket.
        prefix: what every key in it begins with; empty, or with a slash at the end.
        endpoint: the server, as messages name it.
        settings: of obstore, such as the server and the credentials.
        options: of obstore's HTTP client.
        policy: how often a request is tried again.
        say: told of every try that failed.
        is_away: its server did not answer for as long as `policy` allows. Until it does, no further request
            waits: a step with many of them would wait for hours.
    """

    scheme: str
    name: str
    prefix: str
    endpoint: str
    settings: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Any]
    policy: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=6, wait=0.5, factor=2.0))
    say: Progress = silent
    is_away: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def url(self) -> str:
        """The name by which a user knows it."""
        return f"{self.scheme}://{self.name}/{self.prefix}".rstrip("/")

    @functools.cached_property
    def objects(self) -> ObjectStore:
        """The obstore client, which threads may share; it does not retry."""
        return self._client(self.options, tries=1)

    @functools.cached_property
    def patient(self) -> ObjectStore:
        """The obstore client for big files, which retries each part by itself."""
        return self._client({**self.options, "read_timeout": timedelta(seconds=_SEND_TIMEOUT)}, _PART_TRIES)

    def request(self, work: Callable[[], T], key: str | None) -> T:
        """Call `work`, with retries as the policy allows.

        Args:
            work: sends one request.
            key: what the request is about, for messages; None for no single object.

        Raises:
            NetworkError: the last try failed too.
            StoreError: the server refuses.
        """
        policy = RetryPolicy(attempts=1) if self.is_away.is_set() else self.policy
        try:
            result = retry.retrying(lambda: self.explained(work, key), retry=policy, say=self.say)
        except NetworkError:
            self.is_away.set()
            raise
        except CairnError:
            self.is_away.clear()  # it has answered
            raise
        self.is_away.clear()
        return result

    def explained(self, work: Callable[[], T], key: str | None) -> T:
        """Call `work`, and translate a failure of obstore into our errors."""
        try:
            return _interruptible(work)
        except (BaseError, FileNotFoundError) as error:
            role = self.settings.get("credential_provider")
            if isinstance(role, GitHubRole) and role.failure is not None:
                raise role.failure from None
            place = Place(
                url=self.url if key is None else f"{self.scheme}://{self.name}/{self.prefix}{key}",
                bucket=self.name,
                endpoint=self.endpoint,
                whole=key is None,
            )
            # A traceback shows the cause too, and obstore writes the whole address into it.
            raise translated(error, place) from type(error)(safe_text.mask(str(error)))

    def _client(self, options: Mapping[str, Any], tries: int) -> ObjectStore:
        wait = {"init_backoff": timedelta(seconds=self.policy.wait), "base": self.policy.factor}
        settings = dict(self.settings)
        if self.scheme == "s3":
            settings["region"] = self._region
            settings["virtual_hosted_style_request"] = self._is_virtual
            if _ENDPOINTS["s3"] in settings and self._is_virtual:
                settings[_ENDPOINTS["s3"]] = self._address
        return _KINDS[self.scheme](
            self.name,
            prefix=self.prefix or None,
            client_options=dict(options),
            retry_config={"max_retries": tries - 1, "backoff": wait},
            **settings,
        )

    @functools.cached_property
    def _is_virtual(self) -> bool:
        """Whether the bucket is in the name of the server, and not in the path."""
        if _ENDPOINTS["s3"] in self.settings:
            # Elsewhere than at Amazon, the name of a server with a bucket in it seldom exists.
            return os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() in ("1", "true")
        # A dot in the bucket's name would be one of the server's, which the certificate does not cover.
        return "." not in self.name

    @functools.cached_property
    def _address(self) -> str:
        """The URL of a bucket of S3, at its server."""
        server = self.settings.get(_ENDPOINTS["s3"], f"https://s3.{self._region}.amazonaws.com").rstrip("/")
        if not self._is_virtual:
            return f"{server}/{self.name}"
        scheme, _, host = server.partition("://")
        return server if host.startswith(f"{self.name}.") else f"{scheme}://{self.name}.{host}"

    @functools.cached_property
    def _region(self) -> str:
        """The user's region, or the one that Amazon reports for the bucket; elsewhere any will do."""
        for name in _REGIONS:
            if region := os.environ.get(name):  # CI sets a secret or a variable that is not there to nothing
                return region
        profile = self.settings.get("credential_provider")
        if profile is not None and "region" in profile.config:
            return str(profile.config["region"])
        if _ENDPOINTS["s3"] in self.settings:
            return "us-east-1"
        with contextlib.suppress(requests.RequestException):
            answer = requests.head(f"https://s3.amazonaws.com/{self.name}", timeout=_CONNECT_TIMEOUT)
            return answer.headers.get("x-amz-bucket-region", "us-east-1")
        return "us-east-1"


def _interruptible(work: Callable[[], T]) -> T:
    """Call `work`; Ctrl-C ends the wait for it, which obstore would not notice before an answer."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    concurrency.wait_for([future])
    return future.result()


def connect(
    url: str, *, endpoint_url: str | None = None, public: bool = False, say: Progress = silent
) -> Bucket:
    """Open the bucket and prefix that `s3://bucket/prefix`, `gs://…` or `az://…` names.

    Args:
        url: the bucket and the prefix.
        endpoint_url: the server; None for the user's settings (`AWS_ENDPOINT_URL_S3`), else the cloud's.
        public: where the user has no credentials, requests are not signed: anyone may read some buckets.
        say: told of every try that failed.

    Raises:
        UsageError: the URL names no bucket, or has a prefix that no store can have.
        PrerequisiteError: the user's settings name a profile that there is not.
    """
    scheme, _, rest = url.partition("://")
    scheme, (name, _, prefix) = scheme.lower(), rest.partition("/")
    prefix = prefix.strip("/")
    if not _NAME.fullmatch(name) or "?" in prefix:
        raise UsageError(
            f"{safe_text.mask(url)} names no bucket",
            tip=f"write {scheme}://bucket or {scheme}://bucket/prefix",
        )
    if prefix:
        valid_key(prefix)
    origin = "--endpoint-url"
    for name_of in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if scheme == "s3" else ():
        if endpoint_url is None and (value := os.environ.get(name_of)):
            origin, endpoint_url = name_of, value
    if endpoint_url is not None and not _is_address(endpoint_url):
        raise UsageError(
            f"{_masked(endpoint_url)} is not the address of a server",
            tip=f"correct {origin}: https://host:port",
        )
    settings = _credentials(scheme, public=public, say=say)
    if endpoint_url is not None:
        settings[_ENDPOINTS[scheme]] = endpoint_url
    options: dict[str, Any] = {
        "allow_http": (endpoint_url or "").startswith("http:"),
        "connect_timeout": timedelta(seconds=_CONNECT_TIMEOUT),
        "read_timeout": timedelta(seconds=_READ_TIMEOUT),
        "timeout": timedelta(days=1),  # of a whole file; a line that is silent ends earlier
        "user_agent": "cairn",
    }
    if bundle := os.environ.get("AWS_CA_BUNDLE"):
        options["root_certificate"] = Path(bundle).read_bytes()
    return Bucket(
        scheme=scheme,
        name=name,
        prefix=f"{prefix}/" if prefix else "",
        endpoint=_masked(endpoint_url or "") or _CLOUDS[scheme],
        settings=settings,
        options=options,
        say=say,
    )


def _is_address(text: str) -> bool:
    """Whether obstore can ask a server of this address."""
    with contextlib.suppress(ValueError):  # of a host or a port
        return _ADDRESS.fullmatch(text) is not None and urllib.parse.urlsplit(text).port != 0
    return False


def _masked(address: str) -> str:
    """A server's address without user and password; it may lack a scheme."""
    return re.sub(r"^(\w+://)?.*@", r"\1***@", address)


def _credentials(scheme: str, *, public: bool, say: Progress) -> dict[str, Any]:
    """The obstore settings for credentials that it does not find itself, such as `aws sso login` profiles."""
    if scheme == "s3" and (role := GitHubRole.of_job(say)) is not None:
        return {"credential_provider": role}
    profile = os.environ.get("AWS_PROFILE") if scheme == "s3" else None
    if not profile and any(os.environ.get(name) for name in _KEYS[scheme]):
        return {}
    provider = _of_profile(profile) if scheme == "s3" else None
    if provider is not None:
        return {"credential_provider": provider}
    return {"skip_signature": True} if public else {}


def _of_profile(profile: str | None) -> Any:  # noqa: ANN401 - boto3 has no types
    """Credentials from `~/.aws`; None if there are none, or if boto3 is missing and no profile is named."""
    try:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - 0.3 s, and it need not be there
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if profile is None:
            return None
        raise PrerequisiteError("AWS_PROFILE is read by boto3", tip="pip install boto3") from error
    try:
        return Boto3CredentialProvider()
    except BotoCoreError as error:
        raise PrerequisiteError(str(error), tip="correct AWS_PROFILE, or ~/.aws/config") from error
    except ValueError:
        return None  # the profile has no credentials: a role may give them
