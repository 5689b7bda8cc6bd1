"""Writing the pages of an index and of its sets, in an order that never misleads an installer on the way.

An installer reads the page of a project, then those of what it depends on. With the page of `triton` written
before that of `torch`, which pins it, no one is led to a version that is not there yet; where files are taken
away, it is the other way round. The root, which only lists names, comes last.
"""

from __future__ import annotations

import graphlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from cairn.errors import StoreError
from cairn.release.index import keys, render
from cairn.release.index.generation import ProjectState
from cairn.release.index.snapshot import MANIFEST_FILE, SET_FILE, Index, Snapshot
from cairn.store.protocol import MissingKeyError, Store, keep_young
from cairn.wheels import wheelset
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet

_SERIAL = re.compile(rb'(?:"_last-serial":|<!--SERIAL )([0-9]{1,9})')
_ATTEMPTS = 200  # at one page; each that fails means that a different writer got through


class SupersededError(Exception):
    """A different generation counts by now than the one whose pages are being written."""


def settle(store: Store, key: str, make: Callable[[], bytes]) -> None:
    """Make an object say what the generation that counts says, whoever else is writing it.

    It is written only over the version that was read before the pointer was. A writer that stalls with an
    older generation then fails, since whoever wrote meanwhile changed that version, and begins again with the
    newer generation; so whatever the order of writers, the last version is of the last generation.

    Args:
        store: where the index lives.
        key: where the object lies.
        make: its bytes, from what counts at the moment that it is called. It must never give the same bytes
            for two generations with a different one between them, or a stalled writer would take the second
            for the first; so whatever is written says the number of the change that it is of.
    """
    for _ in range(_ATTEMPTS):
        try:
            there = store.read(key)
            data, etag = there.data, there.etag
        except MissingKeyError:
            data, etag = None, None
        wanted = make()
        if wanted == data or store.write_if(key, wanted, etag=etag):
            return
    raise StoreError(f"others changed {key} {_ATTEMPTS} times while this run tried to", tip="run it again")


def write_project_pages(index: Index, names: Iterable[str], *, of: Snapshot | None = None) -> None:
    """Make the pages of these projects, in this order, say what counts.

    That of a project without files is written empty and not removed: a removal cannot be conditional, and
    might take away what a different writer has just written. `gc` removes it later.

    Args:
        index: the index.
        names: the projects.
        of: the generation whose pages are being written; None for whichever counts.

    Raises:
        SupersededError: by now a different generation than `of` counts.
    """
    prefix = keys.simple_prefix(index.name)
    for name in names:
        made: dict[str, render.Page] = {}  # by the digest of the project, so that both formats are made once

        def page(name: str = name, made: dict[str, render.Page] = made) -> render.Page:
            now_there = _loaded(index, of)
            digest = now_there.generation.projects.get(name, "")
            if digest not in made:
                made[digest] = render.project_page(now_there.project(name), prefix=prefix)
            return made[digest]

        # A reader may meet the new JSON beside the old HTML: each is whole, and of one state.
        settle(index.store, f"{prefix}{name}/index.json", lambda: page().json)
        settle(index.store, f"{prefix}{name}/index.html", lambda: page().html)


def write_root_page(index: Index, *, of: Snapshot | None = None) -> None:
    """Make the page that lists the projects say what counts; see `write_project_pages`."""
    prefix = keys.simple_prefix(index.name)

    def page() -> render.Page:
        now_there = _loaded(index, of)
        return render.root_page(now_there.project_names, serial=now_there.generation.serial)

    settle(index.store, f"{prefix}index.json", lambda: page().json)
    settle(index.store, f"{prefix}index.html", lambda: page().html)


def _loaded(index: Index, of: Snapshot | None) -> Snapshot:
    now_there = index.load()
    if of is not None and now_there.digest != of.digest:
        raise SupersededError
    return now_there


def pages_of_others(now_there: Snapshot) -> tuple[str, ...]:
    """The projects that have a page which offers something, and are not in the index."""
    index = now_there.index
    prefix = keys.simple_prefix(index.name)
    found = set()
    for listed in index.store.list(prefix):
        name, slash, _ = listed.key.removeprefix(prefix).partition("/")
        if slash and name not in now_there.generation.projects and not is_empty_page(index.store, listed.key):
            found.add(name)
    return tuple(sorted(found))


