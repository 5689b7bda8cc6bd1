"""The tier of a cache that is a folder of this machine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cairn import files
from cairn.build.cache import entry as entries
from cairn.build.cache import in_use
from cairn.build.cache.entry import CacheEntry, DamagedEntryError
from cairn.output import console
from cairn.store.folder import LocalStore
from cairn.store.protocol import MissingKeyError

_STAGED = ".staged."
_ABANDONED = 24 * 3600.0  # seconds after which no living process goes on with what it has staged


class LocalTier:
    """A folder whose wheels are linked into output folders, where the disk can, and not copied.

    What changes it, and what notes that an entry is used, holds its lock: a trim sees each entry whole, and
    whoever has been given one keeps it.

    Attributes:
        store: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root)

    def look(self, key: str) -> CacheEntry | None:
        """The entry of a build, without reading its files. An entry that cannot be used is removed."""
        try:
            return entries.read(self.store, key)[0]
        except MissingKeyError:
            return None
        except DamagedEntryError as error:
            self._drop(key, key[:12], str(error))
            return None

    def get(self, key: str) -> tuple[CacheEntry, Path] | None:
        """The wheel of a build, which stays while this process lives; None where it is missing or damaged."""
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
            if not replace and (present := self._whole(entry.key)):
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
        """Where the wheel of an entry is."""
        return self.store.path / entry.wheel_key()

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of the folder."""
        return files.locked(self.store.path / ".locks" / "cache")

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder on the disk of this one, until the block ends."""
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

    def _whole(self, key: str) -> CacheEntry | None:
        entry = self.look(key)
        return entry if entry is not None and not damage(self.path(entry), entry) else None

    def _drop(self, key: str, name: str, reason: str) -> None:
        console.current().warn(f"the cached wheel of {name} cannot be used and is removed: {reason}")
        # The file stays for now: another entry may name it. The next wheel of these bytes takes its place, or
        # a trim finds that no entry names it.
        self.store.delete(entries.entry_key(key))


def damage(wheel: Path, entry: CacheEntry) -> str | None:
    """The damage of a wheel's file; None where it has the bytes that its entry names."""
    try:
        size = wheel.stat().st_size
        if size != entry.size:
            return f"{wheel.name} has {size:,} bytes, not {entry.size:,}"
        if files.sha256_of(wheel) != entry.sha256:
            return f"{wheel.name} was changed"
    except FileNotFoundError:
        return f"{wheel.name} is missing"
    return None
