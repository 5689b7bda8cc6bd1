"""What the failures of a bucket mean, and what to do about each.

The codes are those of "Error responses" in Amazon's S3 API reference; other servers use the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from botocore import exceptions as boto

from cairn.errors import CairnError, NetworkError, PrerequisiteError, StoreError
from cairn.output import safe_text
from cairn.store.protocol import MissingKeyError

_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_SHOWN = 300  # characters of a server's own words


class ChangedError(StoreError):
    """A condition (`If-Match`, `If-None-Match`) did not hold."""


class UploadGoneError(StoreError):
    """A multipart upload is not there any more, or has different parts: someone else ended or changed it."""


class PastEndError(StoreError):
    """The part that was asked for begins after the end."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What was asked for, and where.

    Attributes:
        url: of the object.
        bucket: its bucket.
        endpoint: the server.
        whole: it is the bucket, and no object in it.
    """

    url: str
    bucket: str
    endpoint: str
    whole: bool = False


# The server, or what stands before it, could not do it now; of two writes at once, one has to come again.
_TRANSIENT = frozenset(
    {
        *("InternalError", "ServiceUnavailable", "SlowDown", "RequestTimeout", "RequestTimeTooSlow"),
        *("TooManyRequests", "Throttling", "ThrottlingException", "RequestThrottled", "BadDigest"),
        *("IncompleteBody", "ConditionalRequestConflict", "OperationAborted", "ConcurrentModification"),
    }
)
_TRANSIENT_STATUS = frozenset({408, 429, 500, 502, 503, 504})

_CONDITIONS: Mapping[str, tuple[type[StoreError], str]] = {
    "NoSuchKey": (MissingKeyError, "there is no {url}"),
    "PreconditionFailed": (ChangedError, "{url} was changed meanwhile"),
    "NoSuchUpload": (UploadGoneError, "the upload of {url} was ended by someone else"),
    "InvalidPart": (UploadGoneError, "the upload of {url} was changed by someone else"),
    "InvalidPartOrder": (UploadGoneError, "the upload of {url} was changed by someone else"),
    "InvalidRange": (PastEndError, "{url} is shorter than that"),
}
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives them"
)
_REGION = "set AWS_REGION to the region of the bucket, or name its server with --endpoint-url"
_ENDPOINT = "see whether --endpoint-url (or AWS_ENDPOINT_URL_S3) is the address of an S3 server"
_NOT_S3 = "{endpoint} does not do what an S3 server does"
_ELSEWHERE = "the bucket {bucket} is in a different region"
_EXPIRED = "the credentials for {endpoint} have expired"
_REFUSED: Mapping[str, tuple[str, str]] = {
    "NoSuchBucket": (
        "there is no bucket {bucket} at {endpoint}",
        "create it, or correct --store or --endpoint-url",
    ),
    "AccessDenied": (
        "access to {url} is denied",
        "the credentials need s3:ListBucket, GetObject, PutObject and DeleteObject there",
    ),
    "AllAccessDisabled": ("access to {url} is denied", "ask the owner of the bucket"),
    "InvalidAccessKeyId": ("{endpoint} does not know the access key", _CREDENTIALS),
    "SignatureDoesNotMatch": ("{endpoint} refuses the secret key", _CREDENTIALS),
    "ExpiredToken": (_EXPIRED, "sign in again"),
    "TokenRefreshRequired": (_EXPIRED, "sign in again"),
    "InvalidToken": ("{endpoint} refuses the session token", _CREDENTIALS),
    "RequestTimeTooSkewed": (
        "the clock of this machine differs from that of {endpoint} by over 15 minutes",
        "set this machine's clock",
    ),
    "AuthorizationHeaderMalformed": (_ELSEWHERE, _REGION),
    "PermanentRedirect": (_ELSEWHERE, _REGION),
    "IllegalLocationConstraintException": (_ELSEWHERE, _REGION),
    "InvalidBucketName": ("{bucket!r} cannot be the name of a bucket", "correct --store"),
    "QuotaExceeded": ("the quota of {bucket} at {endpoint} is used up", "free some space there"),
    "EntityTooLarge": ("{url} is larger than {endpoint} takes", "ask who runs the server for its limit"),
    "MethodNotAllowed": (_NOT_S3, _ENDPOINT),
    "NotImplemented": (_NOT_S3, _ENDPOINT),
}
_CONNECTION = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError, ConnectionError)
# What a status means where there is no code: an answer to HEAD has no body to hold one.
_BY_STATUS = {404: "NoSuchKey", 412: "PreconditionFailed", 403: "AccessDenied", 416: "InvalidRange"}


def translated(error: Exception, place: Place) -> CairnError:
    """The error that a failure of boto3 means: a `NetworkError` where another try may help."""
    if isinstance(error, boto.ClientError):
        return _of_answer(error, place)
    if isinstance(error, boto.ProfileNotFound):
        return PrerequisiteError(_words(error), tip=_CREDENTIALS)
    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return PrerequisiteError(f"there are no credentials for {place.endpoint}", tip=_CREDENTIALS)
    if isinstance(error, _CONNECTION):
        return _of_connection(error, place)
    tip = "correct --store" if isinstance(error, boto.ParamValidationError) else _ENDPOINT
    return StoreError(f"{place.url}: {_words(error)}", tip=tip)


def _of_connection(error: Exception, place: Place) -> CairnError:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return StoreError(
            f"the certificate of {place.endpoint} is not trusted", tip="name who signed it in AWS_CA_BUNDLE"
        )
    # What of a long text is the system's own word for it, such as "Connection refused".
    reason = str(error.kwargs.get("error", error)) if isinstance(error, boto.BotoCoreError) else str(error)
    return NetworkError(
        f"no answer from {place.endpoint}: {_ERRNO.split(_words(reason))[-1]}",
        tip="check the network, --endpoint-url and the server, then run the same command again",
    )


def _of_answer(error: boto.ClientError, place: Place) -> CairnError:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code == str(status):
        # Of a bucket, any web server may say that it is not there.
        code = "NoSuchBucket" if place.whole and code == "404" else _BY_STATUS.get(status, code)
    if code in _TRANSIENT or status in _TRANSIENT_STATUS:
        return NetworkError(
            f"{place.endpoint} answers {status} {code} for {place.url}",
            tip="the server is busy or ill: run the same command again later",
        )
    words = {"url": place.url, "bucket": place.bucket, "endpoint": place.endpoint}
    if code in _CONDITIONS:
        kind, message = _CONDITIONS[code]
        return kind(message.format(**words))
    if code in _REFUSED:
        message, tip = _REFUSED[code]
        return StoreError(message.format(**words), tip=tip)
    text = str(error.response.get("Error", {}).get("Message", ""))
    return StoreError(
        f"{place.url}: {status} {code} {safe_text.visible(text)[:_SHOWN]}".strip(), tip=_ENDPOINT
    )


def _words(error: object) -> str:
    # Over several lines where botocore shows the beginning of what it could not read.
    return safe_text.mask(safe_text.visible(" ".join(str(error).split())))[:_SHOWN]
