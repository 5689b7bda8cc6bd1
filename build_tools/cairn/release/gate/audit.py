"""Whether a channel is what its state says: every page, every file, every set."""

from __future__ import annotations

import hashlib
import html.parser
import urllib.parse
from collections.abc import Iterator

from cairn import datafile
from cairn.errors import CairnError, StoreError
from cairn.release.index import keys, write
from cairn.release.index.generation import FileEntry, FileRef, ProjectState, StagedSet
from cairn.release.index.render import project_page, root_page
from cairn.release.index.snapshot import Channel, Snapshot, missing
from cairn.store.protocol import MissingKeyError, Store, sha256_of


def audit(store: Store, channel: str, *, hashes: bool) -> tuple[str, ...]:
    """Everything that is wrong with a channel; nothing is changed.

    Args:
        store: where the channel lives.
        channel: its name.
        hashes: read every file and compare its sha256, not only its size.

    Returns:
        One sentence for each problem.

    Raises:
        StoreError: nothing was ever published there, so nothing can be said of it.
    """
    snapshot = Channel(store, channel).load()
    if snapshot.etag is None:
        raise missing(store, channel)
    return tuple(_problems(snapshot, hashes=hashes))


def _problems(snapshot: Snapshot, *, hashes: bool) -> Iterator[str]:
    for entry_id in snapshot.state.pending:
        yield f"{entry_id} is not finished: publish or promote anything to finish it"
    readable = []
    for name in sorted(snapshot.state.projects):
        try:
            project = snapshot.project(name)
        except CairnError as error:
            yield f"the state of {name} cannot be read: {error}"
            continue
        readable.append(project)
        for file in project.files:
            yield from file_problems(snapshot.channel.store, file, hashes=hashes)
    yield from _page_problems(snapshot, readable)
    for set_id in sorted(snapshot.state.sets):
        yield from _set_problems(snapshot, set_id)


def file_problems(store: Store, file: FileEntry, *, hashes: bool) -> Iterator[str]:
    """What is wrong with one published file and its metadata."""
    key = keys.file_key(file.sha256, file.filename)
    try:
        with store.open(key) as stream:
            digest = sha256_of(stream) if hashes else file.sha256
        found = store.stat(key)
        size = found.size if found is not None else 0
        if size != file.size:
            yield f"{file.filename} has {size} bytes, the state says {file.size}"
        elif digest != file.sha256:
            yield f"{file.filename} has sha256 {digest}, the state says {file.sha256}"
    except MissingKeyError:
        yield f"{file.filename} is missing from the store: no {key}"
    if file.metadata_sha256 is None:
        return
    key = keys.sidecar_key(file.sha256, file.filename)
    try:
        if hashlib.sha256(store.read(key).data).hexdigest() != file.metadata_sha256:
            yield f"{file.filename}: the metadata beside it is not what the pages say"
    except MissingKeyError:
        yield f"{file.filename}: the metadata beside it is missing from the store: no {key}"


def _page_problems(snapshot: Snapshot, projects: list[ProjectState]) -> Iterator[str]:
    channel = snapshot.channel
    prefix = keys.simple_prefix(channel.name)
    expected: dict[str, bytes] = {}
    pages = [(f"{prefix}{project.name}/", project_page(project, prefix=prefix)) for project in projects]
    if snapshot.etag is not None:
        pages.append((prefix, root_page(snapshot.state.projects)))
    for where, page in pages:
        expected |= {f"{where}index.json": page.json, f"{where}index.html": page.html}
    for key, data in expected.items():
        try:
            if channel.store.read(key).data != data:
                yield f"{key} does not say what the state says"
        except MissingKeyError:
            yield f"{key} is missing"
    unreadable = tuple(
        f"{prefix}{n}/" for n in snapshot.state.projects if f"{prefix}{n}/index.html" not in expected
    )
    # A page of no project would mislead an installer. Those of unreadable projects are named already.
    for key in (listed.key for listed in channel.store.list(prefix)):
        if key not in expected and not key.startswith(unreadable):
            yield f"{key} is of no project in the state"


def _set_problems(snapshot: Snapshot, set_id: str) -> Iterator[str]:
    short = f"set {set_id[:12]}"
    try:
        staged = snapshot.set(set_id)
        for ref in staged.closure:
            write.entry_of(snapshot, ref)
        wanted = frozenset(staged.closure)
        for form, found in _set_pages(snapshot, staged).items():
            if found != wanted:
                names = ", ".join(sorted(ref.filename for ref in found ^ wanted))
                yield f"{short}: its {form} pages and its state differ in {names}"
    except (CairnError, ValueError) as error:
        yield f"{short}: {error}"


def _set_pages(snapshot: Snapshot, staged: StagedSet) -> dict[str, frozenset[FileRef]]:
    store = snapshot.channel.store
    prefix = keys.simple_prefix(snapshot.channel.name, staged.set_id)
    # Compared by what an installer would read of it: the pages of a set were written once, by the version of
    # Cairn that was there then, and need not have the bytes that this one would write.
    html_refs: set[FileRef] = set()
    json_refs: set[FileRef] = set()
    for name in write.projects_of(staged.closure):
        html_refs |= _html_refs(store.read(f"{prefix}{name}/index.html").data)
        key = f"{prefix}{name}/index.json"
        page = datafile.parse_json(store.read(key).data, name=key)
        try:
            files = page["files"]
            json_refs |= {
                FileRef(filename=file["filename"], sha256=file["hashes"]["sha256"]) for file in files
            }
        except (KeyError, TypeError) as error:
            raise StoreError(f"{key} is not a page of an index") from error
    return {"HTML": frozenset(html_refs), "JSON": frozenset(json_refs)}


def _html_refs(data: bytes) -> set[FileRef]:
    found: set[FileRef] = set()

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            href = dict(attrs).get("href") if tag == "a" else None
            if href:
                address, fragment = urllib.parse.urldefrag(href)
                name = urllib.parse.unquote(address.rpartition("/")[2])
                found.add(FileRef(filename=name, sha256=fragment.removeprefix("sha256=")))

    Parser().feed(data.decode())
    return found
