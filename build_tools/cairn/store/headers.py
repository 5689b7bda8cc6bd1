"""The HTTP headers of an object, from its key alone: its type, and how long a copy is good."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A digest in the key says that it never stands for other bytes. So whoever has a copy need not ask again:
# a year is what "for ever" is by custom, and `immutable` (RFC 8246) keeps a browser's reload from asking too.
_FOR_EVER = "public, max-age=31536000, immutable"
# What decides, and what a reader acts on: a cache may keep it, but asks before each use (RFC 9111, 5.2.2.4).
_ASK_FIRST = "no-cache"
# What follows from it and installers read. pip asks again in any case (`Cache-Control: max-age=0`, its
# index/collector.py); for others, and for what stands between, a minute is what a change may be late.
_A_MINUTE = "public, max-age=60"

_HAS_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".toml": "application/toml",
    ".txt": "text/plain; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".metadata": "text/plain; charset=utf-8",
    ".provenance": "application/json",  # of PEP 740, or signed by a key: both are JSON
    ".whl": "application/zip",
    ".zip": "application/zip",
    # Not `Content-Encoding: gzip`: a client would unpack it, and its hash would be of something else.
    ".gz": "application/gzip",
}
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"  # PEP 691
_OTHER = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class Headers:
    """The headers of an object.

    Attributes:
        content_type: `Content-Type`.
        cache_control: `Cache-Control`.
    """

    content_type: str
    cache_control: str


def headers(key: str) -> Headers:
    """The headers of the object under `key`."""
    name = key.rpartition("/")[2]
    kind = _TYPES.get(name[name.rfind(".") :] if "." in name else "", _OTHER)
    if name == "index.json" and "simple" in key.split("/"):
        kind = _SIMPLE_JSON
    if _HAS_DIGEST.search(key):
        return Headers(content_type=kind, cache_control=_FOR_EVER)
    return Headers(content_type=kind, cache_control=_ASK_FIRST if name == "state.json" else _A_MINUTE)
