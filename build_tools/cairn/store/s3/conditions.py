"""Whether a server does what conditional writes ask: one that does not would lose changes in silence.

Older servers, and some gateways in front of other storage, take `If-Match` and `If-None-Match: *` on a write
and pay no attention. So they are tried once for each store; an object that no key can name notes that they
passed.
"""

from __future__ import annotations

import secrets

from cairn.errors import StoreError
from cairn.store.protocol import MissingKeyError
from cairn.store.s3.client import Bucket
from cairn.store.s3.errors import ChangedError
from cairn.store.s3.upload import stat

PASSED = ".conditional-writes"
"""The object that notes it."""

_NEVER = "0" * 32  # the ETag of no object
_TRIALS = ({"IfNoneMatch": "*"}, {"IfMatch": _NEVER})


def require(bucket: Bucket) -> None:
    """See that conditional writes work in a bucket.

    Raises:
        StoreError: they do not.
    """
    if stat(bucket, PASSED) is not None:
        return
    trial = f"{PASSED}.{secrets.token_hex(8)}"
    bucket.ask("put_object", trial, Body=b"1")
    try:
        for condition in _TRIALS:
            if not _refused(bucket, trial, condition):
                header = "If-None-Match" if "IfNoneMatch" in condition else "If-Match"
                server = bucket.client.meta.endpoint_url
                raise StoreError(
                    f"{server} ignores {header}: two writers at once would lose changes",
                    tip="use a server with conditional writes, or a newer version of this one",
                )
    finally:
        bucket.ask("delete_object", trial)
    bucket.ask("put_object", PASSED, Body=b"")


def _refused(bucket: Bucket, trial: str, condition: dict[str, str]) -> bool:
    try:
        bucket.ask("put_object", trial, Body=b"2", **condition)
    except (ChangedError, MissingKeyError):
        return True
    return False
