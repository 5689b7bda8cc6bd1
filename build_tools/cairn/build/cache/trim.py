"""Keep a cache within a size: the least recently used go first, an entry before the files it names."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from cairn.build.cache import entry as entries
from cairn.build.cache import in_use
from cairn.build.cache.entry import CacheEntry, DamagedEntryError
from cairn.build.cache.tiers import LocalTier
from cairn.concurrency import side_by_side
from cairn.errors import UsageError
from cairn.output import console
from cairn.store.protocol import DamagedObjectError, ListedObject, MissingKeyError, Store

BOUND = "CAIRN_BUILD_CACHE_SIZE"
"""The variable that says how large the folder of a machine may get."""
DEFAULT_BOUND = "20GB"

# A writer puts the files of an entry first: what no entry names yet may be of one that is being uploaded.
_GRACE = timedelta(hours=24)
_JOBS = 8
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([KMGT]?)B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_AGE = re.compile(r"([0-9]{1,5})([hdw]?)")
_PERIODS = {"": timedelta(days=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class StoredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a store, and when it was last used.

    Attributes:
        key: of the build.
        entry: what it says; None where it cannot be read.
        used: when it was last used or written; of a store that others share, give or take half a day.
        in_use: a build that is running uses it.
    """

    key: str
    entry: CacheEntry | None
    used: datetime
    in_use: bool = False


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """All that is in one tier of a cache.

    Attributes:
        url: of its store.
        entries: the last used first.
        sizes: bytes of each wheel and log, by its key in the store.
        modified: when each of these was written.
    """

    url: str
    entries: tuple[StoredEntry, ...]
    sizes: dict[str, int]
    modified: dict[str, datetime]

    @property
    def size(self) -> int:
        """Bytes of all wheels and logs."""
        return sum(self.sizes.values())


class TrimResult(msgspec.Struct, frozen=True, kw_only=True):
    """The entries and files that a trim removes.

    Attributes:
        url: of the store.
        entries: those that go, the one that was used longest ago first.
        files: keys of the wheels and logs that go.
        freed: bytes of these.
        kept: how many entries stay.
        size: bytes that stay.
        in_use: how many entries stay only because running builds use them.
    """

    url: str
    entries: tuple[StoredEntry, ...]
    files: tuple[str, ...]
    freed: int
    kept: int
    size: int
    in_use: int


