"""Open a store by its name on the command line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cairn import extras, files
from cairn.errors import PrerequisiteError, StoreError, UsageError
from cairn.output import Progress, safe_text, silent
from cairn.retry import RetryPolicy
from cairn.store.folder import LocalStore
from cairn.store.protocol import Store

_BUCKETS = ("s3", "gs", "az")  # schemes: Amazon's and all that speak its protocol, Google's, Azure's


def open_store(
    url: str,
    *,
    endpoint_url: str | None = None,
    retry: RetryPolicy | None = None,
    public: bool = False,
    say: Progress = silent,
) -> Store:
    """Open the store that a user names: a path, `file://…`, or `s3://`, `gs://` or `az://bucket/prefix`.

    Args:
        url: its name.
        endpoint_url: the server of a bucket; None for the user's settings, else Amazon's.
        retry: how often a request to a bucket is tried again; None for as often as publishing wants.
        public: send requests to a bucket unsigned where the user has no credentials: anyone may read some.
        say: told of requests that are tried again.

    Raises:
        UsageError: it is a file, names no folder and no bucket, or has a different scheme.
        PrerequisiteError: obstore is not installed, or the user's settings are wrong.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower() if separator else ""
    if not separator and url.lower().startswith(("s3:", "gs:", "az:", "file:")):
        # It would be a folder called `s3:`.
        raise UsageError(f"{url} names no store", tip="write s3://bucket/prefix, file:///… or a path")
    if scheme in _BUCKETS:
        return _bucket(url, endpoint_url, retry, public=public, say=say)
    if endpoint_url is not None:
        raise UsageError(
            f"--endpoint-url is for a bucket, and {url} is none",
            tip="leave it out, or name s3://bucket/prefix",
        )
    if scheme == "file":
        host, _, path = rest.partition("/")
        if host.lower() not in ("", "localhost") or not path:
            # `file://store` has a host and no path: it would be the current folder.
            raise UsageError(f"{url} names no folder", tip="write file:///… with three slashes, or a path")
        from urllib.request import url2pathname  # noqa: PLC0415 - it loads HTTP and TLS

        return _folder(Path(url2pathname(f"/{path}")))
    if scheme:
        raise UsageError(
            f"{safe_text.mask(url)} names no store: {scheme}:// is none",
            tip="write a path, file:///…, s3://bucket/prefix, gs:// or az://",
        )
    return _folder(files.expanded(url))


def open_existing(
    url: str,
    *,
    endpoint_url: str | None = None,
    retry: RetryPolicy | None = None,
    say: Progress = silent,
) -> Store:
    """Like `open_store`, for commands that need a store with something in it.

    Raises:
        StoreError: there is no such folder or bucket, or nothing in it.
    """
    store = open_store(url, endpoint_url=endpoint_url, retry=retry, say=say)
    exists = store.path.is_dir() if isinstance(store, LocalStore) else any(True for _ in store.list(""))
    if not exists:
        raise _nothing_at(url)
    return store


def open_folder(url: str) -> LocalStore:
    """Like `open_existing`, for commands that need a folder.

    Raises:
        UsageError: it is a bucket.
    """
    store = open_store(url)
    if not isinstance(store, LocalStore):
        raise UsageError(f"{url} is a bucket, and this needs a folder", tip="copy it into a folder first")
    if not store.path.is_dir():
        raise _nothing_at(url)
    return store


def _nothing_at(url: str) -> StoreError:
    return StoreError(
        f"there is no store at {url}", tip="publish into it first: cairn index publish --store …"
    )


def _folder(path: Path) -> LocalStore:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not the folder of a store", tip="name a folder with --store")
    return LocalStore(path)


def _bucket(
    url: str, endpoint_url: str | None, retry: RetryPolicy | None, *, public: bool, say: Progress
) -> Store:
    try:
        # Loaded here because an extra of ours has to be there.
        from cairn.store.buckets import bucket, client  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in ("obstore", "requests"):
            raise
        raise PrerequisiteError(f"{url}: a bucket needs obstore", tip=extras.line("s3")) from error
    place = client.connect(url, endpoint_url=endpoint_url, public=public, say=say)
    return bucket.BucketStore(place if retry is None else dataclasses.replace(place, policy=retry))
