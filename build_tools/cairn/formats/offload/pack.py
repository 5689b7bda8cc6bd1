"""Compressing offload bundles as clang does."""

from __future__ import annotations

import hashlib
import zlib

import zstandard

from cairn.formats.offload import bundle
from cairn.formats.offload.bundle import Packing

# Levels that are tried in order to get the original bytes again: clang's defaults come first (6 of zlib, 3
# of zstd: OffloadBundler.cpp), then others that people ask for. zstd runs with long distance matching, as in
# clang: the code of one target looks much like that of the next.
_LEVELS = {bundle.ZLIB: (6, 9, 1), bundle.ZSTD: (3, 5, 9)}
# Levels for a bundle that must fit where it was although it has other content now, the cheapest first.
_STRONGER = {bundle.ZLIB: (6, 9), bundle.ZSTD: (3, 12, 19, 22)}


def level_of(plain: bytes, packed: bytes, method: int) -> int | None:
    """The level that packs `plain` into exactly `packed`; None where none of the usual ones does."""
    return next((level for level in _LEVELS[method] if _compress(plain, method, level) == packed), None)


def pack(plain: bytes, packing: Packing, *, level: int, digest: bytes) -> bytes:
    """A compressed bundle as it was: at a given level, with the hash that its header had."""
    packed = _compress(plain, packing.method, level)
    return bundle.header(packing, total=packing.header_size + len(packed), digest=digest) + packed


def pack_into(plain: bytes, packing: Packing, *, room: int) -> bytes | None:
    """A compressed bundle of at most `room` bytes; None where it cannot be made so small."""
    # LLVM's hash of the content: the low half of its MD5.
    digest = hashlib.md5(plain, usedforsecurity=False).digest()[:8]
    tries = (pack(plain, packing, level=level, digest=digest) for level in _STRONGER[packing.method])
    return next((made for made in tries if len(made) <= room), None)


def _compress(plain: bytes, method: int, level: int) -> bytes:
    if method == bundle.ZLIB:
        return zlib.compress(plain, level)
    # Level and matching alone, as clang sets them: zstd then chooses all else by the size of the content.
    parameters = zstandard.ZstdCompressionParameters(
        compression_level=level, enable_ldm=True, write_content_size=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(plain)
