"""Promotion: a set goes to another channel whole or not at all, as the very bytes that were tested."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from cairn import datafile
from cairn.errors import GateError, StoreError, UsageError
from cairn.output import Progress
from cairn.release.gate import gate
from cairn.release.gate.evidence import Bypass
from cairn.release.gate.judgement import GateReport
from cairn.release.index import keys, write
from cairn.release.index.commit import Change, commit, recover
from cairn.release.index.generation import FileEntry, FileRef, ProjectState, StagedSet, now
from cairn.release.index.snapshot import Channel, Snapshot, whole_id
from cairn.release.publish import distribution, rules
from cairn.release.publish.wheel_set import SET_FILE, read_set
from cairn.store.folder import LocalStore
from cairn.store.protocol import Store
from cairn.testing.record import TestRecord


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What a promotion did, or would do.

    Attributes:
        set_id: the set.
        added: the files that are new in the target, in the order of their pages.
        already: those that it had.
        report: the gate's judgement, also where it is of an earlier day; None where nobody kept that.
        untested: what the pages say of a set that was let in without a passed test, or None.
        kept: the set was there already, and nothing was done.
        dry_run: whether nothing was written.
    """

    set_id: str
    added: tuple[str, ...]
    already: tuple[str, ...]
    report: GateReport | None
    untested: str | None
    dry_run: bool
    kept: bool = False


def promote(  # noqa: PLR0913 - each is one independent piece of evidence or of the request
    store: LocalStore,
    set_id: str,
    *,
    source: str = "staging",
    target: str = "release",
    records: Sequence[TestRecord] = (),
    bypass: Bypass | None = None,
    python: Path | None = None,
    dry_run: bool = False,
    on_step: Progress = lambda _step: None,
) -> Promotion:
    """Bring a set and what it needs from `source` to `target`; for a set that is there already, do nothing.

    Args:
        store: where both channels live; the files stay where they are, since channels share them.
        set_id: the set; the beginning of its id will do.
        source: the channel that has it.
        target: the channel that is to have it.
        records: what was tested.
        bypass: a named person's word in place of a record.
        python: the interpreter that the gate installs with; None is ours.
        dry_run: judge and say what would be added, and write nothing.
        on_step: told what is being done.

    Raises:
        GateError: at least one demand does not hold, or `target` is of another family.
        StoreError: `source` has no such set.
        UsageError: several sets have an id that begins so, or both channels are the same.
    """
    if source == target:
        raise UsageError(f"the set is to go from {source} to {target}", tip="name another channel with --to")
    channel = Channel(store, target)
    set_id = whole_id(set_id, Channel(store, source).load(), channel.load())
    if not dry_run:
        for said in recover(store, target):
            on_step(said)
    there = channel.load()
    if set_id in there.state.sets:
        return _kept(store, target, there.set(set_id), dry_run=dry_run)
    rules.refuse_other_family(target, read_set(store, source, set_id))
    on_step("asking the gate")
    report = gate.check(
        store, set_id, source=source, target=target, records=records, bypass=bypass, python=python
    )
    if not report.holds:
        raise GateError(
            f"the set {set_id[:12]} may not go to {target}",
            reasons=report.reasons,
            tip="put right what is named above and promote again; nothing was changed",
        )
    on_step(f"writing {target}")
    proof = _proof(records, report)
    done = transfer(store, set_id, source=source, target=target, proof=proof, dry_run=dry_run)
    return Promotion(
        set_id=set_id,
        added=done.added,
        already=done.already,
        report=report,
        untested=proof.untested,
        dry_run=dry_run,
    )


def _kept(store: LocalStore, target: str, staged: StagedSet, *, dry_run: bool) -> Promotion:
    """What there is to say of a set that `target` has already."""
    return Promotion(
        set_id=staged.set_id,
        added=(),
        already=tuple(ref.filename for ref in staged.closure),
        report=_read_judgement(store, target, staged),
        untested=staged.untested,
        dry_run=dry_run,
        kept=True,
    )


def _proof(records: Sequence[TestRecord], report: GateReport) -> Proof:
    words = [report.untested_note, *(str(demand.bypass) for demand in report.bypassed)]
    return Proof(
        records=tuple(datafile.dumps(record).encode() for record in records),
        judgement=datafile.dumps(report).encode(),
        untested="; ".join(word for word in words if word) or None,
    )


def _read_judgement(store: LocalStore, target: str, staged: StagedSet) -> GateReport | None:
    """What the gate said when a set was let in.

    Raises:
        StoreError: the store has lost it, or it was changed.
    """
    if staged.judgement is None:
        return None
    key = keys.set_key(target, staged.set_id, GATE_FILE)
    data = store.read(key).data
    if hashlib.sha256(data).hexdigest() != staged.judgement:
        raise StoreError(f"{store.url}/{key} was changed", tip="restore it from a copy of the store")
    return datafile.loads(data, GateReport, name=f"{store.url}/{key}")


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
        self._taken = now()

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
        staged = msgspec.structs.replace(
            self._staged,
            records=digests,
            judgement=None if judged is None else hashlib.sha256(judged).hexdigest(),
            untested=self._proof.untested,
        )
        return Change(projects=tuple(p for p in projects if p is not None), sets=(staged,))

    def _project(self, target: Snapshot, name: str) -> ProjectState | None:
        there = target.project(name)
        refs = (ref for ref in self._staged.closure if write.project_of(ref.filename) == name)
        entries = tuple(self._entry(there, ref) for ref in refs)
        after = there.with_files(entries)
        return None if after == there else after

    def _entry(self, there: ProjectState, ref: FileRef) -> FileEntry:
        of_set = ref in self._staged.wheels
        entry = there.file(ref.filename)
        if entry is None:
            untested = self._proof.untested if of_set else None
            staged = write.entry_of(self._source, ref)
            entry = msgspec.structs.replace(
                staged, upload_time=self._taken, sets=(), yanked=None, untested=untested
            )
        if not of_set or self._staged.set_id in entry.sets:
            return entry
        return msgspec.structs.replace(entry, sets=(*entry.sets, self._staged.set_id))

    def _ordered(self) -> tuple[str, ...]:
        needs: dict[str, set[str]] = {name: set() for name in write.projects_of(self._staged.closure)}
        for ref in self._staged.closure:
            data = self._store.read(keys.sidecar_key(ref.sha256, ref.filename)).data
            requires = distribution.needs_of(data, filename=ref.filename).requires
            needs[write.project_of(ref.filename)] |= {str(canonicalize_name(r.name)) for r in requires}
        return write.dependencies_first(needs)

    def _keep_evidence(self, target: str) -> None:
        set_id = self._staged.set_id
        source_key = keys.set_key(self._source.channel.name, set_id, SET_FILE)
        kept = {keys.set_key(target, set_id, SET_FILE): self._store.read(source_key).data}
        for data in self._proof.records:
            digest = hashlib.sha256(data).hexdigest()
            kept[keys.set_key(target, set_id, f"records/{digest}.json")] = data
        if self._proof.judgement is not None:
            kept[keys.set_key(target, set_id, GATE_FILE)] = self._proof.judgement
        for key, data in kept.items():
            self._store.write(key, data)
