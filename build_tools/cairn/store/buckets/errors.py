"""The failures of a bucket: their meaning, and what to do about each.

obstore tells in the text of an exception what a server has answered. The codes in it are those of "Error
responses" in Amazon's S3 API reference; other servers of its protocol, and Google's, use the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from cairn.errors import CairnError, NetworkError, PrerequisiteError, StoreError
from cairn.output import safe_text
from cairn.store.protocol import CredentialsError, MissingKeyError

_DEBUG = "\n\nDebug source:"  # what obstore writes between the text of an error and all that it is made of
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
# The system's own word for what failed, such as "Connection refused", in what an error is made of.
_REASON = re.compile(r'(?:message|error): "([^"]+)"')
_CERTIFICATE = re.compile(r"InvalidCertificate|UnknownIssuer")
# A machine in a cloud has its credentials at these servers: who has none elsewhere is looked up there.
# Azure's come with the name of an account.
_WITHOUT_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "Account must be specified")
_SHOWN = 300  # characters of a server's own words


class ChangedError(StoreError):
    """A condition (`If-Match`, `If-None-Match`) did not hold."""


class PastEndError(StoreError):
    """The part that was asked for begins after the end."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The object of a request, and its server.

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
_TRANSIENT_STATUS = frozenset({"408", "429", "500", "502", "503", "504"})

_CONDITIONS: Mapping[str, tuple[type[StoreError], str]] = {
    "NoSuchKey": (MissingKeyError, "there is no {url}"),
    "BlobNotFound": (MissingKeyError, "there is no {url}"),
    "PreconditionFailed": (ChangedError, "{url} was changed meanwhile"),
    "ConditionNotMet": (ChangedError, "{url} was changed meanwhile"),  # Azure's, of If-Match
    "BlobAlreadyExists": (ChangedError, "{url} is there already"),  # and of If-None-Match
    # As when the reply that it is complete was lost: whoever sent it looks for the object.
    "NoSuchUpload": (ChangedError, "the upload of {url} was ended by someone else"),
    "InvalidRange": (PastEndError, "{url} is shorter than that"),
}
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives them; "
    "for gs:// GOOGLE_SERVICE_ACCOUNT, for az:// AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
)
_REGION = "set AWS_REGION to the region of the bucket, or name its server with --endpoint-url"
_ENDPOINT = "see whether --endpoint-url (or AWS_ENDPOINT_URL_S3) is the address of a server of buckets"
_NOT_S3 = "{endpoint} does not do what a server of buckets does"
_ELSEWHERE = "the bucket {bucket} is in a different region"
_NO_BUCKET = ("there is no bucket {bucket} at {endpoint}", "create it, or correct --store or --endpoint-url")
_EXPIRED = "the credentials for {endpoint} have expired"
_AGAIN = "sign in again; a job of GitHub gets new ones when it is run again"
_DENIED = (
    "access to {url} is denied",
    "the credentials need s3:ListBucket, GetObject, PutObject and DeleteObject there, or their like",
)
_REFUSED: Mapping[str, tuple[str, str]] = {
    "NoSuchBucket": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET,
    "AccessDenied": _DENIED,
    "AuthorizationFailure": _DENIED,
    "AuthorizationPermissionMismatch": _DENIED,
    "AuthenticationFailed": ("{endpoint} refuses the key of the account", _CREDENTIALS),
    "AllAccessDisabled": ("access to {url} is denied", "ask the owner of the bucket"),
    "InvalidAccessKeyId": ("{endpoint} does not know the access key", _CREDENTIALS),
    "SignatureDoesNotMatch": ("{endpoint} refuses the secret key", _CREDENTIALS),
    "ExpiredToken": (_EXPIRED, _AGAIN),
    "TokenRefreshRequired": (_EXPIRED, _AGAIN),
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
_NO_CREDENTIALS = frozenset(
    {"ExpiredToken", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
# What a status means where there is no code: an answer to HEAD has no body to hold one.
_BY_STATUS = {
    "301": "PermanentRedirect",
    "401": "AccessDenied",
    "403": "AccessDenied",
    "404": "NoSuchKey",
    "405": "MethodNotAllowed",
    "409": "ConditionalRequestConflict",
    "412": "PreconditionFailed",
    "416": "InvalidRange",
}


def translated(error: Exception, place: Place) -> CairnError:
    """Translate a failure of obstore; a `NetworkError` means that a retry may help."""
    text, _, source = str(error).partition(_DEBUG)
    if isinstance(error, FileNotFoundError) and not _CODE.search(text) and not place.whole:
        return MissingKeyError(f"there is no {place.url}")  # such as Azure's answer to a delete
    if any(sign in text for sign in _WITHOUT_CREDENTIALS):
        return PrerequisiteError(f"there are no credentials for {place.endpoint}", tip=_CREDENTIALS)
    if _STATUS.search(text) or _CODE.search(text):
        return _of_answer(text, place)
    return _without_answer(text, source, place)


def _without_answer(text: str, source: str, place: Place) -> CairnError:
    if _CERTIFICATE.search(source):
        return StoreError(
            f"the certificate of {place.endpoint} is not trusted", tip="name who signed it in AWS_CA_BUNDLE"
        )
    if "HTTP error" in text:
        return NetworkError(
            f"no answer from {place.endpoint}: {_in_one_line(_first(_REASON, source) or text)}",
            tip="check the network, --endpoint-url and the server, then run the same command again",
        )
    if "redirect" in text:
        return _refusal("PermanentRedirect", place)
    if "Wanted range starting at" in text:  # obstore's own words, where a server answers all the same
        return PastEndError(f"{place.url} is shorter than that")
    message = f"{place.url}: {_in_one_line(text)}"
    if "invalid path" in text:
        # A key such as `a//b`, which is never one of ours.
        return StoreError(message, tip="remove that object, which no store can name")
    return StoreError(message, tip=_CREDENTIALS if "credential" in text else _ENDPOINT)


def _of_answer(text: str, place: Place) -> CairnError:
    status, code, message = (_first(pattern, text) for pattern in (_STATUS, _CODE, _MESSAGE))
    if not code:
        # Of a bucket, any web server may say that it is not there.
        code = "NoSuchBucket" if place.whole and status == "404" else _BY_STATUS.get(status, "")
    if code in _TRANSIENT or status in _TRANSIENT_STATUS:
        return NetworkError(
            f"{place.endpoint} answers {status} {code} for {place.url}",
            tip="the server is busy or ill: run the same command again later",
        )
    if code in _CONDITIONS:
        kind, words = _CONDITIONS[code]
        return kind(words.format(url=place.url))
    if code in _REFUSED:
        return _refusal(code, place)
    return StoreError(f"{place.url}: {status} {code} {_in_one_line(message)}".strip(), tip=_ENDPOINT)


def _refusal(code: str, place: Place) -> StoreError:
    message, tip = _REFUSED[code]
    kind = CredentialsError if code in _NO_CREDENTIALS else StoreError
    return kind(message.format(url=place.url, bucket=place.bucket, endpoint=place.endpoint), tip=tip)


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _in_one_line(text: str) -> str:
    return safe_text.mask(safe_text.visible(" ".join(text.split())))[:_SHOWN]
