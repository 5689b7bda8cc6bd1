"""The pages for people, and targets.json, of the indexes of a store."""

from __future__ import annotations

import functools
from collections.abc import Callable

from cairn import datafile
from cairn.errors import UsageError
from cairn.output import console
from cairn.release.index import keys, last_known_good
from cairn.release.index.generation import IndexSet, LogEntry
from cairn.release.index.snapshot import Index, Snapshot, existing, with_status
from cairn.release.index.write import settle
from cairn.release.pages import landing, status, targets_file
from cairn.release.pages.view import Change, IndexView, Night, SetView
from cairn.store.protocol import Store


def write(store: Store, name: str) -> None:
    """Make the pages that show an index say what counts: its own, those of its channel, the front page."""
    for key, make in _makers(store, name).items():
        settle(store, key, make)


def objects(store: Store, name: str) -> dict[str, bytes]:
    """What the pages that show an index are to be, by key."""
    return {key: make() for key, make in _makers(store, name).items()}


def _makers(store: Store, name: str) -> dict[str, Callable[[], bytes]]:
    """How each page that shows an index is made of what counts at the moment."""
    index = Index(store, name)
    found: dict[str, Callable[[], bytes]] = {
        key: functools.partial(_lock, index, key) for key in last_known_good.lock_keys(index.load())
    }
    # Each page is made of what counts at its moment, but of parts that were read once: they never change.
    indexes = {name: index}
    for folder in dict.fromkeys((name, name.partition("/")[0])):
        views = functools.partial(_views, store, folder, indexes)
        # Where nothing was ever good there is no index, and a night that says so.
        with_nights = functools.partial(_views, store, folder, indexes, also=with_status)
        found[f"{folder}/targets.json"] = functools.partial(_targets, views, folder)
        found[f"{folder}/status.html"] = functools.partial(_page, status.page, with_nights, folder)
        found[f"{folder}/index.html"] = functools.partial(_page, landing.page, views, folder)
    every = functools.partial(_views, store, "", indexes, also=with_status)
    found["index.html"] = functools.partial(_page, landing.page, every, "")
    return found


def _lock(index: Index, key: str) -> bytes:
    return last_known_good.lock(index.load(), key)


def _targets(views: Callable[[], tuple[IndexView, ...]], folder: str) -> bytes:
    return datafile.dumps(targets_file.make(folder, views())).encode()


def _page(page: Callable[..., bytes], views: Callable[[], tuple[IndexView, ...]], folder: str) -> bytes:
    return page(views(), folder=folder)


def _views(
    store: Store,
    folder: str,
    indexes: dict[str, Index],
    *,
    also: Callable[[Store], tuple[str, ...]] = lambda _store: (),
) -> tuple[IndexView, ...]:
    """An index, a channel and its families, or all there is, as the pages show it.

    Args:
        store: where they are.
        folder: the index or the channel; empty for all there is.
        indexes: those that were opened already, with the parts that were read; others are added.
        also: finds further indexes to show.
    """
    every = dict.fromkeys((*existing(store), *also(store)))
    names = (name for name in every if f"{name}/".startswith(f"{folder}/" if folder else ""))
    return tuple(view_of(indexes.setdefault(name, Index(store, name)).load()) for name in names)


def view_of(snapshot: Snapshot) -> IndexView:
    """An index as the pages show it."""
    recent = snapshot.generation.recent
    return IndexView(
        name=snapshot.index.name,
        simple=keys.simple_prefix(snapshot.index.name),
        # Not the newest generation but the newest that changed a set: what no page shows must not change one.
        generation=recent[0].number if recent else 0,
        when=recent[0].when if recent else "",
        sets=tuple(_set_view(found) for found in snapshot.sets()),
        changes=tuple(_change(entry) for entry in recent),
        nights=_nights(snapshot.index),
    )


def _set_view(found: IndexSet) -> SetView:
    return SetView(
        set_id=found.set_id,
        line=found.line,
        python=found.python,
        platform=found.platform,
        family=found.family,
        targets=found.targets,
        projects=found.projects,
        added=found.added,
        untested=found.untested,
        untested_targets=found.untested_targets,
        installed_with=found.installed_with,
        yanked=found.yanked,
        failed=found.failed,
        weakened=found.weakened,
        simple=keys.set_simple_prefix(found.set_id),
        locks={name: keys.set_key(found.set_id, f"locks/{name}") for name in last_known_good.SET_LOCKS},
    )


def _change(entry: LogEntry) -> Change:
    return Change(
        number=entry.number,
        action=entry.action,
        who=entry.who,
        when=entry.when,
        why=entry.why,
        sets=entry.sets,
    )


def _nights(index: Index) -> tuple[Night, ...]:
    """How the last nights ended that fill an index, as far as whoever ran them has written it."""
    found: list[Night] = []
    for listed in index.store.list(keys.status_prefix(index.name)):
        try:
            found.append(datafile.loads(index.store.read(listed.key).data, Night, name=listed.key))
        except UsageError as error:
            # One file of a different version must not keep every page from being written.
            console.current().warn(f"not on the status page: {error}")
    return tuple(found)
