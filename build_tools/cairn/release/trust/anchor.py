"""The root that this machine trusts for a store, and what it remembers of that store.

A root is named by its fingerprint, the sha256 of `metadata/1.root.json`, or by a copy of a root. Where
neither is given, the first root that a machine meets at an address is the one it goes on asking for there, as
SSH does with hosts. What was seen is remembered by the root, not by the address: a mirror cannot bring back
what the original has already replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import re
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from cairn import files
from cairn.errors import UsageError
from cairn.release.trust.metadata import SOON, MetadataError, Root, expired, key_of, opened
from cairn.store import opening
from cairn.store.protocol import MissingKeyError, Reader, Store, attempts_at, read_or_none

VARIABLE = "CAIRN_ROOT"
"""Names the root where no option does."""

MEMORY = "CAIRN_TRUST_STORE"
"""Names the store, not the one that is signed, in which machines that sign remember together what they have
seen; without it, each does so in its own cache."""

_FINGERPRINT = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_PORTS = {"http": ":80", "https": ":443"}
_MOST_ROOTS = 256  # as python-tuf's client has it
_GIVEN: ContextVar[str | None] = ContextVar("root", default=None)
_SIGNER: ContextVar[Path | None] = ContextVar("sign_key", default=None)


class Seen(NamedTuple):
    """The versions of the timestamp and of the snapshot that it leads to: neither ever goes back."""

    timestamp: int
    snapshot: int

    def __str__(self) -> str:
        return f"{self.timestamp}.{self.snapshot}"


def seen_of(text: str) -> Seen:
    """The versions in `41.17`.

    Raises:
        ValueError: it is something else.
    """
    timestamp, _, snapshot = text.strip().partition(".")
    return Seen(int(timestamp), int(snapshot or 0))


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A trusted root.

    Attributes:
        folder: where this machine remembers what it has seen signed under the root.
        first: the bytes of the root that trust begins with.
        root: the newest that follows from it.
        is_new: nobody named it, and this machine meets it for the first time.
    """

    folder: Path
    first: bytes
    root: Root
    is_new: bool = False

    @property
    def fingerprint(self) -> str:
        """How the first root is named."""
        return fingerprint(self.first)

    def history(self, version: int) -> Path:
        """Where a root that follows the first is kept once it was verified."""
        return _history(self.folder, version)

    def seen(self) -> Seen | None:
        """The highest versions that were seen here; None where the store never was."""
        blob = read_or_none(*self._memory())
        return seen_of(blob.data.decode()) if blob else None

    def remember(self, version: Seen) -> None:
        """Note that these versions were seen, or higher ones; 0 where nothing is signed yet."""
        store, key = self._memory()
        for _ in attempts_at(key):
            old = read_or_none(store, key)
            before = seen_of(old.data.decode()) if old else None
            new = Seen(*map(max, before, version)) if before else version
            if new == before or store.write_if(key, str(new).encode(), etag=old.etag if old else None):
                return

    def _memory(self) -> tuple[Store, str]:
        url = os.environ.get(MEMORY) or str(self.folder.parent)
        return opening.open_store(url), f"{self.folder.name}/written"


def fingerprint(root: bytes) -> str:
    """The name of a root, to be published where users know it is the releaser's."""
    return f"sha256:{hashlib.sha256(root).hexdigest()}"


def beginning(first: bytes, root: Root) -> Anchor:
    """Trust that begins with a root, which no store need have yet."""
    return Anchor(folder=_memory() / hashlib.sha256(first).hexdigest(), first=first, root=root)


def version_of(root: bytes) -> int:
    """The version that a root says it is."""
    return opened(root, Root, {}, name="the root", threshold=0).version


@contextlib.contextmanager
def acting(*, root: str | None = None, key: Path | None = None) -> Iterator[None]:
    """Have `anchor` ask for this root, a fingerprint or a file, and promoters sign with this private key.

    Both hold until the block ends, for the thread that began it; what is not given stays as it is.
    """
    root_before, key_before = _GIVEN.set(root or _GIVEN.get()), _SIGNER.set(key or _SIGNER.get())
    try:
        yield
    finally:
        _GIVEN.reset(root_before)
        _SIGNER.reset(key_before)


def sign_key() -> Path | None:
    """The private key that promoters sign with; None for that of the environment."""
    return _SIGNER.get()


