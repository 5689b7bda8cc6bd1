"""Check that the sets of an index are complete: their files, their requirements and their evidence."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from datetime import datetime

from msgspec import structs

from cairn import datafile
from cairn.concurrency import side_by_side
from cairn.errors import CairnError
from cairn.output import Progress
from cairn.output.wording import short_id
from cairn.release.audit.inventory import Code, Inventory, Problem
from cairn.release.audit.offered import description_of, differences
from cairn.release.index import keys, write
from cairn.release.index.generation import FileRef, IndexSet
from cairn.release.index.snapshot import MANIFEST_FILE, SET_FILE, Snapshot, read_set
from cairn.release.provenance import chain, evidence, judged
from cairn.release.publish import locks
from cairn.release.trust.signers import Trust
from cairn.store.protocol import MissingKeyError
from cairn.wheels.wheelset import BUILDER_FILE, WheelSet

_AT_ONCE = 8  # sets looked at side by side
_EVIDENCE = ("records", "answers", "judgements", "results")
# What an entry repeats of its `set.json`.
_SAME = ("stack", "line", "python", "platform", "family", "targets", "manifest_sha256")


def check(
    snapshot: Snapshot, inventory: Inventory, *, trust: Trust | None, on_step: Progress
) -> Iterator[Problem]:
    """The problems of the sets of an index."""
    name = snapshot.index.name
    ids = snapshot.set_ids

    def judge(set_id: str) -> list[Problem]:
        short = f"set {short_id(set_id)}"
        return [
            Problem(code=code, index=name, where=set_id, said=f"{short}: {text}")
            for code, text in _problems(snapshot, inventory, set_id, trust)
        ]

    for number, problems in enumerate(side_by_side(judge, ids, jobs=_AT_ONCE), start=1):
        on_step(f"{name}: set {number} of {len(ids)}")
        yield from problems
    if keys.is_gated(name):
        for file_name in _of_no_set(snapshot, inventory):
            text = f"{file_name} is of no set that the gate let into {name}"
            yield Problem(code="file", index=name, where=file_name, said=text)


def _of_no_set(snapshot: Snapshot, inventory: Inventory) -> Iterator[str]:
    """The files of an index that belong to none of its sets, except those that `retain` may have left."""
    left = {hashed: name for name, hashed in inventory.offered[snapshot.index.name].values()}
    of_index = set(snapshot.set_ids)
    others = {key.split("/")[1] for key in inventory.below("sets/") if key.endswith(f"/{SET_FILE}")}
    for set_id in (*sorted(of_index), *sorted(others - of_index)):
        if not left:
            return
        try:
            wheel_set = read_set(inventory.store, set_id)
        except (CairnError, OSError):
            continue  # that it is damaged is said of it already
        # What came for other sets may stay when they go; their own wheels may not.
        files = wheel_set.files if set_id in of_index else wheel_set.closure
        for file in files:
            left.pop(hash(FileRef(filename=file.file_name, sha256=file.sha256)), None)
    yield from sorted(left.values())


def _problems(
    snapshot: Snapshot, inventory: Inventory, set_id: str, trust: Trust | None
) -> Iterator[tuple[Code, str]]:
    store = snapshot.index.store
    yield from (("evidence", text) for text in _evidence(inventory, set_id))
    yield from (("evidence", text) for text in _builder_signatures(inventory, set_id))
    try:
        entry, wheel_set = snapshot.set(set_id), read_set(store, set_id)
    except MissingKeyError:
        yield "set", f"its {SET_FILE} is missing"
        return
    except (CairnError, OSError) as error:
        yield "set", str(error)
        return
    offered = inventory.offered[snapshot.index.name]
    yield from (("set", text) for text in _entry(snapshot, entry, wheel_set, offered))
    yield from (("evidence", text) for text in _named_evidence(inventory, entry))
    if keys.is_gated(snapshot.index.name):
        yield from (("evidence", text) for text in _judgement(snapshot, entry, wheel_set))
    yield from (("set", text) for text in _objects(inventory, wheel_set))
    try:
        metadata = locks.metadata_of(store, wheel_set)
        expected = locks.of_set(wheel_set, metadata)
        yield from (("set", text) for text in differences(store, expected, "is not the lock of the set"))
        for extra in inventory.below(keys.set_key(set_id, "locks/")):
            if extra not in expected:
                yield "set", f"{extra} is no lock of the set"
        yield from (("requirement", text) for text in locks.unmet(wheel_set, metadata))
    except (CairnError, OSError) as error:
        yield "set", str(error)
    if trust is not None:
        yield from (("signature", text) for text in _signatures(snapshot, wheel_set, trust))


def _entry(
    snapshot: Snapshot, entry: IndexSet, wheel_set: WheelSet, offered: Collection[int]
) -> Iterator[str]:
    """The differences between the index's entry of a set and its `set.json`, and the files that it lacks."""
    for field in _SAME:
        if getattr(entry, field) != getattr(wheel_set, field):
            yield f"{snapshot.index.name} says {getattr(entry, field)!r} of its {field}, {SET_FILE} does not"
    if entry.derived_from not in (None, wheel_set.derived_from or ""):
        yield f"{snapshot.index.name} says that it comes from {entry.derived_from!r}, {SET_FILE} does not"
    if dict(entry.projects) != {wheel.distribution: wheel.version for wheel in wheel_set.wheels}:
        yield f"{snapshot.index.name} lists other projects of it than {SET_FILE}"
    yield from _offers(snapshot, wheel_set, offered)


