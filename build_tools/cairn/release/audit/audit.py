"""The audit of a whole store, or of some of its indexes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import CairnError
from cairn.output import Progress, silent
from cairn.release import recipes, wholes
from cairn.release.audit import chains, offered, sets
from cairn.release.audit.inventory import AuditReport, Code, Inventory, Problem
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.index.reach import objects_of, with_every_name
from cairn.release.index.snapshot import SET_FILE, Index, Snapshot, missing, with_status
from cairn.release.trust.signers import Trust
from cairn.store.protocol import Store
from cairn.wheels import build_statement

YOUNG = timedelta(days=1)
"""For so long a key may wait to be named: the longest run of a publisher takes hours."""

_TRIES = 3  # at an index that others change while it is looked at
_AT_ONCE = 4  # files read side by side


def audit(
    store: Store,
    indexes: Sequence[str] = (),
    *,
    hashes: bool = False,
    trust: Trust | None = None,
    young: timedelta = YOUNG,
    on_step: Progress = silent,
) -> AuditReport:
    """Report everything that is wrong with a store; nothing is changed.

    Args:
        store: the store.
        indexes: check these alone; if empty, check all indexes and every key of the store.
        hashes: read every file for its sha256.
        trust: who must have signed each wheel of a set; None checks no signatures.
        young: for how long a key may lie in the store before a generation names it.
        on_step: called with a description of each step.

    Raises:
        StoreError: one of `indexes` was never published into, so nothing can be said of it.
        UsageError: one of them cannot be an index.
    """
    on_step("listing the store")
    inventory = Inventory(store)
    present = inventory.indexes()
    for name in indexes:
        if keys.checked_index(name) not in present:
            raise missing(store, name)
    problems = [*inventory.problems, *_wholes(inventory, indexes)]
    if not present:  # perhaps the disk that it should be on: nothing must not look like nothing wrong
        text = f"{store.url} has no index: nothing was ever published into it, or all of it was lost"
        problems.append(Problem(code="pointer", index=None, where=store.url, said=text))
    current: dict[str, int | None] = {}
    looked_at, seen = indexes or present, set[str]()
    for name in looked_at:
        snapshot, of_index = _index(name, inventory, hashes=hashes, trust=trust, on_step=on_step)
        current[name] = snapshot.generation.number if snapshot else None
        seen |= {*snapshot.set_ids} if snapshot else set()
        problems += of_index
    problems += _people(looked_at, inventory)
    problems += chains.check_ledger(looked_at, inventory)
    problems += chains.check_signed(looked_at, inventory)
    inventory.name(_of_nights(inventory, present))
    problems += inventory.foreign(_places(indexes, inventory))
    problems += _of_no_index(looked_at, inventory)
    if not indexes:
        problems += (*_recipes(inventory), *_lists(inventory))
        problems += sets.of_no_index(inventory, seen, datetime.now(UTC) - young)
        if hashes:
            on_step("files that no index offers")
            problems += _unnamed_files(inventory)
    return AuditReport(
        store=store.url,
        when=now(),
        indexes=current,
        hashes=hashes,
        problems=tuple(dict.fromkeys(problems)),
        keys={} if indexes else inventory.classes(datetime.now(UTC), young),
    )


def lost(store: Store, indexes: Sequence[str] = ()) -> tuple[Problem, ...]:
    """What the current states of indexes need and the store has no more, so that no repair brings it back.

    Args:
        store: the store.
        indexes: look at these alone; if empty, at all, and at the nights.
    """
    inventory, problems = Inventory(store), list[Problem]()
    for name in indexes or inventory.indexes():
        snapshot, unread = _loaded(name, inventory)
        problems += unread
        for project in offered.readable_projects(snapshot) if snapshot else ():
            missing = (
                key for file in project.files for key in objects_of(file) if inventory.size(key) is None
            )
            problems += (
                Problem(code="file", index=name, where=key, said=f"{key} is missing") for key in missing
            )
        for set_id in snapshot.set_ids if snapshot else ():
            key = keys.set_key(set_id, SET_FILE)
            if inventory.size(key) is None:
                problems.append(Problem(code="set", index=name, where=key, said=f"{key} is missing"))
    return tuple({problem.where: problem for problem in (*problems, *_wholes(inventory, indexes))}.values())


def _index(
    name: str, inventory: Inventory, *, hashes: bool, trust: Trust | None, on_step: Progress
) -> tuple[Snapshot | None, list[Problem]]:
    """Check one index, again while writers change it; return its state and its problems."""
    snapshot, problems = _loaded(name, inventory)
    for _ in range(_TRIES):
        if snapshot is None:
            break
        on_step(f"{name}: generations")
        problems = [
            *chains.check_generations(snapshot, inventory, hashes=hashes),
            *offered.check(snapshot, inventory, hashes=hashes, on_step=on_step),
            *sets.check(snapshot, inventory, trust=trust, on_step=on_step),
        ]
        again, _lost = _loaded(name, inventory)
        if not problems or again is None or again.etag == snapshot.etag:
            break
        # What was found may be the work of a writer.
        snapshot = again
        inventory.checked.clear()
    return snapshot, problems


def _loaded(name: str, inventory: Inventory) -> tuple[Snapshot | None, list[Problem]]:
    code: Code = "pointer"
    try:
        snapshot = Index(inventory.store, name).load()
        code = "generation"
        return with_every_name(snapshot), []
    except (CairnError, OSError) as error:
        # What it named is not known: all that is left of it may be needed to put it right.
        inventory.name(inventory.below(f"{name}/"))
        return None, [Problem(code=code, index=name, where=keys.state_key(name), said=str(error))]


def _people(names: Sequence[str], inventory: Inventory) -> Iterator[Problem]:
    """The problems of the pages for people, which show several indexes at once.

    They are not checked where one of these indexes cannot be read, or has pages that are yet to be written.
    """
    every = {name: _loaded(name, inventory)[0] for name in inventory.indexes()}
    # What has pages and no pointer is no index yet, and keeps nobody from saying what is wrong with others.
    whole = all(
        s is not None and (s.pointer is None or s.pointer.rendered == s.pointer.generation)
        for s in every.values()
    )
    shared: dict[str, dict[str, bytes]] = {}
    for name in names:
        snapshot = every[name]
        if whole and snapshot is not None and not snapshot.pointer:
            continue
        if whole and snapshot is not None:
            yield from offered.check_people(snapshot, inventory, shared)
        else:
            inventory.name(key for key in inventory.keys if keys.kind_of(key) == "for people")


def _places(indexes: Sequence[str], inventory: Inventory) -> tuple[str, ...]:
    """The prefixes to search for foreign keys: everything, or the folders of these indexes and their sets."""
    if not indexes:
        return ("",)
    snapshots = [_loaded(name, inventory)[0] for name in indexes]
    of_sets = {keys.set_key(set_id, "") for state in filter(None, snapshots) for set_id in state.set_ids}
    return (*(f"{name}/" for name in indexes), *sorted(of_sets))


def _wholes(inventory: Inventory, names: Sequence[str]) -> Iterator[Problem]:
    """Report the ledger and the root of the store where they are gone, and indexes, or these alone."""
    try:
        for name, text in wholes.gone(inventory.store):
            index = name if name in keys.possible_indexes() else None
            if index and names and index not in names:
                continue
            codes: dict[str, Code] = {wholes.LEDGER: "ledger", wholes.NIGHTS: "evidence"}
            code: Code = "pointer" if index else codes.get(name, "signature")
            yield Problem(code=code, index=index, where=name, said=text)
    except (CairnError, OSError) as error:
        yield Problem(code="ledger", index=None, where="ledger/", said=str(error))


def _of_no_index(names: Sequence[str], inventory: Inventory) -> Iterator[Problem]:
    """Report pages of an index that was never published: whoever opens them would believe them."""
    published = {key.removesuffix("/state.json") for key in inventory.keys if keys.kind_of(key) == "pointer"}
    for name in dict.fromkeys(
        f"{folder.partition('/')[0]}/" if "/" not in folder else f"{folder}/" for folder in names
    ):
        for key in inventory.below(name):
            place = key.partition("/simple/")[0] if keys.kind_of(key) == "page" else _place_of(key)
            kind = keys.kind_of(key)
            is_page = kind == "page" or (kind == "for people" and key.endswith((".html", "/targets.json")))
            is_published = any(
                f"{folder}/".startswith(f"{place}/") for folder in published
            ) or inventory.is_named(key)
            if is_page and not is_published and not inventory.store.exists(keys.state_key(place)):
                text = f"{key} is of {place}, into which nothing was published"
                yield Problem(code="page", index=place, where=key, said=text)


def _of_nights(inventory: Inventory, present: Sequence[str]) -> set[str]:
    """The keys that nights have left: plans, recipes, and pages where no night has reached an index yet."""
    waiting = [name for name in with_status(inventory.store) if name not in present]
    places = {place for name in waiting for place in (name, name.partition("/")[0])}
    pages = (key for key in inventory.keys if keys.kind_of(key) == "for people")
    left = (*inventory.below(keys.NIGHTS), *inventory.below("recipes/"))
    return {*left, *(key for key in pages if _place_of(key) in places)}


def _recipes(inventory: Inventory) -> Iterator[Problem]:
    """Report missing and changed stacks of nights and sets: nobody can build them again."""
    for key in (*inventory.below(keys.NIGHTS), *inventory.below("sets/")):
        if not key.endswith("/manifest.json"):
            continue
        try:
            data = inventory.store.read(key).data
            digest = build_statement.recipe_in(data, sha256=hashlib.sha256(data).hexdigest())
            if digest and keys.recipe_key(digest) not in inventory:
                text = f"{keys.recipe_key(digest)} is missing, which {key} names: restore it from a copy, or "
                text += "promote or publish the set again by that stack (--stack)"
                yield Problem(code="set", index=None, where=key, said=text)
            elif digest:
                recipes.read(inventory.store, digest)
        except CairnError as error:
            yield Problem(code="set", index=None, where=key, said=str(error))


def _lists(inventory: Inventory) -> Iterator[Problem]:
    """Report missing and changed lists of tests of nights: nobody knows what their suites have skipped."""
    for key in inventory.below(keys.NIGHTS):
        if not key.endswith("/night.json"):
            continue
        try:
            plan = datafile.parse_json(inventory.store.read(key).data, name=key)
        except CairnError as error:
            yield Problem(code="evidence", index=None, where=key, said=str(error))
            continue
        lists = plan.get("lists", {}) if isinstance(plan, dict) else None
        if not isinstance(lists, dict):
            text = f"{key} names no lists of tests, as a night does: restore it from a copy"
            yield Problem(code="evidence", index=None, where=key, said=text)
            continue
        for sha256 in lists.values():
            name = keys.list_key(key.split("/")[1], sha256)
            text = f"{name} is missing, which {key} names: restore it from a copy"
            if name in inventory:
                text = offered.digest_problem(inventory.store, name, sha256) or ""
            if text:
                yield Problem(code="evidence", index=None, where=name, said=text)


def _place_of(key: str) -> str:
    """The index or the channel that a page for people belongs to."""
    return key.partition("/status/")[0] if "/status/" in key else key.rpartition("/")[0]


def _unnamed_files(inventory: Inventory) -> list[Problem]:
    """The files in no index whose bytes do not match their digest; whoever has the link can fetch them."""
    beside = (".metadata", ".provenance")
    files = [
        key
        for key in inventory.below("files/")
        if hash(key) not in inventory.checked and keys.kind_of(key) == "file" and not key.endswith(beside)
    ]
    problems = side_by_side(
        lambda key: offered.digest_problem(inventory.store, key, key.split("/")[2]), files, jobs=_AT_ONCE
    )
    return [
        Problem(code="file", index=None, where=key, said=text)
        for key, text in zip(files, problems, strict=True)
        if text
    ]
