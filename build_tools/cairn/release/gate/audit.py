"""Whether an index is what its generation says: every page, every file, every set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cairn.errors import CairnError
from cairn.release.index import keys, render, write
from cairn.release.index.generation import FileEntry, ProjectState
from cairn.release.index.snapshot import Index, Snapshot, missing, read_set, refs_of
from cairn.store.protocol import MissingKeyError, Store, sha256_of


def audit(store: Store, index: str, *, hashes: bool) -> tuple[str, ...]:
    """Everything that is wrong with an index; nothing is changed.

    Args:
        store: where the index lives.
        index: its name.
        hashes: read every file and compare its sha256, not only its size.

    Returns:
        One sentence for each problem.

    Raises:
        StoreError: nothing was ever published there, so nothing can be said of it.
    """
    snapshot = Index(store, index).load()
    if not snapshot.exists:
        raise missing(store, index)
    return tuple(_problems(snapshot, hashes=hashes))


def _problems(snapshot: Snapshot, *, hashes: bool) -> Iterator[str]:
    pointer = snapshot.pointer
    if pointer is not None and pointer.rendered != pointer.generation:
        yield (
            f"the pages are of generation {pointer.rendered}, and {pointer.generation} counts:"
            " cairn index recover writes them"
        )
    readable = []
    for name in snapshot.project_names:
        try:
            project = snapshot.project(name)
        except CairnError as error:
            yield f"the state of {name} cannot be read: {error}"
            continue
        readable.append(project)
        for file in project.files:
            yield from file_problems(snapshot.index.store, file, hashes=hashes)
    yield from _page_problems(snapshot, readable)
    for set_id in snapshot.set_ids:
        yield from _set_problems(snapshot, set_id)


def file_problems(store: Store, file: FileEntry, *, hashes: bool) -> Iterator[str]:
    """What is wrong with one published file and its metadata."""
    key = keys.file_key(file.sha256, file.filename)
    info = store.stat(key)
    if info is None:
        yield f"{file.filename} is missing from the store: no {key}"
    elif info.size != file.size:
        yield f"{file.filename} has {info.size} bytes, the generation says {file.size}"
    elif hashes:
        with store.open(key) as stream:
            digest = sha256_of(stream)
        if digest != file.sha256:
            yield f"{file.filename} has sha256 {digest}, the generation says {file.sha256}"
    if file.metadata_sha256 is None:
        return
    key = keys.sidecar_key(file.sha256, file.filename)
    try:
        if hashlib.sha256(store.read(key).data).hexdigest() != file.metadata_sha256:
            yield f"{file.filename}: the metadata beside it is not what the pages say"
    except MissingKeyError:
        yield f"{file.filename}: the metadata beside it is missing from the store: no {key}"


def _page_problems(snapshot: Snapshot, projects: list[ProjectState]) -> Iterator[str]:
    prefix = keys.simple_prefix(snapshot.index.name)
    expected: dict[str, bytes] = {}
    pages = [
        (f"{prefix}{project.name}/", render.project_page(project, prefix=prefix)) for project in projects
    ]
    pages.append((prefix, render.root_page(snapshot.project_names, serial=snapshot.generation.serial)))
    for where, page in pages:
        expected |= {f"{where}index.json": page.json, f"{where}index.html": page.html}
    yield from _differences(snapshot.index.store, prefix, expected)


def _set_problems(snapshot: Snapshot, set_id: str) -> Iterator[str]:
    short = f"set {set_id[:12]}"
    try:
        wheel_set = read_set(snapshot.index.store, set_id)
        for ref in refs_of(wheel_set):
            snapshot.entry(ref)
        prefix = keys.set_simple_prefix(set_id)
        for problem in _differences(snapshot.index.store, prefix, write.set_objects(wheel_set)):
            yield f"{short}: {problem}"
    except (CairnError, ValueError) as error:
        yield f"{short}: {error}"


def _differences(store: Store, prefix: str, expected: dict[str, bytes]) -> Iterator[str]:
    for key, data in expected.items():
        try:
            if store.read(key).data != data:
                yield f"{key} does not say what the generation says"
        except MissingKeyError:
            yield f"{key} is missing"
    # A page of no project would mislead an installer.
    for found in store.list(prefix):
        if found.key not in expected:
            yield f"{found.key} is of no project in the generation"
