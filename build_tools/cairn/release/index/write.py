"""Write the pages of an index and of its sets, in an order that never misleads an installer.

An installer reads the page of a project, then those of what it depends on. With the page of `triton` written
before that of `torch`, which pins it, no one is led to a version that is not there yet; where files are taken
away, it is the other way round. The root, which only lists names, comes last.
"""

from __future__ import annotations

import collections
import graphlib
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import StoreError
from cairn.release.index import keys, render
from cairn.release.index.generation import PUBLISHED, FileEntry, ProjectState, project_of, version_of
from cairn.release.index.render import Page, Pieces
from cairn.release.index.snapshot import MANIFEST_FILE, SET_FILE, Change, Snapshot
from cairn.store.protocol import MissingKeyError, Store, StoredObject, keep_young, read_or_none, replace
from cairn.wheels import wheelset
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet

_PAGES = ("index.json", "index.html")
Stored = tuple[StoredObject | None, StoredObject | None]
"""The two pages of `_PAGES` as they lie in a store."""

_AT_ONCE = 4  # pages side by side
_KEPT = 64 << 20  # bytes of rendered pages that a change keeps until they are written
_WHOLE = 16  # of so many changes of a project, one renders its page whole
_SERIAL = re.compile(rb'(?:"_last-serial":|<!--SERIAL )([0-9]{1,9})')


def put_page(shown: Snapshot, key: str, data: bytes, old: StoredObject | None) -> bool:
    """Write a page of a generation over the version that was there while that generation was current.

    The version is read before the pointer is. So a writer that stalls with an older generation fails, since
    whoever wrote meanwhile changed that version, and the last version is of the last generation, whatever the
    order of the writers. For that a page must never have the same bytes for two generations with a different
    one between them: each says the number of the change that it is of.

    Args:
        shown: the generation that the page is of.
        key: where the page lies.
        data: its bytes, of nothing but that generation.
        old: the version that was read.

    Returns:
        False where a different generation is current by now, or a different writer came between.
    """
    return shown.index.load().digest == shown.digest and replace(shown.index.store, key, old, data)


def with_pages(before: Snapshot, change: Change) -> Change:
    """Render the pages of a change of a state, to be written later; return the change that names them.

    Of pages beyond `_KEPT` bytes, only what is not copied from the page before is kept; of a page that is
    rendered whole, its name alone: then it is rendered again.
    """
    pages: dict[str, tuple[tuple[Pieces, StoredObject | None], ...]] = {}
    left = _KEPT

    def rendered(project: ProjectState | None) -> ProjectState | None:
        if project is None:
            return None
        new = structs.replace(project, serial=before.generation.number + 1)
        stored = _stored(before, new.name)
        prefix, is_same = keys.simple_prefix(before.index.name), new.files == before.project(new.name).files
        # A change that leaves a project as it is asks for its page anew: see `commit.render_adopted`.
        page = render.project_page(new, prefix=prefix) if is_same else _page_over(before, new, stored)
        # Of what it is written over, the name is enough: an index may have many megabytes of pages.
        old = (kind and StoredObject(data=b"", bucket_etag=kind.etag) for kind in stored)
        new = structs.replace(new, page=page.digest)
        nonlocal left
        for formats in (((page.json,), (page.html,)), page.pieces):
            size = sum(len(piece) for pieces in formats for piece in pieces if isinstance(piece, bytes))
            if size <= left:  # two threads may keep one page too many
                left -= size
                pages[new.page] = tuple(zip(formats, old, strict=True))
                break
        return new

    projects = side_by_side(rendered, change.projects.values(), jobs=_AT_ONCE)
    before.index.pages = pages
    return Change(projects=dict(zip(change.projects, projects, strict=True)), sets=change.sets)


def page_after(before: Snapshot, project: ProjectState) -> Page:
    """Render the page that a project is to have after a state, over its page of that state if it is there.

    The state says by a digest which page that is (`ProjectState.page`), so that nothing is copied from a page
    that was changed in the store, that is of another state, or that is of another rendering.

    The state of an unsigned store is believed, whoever wrote it: it can name a forged page, whose lines are
    copied until the page is next rendered whole (`_is_rendered_whole`), or a promoter adopts the state.
    """
    return _page_over(before, project, _stored(before, project.name))


def _page_over(before: Snapshot, project: ProjectState, stored: Stored) -> Page:
    old, (plain, page), over = before.project(project.name), stored, None
    is_named = page and plain and render.digest_of(page.sha256, plain.sha256) == old.page
    if page and plain and is_named and not _is_rendered_whole(project):
        over = old, Page(html=page.data, json=plain.data)
    return render.project_page(project, prefix=keys.simple_prefix(before.index.name), over=over)


