"""The pages for people, targets.json and the locks of the indexes of a store.

An index offers the locks of its newest good set of each line, family, Python and platform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from cairn import datafile
from cairn.errors import UsageError
from cairn.output import console
from cairn.release.index import keys
from cairn.release.index.generation import DamagedIndexError, IndexSet
from cairn.release.index.snapshot import Index, Snapshot, traces, with_status
from cairn.release.pages import chooser, landing, nights, status, targets_file
from cairn.release.pages.night_history import History
from cairn.release.pages.trends import Trends
from cairn.release.pages.view import IndexView, Night, shown_sets
from cairn.store.protocol import DamagedObjectError, MissingKeyError, Store, read_or_none, replace

_NOT_PLAIN = re.compile("[^A-Za-z0-9_]+")  # a name in `pylock.<name>.toml` has no dot (PEP 751)
_UP = b'"../../../files/'  # from the locks of a set to the files of the store


class _Indexes:
    """The indexes that pages show: while pages are made, a part is read once, and a state searched once."""

    def __init__(self, store: Store, read: Index | None = None) -> None:
        self.store = store
        self._indexes = {read.name: read} if read is not None else dict[str, Index]()
        self._shown: dict[tuple[str, str | None], tuple[IndexSet, ...]] = {}

    def load(self, name: str) -> Snapshot:
        """An index as it is now."""
        return self._indexes.setdefault(name, Index(self.store, name)).load()

    def shown(self, snapshot: Snapshot) -> tuple[IndexSet, ...]:
        """The sets that pages show of a state."""
        state = snapshot.index.name, snapshot.digest
        if state not in self._shown:
            self._shown[state] = shown_sets(snapshot.sets())
        return self._shown[state]


def write(store: Store, name: str, read: Index | None = None) -> bool:
    """Write the pages that show an index: its own, those of its channel, and the front page.

    Each is written over the version that was read before the indexes were, as `write.put_page` has it. Where
    another index that they show is damaged, they say so of it. What was read of the index is not read again.

    Returns:
        False where a different writer came between: then some of them are still to be written.
    """
    indexes = _Indexes(store, read)
    for folder in (*_folders(name), ""):
        current = indexes.load(name)
        locks = lock_keys(store, name, indexes.shown(current)) if folder == name else ()
        ends = ("targets.json", "status.html", "index.html")
        paths = [*locks, *(f"{folder}/{end}" for end in ends)] if folder else [keys.LANDING, keys.CHOOSER]
        old = {key: read_or_none(store, key) for key in paths}
        pages = _pages(indexes, name, folder)
        if old.keys() != pages.keys():
            return False
        if not all(replace(store, key, old[key], data) for key, data in pages.items()):
            return False
    return True


def write_nights(store: Store, history: History) -> None:
    """Write the page and the feed of a channel's last nights."""
    channel = history.channel
    indexes = keys.possible_indexes()
    nights_of: dict[str, list[Night]] = {}
    for night in history.last:
        index = f"{channel}/{night.family}" if f"{channel}/{night.family}" in indexes else channel
        nights_of.setdefault(index, []).append(night)

    def view(name: str) -> IndexView:
        ended = tuple(nights_of.get(name, ()))
        try:
            return IndexView(name=name, sets=tuple(Index(store, name).load().sets()), nights=ended)
        except (DamagedIndexError, DamagedObjectError):  # how its nights ended is told all the same
            return IndexView(name=name, nights=ended, damaged=True)

    # A set that nobody tested lies in `untested`.
    names = {index: index.replace(channel, keys.UNTESTED, 1) for index in nights_of}
    views = tuple(view(name) for name in sorted({*names, *names.values()}))
    page, feed = (keys.nights_key(channel, kind) for kind in ("html", "atom"))
    store.write(page, nights.page(history, views, datetime.now(UTC)))
    store.write(feed, nights.feed(history))


def objects(store: Store, name: str, shared: dict[str, dict[str, bytes]] | None = None) -> dict[str, bytes]:
    """The contents of the pages that show an index, by key.

    Args:
        store: the store.
        name: the index.
        shared: the pages that other indexes share with it, by folder; those of this call are added, so that
            of many indexes each is rendered once.
    """
    indexes = _Indexes(store)
    shared = {} if shared is None else shared
    pages = _pages(indexes, name, name)
    for folder in (*_folders(name)[1:], ""):
        if folder not in shared:
            shared[folder] = _pages(indexes, name, folder)
        pages |= shared[folder]
    return pages


