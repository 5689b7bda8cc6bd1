"""Choose the current generation after the pointer was lost; or accept that a whole of a store is."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from cairn.concurrency import side_by_side
from cairn.errors import CairnError, StoreError, UsageError
from cairn.output.wording import short_id
from cairn.release import wholes
from cairn.release.index import commit, generation, keys, marks, render
from cairn.release.index.generation import (
    Generation,
    Pointer,
    decode_pointer,
    digest_of,
)
from cairn.release.index.names import GenerationOrigin, differing, origin_of
from cairn.release.index.snapshot import Index, Snapshot, empty
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import first_entry
from cairn.release.trust import anchor
from cairn.store.protocol import MissingKeyError, Store, read_or_none

_AT_ONCE = 16  # requests side by side
_SHORTEST = 4  # digits of a digest


class Candidate(GenerationOrigin):
    """A generation without children, which may have been the last current one.

    Attributes:
        problem: why it cannot be current; None where it, all before it and all its parts are there and true.
        lost_race: whether its writer made a later one, since a different writer was first.
        pages: how many of the projects that it changed have a page which says what it says.
        changed: of how many.
    """

    problem: str | None
    lost_race: bool
    pages: int
    changed: int

    @property
    def name(self) -> str:
        """The name that `--generation` takes."""
        return f"{self.number}-{short_id(self.digest)}"


def candidates(index: Index) -> tuple[Candidate, ...]:
    """The generations of an index that have no children, newest first."""
    generations = dict(_true(index))
    parents = {past.parent for past in generations.values()}
    change_ids = {(past.change_id, past.number) for past in generations.values()}
    leaves = [(digest, past) for digest, past in generations.items() if digest not in parents]
    leaves_shown = []
    for digest, past in sorted(leaves, key=lambda item: (item[1].number, item[0]), reverse=True):
        problem = _problem(index, past, digest)
        shown, changed = (0, 0) if problem else _shown(index, past, digest)
        leaves_shown.append(
            Candidate(
                **origin_of(digest, past),
                problem=problem,
                lost_race=any(
                    change_id == past.change_id and number > past.number for change_id, number in change_ids
                ),
                pages=shown,
                changed=changed,
            )
        )
    return tuple(leaves_shown)


def restore(index: Index, chosen: str, *, dry_run: bool = False) -> Snapshot:
    """Make a generation the current one, and write every page from it.

    Args:
        index: an index whose pointer was lost, damaged, or set back to a generation before this one.
        chosen: its number and the beginning of its digest: `12-3f2a`.
        dry_run: check all of it, and write nothing.

    Raises:
        StoreError: there is no such generation, it is not whole, or a different one is current.
        UsageError: `chosen` is not written like that, or is that of several.
    """
    digest, past = _chosen(index, chosen)
    etag = _etag_of_broken(index, past, digest)
    if problem := _problem(index, past, digest):
        raise StoreError(f"generation {chosen} cannot be current: {problem}", tip="choose a different one")
    if dry_run:
        return index.at(past, digest)
    _point(index, past, digest, etag=etag)
    commit.render_all(index)
    # What the store has come to know of its sets since then still holds.
    for set_id in index.at(past, digest).set_ids:
        marks.update_marks(index.store, set_id, "record", indexes=[index.name])
    return index.load()


def restore_signed(index: Index, *, dry_run: bool = False) -> str | None:
    """Point an index at the generation that a promoter signed, if `state.json` leads elsewhere.

    What a promoter promised and did not finish stays: the next commit finishes it. Pages are left to
    `commit.render_all`.

    Returns:
        What was wrong; None where nothing was, or nobody signs the index.

    Raises:
        StoreError: the signed generation is not whole, or the metadata cannot be believed.
    """
    trusted = anchor.anchor(index.store) if keys.is_gated(index.name) else None
    if trusted is None:
        return None
    from cairn.release.trust.online import Promoter  # noqa: PLC0415 - cryptography

    signed = Promoter(index.store, trusted).signed(index.name)
    if signed is None:
        return None
    key = keys.state_key(index.name)
    stored = read_or_none(index.store, key)
    problem = broken(index)
    if problem is None:
        current = index.load()
        if current.digest == signed.digest or Promoter(index.store, trusted).has_promised(current):
            return None
        made = current.generation
        problem = f"{key} led to generation {made.number} by {made.who or 'nobody'}, which no promoter signed"
    past = index.generation(signed.number, signed.digest)
    if lost := _problem(index, past, signed.digest):
        raise StoreError(f"generation {signed.number} of {index.name}, which is signed, is not whole: {lost}")
    if not dry_run:
        _point(index, past, signed.digest, etag=stored.etag if stored else None)
    verb = "would be" if dry_run else "is"
    return f"{problem}; generation {signed.number}, which is signed, {verb} current again"


def _point(index: Index, past: Generation, digest: str, *, etag: str | None) -> None:
    """Have a generation be current, of which no page is known to be written."""
    zero = digest_of(generation.encode(empty(index.name)))
    pointer = Pointer(generation=past.number, digest=digest, rendered=0, rendered_digest=zero)
    if not index.store.write_if(keys.state_key(index.name), generation.encode(pointer), etag=etag):
        raise StoreError(f"somebody else has written {keys.state_key(index.name)}", tip="run it again")


def accept_loss(store: Store, name: str, reason: str) -> None:
    """Note that an index, the ledger or the metadata is gone for good; an audit misses it no more.

    A ledger that has lost entries is given what the indexes and records still tell of them.

    Raises:
        UsageError: it is not gone, this reason was given before, or a promoter's key is needed and not here.
    """
    missing = [of_store for of_store, _ in wholes.gone(store)]
    if name not in missing:
        raise UsageError(
            f"{name} is not missing at {store.url}", tip=f"what is: {', '.join(missing) or 'nothing'}"
        )
    ledger, end = Ledger(store), wholes.event_of("end", name, reason)
    if any((event.kind, event.why) == ("end", reason) for event in ledger.history(end.set_id)):
        raise UsageError(f"{name} was gone for this reason before", tip="say what happened this time")
    entry = first_entry(store) if name == wholes.LEDGER else None
    commit.note_events(store, [end, *(entry.events if entry else ())])
    ledger.add(names=entry.names if entry else None)


def broken(index: Index) -> str | None:
    """Why the pointer is broken; None if it is good, or nothing was ever published."""
    try:
        index.load()
    except CairnError as error:
        return str(error)
    return None


def _true(index: Index) -> Iterator[tuple[str, Generation]]:
    """Every generation of an index whose bytes match its digest, with that digest."""

    def read_key(key: str) -> tuple[str, Generation] | None:
        generation = keys.generation_of(key)
        if generation is None:
            return None
        try:
            return generation[1], index.generation(*generation)
        except (CairnError, OSError):
            return None

    names = [item.key for item in index.store.list(keys.generations_prefix(index.name))]
    return (item for item in side_by_side(read_key, names, jobs=_AT_ONCE) if item is not None)


def _chosen(index: Index, chosen: str) -> tuple[str, Generation]:
    number, _, beginning = chosen.lower().partition("-")
    if not number.isdecimal() or len(beginning) < _SHORTEST:
        raise UsageError(
            f"{chosen!r} names no generation", tip="write it as the list has it: --generation 12-3f2a9c1b"
        )
    matches = [
        (digest, past)
        for digest, past in _true(index)
        if past.number == int(number) and digest.startswith(beginning)
    ]
    if not matches:
        tip = f"see which there are: cairn index repair --index {index.name}"
        raise StoreError(f"{index.name} has no generation {chosen} that is true", tip=tip)
    if len(matches) > 1:
        raise UsageError(
            f"{chosen} is the beginning of {len(matches)} generations", tip="give more of the digest"
        )
    return matches[0]


def _etag_of_broken(index: Index, chosen: Generation, digest: str) -> str | None:
    """The etag of the pointer, if it may be replaced; None if there is no pointer.

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
    after = {newer for newer, _ in index.chain(index.at(chosen, digest))}
    if chosen.number > current.generation.number and (pointer.generation == 0 or pointer.digest in after):
        return stored.etag
    raise StoreError(
        f"{index.name} is not broken: generation {pointer.generation} is current",
        tip=f"to go back to an earlier state: cairn release rollback --index {index.name}",
    )


