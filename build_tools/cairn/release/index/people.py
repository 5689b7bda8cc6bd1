"""The pages for people, and targets.json, of the indexes of a store."""

from __future__ import annotations

import functools
from collections.abc import Iterator

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
    """Write the pages that show an index: its own, those of its channel, the front page."""
    index = Index(store, name)
    indexes = {name: index}
    for key in _keys(index):
        settle(store, key, functools.partial(_page, index, key, indexes))


def objects(store: Store, name: str) -> dict[str, bytes]:
    """What the pages that show an index are to be, by key."""
    index = Index(store, name)
    indexes = {name: index}
    return {key: _page(index, key, indexes) for key in _keys(index)}


def _keys(index: Index) -> Iterator[str]:
    """The keys of the pages that show an index, the front page last."""
    yield from last_known_good.lock_keys(index.load())
    for folder in dict.fromkeys((index.name, index.name.partition("/")[0])):
        yield from (f"{folder}/{leaf}" for leaf in ("targets.json", "status.html", "index.html"))
    yield keys.LANDING


def _page(index: Index, key: str, indexes: dict[str, Index]) -> bytes:
    """One page that shows an index, made of the current generations.

    Args:
        index: which.
        key: of the page.
        indexes: those that were opened already, with the parts that were read and never change; others are
            added.
    """
    folder, _, leaf = key.rpartition("/")
    store = index.store
    if leaf == "targets.json":
        return datafile.dumps(targets_file.make(folder, _views(store, folder, indexes))).encode()
    if leaf == "status.html":
        return status.page(_views(store, folder, indexes, with_nights=True), folder=folder)
    if leaf == "index.html":
        return landing.page(_views(store, folder, indexes, with_nights=not folder), folder=folder)
    return last_known_good.lock(index.load(), key)


def _views(
    store: Store, folder: str, indexes: dict[str, Index], *, with_nights: bool = False
) -> tuple[IndexView, ...]:
    """An index, a channel and its families, or (with an empty `folder`) the whole store, as pages show it.

    Where nothing was ever good there is no index, and perhaps a night that says so: `with_nights` adds these.
    """
    every = dict.fromkeys((*existing(store), *(with_status(store) if with_nights else ())))
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
