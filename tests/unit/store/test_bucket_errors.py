from __future__ import annotations

import pytest
from obstore.exceptions import GenericError

from cairn.errors import CairnError, NetworkError, PrerequisiteError, StoreError
from cairn.store.buckets.download import Parts
from cairn.store.buckets.errors import ChangedError, PastEndError, Place, translated
from cairn.store.protocol import CredentialsError, MissingKeyError

PLACE = Place(url="s3://wheels/a", bucket="wheels", endpoint="https://s3.example")


def answer(status: int, code: str, message: str = "") -> Exception:
    """The error of obstore for an answer of a server, without a body where there is no code."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
    return GenericError(
        f"Generic S3 error: Error performing PUT https://s3.example/wheels/a in 3.9ms - "
        f"Server returned non-2xx status code: {status} Whatever: {body}\n\nDebug source:\nGeneric {{}}"
    )


def no_answer(source: str) -> Exception:
    return GenericError(
        "Generic S3 error: Error performing GET https://s3.example/wheels/a in 437µs - "
        f"HTTP error: error sending request\n\nDebug source:\n{source}"
    )


@pytest.mark.parametrize(
    ("error", "kind", "said", "tip"),
    [
        (answer(404, "NoSuchBucket"), StoreError, "there is no bucket wheels at https://s3.ex", "--store"),
        (answer(403, "AccessDenied"), StoreError, "access to s3://wheels/a is denied", "s3:ListBucket"),
        (answer(403, ""), StoreError, "access to s3://wheels/a is denied", "s3:ListBucket"),
        (
            answer(403, "InvalidAccessKeyId"),
            CredentialsError,
            "does not know the access key",
            "AWS_ACCESS_KEY_ID",
        ),
        (
            answer(403, "SignatureDoesNotMatch"),
            CredentialsError,
            "refuses the secret key",
            "AWS_SECRET_ACCESS_KEY",
        ),
        (answer(400, "ExpiredToken"), CredentialsError, "have expired", "sign in again"),
        (answer(403, "RequestTimeTooSkewed"), StoreError, "the clock of this machine differs", "clock"),
        (answer(301, "PermanentRedirect"), StoreError, "in a different region", "AWS_REGION"),
        (answer(405, "MethodNotAllowed"), StoreError, "does not do what a server of", "--endpoint-url"),
        (answer(418, "Teapot", "short\nand stout"), StoreError, "418 Teapot short", "--endpoint-url"),
        (
            GenericError(
                "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 5ms - "
                "Server returned non-2xx status code: 403 Forbidden"
            ),
            PrerequisiteError,
            "no credentials for https://s3",
            "AWS_ACCESS_KEY_ID",
        ),
        (
            no_answer('Os {\n code: 111,\n kind: ConnectionRefused,\n message: "Connection refused",\n}'),
            NetworkError,
            "no answer from https://s3.example: Connection refused",
            "--endpoint-url",
        ),
        (
            no_answer("ConnectError(\n InvalidCertificate(\n UnknownIssuer,\n))"),
            StoreError,
            "the certificate of https://s3.example is not trusted",
            "AWS_CA_BUNDLE",
        ),
        (
            GenericError("Generic S3 error: Received redirect without LOCATION"),
            StoreError,
            "the bucket wheels is in a different region",
            "AWS_REGION",
        ),
    ],
)
def test_what_failed_is_said_in_one_line_with_what_to_do(
    error: Exception, kind: type[CairnError], said: str, tip: str
) -> None:
    found = translated(error, PLACE)
    assert type(found) is kind
    assert said in str(found)
    assert "\n" not in str(found)
    assert tip in (found.tip or "")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "NoSuchKey", MissingKeyError),
        (404, "", MissingKeyError),
        (404, "BlobNotFound", MissingKeyError),
        (412, "PreconditionFailed", ChangedError),
        (412, "", ChangedError),
        (404, "NoSuchUpload", ChangedError),
        (416, "", PastEndError),
        (416, "InvalidRange", PastEndError),
        # What may pass is tried again.
        (500, "InternalError", NetworkError),
        (500, "", NetworkError),
        (502, "", NetworkError),
        (503, "SlowDown", NetworkError),
        (429, "TooManyRequests", NetworkError),
        (400, "RequestTimeout", NetworkError),
        (400, "BadDigest", NetworkError),
        (409, "ConditionalRequestConflict", NetworkError),
        (409, "OperationAborted", NetworkError),
        (200, "InternalError", NetworkError),  # as CompleteMultipartUpload fails
    ],
)
def test_what_a_store_acts_on_has_its_own_error(status: int, code: str, kind: type[CairnError]) -> None:
    assert type(translated(answer(status, code), PLACE)) is kind


def test_a_web_server_that_knows_no_bucket_is_told_from_one_that_lacks_an_object() -> None:
    place = Place(url="s3://wheels", bucket="wheels", endpoint="https://example", whole=True)
    found = translated(answer(404, ""), place)
    assert str(found) == "there is no bucket wheels at https://example"
    assert "--endpoint-url" in (found.tip or "")


@pytest.mark.parametrize(
    ("total", "size"),
    [
        (1, 16 << 20),
        (10_000 * (16 << 20), 16 << 20),
        (10_000 * (16 << 20) + 1, 17 << 20),
        (6 * 10**9, 16 << 20),
        (5 << 40, 525 << 20),
    ],
)
def test_parts_are_large_enough_for_ten_thousand_of_them(total: int, size: int) -> None:
    assert Parts().size_for(total) == size
    assert -(-total // size) <= 10_000
