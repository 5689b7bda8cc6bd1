"""Choosing the generation that counts where the pointer was lost, damaged or set back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import CairnError, StoreError, UsageError
from cairn.release.index import commit, generation, keys, marks, render
from cairn.release.index.generation import (
    Action,
    Generation,
    IndexSet,
    Pointer,
    decode_pointer,
    digest_of,
)
from cairn.release.index.snapshot import Index, Snapshot, empty
from cairn.store.protocol import MissingKeyError

_AT_ONCE = 16  # requests side by side
_SHORTEST = 4  # digits of a digest
_SHOWN = 12


class Candidate(datafile.Value):
    """A generation that no other was made from: one that may have been the last to count.

    Attributes:
        number, digest: of the generation.
        action, who, when, why: as it says.
        problem: why it cannot count; None where it, all before it and all its parts are there and true.
        lost_race: whether its writer made a later one, since a different writer was first.
        pages: how many of the projects that it changed have a page which says what it says.
        changed: of how many.
    """

    number: int
    digest: str
    action: Action | None
    who: str
    when: str
    why: str | None
    problem: str | None
    lost_race: bool
    pages: int
    changed: int

    @property
    def name(self) -> str:
        """What `--generation` takes."""
        return f"{self.number}-{self.digest[:_SHOWN]}"


def candidates(index: Index) -> tuple[Candidate, ...]:
    """The generations of an index that no other was made from, newest first."""
    there = dict(_true(index))
    parents = {found.parent for found in there.values()}
    change_ids = {(found.change_id, found.number) for found in there.values()}
    leaves = [(digest, found) for digest, found in there.items() if digest not in parents]
    made = []
    for digest, found in sorted(leaves, key=lambda item: (item[1].number, item[0]), reverse=True):
        problem = _problem(index, found, digest)
        shown, changed = (0, 0) if problem else _shown(index, found)
        made.append(
            Candidate(
                number=found.number,
                digest=digest,
                action=found.action,
                who=found.who,
                when=found.when,
                why=found.why,
                problem=problem,
                lost_race=any(
                    change_id == found.change_id and number > found.number for change_id, number in change_ids
                ),
                pages=shown,
                changed=changed,
            )
        )
    return tuple(made)


def restore(index: Index, chosen: str, *, dry_run: bool = False) -> Snapshot:
    """Have a generation count, and write every page from it.

    Args:
        index: an index whose pointer was lost, damaged, or set back to a generation before this one.
        chosen: its number and the beginning of its digest: `12-3f2a`.
        dry_run: check all of it, and write nothing.

    Raises:
        StoreError: there is no such generation, it is not whole, or a different one counts.
        UsageError: `chosen` is not written like that, or is that of several.
    """
    digest, found = _chosen(index, chosen)
    etag = _etag_of_broken(index, found, digest)
    if problem := _problem(index, found, digest):
        raise StoreError(f"generation {chosen} cannot count: {problem}", tip="choose a different one")
    if dry_run:
        return index.at(found, digest)
    pointer = Pointer(
        generation=found.number,
        digest=digest,
        rendered=0,
        rendered_digest=digest_of(generation.encode(empty(index.name))),
    )
    if not index.store.write_if(keys.state_key(index.name), generation.encode(pointer), etag=etag):
        raise StoreError(f"somebody else has written {keys.state_key(index.name)}", tip="run it again")
    commit.render_all(index)
    # What the store has come to know of its sets since then counts all the same.
    for set_id in found.sets:
        marks.settle(index.store, set_id, "record", indexes=[index.name])
    return index.load()


def broken(index: Index) -> str | None:
    """Why the pointer leads nowhere; None where it is good, or nothing was ever published."""
    try:
        index.load()
    except CairnError as error:
        return str(error)
    return None


def _true(index: Index) -> Iterator[tuple[str, Generation]]:
    """Every generation of an index whose bytes are those of its digest, by that."""

    def one(key: str) -> tuple[str, Generation] | None:
        named = keys.generation_of(key)
        if named is None:
            return None
        try:
            return named[1], index.generation(*named)
        except (CairnError, OSError):
            return None

    found = [listed.key for listed in index.store.list(keys.generations_prefix(index.name))]
    return (item for item in side_by_side(one, found, jobs=_AT_ONCE) if item is not None)


def _chosen(index: Index, chosen: str) -> tuple[str, Generation]:
    number, _, beginning = chosen.lower().partition("-")
    if not number.isdecimal() or len(beginning) < _SHORTEST:
        raise UsageError(
            f"{chosen!r} names no generation", tip="write it as the list has it: --generation 12-3f2a9c1b"
        )
    found = [
        (digest, one)
        for digest, one in _true(index)
        if one.number == int(number) and digest.startswith(beginning)
    ]
    if not found:
        tip = f"see which there are: cairn index recover --index {index.name}"
        raise StoreError(f"{index.name} has no generation {chosen} that is true", tip=tip)
    if len(found) > 1:
        raise UsageError(
            f"{chosen} is the beginning of {len(found)} generations", tip="give more of the digest"
        )
    return found[0]


def _etag_of_broken(index: Index, chosen: Generation, digest: str) -> str | None:
    """The etag of a pointer that may be replaced; None where there is none.

    Raises:
        StoreError: it is good, and not of a generation that the chosen one was made from.
    """
    key = keys.state_key(index.name)
    try:
        stored = index.store.read(key)
    except MissingKeyError:
        return None
    try:
        current = index.load()
    except CairnError:
        return stored.etag
    pointer = decode_pointer(stored.data, name=key)
    after = {one for one, _ in index.chain(index.at(chosen, digest))}
    if chosen.number > current.generation.number and (pointer.generation == 0 or pointer.digest in after):
        return stored.etag
    raise StoreError(
        f"{index.name} is not broken: generation {pointer.generation} counts",
        tip=f"to go back to an earlier state: cairn release rollback --index {index.name}",
    )


def _problem(index: Index, found: Generation, digest: str) -> str | None:
    """Why a generation cannot count: something before it or in it is lost or was changed."""
    try:
        for _ in index.chain(index.at(found, digest)):
            pass
        projects = found.projects.items()
        side_by_side(lambda item: index.project(item[1], item[0]), projects, jobs=_AT_ONCE)
        side_by_side(lambda part: index.part(part, IndexSet), found.sets.values(), jobs=_AT_ONCE)
    except (CairnError, OSError) as error:
        return str(error)
    return None


def _shown(index: Index, found: Generation) -> tuple[int, int]:
    """How many of the projects that a generation changed have its page, and how many it changed."""
    before = index.generation(found.number - 1, found.parent).projects if found.parent else {}
    changed = [name for name, part in found.projects.items() if before.get(name) != part]
    prefix = keys.simple_prefix(index.name)

    def same(name: str) -> bool:
        page = render.project_page(index.project(found.projects[name], name), prefix=prefix)
        try:
            return index.store.read(f"{prefix}{name}/index.json").data == page.json
        except MissingKeyError:
            return False

    return sum(side_by_side(same, changed, jobs=_AT_ONCE)), len(changed)


def plain(found: Candidate) -> dict[str, object]:
    """A candidate for a program to read."""
    return msgspec.structs.asdict(found) | {"name": found.name}