def is_empty_page(store: Store, key: str) -> bool:
    """Whether a page is one that was written when its project went: it offers nothing."""
    *folders, name, _ = key.split("/")
    try:
        data = store.read(key).data
    except MissingKeyError:
        return False
    serial = _SERIAL.search(data)
    gone = ProjectState(name=name, files=(), serial=int(serial[1]) if serial else 0)
    page = render.project_page(gone, prefix="/".join((*folders, "")))
    return data in (page.json, page.html)


def page_order(before: Snapshot, after: Snapshot, names: Collection[str]) -> tuple[str, ...]:
    """In which order the pages of changed projects are to be written.

    First those that gain files, each after what these need; then those that only lose some, or change their
    marks, each before what they needed.
    """
    gained: dict[str, set[str]] = {}
    lost: dict[str, set[str]] = {}
    for name in names:
        old = {file.filename: file for file in before.project(name).files}
        new = {file.filename: file for file in after.project(name).files}
        added = [file for filename, file in new.items() if filename not in old]
        changed = added or [file for filename, file in old.items() if new.get(filename) != file]
        (gained if added else lost)[name] = {need for file in changed for need in file.needs}
    return (*dependencies_first(gained), *reversed(dependencies_first(lost)))


def dependencies_first(needs: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The keys of `needs`, each after those of its needs that are keys too, else by name.

    Where projects need each other there is no right order, and their exact pins decide what installs: then
    the first by name waits for the others.
    """
    graph = {name: sorted(needs.keys() & needs[name]) for name in sorted(needs)}
    while True:
        try:
            return tuple(graphlib.TopologicalSorter(graph).static_order())
        except graphlib.CycleError as error:
            cycle: list[str] = error.args[1]  # each needed by the next, and the last is the first again
            waits = min(cycle)
            graph[cycle[cycle.index(waits) + 1]].remove(waits)


def write_set(
    store: Store, wheel_set: WheelSet, manifest: bytes, statement: bytes, locks: Mapping[str, bytes]
) -> None:
    """Put a sealed set with its manifest, the builder's statement, its locks and its index into a store.

    Where the very wheels were built twice, the statement of the first build stays.

    `set.json` comes last, so a set that has it has the rest.

    Raises:
        StoreError: the store has different bytes under one of the keys.
    """
    last = keys.set_key(wheel_set.id, SET_FILE)
    keep_young(store, last)  # and with it the whole set, which is collected as one
    for key, data in {**locks, **set_objects(wheel_set)}.items():
        create(store, key, data)
    create(store, keys.set_key(wheel_set.id, MANIFEST_FILE), manifest)
    builder = keys.set_key(wheel_set.id, BUILDER_FILE)
    # A refusal is not believed before one has looked, as in `write_once`.
    if not (store.write_if(builder, statement, etag=None) or store.exists(builder)):
        store.write(builder, statement)
    create(store, last, wheelset.dumps(wheel_set))


def set_objects(wheel_set: WheelSet) -> dict[str, bytes]:
    """The pages of the index of exactly a set, by key, the root last; the same set gives the same bytes."""
    prefix = keys.set_simple_prefix(wheel_set.id)
    projects = render.set_projects(wheel_set)
    pages = [
        (f"{prefix}{project.name}/", render.project_page(project, prefix=prefix)) for project in projects
    ]
    pages.append((prefix, render.root_page([project.name for project in projects])))
    return {
        f"{where}{name}": data
        for where, page in pages
        for name, data in (("index.json", page.json), ("index.html", page.html))
    }


def create(store: Store, key: str, data: bytes) -> None:
    """Write an object that never changes; where it is there already, it must have these bytes.

    Raises:
        StoreError: it has others.
    """
    if not store.write_if(key, data, etag=None) and store.read(key).data != data:
        raise StoreError(
            f"{store.url}/{key} has different bytes, and it never changes",
            tip="see what cairn index audit says of the store, and restore it from a copy",
        )
