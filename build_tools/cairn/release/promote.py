"""Promotion: a set goes to a different channel whole or not at all, as the very bytes that were tested.

Channels of a store share their files, so nothing is copied: what is promoted is a place on pages.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from cairn.release.index.commit import ChannelChange, commit, recover
from cairn.release.index.generation import FileEntry, FileRef, StagedSet, now
from cairn.release.index.snapshot import Channel, Snapshot, whole_id
from cairn.release.publish import distribution, rules
from cairn.release.publish.wheel_set import SET_FILE, read_set
from cairn.store.folder import LocalStore
from cairn.store.protocol import Store
from cairn.testing.record import TestRecord

GATE_FILE = "gate.json"  # beside a set's index, like its set.json


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What a promotion did, or would do.

    Attributes:
        set_id: the set.
        added: the files that are new in the target, in the order of their pages.
        already: those that it had.
        report: the gate's judgement, of an earlier day where the set was there; None where there is none.
        untested: what the pages say of a set that was let in without a passed test, or None.
        kept: the set was there already, and nothing was done.
        dry_run: whether nothing was written.
    """

    set_id: str
    added: tuple[str, ...]
    already: tuple[str, ...]
    report: GateReport | None = None
    untested: str | None
    dry_run: bool
    kept: bool = False


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

    @classmethod
    def of(cls, records: Sequence[TestRecord], report: GateReport) -> Proof:
        """What lets a set through that the gate has judged."""
        words = [report.untested_note, *(str(demand.bypass) for demand in report.bypassed)]
        return cls(
            records=tuple(datafile.dumps(record).encode() for record in records),
            judgement=datafile.dumps(report).encode(),
            untested="; ".join(word for word in words if word) or None,
        )

    def on(self, staged: StagedSet) -> StagedSet:
        """A set that was let through by this: it names the proof by digest, so that a changed one shows."""
        return msgspec.structs.replace(
            staged,
            records=tuple(hashlib.sha256(data).hexdigest() for data in self.records),
            judgement=None if self.judgement is None else hashlib.sha256(self.judgement).hexdigest(),
            untested=self.untested,
        )


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
        store: where both channels live.
        set_id: the set; the beginning of its id will do.
        source: the channel that has it.
        target: the channel that is to have it.
        records: what was tested.
        bypass: a named user's word in place of a record.
        python: the interpreter that the gate installs with; None is ours.
        dry_run: judge and say what would be added, and write nothing.
        on_step: called with what is being done.

    Raises:
        GateError: at least one demand does not hold, or `target` is of a different family.
        StoreError: `source` has no such set.
        UsageError: several sets have an id that begins so, or both channels are the same.
    """
    if source == target:
        raise UsageError(f"the set is to go from {source} to {target}", tip="give a different --to")
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
        tip = "fix what is named above and promote again; nothing was changed"
        raise GateError(f"the set {set_id[:12]} may not go to {target}", reasons=report.reasons, tip=tip)
    on_step(f"writing {target}")
    proof = Proof.of(records, report)
    done = transfer(store, set_id, source=source, target=target, proof=proof, dry_run=dry_run)
    return replace(done, report=report)


def _kept(store: LocalStore, target: str, staged: StagedSet, *, dry_run: bool) -> Promotion:
    """What there is to say of a set that `target` has already, with what the gate said when it was let in.

    Raises:
        StoreError: the store has lost the gate's judgement, or it was changed.
    """
    report = None
    if staged.judgement is not None:
        key = keys.set_key(target, staged.set_id, GATE_FILE)
        data = store.read(key).data
        if hashlib.sha256(data).hexdigest() != staged.judgement:
            raise StoreError(f"{store.url}/{key} was changed", tip="restore it from a copy of the store")
        report = datafile.loads(data, GateReport, name=f"{store.url}/{key}")
    return Promotion(
        set_id=staged.set_id,
        added=(),
        already=tuple(ref.filename for ref in staged.closure),
        report=report,
        untested=staged.untested,
        dry_run=dry_run,
        kept=True,
    )


def transfer(
    store: Store, set_id: str, *, source: str, target: str, proof: Proof, dry_run: bool = False
) -> Promotion:
    """Offer in `target` a set of `source` and what it needs, all of it or nothing.

    Raises:
        GateError: meanwhile `target` got other bytes under one of the names, or a higher version.
        StoreError: `source` has no such set.
    """
    before = Channel(store, source).load()
    staged = before.set(set_id)
    taken = now()
    refs = _in_order(store, staged)

    def entry(ref: FileRef, there: FileEntry | None) -> FileEntry:
        """A file as the target is to offer it: as it does already, or as the source does."""
        of_set = ref in staged.wheels
        if there is None:
            there = msgspec.structs.replace(
                write.entry_of(before, ref),
                upload_time=taken,
                sets=(),
                yanked=None,
                untested=proof.untested if of_set else None,
            )
        if not of_set or set_id in there.sets:
            return there
        return msgspec.structs.replace(there, sets=(*there.sets, set_id))

    def plan(now_there: Snapshot) -> ChannelChange:
        # The gate has looked at the target before, but other writers have not waited: what must hold of it is
        # asked again of the very state that the change is made from.
        clashes = rules.name_clashes(now_there, staged.closure)
        below = rules.sorting_below(now_there, staged.wheels)
        if clashes or below:
            raise GateError(f"{target} changed meanwhile", reasons=(*clashes, *below))
        if set_id in now_there.state.sets:
            return ChannelChange(projects=())
        old = [now_there.project(name) for name in refs]
        new = [p.with_files(tuple(entry(ref, p.file(ref.filename)) for ref in refs[p.name])) for p in old]
        changed = tuple(after for after, was in zip(new, old, strict=True) if after != was)
        return ChannelChange(projects=changed, sets=(proof.on(staged),))

    channel = Channel(store, target)
    change = plan(channel.load())
    if not dry_run:
        # Evidence before the commit: a set that is on the pages never lacks it. If the writer dies here, some
        # evidence lies beside a set that is not there; the next promotion writes it again.
        _keep_evidence(store, set_id, source, target, proof)
        change = commit(channel, "promote", plan, note=proof.untested)
    closure = {ref.filename for ref in staged.closure}
    new_files = (file for project in change.projects for file in project.files if file.upload_time == taken)
    added = tuple(file.filename for file in new_files if file.filename in closure)
    already = tuple(sorted(closure - set(added)))
    return Promotion(set_id=set_id, added=added, already=already, untested=proof.untested, dry_run=dry_run)


def _in_order(store: Store, staged: StagedSet) -> dict[str, list[FileRef]]:
    """The files of a set's closure by project, in the order in which the pages of these are to be written."""
    refs: dict[str, list[FileRef]] = collections.defaultdict(list)
    needs: dict[str, set[str]] = collections.defaultdict(set)
    for ref in staged.closure:
        name = write.project_of(ref.filename)
        refs[name].append(ref)
        data = store.read(keys.sidecar_key(ref.sha256, ref.filename)).data
        requires = distribution.needs_of(data, filename=ref.filename).requires
        needs[name] |= {str(canonicalize_name(r.name)) for r in requires}
    return {name: refs[name] for name in write.dependencies_first(needs)}


def _keep_evidence(store: Store, set_id: str, source: str, target: str, proof: Proof) -> None:
    """Put a set's `set.json`, its test records and what the gate found beside its index in `target`."""
    kept = {SET_FILE: store.read(keys.set_key(source, set_id, SET_FILE)).data}
    for data in proof.records:
        kept[f"records/{hashlib.sha256(data).hexdigest()}.json"] = data
    if proof.judgement is not None:
        kept[GATE_FILE] = proof.judgement
    for name, data in kept.items():
        store.write(keys.set_key(target, set_id, name), data)
