"""Writing the pages of a channel and of its sets, in an order that never misleads an installer on the way.

An installer reads the page of a project, then those of what it depends on. With the page of `triton` written
before that of `torch`, which pins it, no one is led to a version that is not there yet; the root, which only
lists names, comes last. Pages are written over whatever is there: the own-write rule of `write_channel_pages`
makes the last one right.
"""

from __future__ import annotations

import collections
import graphlib
from collections.abc import Collection, Iterable, Mapping, Sequence

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

    The own-write rule: a writer that wrote a page reads the state once more, and writes the page again if the
    project has moved since. Of two writers that make the same page from different states, the one with the
    older state may write last; but then it reads the newer state afterwards, and writes last of all. So when
    all are done, or all but those that died (whom `recover` finishes), each page is that of the last state.
    """
    written: dict[str, str | None] = {}  # project -> digest of the state that its page was made from
    root: tuple[str, ...] | None = None
    prefix = keys.simple_prefix(channel.name)
    while True:
        snapshot = channel.load()
        stale = [name for name in projects if written.get(name, "") != snapshot.state.projects.get(name)]
        names = tuple(sorted(snapshot.state.projects))
        if not stale and names == root:
            return
        for name in stale:
            # A reader may meet the new JSON beside the old HTML: each is whole, and of one state.
            page = project_page(snapshot.project(name), prefix=prefix)
            put_page(channel.store, f"{prefix}{name}/", page)
            written[name] = snapshot.state.projects.get(name)
        if names != root:
            put_page(channel.store, prefix, root_page(names))
            root = names


def write_set_pages(snapshot: Snapshot, staged: StagedSet) -> None:
    """Write the index that holds exactly a set and what it needs, once and for all, the root last.

    What is there is never written again: a set does not change. Its root tells that all of it is there.
    """
    channel = snapshot.channel
    prefix = keys.simple_prefix(channel.name, staged.set_id)
    if channel.store.exists(f"{prefix}index.html"):
        return
    projects = set_projects(snapshot, staged)
    for project in projects:
        put_page(channel.store, f"{prefix}{project.name}/", project_page(project, prefix=prefix))
    put_page(channel.store, prefix, root_page(project.name for project in projects))


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


def set_projects(snapshot: Snapshot, staged: StagedSet) -> tuple[ProjectState, ...]:
    """What a set's own index holds, by project."""
    entries: dict[str, list[FileEntry]] = collections.defaultdict(list)
    for ref in staged.closure:
        entry = entry_of(snapshot, ref)
        if ref in staged.wheels:
            # The channel may have the file from a different set, which was tested where this one was not.
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
