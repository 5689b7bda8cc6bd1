"""A file read at any place, by several threads at once."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cairn.formats.errors import NotAnArchiveError, TruncatedArchiveError

CHUNK = 1 << 18


class RawFile:
    """An open file whose reads name their place, so that no position is shared."""

    def __init__(self, path: Path) -> None:
        try:
            # Opening a pipe waits for a writer unless told not to: O_NONBLOCK, which Windows does not have.
            self._file: BinaryIO = open(  # noqa: SIM115
                path,
                "rb",
                buffering=0,
                opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)),
            )
        except OSError as error:
            raise NotAnArchiveError(f"cannot read {path}: {error.strerror}") from error
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise NotAnArchiveError(f"cannot read {path}: not a file")
        self.path = path
        self.size = status.st_size
        self._lock = threading.Lock()

    def at(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`.

        Raises:
            TruncatedArchiveError: the file has fewer.
        """
        data = self._read_once(offset, size) if 0 <= offset <= self.size - size else b""
        # A read may end early at any time (read(2)); nothing at all means that the file was cut off since.
        while 0 < len(data) < size and (part := self._read_once(offset + len(data), size - len(data))):
            data += part
        if len(data) != size:
            raise TruncatedArchiveError(
                f"{self.path.name} ends at byte {self.size}, before what its headers promise",
                tip="the file was cut off: fetch or build it again",
            )
        return data

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """The same in pieces of at most 256 KiB."""
        end = offset + size
        while offset < end:
            piece = self.at(offset, min(CHUNK, end - offset))
            yield piece
            offset += len(piece)

    def fileno(self) -> int:
        """The file descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_once(self, offset: int, size: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), size, offset)
        with self._lock:  # Windows has no pread
            self._file.seek(offset)
            return self._file.read(size) or b""
