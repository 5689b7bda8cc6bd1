"""What a reader believes of a store with a root: python-tuf's client, over whatever has the objects.

A client holds the root, and remembers what it has seen. It believes in no `state.json`: the generation of an
index is the one that TUF's metadata names, and all else follows from that by digests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any, cast

from cairn.errors import NetworkError, StoreError
from cairn.release.index import keys
from cairn.release.index.generation import Pointer, decode_pointer, encode
from cairn.release.index.snapshot import Index, Snapshot
from cairn.release.trust.anchor import Anchor
from cairn.release.trust.current import STATE, vouched
from cairn.release.trust.metadata import (
    TIMESTAMP,
    File,
    MetadataError,
    Timestamp,
    expired,
    expiry,
    opened,
    require_of,
)
from cairn.store.protocol import MissingKeyError, Reader, StoredObject

# securesystemslib, on which tuf is built, imports the clients of all clouds that can hold a key and are
# installed: boto3 takes longer than all the rest of `index verify`. Keys of ours are in none.
_CLOUDS = {name for name in ("boto3", "azure", "google.cloud", "hvac") if name not in sys.modules}
sys.modules |= dict.fromkeys(_CLOUDS, cast("ModuleType", None))  # as if it were not installed
from tuf.api import exceptions  # noqa: E402
from tuf.api.metadata import TargetFile  # noqa: E402
from tuf.ngclient import Updater, UpdaterConfig  # noqa: E402
from tuf.ngclient.fetcher import FetcherInterface  # noqa: E402

for _name in _CLOUDS:
    del sys.modules[_name]

_STATE_KEY = re.compile(r"(.+)/state\.json")
_HINT = "do not install from there; ask whoever releases, or another copy of the store"


class SignedStore:
    """A store of which every index is in the state that its promoter signed; to be read only.

    Attributes:
        anchor: the root.
    """

    def __init__(self, reader: Reader, anchor: Anchor) -> None:
        self._reader, self.anchor = reader, anchor
        self._updater: Updater | None = None

    @property
    def url(self) -> str:
        """The URL of the store underneath."""
        return self._reader.url

    def read(self, key: str) -> StoredObject:
        """The object under a key; the state of an index is the one that was signed.

        Raises:
            MissingKeyError: there is none.
            MetadataError: nobody has signed a state of this index, or the metadata cannot be believed.
        """
        if match := _STATE_KEY.fullmatch(key):
            target_name = f"{match[1]}/{STATE}"
            target = self.target(target_name)
            if target is None:
                raise MetadataError(f"nobody has signed {match[1]} of {self.url}", tip=_HINT)
            made = vouched({target_name: target}, match[1])
            pointer = Pointer(
                generation=made.number,
                digest=made.digest,
                rendered=made.number,
                rendered_digest=made.digest,
            )
            data = encode(pointer)
            return StoredObject(data=data)
        return self._reader.read(key)

    def has_signed(self, index: str) -> bool:
        """Whether a promoter has signed a state of an index."""
        return self.target(f"{index}/{STATE}") is not None

    def current(self, index: Index) -> Snapshot:
        """Return the state of an index that was signed, read from where `index` has its parts.

        Raises:
            DamagedIndexError: the generation is lost, or was changed.
            MetadataError: see `read`.
        """
        key = keys.state_key(index.name)
        pointer = decode_pointer(self.read(key).data, name=key)
        made = index.generation(pointer.generation, pointer.digest)
        return Snapshot(index=index, generation=made, digest=pointer.digest, pointer=pointer)

    def indexes(self, folder: str) -> tuple[str, ...]:
        """The indexes that a promoter has signed of a channel, or of one index of it."""
        below = (name for name in keys.possible_indexes() if f"{name}/".startswith(f"{folder}/"))
        return tuple(filter(self.has_signed, below))

    def signed_file(self, index: str, file_name: str) -> File | None:
        """What was signed of a file; None where the whole state has to be read (`evidence.SignedFiles`)."""
        target = self.target(f"{index}/{file_name}")
        return target if target is not None and target.about.provenance is not None else None

    def target(self, path: str) -> File | None:
        """What a promoter signed of a path, such as `release/NAME.whl`; None where there is no such target.

        Raises:
            MetadataError: the metadata cannot be believed.
            NetworkError: it could not be read.
        """
        target = self._target(path)
        try:
            custom: Mapping[str, Any] = target.unrecognized_fields.get("custom", {}) if target else {}
            return File(length=target.length, hashes=target.hashes, custom=custom) if target else None
        except ValueError as error:
            raise MetadataError(f"{self.url}: what is signed of {path} cannot be read: {error}") from error

    def _target(self, path: str) -> TargetFile | None:
        try:
            if self._updater is None:
                self._updater = Updater(
                    str(self.anchor.folder),
                    "metadata/",
                    fetcher=_Fetcher(self._reader, self.anchor.fingerprint),
                    config=UpdaterConfig(prefix_targets_with_hash=False),
                    bootstrap=self.anchor.first,
                )
                self._updater.refresh()
            return self._updater.get_targetinfo(path)
        except exceptions.DownloadError as error:
            cause: BaseException | None = error
            while cause is not None:
                if isinstance(cause, NetworkError):
                    raise cause from error
                cause = cause.__cause__
            raise MetadataError(f"{self.url}: {error}", tip=_HINT) from error
        except exceptions.ExpiredMetadataError as error:
            stamp = opened(self._reader.read(TIMESTAMP).data, Timestamp, {}, name=TIMESTAMP, threshold=0)
            of = [("root", self.anchor.root), ("timestamp", stamp)]
            until = [
                f"its {name} counts until {metadata.expires}, and"
                for name, metadata in of
                if expired(metadata)
            ]
            raise MetadataError(
                f"{self.url}: {error}: {' '.join(until[:1])} the clock of this machine says "
                f"{expiry(timedelta())}; this is an old copy, or nobody keeps the store fresh",
                tip=f"set the clock, if it is wrong; else {_HINT}",
            ) from error
        except exceptions.BadVersionNumberError as error:
            raise MetadataError(
                f"{self.url} was set back: it is older than what this machine has seen of it ({error})",
                tip=_HINT,
            ) from error
        except exceptions.RepositoryError as error:
            raise MetadataError(
                f"{self.url}: what its promoter signed does not hold: {error}", tip=_HINT
            ) from error


class _Fetcher(FetcherInterface):
    """Metadata from whatever has the objects, if it is of the store with this root."""

    def __init__(self, reader: Reader, fingerprint: str) -> None:
        self._reader, self._fingerprint = reader, fingerprint

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            data = self._reader.read(url).data
            # A next root follows from the one before it by signatures, not by a name.
            is_root = url.endswith(".root.json")
            yield data if is_root else require_of(data, self._fingerprint, name=url)
        except MissingKeyError as error:
            raise exceptions.DownloadHTTPError(str(error), 404) from error
        except StoreError as error:
            raise exceptions.DownloadError(str(error)) from error