def _is_rendered_whole(project: ProjectState) -> bool:
    """Whether the page of a state is rendered whole: on average, that of every `_WHOLE`th change.

    A digest of the serial decides: a project may change in every second generation, and never in the others.
    """
    return hashlib.sha256(f"{project.name} {project.serial}".encode()).digest()[0] % _WHOLE == 0


def names_another_page(shown: Snapshot, name: str) -> bool:
    """Whether the state of a project names a page, and not the one that it has in this rendering."""
    project = shown.project(name)
    page = render.project_page(project, prefix=keys.simple_prefix(shown.index.name))
    return project.page not in ("", page.digest)


def _stored(shown: Snapshot, name: str) -> Stored:
    """The pages of a project, or the pages of the root, as they lie in the store."""
    folder = f"{keys.simple_prefix(shown.index.name)}{name}".removesuffix("/")
    plain, page = (read_or_none(shown.index.store, f"{folder}/{kind}") for kind in _PAGES)
    return plain, page


def _put(shown: Snapshot, name: str, pages: Sequence[tuple[Pieces, StoredObject | None]]) -> bool:
    # A reader may meet the new JSON beside the old HTML: each is whole, and of one state.
    folder, store = f"{keys.simple_prefix(shown.index.name)}{name}".removesuffix("/"), shown.index.store
    for kind, (pieces, old) in zip(_PAGES, pages, strict=True):
        key = f"{folder}/{kind}"
        # Another version than the `old` one may be there by now: then nothing is written over it.
        before = read_or_none(store, key) if any(isinstance(piece, slice) for piece in pieces) else None
        if not put_page(shown, key, render.joined(pieces, before.data if before else b""), old):
            return False
    return True


def put_project_page(shown: Snapshot, name: str) -> bool:
    """Write the page of a project as of a generation; see `put_page`.

    That of a project without files is written empty and not removed: a removal cannot be conditional, and
    might take away what a different writer has just written. `gc` removes it later.
    """
    project = shown.project(name)
    pages = shown.index.pages.pop(project.page, None)
    if pages is None:
        page = render.project_page(project, prefix=keys.simple_prefix(shown.index.name))
        pages = tuple(zip(page.pieces, _stored(shown, name), strict=True))
    return _put(shown, name, pages)


def put_root_page(shown: Snapshot) -> bool:
    """Write the page that lists the projects of a generation; see `put_page`."""
    page = render.root_page(shown.project_names, serial=shown.generation.serial)
    return _put(shown, "", tuple(zip(((page.json,), (page.html,)), _stored(shown, ""), strict=True)))


def pages_of_others(current: Snapshot) -> tuple[str, ...]:
    """The projects that are not in the index and still have a page that offers something."""
    index = current.index
    prefix = keys.simple_prefix(index.name)
    names = set()
    for item in index.store.list(prefix):
        name, slash, _ = item.key.removeprefix(prefix).partition("/")
        if slash and name not in current.project_parts and not is_empty_page(index.store, item.key):
            names.add(name)
    return tuple(sorted(names))


def is_empty_page(store: Store, key: str) -> bool:
    """Whether a page is the empty one that replaces the page of a removed project."""
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
    """The order in which to write the pages of changed projects.

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
    """Sort the keys of `needs` topologically: each after the keys that it needs, otherwise by name.

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
    """The pages of the index of exactly one set, by key, the root last; the same set gives the same bytes."""
    prefix = keys.set_simple_prefix(wheel_set.id)
    projects = _set_projects(wheel_set)
    pages = [
        (f"{prefix}{project.name}/", render.project_page(project, prefix=prefix)) for project in projects
    ]
    pages.append((prefix, render.root_page([project.name for project in projects])))
    return {
        f"{where}{name}": data
        for where, page in pages
        for name, data in (("index.json", page.json), ("index.html", page.html))
    }


def _set_projects(wheel_set: WheelSet) -> tuple[ProjectState, ...]:
    """The projects of the index of exactly one set: the files that its `set.json` names, and nothing else."""
    by_project: dict[str, list[FileEntry]] = collections.defaultdict(list)
    for file in wheel_set.files:
        name = project_of(file.file_name)
        entry = FileEntry(
            filename=file.file_name,
            sha256=file.sha256,
            size=file.size,
            version=version_of(file.file_name),
            build=PUBLISHED,
            requires_python=file.requires_python,
            metadata_sha256=file.metadata_sha256,
        )
        by_project[name].append(entry)
    return tuple(
        ProjectState(name=name, files=()).with_files(tuple(entries))
        for name, entries in sorted(by_project.items())
    )


def create(store: Store, key: str, data: bytes) -> None:
    """Write an immutable object; if it exists already, it must have these bytes.

    Raises:
        StoreError: it has others.
    """
    if not store.write_if(key, data, etag=None) and store.read(key).data != data:
        raise StoreError(
            f"{store.url}/{key} has different bytes, and it never changes",
            tip="see what cairn index check says of the store, and restore it from a copy",
        )
