from __future__ import annotations

import pytest

from cairn.store.protocol import headers

DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("key", "content_type"),
    [
        (f"files/01/{DIGEST}/torch-1.0+x-py3-none-any.whl", "application/zip"),
        (f"files/01/{DIGEST}/torch-1.0+x-py3-none-any.whl.metadata", "text/plain; charset=utf-8"),
        (f"files/01/{DIGEST}/rocm-7.0.tar.gz", "application/gzip"),
        ("release/simple/torch/index.html", "text/html; charset=utf-8"),
        ("release/simple/torch/index.json", "application/vnd.pypi.simple.v1+json"),
        ("release/state.json", "application/json"),
        ("release/locks/pylock.toml", "application/toml"),
        ("none", "application/octet-stream"),
    ],
)
def test_the_type_follows_from_the_name(key: str, content_type: str) -> None:
    assert headers(key).content_type == content_type


@pytest.mark.parametrize(
    ("key", "cache_control"),
    [
        (f"files/01/{DIGEST}/a.whl", "public, max-age=31536000, immutable"),
        (f"release/generations/00000012-{DIGEST}.json", "public, max-age=31536000, immutable"),
        (f"sets/{DIGEST}/simple/index.html", "public, max-age=31536000, immutable"),
        (f"release/parts/{DIGEST}0.json", "public, max-age=60"),  # no digest has 65 digits
        ("release/simple/torch/index.html", "public, max-age=60"),
        ("release/status.html", "public, max-age=60"),
        ("release/gfx110X-all/state.json", "no-cache"),
    ],
)
def test_what_has_its_digest_in_its_key_is_kept_for_ever(key: str, cache_control: str) -> None:
    assert headers(key).cache_control == cache_control
