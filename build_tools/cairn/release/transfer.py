"""Moving a judged set from one channel to another: pages, not bytes, since channels share their files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from cairn.errors import GateError
from cairn.release import dist, index, journal, layout, order, rules
from cairn.release.channel import Channel, Snapshot
from cairn.release.commit import Change, commit
from cairn.release.stage import SET_FILE
from cairn.release.state import FileEntry, FileRef, ProjectState
from cairn.release.store import Store

GATE_FILE = "gate.json"  # beside a set's index, like its set.json


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What let a set through.

    Attributes:
        records: the bytes of the test records.
        judgement: the bytes of what the gate found; None where no gate was asked.
        untested: what the pages say where a bypass stood in for a passed one; None for a tested set.
    """

    records: tuple[bytes, ...] = ()
    judgement: bytes | None = None
    untested: str | None = None


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """What a transfer did, or would do.

    Attributes:
        added: the files that are new in the target, in the order of their pages.
        already: those that it had.
    """

    added: tuple[str, ...]
    already: tuple[str, ...]


def transfer(
    store: Store, set_id: str, *, source: str, target: str, proof: Proof, dry_run: bool = False
) -> Transferred:
    """Offer in `target` a set of `source` and what it needs, all of it or nothing.

    Raises:
        GateError: meanwhile `target` got other bytes under one of the names, or a higher version.
        StoreError: `source` has no such set.
    """
    return _Plan(store, set_id, source, proof).carry_out(target, dry_run=dry_run)


class _Plan:
    def __init__(self, store: Store, set_id: str, source: str, proof: Proof) -> None:
        self._store = store
        self._source = Channel(store, source).load()
        self._staged = self._source.set(set_id)
        self._proof = proof
        self._taken = journal.now()

    def carry_out(self, target: str, *, dry_run: bool) -> Transferred:
        channel = Channel(self._store, target)
        change = self._change(channel.load())
        if not dry_run:
            self._keep_evidence(target)
            change = commit(channel, "promote", self._change, note=self._proof.untested)
        return self._transferred(change)

    def _transferred(self, change: Change) -> Transferred:
        closure = {ref.filename for ref in self._staged.closure}
        new = [f.filename for p in change.projects for f in p.files if f.upload_time == self._taken]
        added = tuple(name for name in new if name in closure)
        return Transferred(added=added, already=tuple(sorted(closure - set(added))))

    def _change(self, target: Snapshot) -> Change:
        """What promotion makes of the target as it is now; it may have changed since the gate looked."""
        clashes = rules.name_clashes(target, self._staged.closure)
        below = rules.sorting_below(target, self._staged.wheels)
        if clashes or below:
            raise GateError(f"{target.channel.name} changed meanwhile", reasons=(*clashes, *below))
        if self._staged.set_id in target.state.sets:
            return Change(projects=())
        projects = (self._project(target, name) for name in self._ordered())
        digests = tuple(hashlib.sha256(data).hexdigest() for data in self._proof.records)
        judged = self._proof.judgement
        staged = replace(
            self._staged,
            records=digests,
            judgement=None if judged is None else hashlib.sha256(judged).hexdigest(),
            untested=self._proof.untested,
        )
        return Change(projects=tuple(p for p in projects if p is not None), sets=(staged,))

    def _project(self, target: Snapshot, name: str) -> ProjectState | None:
        there = target.project(name)
        refs = (ref for ref in self._staged.closure if index.project_of(ref.filename) == name)
        entries = tuple(self._entry(there, ref) for ref in refs)
        after = there.with_files(entries)
        return None if after == there else after

    def _entry(self, there: ProjectState, ref: FileRef) -> FileEntry:
        of_set = ref in self._staged.wheels
        entry = there.file(ref.filename)
        if entry is None:
            untested = self._proof.untested if of_set else None
            staged = index.entry_of(self._source, ref)
            entry = replace(staged, upload_time=self._taken, sets=(), yanked=None, untested=untested)
        if not of_set or self._staged.set_id in entry.sets:
            return entry
        return replace(entry, sets=(*entry.sets, self._staged.set_id))

    def _ordered(self) -> tuple[str, ...]:
        needs: dict[str, set[str]] = {name: set() for name in index.projects_of(self._staged.closure)}
        for ref in self._staged.closure:
            data = self._store.read(layout.sidecar_key(ref.sha256, ref.filename)).data
            requires = dist.needs_of(data, filename=ref.filename).requires
            needs[index.project_of(ref.filename)] |= {str(canonicalize_name(r.name)) for r in requires}
        return order.dependencies_first(needs)

    def _keep_evidence(self, target: str) -> None:
        set_id = self._staged.set_id
        source_key = layout.set_key(self._source.channel.name, set_id, SET_FILE)
        kept = {layout.set_key(target, set_id, SET_FILE): self._store.read(source_key).data}
        for data in self._proof.records:
            digest = hashlib.sha256(data).hexdigest()
            kept[layout.set_key(target, set_id, f"records/{digest}.json")] = data
        if self._proof.judgement is not None:
            kept[layout.set_key(target, set_id, GATE_FILE)] = self._proof.judgement
        for key, data in kept.items():
            self._store.write(key, data)
