"""Where objects to verify are read from: a store, an index on the web, or a bundle saved from either.

All of them give the same objects under the same keys. None of them is trusted: each object is checked against
a digest in an object that was checked before, starting from the pointer, which names the generation.
"""

from __future__ import annotations

import contextlib
import io
import re
import urllib.parse
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from cairn import files, web
from cairn.errors import StoreError, UsageError
from cairn.release.index import keys
from cairn.store.folder import LocalStore
from cairn.store.memory import MemoryStore
from cairn.store.protocol import MissingKeyError, Reader, Store, StoredObject, valid_key

_MOST_BYTES = 1 << 28  # of an object that is read whole; a project of 100,000 files has less
_MOST_METADATA = 5_000_000  # as python-tuf has it, which looks at the size once all is there
_TIP = "try again, or check without the network: --bundle"
_SECONDS = 30  # without a byte from a server
_FILE_URL = re.compile(r"(.*)/files/([0-9a-f]{2})/(\2[0-9a-f]{62})/([^/]+)")


class WebReader:
    """A store that a web server serves.

    Attributes:
        url: where its keys begin.
        tip: what to do where it does not answer.
    """

    def __init__(self, url: str, *, tip: str = _TIP) -> None:
        self.url, self.tip = url.rstrip("/"), tip

    def read(self, key: str) -> StoredObject:
        """See `Reader.read`."""
        out, url = io.BytesIO(), f"{self.url}/{urllib.parse.quote(valid_key(key))}"
        most = _MOST_METADATA if key.startswith("metadata/") else _MOST_BYTES
        fetch(url, out=out, most=most, tip=self.tip)
        return StoredObject(data=out.getvalue())


class Recorder:
    """A reader that keeps everything it reads from another reader.

    Attributes:
        objects: what was read, by key.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.objects: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        """The URL of the underlying reader."""
        return self._reader.url

    def read(self, key: str) -> StoredObject:
        """See `Reader.read`."""
        stored = self._reader.read(key)
        self.objects[key] = stored.data
        return stored


def fetch(url: str, *, out: IO[bytes], most: int, tip: str = _TIP) -> None:
    """Write what is at a URL to a file; a server that does not end is not read for ever.

    Raises:
        MissingKeyError: the server answers 404.
        NetworkError: it does not answer, or with an error.
        StoreError: it is larger than so many bytes.
    """
    before = out.tell()
    if not web.read(url, out=out, most=most + 1, timeout=_SECONDS, tip=tip):
        raise MissingKeyError(f"there is no {url}")
    if out.tell() - before > most:
        raise StoreError(f"{url} is larger than what an index has there", tip="do not install from there")


def parse_index_url(url: str) -> tuple[str, str]:
    """Split an `--index-url` into the address of its store and the name of the index.

    Raises:
        UsageError: it is not the address of an index that Cairn wrote.
    """
    plain = url.partition("#")[0].partition("?")[0].rstrip("/")
    if not plain.endswith("/simple"):
        raise UsageError(f"{url} is not an index of Cairn's: it does not end in /simple/")
    for depth in (2, 1):  # a channel and a family, or a channel alone
        base, *parts = plain.removesuffix("/simple").rsplit("/", depth)
        with contextlib.suppress(UsageError):
            return base, keys.checked_index("/".join(parts))
    raise UsageError(f"{url} is not an index of Cairn's: it has no channel before /simple/")


def parse_file_url(url: str) -> tuple[str, str, str] | None:
    """The store's address, and the file's sha256 and name, in a file URL; None for other URLs."""
    match = _FILE_URL.fullmatch(url.partition("#")[0].partition("?")[0])
    return (match[1], match[3], urllib.parse.unquote(match[4])) if match else None


def open_bundle(path: Path) -> Store:
    """Open a bundle that `save_bundle` wrote, packed or unpacked: a store of a few objects.

    Raises:
        UsageError: it is not a bundle.
    """
    if path.is_dir():
        return LocalStore(path)
    objects: dict[str, bytes] = {}
    left = _MOST_BYTES
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if keys.kind_of(member.filename) is None or member.filename in objects:
                    raise UsageError(f"{path} is not a bundle: it holds {member.filename[:200]!r}")
                left -= member.file_size
                if left < 0:
                    raise UsageError(f"{path} is not a bundle: {member.filename[:200]!r} is too large")
                with archive.open(member) as stream:
                    objects[member.filename] = stream.read(_MOST_BYTES)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise UsageError(f"{path} is not a bundle: {error}") from error
    return MemoryStore(objects, url=str(path))


def save_bundle(path: Path, objects: Mapping[str, bytes]) -> None:
    """Write the objects that a check has read to a ZIP file, so that they can be checked again elsewhere."""
    with files.writing_beside(path) as part, zipfile.ZipFile(part, "w") as archive:
        for key in sorted(objects):
            # With a time of its own, as `ZipInfo` has it, the same objects make the same bundle.
            archive.writestr(zipfile.ZipInfo(key), objects[key], zipfile.ZIP_DEFLATED)


def index_of_bundle(bundle: Store) -> str:
    """The one index in a bundle, if that is a release.

    Whoever made the bundle chose what is in it, and what is signed for staging was neither tested nor judged:
    a user who wants that says so.

    Raises:
        UsageError: it is of none, of several, or not of a release.
    """
    names = [name for name in keys.possible_indexes() if bundle.exists(keys.state_key(name))]
    if len(names) == 1 and names[0].partition("/")[0] == "release":
        return names[0]
    tip = (
        f"say which: --index {' or '.join(names)}" if names else "save one: cairn index verify --save-bundle"
    )
    raise UsageError(f"{bundle.url} is a bundle of {', '.join(names) or 'no index'}", tip=tip)
