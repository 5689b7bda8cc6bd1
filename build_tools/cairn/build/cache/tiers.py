"""The two tiers of a cache: a folder of this machine, and a store that several machines share.

The shared one, a bucket or a folder that all machines mount, only ever saves work: whatever goes wrong with
it is one warning, and the build goes on without it. Credentials that are no good are an error: others count
on what a build of hours leaves there.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from cairn import files
from cairn.build.cache import entry as entries
from cairn.build.cache import in_use
from cairn.build.cache.entry import CacheEntry, DamagedEntryError, Vouch
from cairn.errors import CairnError, NetworkError
from cairn.output import Progress, console, silent
from cairn.output.wording import short_id
from cairn.store.folder import LocalStore
from cairn.store.protocol import CredentialsError, DamagedObjectError, MissingKeyError, Store, keep_young

_STAGED = ".staged."
_ABANDONED = 24 * 3600.0  # seconds after which no living process goes on with what it has staged

T = TypeVar("T")
_TRIES = 3  # to write an entry that others write too


class LocalTier:
    """A folder whose wheels are linked into output folders, where the disk can, and not copied.

    Changes to it and notes of entries in use are made under its lock: a trim sees each entry whole, and
    whoever has been given one keeps it.

    Attributes:
        store: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root)

    def look(self, key: str) -> CacheEntry | None:
        """Return the entry of a build without reading its files; an unusable entry is removed."""
        try:
            return entries.read(self.store, key)
        except MissingKeyError:
            return None
        except DamagedEntryError as error:
            self._drop(key, short_id(key), str(error))
            return None

    def get(self, key: str) -> tuple[CacheEntry, Path] | None:
        """Return the wheel of a build, kept while this process lives; None if it is missing or damaged."""
        # Noted before it is looked for: from here on, a trim either was first or leaves it.
        if not self.store.exists(entries.entry_key(key)):
            return None
        with self.alone():
            in_use.note(self.store.path, key)
        entry = self.look(key)
        if entry is None:
            return None
        wheel = self.path(entry)
        # Read whole each time: a hard link of it lies in the output folder, where anyone may write to it.
        if reason := damage(wheel, entry):
            self._drop(key, entry.name, reason)
            return None
        self.store.renew(entries.entry_key(key))  # for the trim, it was used now
        return entry, wheel

    def add(
        self, entry: CacheEntry, wheel: Path, log: Path | None, *, replace: bool = False
    ) -> tuple[CacheEntry, Path]:
        """Store a wheel and its log, unless an undamaged entry of that key exists and `replace` is not set.

        Args:
            entry: what to note of it; its sha256 was taken of these files.
            wheel: its file, which is linked where the disk can.
            log: that of the build; None for none.
            replace: drop what is there.

        Returns:
            The entry that the cache has now, and its wheel.
        """
        with self.alone():
            in_use.note(self.store.path, entry.key)
            present = None if replace else self.look(entry.key)
            if present is not None and not damage(self.path(present), present):
                return present, self.path(present)
            place = self.path(entry)
            files.link_or_copy(wheel, place)
            log_key = entry.log_key()
            if log is not None and log_key is not None:
                files.copy(log, self.store.path / log_key)
            # Last: an entry is not there before its files are.
            self.store.write(entries.entry_key(entry.key), entries.dumps(entry))
        return entry, place

    def path(self, entry: CacheEntry) -> Path:
        """Return the path of an entry's wheel."""
        return self.store.path / entry.wheel_key()

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of the folder."""
        return files.locked(self.store.path / ".locks" / "cache")

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a temporary folder on the same disk."""
        self.store.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.store.path, prefix=_STAGED) as folder:
            yield Path(folder)

    def tidy(self) -> None:
        """Remove the unfinished files of killed processes."""
        for path in self.store.path.glob(f"{_STAGED}*"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)
        for stray in self.store.strays():
            if stray.kind == "temporary" and time.time() - stray.modified.timestamp() > _ABANDONED:
                self.store.discard(stray)

    def _drop(self, key: str, name: str, reason: str) -> None:
        console.current().warn(f"the cached wheel of {name} cannot be used and is removed: {reason}")
        # The file stays for now: another entry may name it. The next wheel of these bytes takes its place, or
        # a trim finds that no entry names it.
        self.store.delete(entries.entry_key(key))