def _offers(snapshot: Snapshot, wheel_set: WheelSet, offered: Collection[int]) -> Iterator[str]:
    """The files of a set that the index lacks, or describes in another way."""
    for file in wheel_set.files:
        ref = FileRef(filename=file.file_name, sha256=file.sha256)
        if description_of(ref, file) in offered:
            continue
        try:
            snapshot.entry(ref)
        except (CairnError, OSError) as error:
            yield str(error)
        else:
            yield f"{snapshot.index.name} says other things of {file.file_name} than {SET_FILE}"


def _objects(inventory: Inventory, wheel_set: WheelSet) -> Iterator[str]:
    """The objects beside `set.json` that do not follow from it."""
    store, set_id = inventory.store, wheel_set.id
    key = keys.set_key(set_id, MANIFEST_FILE)
    try:
        if hashlib.sha256(store.read(key).data).hexdigest() != wheel_set.manifest_sha256:
            yield f"{key} was changed: it is not the manifest that the set names"
        else:
            yield from evidence.builder_problems(store, wheel_set, ())
    except MissingKeyError:
        yield f"{key} is missing"
    except (CairnError, OSError) as error:
        yield f"{key} cannot be read: {error}"
    yield from _pages(inventory, wheel_set)


def _pages(inventory: Inventory, wheel_set: WheelSet) -> Iterator[str]:
    """The pages of the set's own index that do not follow from `set.json`."""
    pages = write.set_objects(wheel_set)
    yield from differences(inventory.store, pages, "does not say what the set says")
    for extra in inventory.below(keys.set_simple_prefix(wheel_set.id)):
        if extra not in pages:
            yield f"{extra} is not of the index of the set"


def of_no_index(inventory: Inventory, offered: Collection[str], since: datetime) -> Iterator[Problem]:
    """The problems of the pages of sets that no index has: their addresses work on their own.

    Args:
        inventory: what there is.
        offered: the ids of the sets that some index has.
        since: younger pages may be of a set that is still being written, whose `set.json` comes last.
    """
    set_pages = {
        key.split("/")[1]: key for key in inventory.below("sets/") if keys.kind_of(key) == "set page"
    }
    for set_id, key in set_pages.items():
        if set_id in offered:
            continue
        problems: list[str] = []
        try:
            if keys.set_key(set_id, SET_FILE) in inventory:
                problems = list(_pages(inventory, read_set(inventory.store, set_id)))
            elif inventory.is_older(key, since):
                problems = [f"{key} is of a set that has no {SET_FILE}"]
        except (CairnError, OSError) as error:
            problems = [str(error)]
        for text in problems:
            yield Problem(code="set", index=None, where=set_id, said=f"set {short_id(set_id)}: {text}")


