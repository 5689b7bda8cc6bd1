"""The pages for people, and targets.json, of the indexes of a store."""

from __future__ import annotations

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.output import console
from cairn.release.index import keys, last_known_good
from cairn.release.index.generation import IndexSet, LogEntry
from cairn.release.index.snapshot import Index, Snapshot, traces, with_status
from cairn.release.pages import landing, status, targets_file
from cairn.release.pages.view import Change, IndexView, Night, SetView
from cairn.store.protocol import Store, replace, stored


def write(store: Store, name: str) -> bool:
    """Write the pages that show an index, of what is current: its own, those of its channel, the front page.

    Each is written over the version that was read before the indexes were, as `write.put_page` has it. Where
    another index that they show is damaged, they say so of it.

    Returns:
        False where a different writer came between: then some of them are still to be written.
    """
    indexes: dict[str, Index] = {}
    for folder in (*_folders(name), ""):
        old = {key: stored(store, key) for key in _keys(Index(store, name).load(), folder)}
        pages = _pages(store, name, folder, indexes)
        if old.keys() != pages.keys():
            return False
        if not all(replace(store, key, old[key], data) for key, data in pages.items()):
            return False
    return True


def objects(store: Store, name: str) -> dict[str, bytes]:
    """What the pages that show an index are to be, by key."""
    indexes: dict[str, Index] = {}
    folders = (*_folders(name), "")
    return {key: data for f in folders for key, data in _pages(store, name, f, indexes).items()}


def _pages(store: Store, name: str, folder: str, indexes: dict[str, Index]) -> dict[str, bytes]:
    """Those of one folder, and with that of the index its locks; parts of `indexes` are read once."""

    def view(one: str) -> IndexView:
        try:
            return view_of(indexes.setdefault(one, Index(store, one)).load())
        except StoreError:
            if one == name:
                raise
            # It must not keep others from being shown; what is wrong with it is for the audit to say.
            return IndexView(name=one, simple=keys.simple_prefix(one), damaged=True)

    published = traces(store)
    # Where nothing was ever good there is no index, and a night that says so.
    every = dict.fromkeys((*published, *with_status(store)))
    below = [one for one in every if not folder or f"{one}/".startswith(f"{folder}/")]
    views = {one: view(one) for one in below}
    if not folder:
        return {keys.LANDING: landing.page(tuple(views.values()), folder="")}
    own = indexes[name].load()
    locks = last_known_good.lock_keys(own) if folder == name else ()
    offered = tuple(view for one, view in views.items() if one in published)
    return {
        **{key: last_known_good.lock(own, key) for key in locks},
        f"{folder}/targets.json": datafile.dumps(targets_file.make(folder, offered)).encode(),
        f"{folder}/status.html": status.page(tuple(views.values()), folder=folder),
        f"{folder}/index.html": landing.page(offered, folder=folder),
    }


def _keys(current: Snapshot, folder: str) -> tuple[str, ...]:
    """Where the pages of a folder lie that show an index."""
    if not folder:
        return (keys.LANDING,)
    locks = last_known_good.lock_keys(current) if folder == current.index.name else ()
    return (*locks, *(f"{folder}/{end}" for end in ("targets.json", "status.html", "index.html")))


def _folders(name: str) -> tuple[str, ...]:
    """The index and its channel."""
    return tuple(dict.fromkeys((name, name.partition("/")[0])))


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