def damage(wheel: Path, entry: CacheEntry) -> str | None:
    """Describe the damage of a wheel's file; None if it has the bytes that its entry names."""
    try:
        size = wheel.stat().st_size
        if size != entry.size:
            return f"{wheel.name} has {size:,} bytes, not {entry.size:,}"
        if files.sha256_of(wheel) != entry.sha256:
            return f"{wheel.name} was changed"
    except FileNotFoundError:
        return f"{wheel.name} is missing"
    return None


class SharedTier:
    """A shared store, whose entries are not trusted until they are checked.

    Attributes:
        store: where they are.
        read_only: nothing is put there, and nothing removed.
        expired: why its credentials are no longer good, where they have been.
        vouch: whose entries count, and who signs; None where whoever can write there is believed.
    """

    def __init__(self, store: Store, *, read_only: bool = False, vouch: Vouch | None = None) -> None:
        self.store = store
        self.vouch = vouch
        self.read_only = read_only or (vouch is not None and not vouch.signs)
        self.expired: CredentialsError | None = None
        self._has_answered = False
        self._lock = threading.Lock()
        self._out_of_reach = False

    def look(self, key: str) -> CacheEntry | None:
        """Return the entry of a build; None if there is none, or the store is unreachable."""

        def ask() -> CacheEntry | None:
            try:
                return self._read(key)
            except DamagedEntryError as error:
                self.drop(key, short_id(key), str(error))
                return None

        return self._attempt(ask)

    def fetch(self, entry: CacheEntry, folder: Path, say: Progress = silent) -> tuple[Path, Path | None]:
        """Download the wheel and the log of an entry into a folder, without checking them.

        Raises:
            MissingKeyError: the wheel is not there.
            DamagedObjectError: it is not what was put there.
            CairnError: the store is out of reach.
        """
        wheel, log, log_key = folder / entry.file_name, folder / "build.log", entry.log_key()
        self._bring(entry.wheel_key(), wheel, _Arrived(entry.file_name, entry.size, say))
        if log_key is not None:
            try:
                self._bring(log_key, log, _Arrived(f"the log of {entry.name}", entry.log_size, say))
            except (MissingKeyError, DamagedObjectError, DamagedEntryError):
                log_key = None
        return wheel, None if log_key is None else log

    def _read(self, key: str) -> CacheEntry:
        """Read the entry of a build; raises what `entries.read` raises."""
        entry = entries.read(self.store, key)
        if self.vouch is not None:
            self.vouch.check(entry)
        # Second keys of a wheel are never shared. One that claims to be would make builds against its wheel
        # count as builds against a different one.
        if entry.first_key != key:
            raise DamagedEntryError(f"its entry claims to be that of {short_id(entry.first_key)!r}")
        return entry

    def _bring(self, key: str, target: Path, arrived: _Arrived) -> None:
        with self.store.as_file(key, on_bytes=arrived) as path:
            arrived.refuse_more_than(path.stat().st_size)
            # A shared folder hands out its own file, a link of which would be a way into everyone's cache.
            (files.copy if isinstance(self.store, LocalStore) else files.link_or_copy)(path, target)

    def get(self, key: str, use: Callable[[CacheEntry], T]) -> T | None:
        """Call `use` with the entry of a build and return its result; None if there is no usable entry.

        Args:
            key: of the build.
            use: is to raise `DamagedEntryError` where the entry must not be used: it is then removed.
        """

        def ask() -> T | None:
            entry = self.look(key)
            if entry is None:
                return None
            try:
                result = use(entry)
            except MissingKeyError:
                self.drop(key, entry.name, f"{entry.file_name} is missing")
                return None
            except (DamagedObjectError, DamagedEntryError) as error:
                self.drop(key, entry.name, str(error), entry)
                return None
            if not self.read_only:  # for a trim, it was used now
                self._attempt(lambda: keep_young(self.store, entries.entry_key(key)), writes=True)
            return result

        return self._attempt(ask)

    def add(self, entry: CacheEntry, wheel: Path, log: Path | None) -> CacheEntry | None:
        """Upload a wheel for others, unless the store has one of the same key.

        Returns:
            The entry that is there now, which may be of a different wheel; None where nothing could be put.
        """
        entry = structs.replace(entry, signed=self.vouch.sign(entry) if self.vouch else "")

        def put() -> CacheEntry | None:
            for key, path, digest in (
                (entry.wheel_key(), wheel, entry.sha256),
                (entry.log_key(), log, entry.log_sha256),
            ):
                # One that is there already may be as old as to be collected, and is named again now.
                if key and path and not self.store.put_file(key, path, sha256=digest):
                    keep_young(self.store, key)
            return self._commit(entry)

        return self._attempt(put, writes=True)

    def drop(self, key: str, name: str, reason: str, entry: CacheEntry | None = None) -> None:
        """Say what is wrong with an entry and, where that is allowed, remove it with its files."""
        action = "is not used" if self.read_only else "is removed"
        by = f", put there by {entry.builder}" if entry is not None and entry.builder else ""
        console.current().warn(f"the wheel of {name} in {self.store.url}{by}, {action}: {reason}")

        def remove() -> None:
            self.store.delete(entries.entry_key(key))
            # Else the next writer of the right bytes is told that they are there already.
            for each in entry.file_keys() if entry is not None else ():
                self.store.delete(each)

        self._attempt(remove, writes=True)

    def _commit(self, entry: CacheEntry) -> CacheEntry | None:
        """Write the entry unless a readable one exists; returns the entry in the store."""
        key, data, etag = entries.entry_key(entry.key), entries.dumps(entry), None
        for _ in range(_TRIES):
            if self.store.write_if(key, data, etag=etag):
                return entry
            # Perhaps what is there is this very entry: the reply to an earlier try may have been lost.
            try:
                return self._read(entry.key)
            except MissingKeyError:
                etag = None
            except DamagedObjectError:
                self.store.delete(key)
                etag = None
            except DamagedEntryError:
                etag = self.store.read(key).etag
        return None

    def _attempt(self, work: Callable[[], T], *, writes: bool = False) -> T | None:
        """Return the result of `work`; None, after one warning, if the store fails.

        Raises:
            CredentialsError: of the first request; that of a later one does not end a build of hours.
        """
        if self._out_of_reach or (writes and self.read_only):
            return None
        result = None
        try:
            with contextlib.suppress(MissingKeyError):
                result = work()
        except CredentialsError as error:
            if not self._has_answered:
                raise
            self.expired = error
            self._give_up(error, writes=writes)
        except (CairnError, OSError) as error:
            self._give_up(error, writes=writes)
        else:
            self._has_answered = True
        return result

    def _give_up(self, error: Exception, *, writes: bool) -> None:
        """Degrade after a failure: to reading where writing is refused, to nothing where the server fails."""
        for_good = not writes or isinstance(error, NetworkError)
        with self._lock:
            is_known = self._out_of_reach or (self.read_only and not for_good)
            self.read_only = True
            self._out_of_reach = self._out_of_reach or for_good
        if not is_known:
            consequence = "the build goes on without it" if for_good else "nothing is put there"
            console.current().warn(
                f"the shared cache {self.store.url} cannot be used, {consequence}: {error}"
            )


class _Arrived:
    """Progress of one download; refuses a file that is larger than its entry says."""

    def __init__(self, name: str, size: int, say: Progress) -> None:
        self._name, self._size, self._say = name, size, say
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self._lock:
            self._count += count
            self.refuse_more_than(self._count)
            self._say(f"fetching {self._name}: {console.size(self._count)} of {console.size(self._size)}")

    def refuse_more_than(self, size: int) -> None:
        """Raise if the file has more bytes than its entry says."""
        if size > self._size:
            raise DamagedEntryError(f"{self._name} has more than the {self._size:,} bytes of its entry")