def _problem(index: Index, past: Generation, digest: str) -> str | None:
    """Why a generation cannot be current: an ancestor or a part of it is lost or was changed."""
    try:
        state = index.at(past, digest)
        for _ in index.chain(state):
            pass
        side_by_side(state.project, state.project_names, jobs=_AT_ONCE)
        side_by_side(state.set, state.set_ids, jobs=_AT_ONCE)
    except (CairnError, OSError) as error:
        return str(error)
    return None


def _shown(index: Index, past: Generation, digest: str) -> tuple[int, int]:
    """How many of the projects that a generation changed have their page from it, and how many it changed."""
    before = index.generation(past.number - 1, past.parent) if past.parent else empty(index.name)
    state = index.at(past, digest)
    try:
        changed = differing(index.at(before, past.parent or "").project_parts, state.project_parts)
    except StoreError:  # `gc` has collected what only the generation before it named
        changed = frozenset(state.project_names)
    prefix = keys.simple_prefix(index.name)

    def same(name: str) -> bool:
        page = render.project_page(state.project(name), prefix=prefix)
        try:
            return index.store.read(f"{prefix}{name}/index.json").data == page.json
        except MissingKeyError:
            return False

    names = [name for name in changed if name in state.project_parts]
    return sum(side_by_side(same, names, jobs=_AT_ONCE)), len(names)


def plain(candidate: Candidate) -> dict[str, object]:
    """A candidate as plain data for JSON."""
    return structs.asdict(candidate) | {"name": candidate.name}