def _pages(indexes: _Indexes, name: str, folder: str) -> dict[str, bytes]:
    """The pages of one folder, and the locks if it is the index's own."""
    store = indexes.store

    def view(index_name: str) -> IndexView:
        try:
            current = indexes.load(index_name)
            return view_of(current, indexes.shown(current))
        except (DamagedIndexError, DamagedObjectError):
            if index_name == name:
                raise
            # It must not keep others from being shown; what is wrong with it is for the audit to say.
            return IndexView(name=index_name, damaged=True)

    published = traces(store)
    # Where nothing was ever good there is no index, and a night that says so.
    every = dict.fromkeys((*published, *with_status(store)))
    below = [name for name in every if not folder or f"{name}/".startswith(f"{folder}/")]
    views = {name: view(name) for name in below}
    if not folder:
        every_view = tuple(views.values())
        return {keys.LANDING: landing.page(every_view, folder=""), keys.CHOOSER: chooser.page(every_view)}
    snapshot = indexes.load(name)
    sets = indexes.shown(snapshot)
    locks = lock_keys(store, name, sets) if folder == name else ()
    best = of_names(sets) if locks else {}
    offered = tuple(view for name, view in views.items() if name in published)
    return {
        **{key: lock(snapshot, key, best) for key in locks},
        f"{folder}/targets.json": datafile.dumps(targets_file.make(folder, offered)).encode(),
        f"{folder}/status.html": status.page(tuple(views.values()), folder=folder),
        f"{folder}/index.html": landing.page(offered, folder=folder),
    }


def _folders(name: str) -> tuple[str, ...]:
    """The folders of the index and of its channel."""
    return tuple(dict.fromkeys((name, name.partition("/")[0])))


def view_of(snapshot: Snapshot, sets: tuple[IndexSet, ...]) -> IndexView:
    """The view of an index that the pages show, with these of its sets."""
    recent = snapshot.generation.recent
    return IndexView(
        name=snapshot.index.name,
        # Not the newest generation but the newest that changed a set: what no page shows must not change one.
        generation=recent[0].number if recent else 0,
        when=recent[0].when if recent else "",
        sets=sets,
        changes=recent,
        nights=_nights(snapshot.index),
        trends=trends_of(snapshot.index.store, snapshot.index.name),
    )


def _nights(index: Index) -> tuple[Night, ...]:
    """The results of the last nights of an index, as far as whoever ran them has written them."""
    past_nights: list[Night] = []
    for item in index.store.list(keys.status_prefix(index.name)):
        try:
            past_nights.append(datafile.loads(index.store.read(item.key).data, Night, name=item.key))
        except UsageError as error:
            # One file of a different version must not keep every page from being written.
            console.current().warn(f"not on the status page: {error}")
    return tuple(past_nights)


def trends_of(store: Store, index: str) -> Trends | None:
    """Return what the last nights of an index measured; None where nothing can be read."""
    key = keys.trends_key(index)
    try:
        page = read_or_none(store, key)
        return datafile.loads(page.data, Trends, name=key) if page is not None else None
    except UsageError as error:
        console.current().warn(f"not on the status page: {error}")
        return None


def of_names(sets: Iterable[IndexSet]) -> dict[str, IndexSet]:
    """The newest set of each name (`lock_name`) that is not yanked; a tested one where there is any."""
    # Where two were taken at the same time, the id decides, so that each writer chooses the same.
    best = sorted(sets, key=lambda entry: (entry.untested is None, entry.added, entry.set_id))
    return dict(sorted({lock_name(entry): entry for entry in best if entry.yanked is None}.items()))


def lock_name(entry: IndexSet) -> str:
    """The name of a set's lock in an index, made of stack, line, family, Python and platform.

    It is for URLs and for `pylock.<name>.toml`: `pytorch-release_2_9-gfx110X_all-3_11-linux_x86_64`.
    """
    parts = (entry.stack, entry.line, entry.family, entry.python, entry.platform)
    return "-".join(_NOT_PLAIN.sub("_", part) for part in parts)


def lock_keys(store: Store, name: str, sets: Iterable[IndexSet]) -> tuple[str, ...]:
    """The keys of the locks that an index offers, or once offered for a name without a good set now."""
    prefix = keys.locks_prefix(name)
    # `sets/<set id>/locks/<kind>.<end>`: an index has each as `<kind>.<name>.<end>`.
    kinds = [lock.split(".") for lock in keys.SET_LOCKS]
    due = {f"{prefix}{kind}.{name}.{end}" for name in of_names(sets) for kind, end in kinds}
    return tuple(sorted(due | {item.key for item in store.list(prefix)}))


def lock(snapshot: Snapshot, key: str, best: Mapping[str, IndexSet]) -> bytes:
    """The lock of one of the `best` sets by name, under one of `lock_keys`, or a note that there is none.

    The first line names the generation that it is of, so that it never has the same bytes twice
    (`marks.update_marks`).
    """
    recent = snapshot.generation.recent
    head = f"# Generation {recent[0].number if recent else 0} of {snapshot.index.name}\n".encode()
    kind, _, rest = key.rpartition("/")[2].partition(".")
    name, _, end = rest.rpartition(".")
    good = best.get(name)
    if good is None or f"{kind}.{end}" not in keys.SET_LOCKS:
        return head + b"# No good set has this name.\n"
    try:
        data = snapshot.index.store.read(keys.set_key(good.set_id, f"locks/{kind}.{end}")).data
    except MissingKeyError:
        return head + b"# Its set has no locks.\n"
    # Paths in it are relative to the folder that it lies in.
    return head + data.replace(_UP, b'"' + b"../" * key.count("/") + b"files/")