def anchor(reader: Reader) -> Anchor | None:
    """The root to trust for a store, with all that follow from it; None for a store without one.

    Raises:
        UsageError: what was given names no root.
        MetadataError: the store has another root, has lost its own, or one that nobody may have signed.
    """
    text = _GIVEN.get() or os.environ.get(VARIABLE)
    spelling = _spelling(reader.url).encode(errors="surrogatepass")
    memory_file = _memory() / "known" / hashlib.sha256(spelling).hexdigest()
    before = files.text_or_empty(memory_file).strip()
    if not (root_id := text or before):
        try:
            root_id = fingerprint(reader.read(key_of("root", 1)).data)
        except MissingKeyError:
            return None
    folder, first = _named_root(reader, root_id)
    if fingerprint(first) != before:
        if before and fingerprint(actual := _first(reader)) != fingerprint(first):
            raise _differs(reader, actual, fingerprint(first))
        files.write_text(memory_file, f"{fingerprint(first)}\n")
    is_new = not (text or before)
    root = _newest(reader, folder, first)
    return Anchor(folder=folder, first=first, root=root, is_new=is_new)


def _spelling(url: str) -> str:
    """Return a store's address as it is remembered: else a link to its folder would have no known root."""
    if Path(url).is_absolute():
        return str(Path(url).resolve())
    scheme, separator, rest = url.partition("://")
    if scheme.lower() not in _PORTS:
        return url
    host, _, path = rest.partition("/")
    host = host.rpartition("@")[2].lower().removesuffix(_PORTS[scheme.lower()]).removesuffix(".")
    path = posixpath.normpath(f"/{unquote(path)}".replace("//", "/")).removesuffix("/")
    return f"{scheme.lower()}{separator}{host}{path}"


def warning(reader: Reader) -> str | None:
    """That the root of a store counts no more soon, and what to type; None where that is far, or none is."""
    trusted = anchor(reader)
    if trusted is None or not expired(trusted.root, SOON):
        return None
    until, needed = trusted.root.expires[:10], trusted.root.roles["root"].threshold
    return (
        f"the root of {reader.url} counts until {until}, and no client takes the store after that: {needed} "
        f"of its keys sign the next one, by cairn trust change --store {reader.url} --root-key FILE"
    )


def _named_root(reader: Reader, text: str) -> tuple[Path, bytes]:
    """The folder and the bytes of the root with this name."""
    match = _FINGERPRINT.fullmatch(text.lower())
    if match is None:
        try:
            first = files.expanded(text).read_bytes()
        except OSError as error:
            tip = "give the fingerprint (sha256:…) or a copy of the releaser's root.json"
            raise UsageError(f"{text} names no root: {error.strerror}", tip=tip) from error
        folder = _memory() / hashlib.sha256(first).hexdigest()
    else:
        folder = _memory() / match[1]
        path = folder / "first.json"
        first = path.read_bytes() if path.is_file() else _first(reader)
        if hashlib.sha256(first).hexdigest() != match[1]:
            raise _differs(reader, first, f"sha256:{match[1]}")
    if not (folder / "first.json").is_file():
        files.write_bytes(folder / "first.json", first)
    return folder, first


def _differs(reader: Reader, first: bytes, expected: str) -> MetadataError:
    return MetadataError(
        f"{reader.url} has the root {fingerprint(first)}, not {expected}",
        tip="do not install from there; where whoever releases says that it has a new root: --root",
    )


def _first(reader: Reader) -> bytes:
    try:
        return reader.read(key_of("root", 1)).data
    except MissingKeyError as error:
        raise MetadataError(
            f"{reader.url} is not signed any more: it has no {key_of('root', 1)}",
            tip="restore metadata/ from a copy of the store; do not install from it",
        ) from error


def _newest(reader: Reader, folder: Path, first: bytes) -> Root:
    """The newest root, each signed by enough keys of the one before it, and of its own."""
    root = opened(first, Root, {}, name="the root", threshold=0)
    _follow(root, first, f"version {root.version} of the root")
    for version in range(root.version + 1, root.version + _MOST_ROOTS):
        path = _history(folder, version)
        if path.is_file():  # verified before it was kept
            root = opened(path.read_bytes(), Root, {}, name=str(path), threshold=0)
            continue
        try:
            data = reader.read(key_of("root", version)).data
        except MissingKeyError:
            break
        name = f"{reader.url}/{key_of('root', version)}"
        root = _follow(root, data, name)
        if root.version != version:
            raise MetadataError(f"{name} is version {root.version}")
        files.write_bytes(path, data)
    return root


def _history(folder: Path, version: int) -> Path:
    return folder / "root_history" / f"{version}.root.json"  # where python-tuf keeps them, too


def _follow(root: Root, data: bytes, name: str) -> Root:
    new = opened(data, Root, root.of("root"), name=name, threshold=max(1, root.roles["root"].threshold))
    root_role = new.roles["root"]
    return opened(data, Root, new.of("root"), name=name, threshold=max(1, root_role.threshold))


def _memory() -> Path:
    return files.cache_dir() / "trust"
