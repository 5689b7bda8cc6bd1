"""Whether the generations of an index are true, and the pointer is where they lead."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from cairn.concurrency import side_by_side
from cairn.errors import CairnError
from cairn.release.audit.inventory import Inventory
from cairn.release.audit.report import Problem
from cairn.release.index import keys
from cairn.release.index.generation import Generation, digest_of
from cairn.release.index.snapshot import Index, Snapshot, objects_of

_AT_ONCE = 16  # requests side by side
_AHEAD = 2  # see `_set_back`


def check(snapshot: Snapshot, inventory: Inventory, *, hashes: bool) -> Iterator[Problem]:
    """What is wrong with the chain of generations and with what lies beside it."""
    index = snapshot.index
    every = dict(_read(index, inventory))
    inventory.named |= {keys.state_key(index.name), *inventory.below(keys.generations_prefix(index.name))}
    for key, found in every.items():
        if isinstance(found, str):
            yield Problem(code="generation", index=index.name, where=key, said=found)
    true = {key: found for key, found in every.items() if isinstance(found, Generation)}
    chain: list[Generation] = []
    try:
        chain += (found for _, found in index.chain(snapshot))
    except CairnError as error:
        yield Problem(
            code="generation", index=index.name, where=index.name, said=f"the chain breaks: {error}"
        )
    yield from _pointer(snapshot)
    yield from _set_back(snapshot, true)
    _name_what_they_name(index, [snapshot.generation, *chain], inventory)
    if hashes:
        yield from _damaged_parts(index, inventory)


def _read(index: Index, inventory: Inventory) -> Iterator[tuple[str, Generation | str]]:
    """Every generation that the store has of an index, or what is wrong with it."""

    def one(key: str) -> Generation | str:
        named = keys.generation_of(key)
        if named is None:  # it is foreign, which the list of keys says
            return f"{key} is not called like a generation"
        try:
            return index.generation(*named)
        except (CairnError, OSError) as error:
            return str(error)

    found = inventory.below(keys.generations_prefix(index.name))
    return zip(found, side_by_side(one, found, jobs=_AT_ONCE), strict=True)


def _pointer(snapshot: Snapshot) -> Iterator[Problem]:
    """Whether the pages are said to show a generation of the chain."""
    pointer, index = snapshot.pointer, snapshot.index
    if pointer is None or pointer.rendered == pointer.generation:
        return
    key = keys.state_key(index.name)
    try:
        shown = index.generation(pointer.rendered, pointer.rendered_digest)
        on_chain = pointer.rendered == 0 or any(found == shown for _, found in index.chain(snapshot))
    except CairnError as error:
        yield Problem(code="pointer", index=index.name, where=key, said=str(error))
        return
    if not on_chain:
        said = f"{key} says that the pages are of generation {pointer.rendered}, which never counted"
        yield Problem(code="pointer", index=index.name, where=key, said=said)
    said = (
        f"the pages of {index.name} are of generation {pointer.rendered}, and {pointer.generation} counts:"
        " cairn index recover writes them"
    )
    yield Problem(code="unfinished", index=index.name, where=key, said=said)


def _set_back(snapshot: Snapshot, true: dict[str, Generation]) -> Iterator[Problem]:
    """Whether somebody has written an older pointer over a newer one.

    A generation that was made from the one that counts is what a writer that lost, died, or is at work has
    left. One that was made from that one in its turn shows that the first had counted.
    """
    children: dict[str, list[tuple[str, Generation]]] = collections.defaultdict(list)
    for key, found in true.items():
        named = keys.generation_of(key)
        if named is not None:
            children[found.parent or ""].append((named[1], found))
    ahead = [(1, *child) for child in children[snapshot.digest or ""]]
    newest = max(ahead, key=lambda item: item[0], default=None)
    while ahead:
        depth, digest, found = ahead.pop()
        if newest is None or depth > newest[0]:
            newest = depth, digest, found
        ahead += [(depth + 1, *child) for child in children[digest]]
    if newest is not None and newest[0] >= _AHEAD:
        _, digest, found = newest
        name, number = snapshot.index.name, snapshot.generation.number
        said = (
            f"{keys.state_key(name)} was set back: it names generation {number}, and {found.number} was made"
            f" after it (cairn index recover --index {name} --generation {found.number}-{digest[:12]})"
        )
        yield Problem(code="pointer", index=name, where=keys.state_key(name), said=said)


def _name_what_they_name(index: Index, chain: list[Generation], inventory: Inventory) -> None:
    """Note every part, file and set that a generation of the chain names, and that is still there."""
    projects = {(digest, name) for found in chain for name, digest in found.projects.items()}
    sets = {set_id for found in chain for set_id in found.sets}
    parts = {digest for digest, _ in projects} | {digest for found in chain for digest in found.sets.values()}
    inventory.named |= {keys.part_key(index.name, digest) for digest in parts}

    def objects(project: tuple[str, str]) -> set[str]:
        digest, name = project
        try:
            parts = {keys.part_key(index.name, one) for one in index.parts_of(digest)}
            return parts.union(*map(objects_of, index.project(digest, name).files))
        except (CairnError, OSError):
            return set()  # that of the generation that counts is missed by `offered`; others may be collected

    there = [one for one in sorted(projects) if keys.part_key(index.name, one[0]) in inventory.objects]
    inventory.named |= set().union(*side_by_side(objects, there, jobs=_AT_ONCE))
    for key in inventory.below("sets/"):
        if key.split("/")[1] in sets:
            inventory.named.add(key)


def _damaged_parts(index: Index, inventory: Inventory) -> Iterator[Problem]:
    """The parts whose bytes are not those of their digest, old ones included."""

    def one(key: str) -> str | None:
        digest = key.rpartition("/")[2].removesuffix(".json")
        try:
            if digest_of(inventory.store.read(key).data) != digest:
                return f"{inventory.store.url}/{key} was changed"
        except (CairnError, OSError) as error:
            return str(error)
        return None

    found = inventory.below(f"{index.name}/parts/")
    for key, said in zip(found, side_by_side(one, found, jobs=_AT_ONCE), strict=True):
        if said:
            yield Problem(code="generation", index=index.name, where=key, said=said)