def _named_evidence(inventory: Inventory, entry: IndexSet) -> Iterator[str]:
    """The evidence that the index names for a set and the store does not have."""
    names = [f"records/{digest}.json" for digest in entry.records]
    names += [f"judgements/{entry.judgement}.json"] if entry.judgement else []
    for name in names:
        key = keys.set_key(entry.set_id, name)
        if inventory.size(key) is None:
            yield f"{key} is missing"


def _judgement(snapshot: Snapshot, entry: IndexSet, wheel_set: WheelSet) -> Iterator[str]:
    """Why no gate let a set into an index that only the gate lets sets into."""
    name = snapshot.index.name
    if entry.judgement is None:
        yield f"{name} has it without a judgement of the gate"
        return
    key = keys.set_key(entry.set_id, f"judgements/{entry.judgement}.json")
    store = snapshot.index.store
    try:
        verdict = datafile.loads(store.read(key).data, judged.Judgement, name=key)
    except (CairnError, OSError):
        return  # that it is missing or changed is said of it already
    if (verdict.set_id, verdict.target) != (entry.set_id, name):
        yield f"{key} is of the set {short_id(verdict.set_id)} for {str(verdict.target)[:64]}, not for {name}"
    try:
        yield from judged.contradictions(store, wheel_set, entry, verdict)
    except CairnError as error:
        yield str(error)
    refused = [demand.name for demand in verdict.demands if demand.outcome == "not met"]
    if refused or not verdict.demands:
        yield f"{key} refused it: {', '.join(refused) or 'nothing was asked'}"


def _evidence(inventory: Inventory, set_id: str) -> Iterator[str]:
    """The evidence beside the set that is damaged or was changed."""
    store = inventory.store
    for kind in _EVIDENCE:
        for key in inventory.below(keys.set_key(set_id, f"{kind}/")):
            name = key.rpartition("/")[2]
            if name.endswith(".dsse.json"):
                yield from _signature(inventory, key, key.replace(".dsse.json", ".json"))
                continue
            try:
                if hashlib.sha256(store.read(key).data).hexdigest() != name.partition(".")[0]:
                    yield f"{key} was changed"
            except (CairnError, OSError) as error:
                yield f"{key} cannot be read: {error}"


def _builder_signatures(inventory: Inventory, set_id: str) -> Iterator[str]:
    """The problems of what a builder signs: the statement and the set's id, both or neither."""
    statement, whole = (
        keys.set_key(set_id, name) for name in (evidence.BUILDER_SIGNATURE, evidence.SET_SIGNATURE)
    )
    signatures = [key for key in (statement, whole) if key in inventory]
    if len(signatures) == 1:
        yield f"{whole if signatures == [statement] else statement} is missing, unlike {signatures[0]}"
    if statement in signatures:
        yield from _signature(inventory, statement, keys.set_key(set_id, BUILDER_FILE))
    if whole in signatures:
        yield from _signature(inventory, whole, None)


def _signature(inventory: Inventory, key: str, subject: str | None) -> Iterator[str]:
    """Say that a signature is damaged, or not over its subject: the set's id where that is None."""
    try:
        data = key.split("/")[1].encode() if subject is None else inventory.store.read(subject).data
        evidence.require_signature_over(inventory.store.read(key).data, data, name=subject or key)
    except MissingKeyError:
        yield f"{key} is the signature of something that is missing"
    except (CairnError, OSError) as error:
        yield f"{key} cannot be read: {error}"


def _signatures(snapshot: Snapshot, wheel_set: WheelSet, trust: Trust) -> Iterator[str]:
    """The wheels of a set that no trusted signature vouches for, each link down to the commits included."""
    if trust.builders is not None and not keys.is_gated(snapshot.index.name):  # who builds stages
        trust = structs.replace(trust, keys={**trust.keys, **trust.builders})
    for wheel in wheel_set.wheels:
        report = chain.check(
            snapshot.index.store,
            snapshot.index.name,
            file_name=wheel.file_name,
            sha256=wheel.sha256,
            trust=trust,
        )
        for link in report.broken:
            yield f"{wheel.file_name}: {link.name}: {link.text}"
