"""Writing the pages of a channel and of its sets."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import msgspec
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from cairn.errors import StoreError
from cairn.release.index import keys
from cairn.release.index.generation import FileEntry, FileRef, ProjectState, StagedSet
from cairn.release.index.render import Page, project_page, root_page
from cairn.release.index.snapshot import Channel, Snapshot
from cairn.store.protocol import Store


def write_channel_pages(channel: Channel, projects: Sequence[str]) -> None:
    """Make the pages of these projects, in this order, and the root say what the state says.

    Another writer may commit while we write. Whoever writes a page looks at the state again afterwards and
    writes once more if it moved, so the last page written is never older than the last state.
    """
    written: dict[str, str | None] = {}
    root: tuple[str, ...] | None = None
    prefix = keys.simple_prefix(channel.name)
    while True:
        snapshot = channel.load()
        stale = [name for name in projects if written.get(name, "") != snapshot.state.projects.get(name)]
        names = tuple(sorted(snapshot.state.projects))
        if not stale and names == root:
            return
        for name in stale:
            page = project_page(snapshot.project(name), prefix=prefix)
            put_page(channel.store, f"{prefix}{name}/", page)
            written[name] = snapshot.state.projects.get(name)
        if names != root:
            put_page(channel.store, prefix, root_page(names))
            root = names


def write_set_pages(snapshot: Snapshot, staged: StagedSet) -> None:
    """Write the index that holds exactly a set and what it needs, once and for all, the root last."""
    channel = snapshot.channel
    prefix = keys.simple_prefix(channel.name, staged.set_id)
    if channel.store.exists(f"{prefix}index.html"):
        return
    projects = set_projects(snapshot, staged)
    for project in projects:
        put_page(channel.store, f"{prefix}{project.name}/", project_page(project, prefix=prefix))
    put_page(channel.store, prefix, root_page(project.name for project in projects))


def set_projects(snapshot: Snapshot, staged: StagedSet) -> tuple[ProjectState, ...]:
    """What a set's own index holds, by project."""
    entries: dict[str, list[FileEntry]] = collections.defaultdict(list)
    for ref in staged.closure:
        entry = entry_of(snapshot, ref)
        if ref in staged.wheels:
            # The channel may have the file of another set, which was tested where this one was not.
            entry = msgspec.structs.replace(entry, untested=staged.untested)
        entries[project_of(ref.filename)].append(entry)
    return tuple(
        ProjectState(name=name, files=()).with_files(tuple(found)) for name, found in sorted(entries.items())
    )


def entry_of(snapshot: Snapshot, ref: FileRef) -> FileEntry:
    """The channel's entry of a file that one of its sets refers to."""
    entry = snapshot.project(project_of(ref.filename)).file(ref.filename)
    if entry is None or entry.sha256 != ref.sha256:
        raise StoreError(
            f"{snapshot.channel.name} has no {ref.filename} with sha256 {ref.sha256}",
            tip="stage the set again",
        )
    return entry


def put_page(store: Store, where: str, page: Page) -> None:
    """Write both formats of a page; JSON first, since tools prefer it."""
    store.write(f"{where}index.json", page.json)
    store.write(f"{where}index.html", page.html)


def project_of(filename: str) -> str:
    """The normalised name of the project that a wheel's or sdist's file name begins with."""
    try:
        if filename.endswith(".whl"):
            return str(parse_wheel_filename(filename)[0])
        return str(canonicalize_name(parse_sdist_filename(filename)[0]))
    except ValueError as error:
        raise StoreError(f"{filename[:200]!r} is the name of neither a wheel nor an sdist") from error


def projects_of(refs: Iterable[FileRef]) -> tuple[str, ...]:
    """The projects of these files, each once, sorted."""
    return tuple(sorted({project_of(ref.filename) for ref in refs}))