def parse_size(text: str) -> int:
    """Bytes from a text such as `20GB`, `512 MB` or `1.5T`, in powers of ten.

    Raises:
        UsageError: it is none.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text[:40]!r} is not a size", tip="write 20GB, 500MB or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_age(text: str) -> timedelta:
    """A time from a text such as `30d`, `12h` or `2w`; a number alone is of days.

    Raises:
        UsageError: it is none.
    """
    match = _AGE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text[:40]!r} is not an age", tip="write 30d, 12h or 2w")
    return int(match[1]) * _PERIODS[match[2]]


def bound() -> int:
    """Bytes that the folder of this machine may hold.

    Raises:
        UsageError: the variable for it is not a size.
    """
    text = os.environ.get(BOUND) or DEFAULT_BOUND
    try:
        return parse_size(text)
    except UsageError as error:
        raise UsageError(f"{BOUND}: {error}", tip=error.tip) from error


def contents(place: Store | LocalTier) -> Contents:
    """The contents of a store that machines share, or of the folder of this machine."""
    with _opened(place) as (store, used):
        return _contents(store, used)


def trim(
    place: Store | LocalTier,
    *,
    max_size: int | None = None,
    older_than: timedelta | None = None,
    dry_run: bool = False,
) -> TrimResult:
    """Remove the least recently used entries of a cache; those that running builds use here stay.

    A machine that reads a shared store meanwhile finds no entry, or one whose wheel is missing, and
    builds.

    Args:
        place: a store that machines share, or the folder of this machine.
        max_size: bytes that may stay; None for any number.
        older_than: remove what was not used for so long; None keeps it.
        dry_run: remove nothing.
    """
    # Whoever puts a wheel into the folder holds its lock until the entry is written: what none names there is
    # left over. Elsewhere it may be of an entry that is being uploaded.
    grace = timedelta() if isinstance(place, LocalTier) else _GRACE
    orphaned_before = datetime.now(UTC) - grace
    with _opened(place) as (store, used):
        result = _plan(_contents(store, used), max_size, older_than, orphaned_before)
        if not dry_run:
            # Entries first: whoever finds one finds its files, whenever this is interrupted.
            side_by_side(store.delete, [entries.entry_key(each.key) for each in result.entries], jobs=_JOBS)
            side_by_side(store.delete, result.files, jobs=_JOBS)
            if isinstance(place, LocalTier):
                place.tidy()
                _remove_empty(place.store.path / entries.FILES)
    return result


@contextlib.contextmanager
def _opened(place: Store | LocalTier) -> Iterator[tuple[Store, Collection[str]]]:
    """The store, and the keys of entries that running builds use; the folder of this machine is locked."""
    if not isinstance(place, LocalTier):
        yield place, ()
        return
    # A folder that is not there is not made by looking at it.
    with place.alone() if place.store.path.is_dir() else contextlib.nullcontext():
        yield place.store, in_use.keys(place.store.path)


def _contents(store: Store, used: Collection[str]) -> Contents:
    entries_by_age = sorted(store.list(entries.ENTRIES), key=lambda item: item.modified, reverse=True)

    def read(item: ListedObject) -> StoredEntry | None:
        key = Path(item.key).stem
        entry = None
        try:
            entry = entries.parse(store.read(item.key).data, key)
        except MissingKeyError:  # it went between the listing and now
            return None
        except (DamagedEntryError, DamagedObjectError):
            pass
        return StoredEntry(key=key, entry=entry, used=item.modified, in_use=key in used)

    stored = side_by_side(read, entries_by_age, jobs=_JOBS)
    file_items = list(store.list(entries.FILES))
    return Contents(
        url=store.url,
        entries=tuple(each for each in stored if each is not None),
        sizes={item.key: item.size for item in file_items},
        modified={item.key: item.modified for item in file_items},
    )


def keep_within_bound(tier: LocalTier) -> None:
    """Trim the folder of a machine where it has become larger than it may, and say so."""
    most = bound()
    if not tier.store.path.is_dir() or sum(f.size for f in tier.store.list(entries.FILES)) <= most:
        return
    trimmed = trim(tier, max_size=most)
    if trimmed.files:
        console.current().info(
            f"the cache of wheels was larger than {console.size(most)}: {console.size(trimmed.freed)} unused "
            f"the longest are removed; {BOUND} says how large it may be"
        )


def _plan(
    tier: Contents, max_size: int | None, older_than: timedelta | None, orphaned_before: datetime
) -> TrimResult:
    now, going, staying = datetime.now(UTC), list[StoredEntry](), list[StoredEntry]()
    sizes, room = tier.sizes, max_size
    counted: set[str] = set()
    held = 0
    for each in tier.entries:
        names = set(each.entry.file_keys()) if each.entry is not None else set()
        more = sum(sizes.get(name, 0) for name in names - counted)
        too_old = older_than is not None and now - each.used > older_than
        # Once one does not fit, no older one stays in its place, however small: the order is that of use.
        too_much = room is not None and more > room
        unusable = each.entry is None or not names <= sizes.keys()
        if too_much:
            room = 0
        if (too_old or too_much or unusable) and not each.in_use:
            going.append(each)
            continue
        held += too_old or too_much or unusable
        staying.append(each)
        counted |= names
        room = None if room is None else max(0, room - more)
    kept_names = {name for each in going if each.entry is not None for name in each.entry.file_keys()}
    files_going = [
        name
        for name in sizes
        if name not in counted and (name in kept_names or tier.modified[name] < orphaned_before)
    ]
    return TrimResult(
        url=tier.url,
        entries=tuple(reversed(going)),
        files=tuple(files_going),
        freed=sum(sizes[name] for name in files_going),
        kept=len(staying),
        size=tier.size - sum(sizes[name] for name in files_going),
        in_use=held,
    )


def _remove_empty(folder: Path) -> None:
    """Remove the empty folders below this one."""
    for place, folders, _ in os.walk(folder, topdown=False):
        for name in folders:
            with contextlib.suppress(OSError):  # it is not empty, or is removed by others
                Path(place, name).rmdir()
