"""Check that an index offers what its generation says: its pages byte for byte, and the linked files."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping, Sequence

from cairn.concurrency import side_by_side
from cairn.errors import CairnError
from cairn.output import Progress
from cairn.release.audit.inventory import Inventory, Problem
from cairn.release.index import keys, people, render, write
from cairn.release.index.generation import FileEntry, FileRef, ProjectState, project_of
from cairn.release.index.reach import objects_of
from cairn.release.index.snapshot import Index, Snapshot
from cairn.store.protocol import MissingKeyError, Store, sha256_of
from cairn.wheels.wheelset import ClosureFile, SetWheel

_AT_ONCE = 16  # requests side by side
_PROJECTS_AT_ONCE = 2  # each may have thousands of files


def check(snapshot: Snapshot, inventory: Inventory, *, hashes: bool, on_step: Progress) -> Iterator[Problem]:
    """The problems of the pages of an index and of the files of its generation, noted in the inventory."""
    name, store, moments = snapshot.index.name, snapshot.index.store, _moments(snapshot)
    prefix = keys.simple_prefix(name)
    inventory.name(
        f"{prefix}{where}index.{kind}"
        for where in ("", *(f"{name}/" for name in snapshot.project_names))
        for kind in ("json", "html")
    )

    inventory.offered[name] = offered = {}

    def of_project(project: str) -> tuple[Problem, ...]:
        read = [_project(moment, project) for moment in moments if project in moment.project_parts]
        states = [state for state in read if not isinstance(state, str)]
        current = read[0] if project in snapshot.project_parts else None
        if isinstance(current, str):
            return (Problem(code="generation", index=name, where=project, said=current),)
        texts = tuple(_strange_names(name, current)) if current else ()
        files = current.files if current else ()
        offered.update({description_of(file.ref, file): (file.filename, hash(file.ref)) for file in files})
        # Several in one piece of work, which weighs more than an entry.
        of_files = side_by_side(
            lambda start: [
                problem
                for file in files[start : start + _AT_ONCE]
                for problem in file_problems(inventory, file, index=name, hashes=hashes)
            ],
            range(0, len(files), _AT_ONCE),
            jobs=_AT_ONCE,
        )
        pages = [render.project_page(state, prefix=prefix) for state in states]
        return (
            *(Problem(code="generation", index=name, where=project, said=text) for text in texts),
            *(problem for problems in of_files for problem in problems),
            *_not_of(store, f"{prefix}{project}/", pages, name, may_lack=len(states) < len(moments)),
        )

    on_step(f"{name}: files and pages")
    shown = {project for moment in moments for project in moment.project_parts}
    # One project after the other is read and forgotten.
    for problems in side_by_side(of_project, sorted(shown), jobs=_PROJECTS_AT_ONCE):
        yield from problems
    roots = [render.root_page(moment.project_names, serial=moment.generation.serial) for moment in moments]
    yield from _not_of(store, prefix, roots, name, may_lack=not all(moment.exists for moment in moments))
    yield from _left_pages(snapshot, inventory, shown)


def readable_projects(snapshot: Snapshot) -> Iterator[ProjectState]:
    """The projects of an index whose parts can be read and match their digests."""
    for name in snapshot.project_names:
        project = _project(snapshot, name)
        if not isinstance(project, str):
            yield project


def description_of(ref: FileRef, file: FileEntry | SetWheel | ClosureFile) -> int:
    """The hash of all that a set says of a file: as a number it takes little memory."""
    return hash((ref, file.size, file.metadata_sha256))


def _project(snapshot: Snapshot, name: str) -> ProjectState | str:
    index = snapshot.index
    try:  # by a reader of its own: this one would keep every state
        return Index(index.store, index.name, strict=index.strict).project(snapshot.project_parts[name], name)
    except (CairnError, OSError) as error:
        return f"the state of {name} cannot be read: {error}"


def _strange_names(index: str, project: ProjectState) -> Iterator[str]:
    """Files that must not be on the page of a project, even if a generation lists them."""
    counts = collections.Counter(file.filename for file in project.files)
    yield from (f"{index} offers two files called {name}" for name, count in counts.items() if count > 1)
    for name in counts:
        try:
            if project_of(name) != project.name:
                yield f"{index} offers {name} as {project.name}"
        except CairnError as error:
            yield f"{index} offers as {project.name}: {error}"


def file_problems(inventory: Inventory, file: FileEntry, *, index: str, hashes: bool) -> tuple[Problem, ...]:
    """The problems of a file that an index offers, of its metadata and of its provenance."""
    problems: list[Problem] = []
    for key, sha256 in objects_of(file).items():
        whole = key == keys.file_key(file.sha256, file.filename)
        if hash(key) not in inventory.checked:
            size = inventory.size(key)
            text = None
            if size is None:
                text = f"{file.filename}: {key} is missing from the store"
            elif whole and size != file.size:
                text = f"{file.filename} has {size} bytes, the generation says {file.size}"
            elif hashes or not whole:
                text = digest_problem(inventory.store, key, sha256)
            problem = (Problem(code="file", index=index, where=key, said=text),) if text else ()
            inventory.checked[hash(key)] = problem
        # What several indexes share is read once, and said of each.
        problems += (
            Problem(code=problem.code, index=index, where=problem.where, said=problem.said)
            for problem in inventory.checked[hash(key)]
        )
    return tuple(problems)


def digest_problem(store: Store, key: str, sha256: str) -> str | None:
    """Why the bytes of an object do not match this digest; None if they do."""
    try:
        with store.open(key) as stream:
            digest = sha256_of(stream)
    except (CairnError, OSError) as error:
        return f"{key} cannot be read: {error}"
    return None if digest == sha256 else f"{key} was changed: it has sha256 {digest}, not {sha256}"


def _not_of(
    store: Store, folder: str, pages: Sequence[render.Page], index: str, *, may_lack: bool
) -> Iterator[Problem]:
    """The problems of the two pages of a folder, where they match none of the allowed versions."""
    for kind, allowed in (("json", {page.json for page in pages}), ("html", {page.html for page in pages})):
        key, text = f"{folder}index.{kind}", ""
        try:
            if store.read(key).data not in allowed and not (may_lack and write.is_empty_page(store, key)):
                text = f"{key} does not say what the generation says"
        except MissingKeyError:
            text = "" if may_lack else f"{key} is missing"
        except (CairnError, OSError) as error:
            text = f"{key} cannot be read: {error}"
        if text:
            yield Problem(code="page", index=index, where=key, said=text)


def check_people(
    snapshot: Snapshot, inventory: Inventory, shared: dict[str, dict[str, bytes]]
) -> Iterator[Problem]:
    """The problems of the pages for people that show an index; call it once all indexes have their pages.

    Args:
        snapshot: the index.
        inventory: of the store.
        shared: the pages that several indexes share, as `people.objects` keeps them.
    """
    name, store = snapshot.index.name, snapshot.index.store
    try:
        shown = people.objects(store, name, shared)
    except (CairnError, OSError) as error:
        yield Problem(code="page", index=name, where=name, said=f"the pages for people: {error}")
        return
    inventory.name([*shown, keys.trends_key(name), *inventory.below(keys.status_prefix(name))])
    inventory.name(keys.nights_key(name.partition("/")[0], kind) for kind in ("html", "json", "atom"))
    for problem in differences(store, shown):
        yield Problem(code="page", index=name, where=problem.split(" ", 1)[0], said=problem)


def _moments(snapshot: Snapshot) -> tuple[Snapshot, ...]:
    """The states of an index that its pages may show, the current one first.

    There are several where a writer is at work, or has died: every state since all pages were last written.
    A page that shows none of them was not written by Cairn, whatever the pointer says of the pages.
    """
    pointer, moments = snapshot.pointer, [snapshot]
    if pointer is None or pointer.rendered == pointer.generation:
        return (snapshot,)
    try:
        for digest, generation in snapshot.index.chain(snapshot):
            if generation.number < pointer.rendered:
                break
            if generation.number < snapshot.generation.number:
                moments.append(snapshot.index.at(generation, digest))
    except (CairnError, OSError):
        pass  # that the chain breaks is said of it already
    if pointer.rendered == 0:
        moments.append(snapshot.index.at(snapshot.index.generation(0, ""), ""))
    return tuple(moments)


def _left_pages(snapshot: Snapshot, inventory: Inventory, compared: Collection[str]) -> Iterator[Problem]:
    """Pages of projects that the generation does not have: they may stay as long as they offer nothing."""
    prefix = keys.simple_prefix(snapshot.index.name)
    for key in inventory.below(prefix):
        if inventory.is_named(key) or keys.kind_of(key) != "page":
            continue
        project = key.removeprefix(prefix).partition("/")[0]
        if write.is_empty_page(inventory.store, key):
            inventory.pages_left.add(key)
        elif project not in compared:
            text = f"{key} is of no project in the generation"
            yield Problem(code="page", index=snapshot.index.name, where=key, said=text)


def differences(
    store: Store, expected: Mapping[str, bytes], difference: str = "does not say what the generation says"
) -> list[str]:
    """The keys whose content is not the expected one, each with what is wrong."""

    def judge(item: tuple[str, bytes]) -> str | None:
        key, data = item
        try:
            return None if store.read(key).data == data else f"{key} {difference}"
        except MissingKeyError:
            return f"{key} is missing"
        except (CairnError, OSError) as error:
            return f"{key} cannot be read: {error}"

    return [problem for problem in map(judge, expected.items()) if problem]
