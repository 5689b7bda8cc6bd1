"""Inflating and deflating streams: by isal where it is installed, else zlib-ng, else the standard library.

What is deflated is the same on every machine that has the same one of them.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

PIECE = 1 << 20
"""Bytes that one worker deflates at a time; fixed, so that the result does not depend on the machine."""

_OUT = 1 << 18
_WINDOW = 1 << 15  # how far back deflate can refer (RFC 1951, section 2)
_RAW = -15  # a window of 2**15 bytes, and no zlib header: what ZIP stores
_PIECES_WITHOUT_THREADS = 2  # pieces that are deflated sooner than threads are started


def _fastest() -> tuple[Any, int]:
    """The module that deflates fastest, and the level to use it at."""
    for name, level in (("isal.isal_zlib", 2), ("zlib_ng.zlib_ng", 6)):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name), level
    return zlib, 6


_fast, _LEVEL = _fastest()
InflateError = (zlib.error, getattr(_fast, "error", zlib.error))


def engine() -> str:
    """The compressor, such as `isal 1.7.2`; another one writes other bytes for the same content."""
    if _fast is zlib:
        return f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
    # Loaded here because it takes longer than to read a wheel's headers.
    from importlib.metadata import version  # noqa: PLC0415

    package = _fast.__name__.partition(".")[0]
    return f"{package} {version(package)}"


def crc32(data: bytes, value: int = 0) -> int:
    """The running CRC-32."""
    return int(_fast.crc32(data, value))


def inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Unpack raw deflate data in pieces of at most 256 KiB.

    Raises:
        EOFError: the data ends before the stream does.
        ValueError: there are bytes after the end of the stream.
        InflateError: the data is broken.
    """
    stream: Any = _fast.decompressobj(_RAW)
    for chunk in chunks:
        data = chunk
        while data and not stream.eof:
            yield stream.decompress(data, _OUT)
            data = stream.unconsumed_tail
        if stream.unused_data or (data and stream.eof):
            raise ValueError("bytes after the end of the deflate stream")
    while not stream.eof:
        rest = stream.decompress(b"", _OUT)
        if not rest and not stream.eof:
            raise EOFError
        yield rest


def inflate_at_once(data: bytes, size: int) -> bytes | None:
    """Unpack a small stream of `size` bytes; None where it is broken, or of a different length."""
    stream: Any = _fast.decompressobj(_RAW)
    try:
        whole: bytes = stream.decompress(data, size + 1)
    except InflateError:
        return None
    return whole if stream.eof and not stream.unused_data and len(whole) == size else None


def deflate(pieces: Iterable[bytes], *, workers: int | None = None) -> Iterator[bytes]:
    """Pack pieces (each of PIECE bytes but the last) into one raw deflate stream, on all cores.

    Every piece is packed apart, with the 32 KiB before it as dictionary, and ends on a byte boundary, so
    that the results can stand one after the other: the way of pigz.
    """
    iterator = iter(pieces)
    head = list(itertools.islice(iterator, _PIECES_WITHOUT_THREADS + 1)) or [b""]
    parts = _with_windows(itertools.chain(head, iterator))
    if len(head) <= _PIECES_WITHOUT_THREADS:
        for piece, window, last in parts:
            yield _packed(piece, window, last=last)
    else:
        yield from _on_all_cores(parts, workers or os.cpu_count() or 1)


def _on_all_cores(parts: Iterable[tuple[bytes, bytes, bool]], count: int) -> Iterator[bytes]:
    # Loaded here because most edits change a few small files, and it costs more than they do.
    from concurrent.futures import Future, ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(count) as pool:
        waiting: deque[Future[bytes]] = deque()
        for piece, window, last in parts:
            waiting.append(pool.submit(_packed, piece, window, last=last))
            if len(waiting) > 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _packed(piece: bytes, window: bytes, *, last: bool) -> bytes:
    if window:
        stream: Any = _fast.compressobj(_LEVEL, zlib.DEFLATED, _RAW, 8, zlib.Z_DEFAULT_STRATEGY, window)
    else:
        stream = _fast.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    # Z_SYNC_FLUSH ends with an empty stored block, which fills the last byte; Z_FINISH sets the final bit.
    return bytes(stream.compress(piece) + stream.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH))


def _with_windows(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bytes, bool]]:
    window = b""
    iterator = iter(pieces)
    current = next(iterator)
    for following in iterator:
        yield current, window, False
        window = current[-_WINDOW:]
        current = following
    yield current, window, True
