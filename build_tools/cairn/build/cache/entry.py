"""The contents of a cache of wheels, in any store, and the names of its objects.

    entries/<key[:2]>/<key>.json                    what is known of a build, written last
    files/<sha256[:2]>/<sha256>/<wheel file name>   its wheel, which several entries may name
    files/<sha256[:2]>/<sha256>/build.log           its log

An entry is valid only with the files that it names, undamaged; a reader that finds others removes it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from cairn import datafile
from cairn.errors import StoreError, UsageError, WheelError
from cairn.output.wording import short_id
from cairn.store.protocol import Store
from cairn.wheels.metadata import wheel_info

ENTRIES = "entries/"
"""What the keys of all entries begin with."""
FILES = "files/"
"""What the keys of all wheels and logs begin with."""

_FORMAT = "3"  # part of every key: raise it when a build of the same inputs gives a different wheel
_DIGEST = re.compile(r"[0-9a-f]{64}")


class DamagedEntryError(StoreError):
    """An entry of a cache was changed since it was written, or must not be used."""


class CacheEntry(datafile.Value, tag_field="schema", tag="cairn.cache-entry/2", omit_defaults=True):
    """The record of one build in a cache.

    Attributes:
        key: of its inputs (`key_of`).
        first_key: the key it was first built under, by which builds against it know it.
        project: name of what was built; empty where the builder said none.
        file_name: of the wheel.
        sha256: of the wheel.
        size: of the wheel, in bytes.
        log_sha256: of the log; None where none was kept.
        log_size: of the log, in bytes.
        seconds: what the build took.
        built: when it ended, in UTC, such as `2026-11-22T04:30:00Z`.
        builder: who says so: the version of Cairn and, under CI, the address of the run.
        inputs: what the key is a digest of, for `cairn build --explain`; empty where none were said.
        signed: who put it into a shared store says so, for a `Vouch`; empty where nobody signs.
    """

    key: str
    first_key: str = msgspec.field(name="identity")
    project: str = ""
    file_name: str
    sha256: str
    size: int
    log_sha256: str | None = None
    log_size: int = 0
    seconds: float
    built: str
    builder: str = ""
    inputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    signed: str = ""

    @property
    def name(self) -> str:
        """The name to show."""
        return self.project or self.file_name

    def wheel_key(self) -> str:
        """The store key of the wheel."""
        return _file_key(self.sha256, self.file_name)

    def log_key(self) -> str | None:
        """The store key of the log; None without a log."""
        return None if self.log_sha256 is None else _file_key(self.log_sha256, "build.log")

    def file_keys(self) -> tuple[str, ...]:
        """The store keys of all files that the entry names."""
        log = self.log_key()
        return (self.wheel_key(),) if log is None else (self.wheel_key(), log)


class Vouch(Protocol):
    """Who may put wheels into a shared store, to which others may be able to write, too.

    Attributes:
        signs: this machine may.
        name: of all who may, and no others.
    """

    signs: bool

    @property
    def name(self) -> str:
        """See above."""

    def sign(self, entry: CacheEntry) -> str:
        """Return what `CacheEntry.signed` has of the key, the name and the sha256 of its wheel."""

    def check(self, entry: CacheEntry) -> None:
        """Raise `DamagedEntryError` for an entry that nobody signed who may."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that is in the local folder of a cache, with the bytes that were put there.

    Attributes:
        wheel: its file; never to be changed.
        origin: `built` by this run, found in the `local` folder, or fetched from the `shared` store.
        entry: what the cache knows of it: its sha256, what its build took, the key it was first built under.
    """

    wheel: Path
    origin: Literal["built", "local", "shared"]
    entry: CacheEntry


def key_of(inputs: Mapping[str, object]) -> str:
    """Return the key of a build: a sha256 over everything that may change the wheel, as canonical JSON."""
    text = json.dumps({"format": _FORMAT, **inputs}, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def entry_key(key: str) -> str:
    """Return the store key of a build's entry."""
    return f"{ENTRIES}{key[:2]}/{key}.json"


def dumps(entry: CacheEntry) -> bytes:
    """Serialize an entry."""
    # In ASCII: an input may be a file name that is not UTF-8, which has no other form in JSON.
    return json.dumps(datafile.to_plain(entry), indent=1, ensure_ascii=True).encode()


def read(store: Store, key: str) -> CacheEntry:
    """Read the entry of a build.

    Raises:
        MissingKeyError: there is none.
        DamagedEntryError: it cannot be read, is of a different build, or has an invalid wheel file name.
    """
    return parse(store.read(entry_key(key)).data, key)


def parse(data: bytes, key: str) -> CacheEntry:
    """Parse an entry; raises what `read` raises."""
    try:
        entry = datafile.loads(data, CacheEntry, name="its entry")
    except UsageError as error:
        raise DamagedEntryError(str(error)) from error
    if entry.key != key:
        raise DamagedEntryError(f"its entry is of {short_id(entry.key)!r}")
    try:
        # It becomes the name of a file here: a path or an option of pip must not come of it.
        wheel_info.parse_file_name(entry.file_name)
    except WheelError as error:
        raise DamagedEntryError(f"its entry names {entry.file_name[:80]!r}, which is not a wheel") from error
    digests = (entry.sha256, *filter(None, (entry.log_sha256,)))
    if not all(_DIGEST.fullmatch(digest) for digest in digests):
        raise DamagedEntryError("its entry names a file by what is not a sha256")
    return entry


def _file_key(sha256: str, name: str) -> str:
    return f"{FILES}{sha256[:2]}/{sha256}/{name}"
