"""Promotion: move a set to a different index, whole or not at all, as the very bytes that were tested.

Indexes of a store share their files, so nothing is copied: only pages change.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from cairn import datafile
from cairn.errors import GateError, UsageError
from cairn.output import Progress, silent
from cairn.output.wording import short_id
from cairn.release import recipes
from cairn.release import records as test_records
from cairn.release.gate import gate
from cairn.release.gate.case import Case
from cairn.release.gate.judgement import GateReport
from cairn.release.index import commit, keys, marks, write
from cairn.release.index.commit import attempts
from cairn.release.index.generation import Attested, IndexSet, now, project_of
from cairn.release.index.listing import change_to_promote, index_set
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, Snapshot, read_set, refs_of, whole_id
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event, withdrawn_from
from cairn.release.provenance.attest import Attester, attest
from cairn.release.provenance.evidence import of_builder
from cairn.release.publish import rules
from cairn.release.publish.mirror_lock import MirrorLock
from cairn.release.records import NewRecord
from cairn.release.trust import anchor
from cairn.release.trust.signers import Trust
from cairn.release.weighing import Bypass, NamedReason, StoredRecord, disagreement
from cairn.stack import Stack
from cairn.store.protocol import Store, read_named

_FIX = "fix what is named above and promote again; nothing was changed"


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a promotion, or of a dry run.

    Attributes:
        set_id: the set.
        added: the files that are new in the target, by name.
        already: those that it had.
        report: the gate's judgement, of an earlier day where the set was there; None where there is none.
        report_digest: sha256 of the report, under which the store keeps it; None for a dry run.
        caveat: what the pages say of a set that was let in without a passed test, or None.
        already_present: the set was there already, and nothing was done.
        late_objections: what stands against it by now, and came too late for the gate, a sentence each.
        dry_run: whether nothing was written.
    """

    set_id: str
    added: tuple[str, ...]
    already: tuple[str, ...]
    report: GateReport | None = None
    report_digest: str | None = None
    caveat: str | None
    dry_run: bool
    already_present: bool = False
    late_objections: tuple[str, ...] = ()


class Readmission(NamedReason):
    """A reason why a set is right in an index after all.

    A rollback took it off; or it is there, such as from before anybody signed: then, in a store with a root,
    it is judged by what builders and testers have signed by now, and vouched for.
    """

    WHAT, TIP = "--again", "--again WHO --reason WHY"

    def __str__(self) -> str:
        return f"let in again by {self.who}: {self.reason}"


class RefusedError(GateError):
    """The gate refuses the set.

    Attributes:
        report: what it found.
    """

    def __init__(self, report: GateReport, *, tip: str = _FIX) -> None:
        super().__init__(
            f"the set {short_id(report.set_id)} may not go to {report.target}",
            reasons=report.reasons,
            tip=tip,
        )
        self.report = report


def promote(  # noqa: PLR0913 - each is one independent piece of evidence or of the request
    store: Store,
    set_id: str,
    *,
    stack: Stack,
    source: str = "staging",
    target: str = "release",
    records: Sequence[NewRecord] = (),
    bypass: Bypass | None = None,
    readmission: Readmission | None = None,
    mirror_lock: MirrorLock | None = None,
    trust: Trust | None = None,
    python: Path | None = None,
    attester: Attester | None = None,
    dry_run: bool = False,
    on_step: Progress = silent,
) -> Promotion:
    """Bring a set and what it needs from `source` to `target`; one that is there stays as it is.

    Args:
        store: where both indexes live.
        set_id: the set; the beginning of its id will do.
        stack: the stack that it must be of, on its release line.
        source: the index that has it.
        target: the index that is to have it.
        records: test records to put beside the set first; the gate reads all that are there.
        bypass: a named user's word in place of a record.
        readmission: a named user's word for a set that a rollback took off `target`, or that is there.
        mirror_lock: what a mirror may hold; None asks for no lock.
        trust: whose signatures count; None takes the keys that the store's root names, or asks for none.
        python: the interpreter that the gate installs with; None takes one that is at hand.
        attester: who vouches for the wheels and for what let them in; None for nobody.
        dry_run: judge and say what would be added, and write nothing.
        on_step: called with what is being done.

    Raises:
        GateError: a demand does not hold, the set was yanked, or `target` is of a different family.
        StoreError: `source` has no such set.
        UsageError: several sets have an id that begins so, or both indexes are the same.
    """
    if source == target:
        raise UsageError(f"the set is to go from {source} to {target}", tip="give a different --to")
    source_now, target_now = read_current(Index(store, source)), read_current(Index(store, target))
    set_id, trust = whole_id(set_id, source_now, target_now), _by_root(store, target, trust)
    given = _put_records(store, records, set_id, trust, attester, dry_run=dry_run)
    wheel_set = read_set(store, set_id)
    rules.refuse_other_family(target, wheel_set)
    case = Case(
        source=source_now,
        target=target_now,
        wheel_set=wheel_set,
        stack=stack,
        bypass=bypass,
        mirror_lock=mirror_lock,
        python=python,
        trust=trust,
    )
    return _through_the_gate(
        case, given, readmission=readmission, attester=attester, dry_run=dry_run, on_step=on_step
    )


def _by_root(store: Store, target: str, trust: Trust | None) -> Trust | None:
    """Whose signatures count for an index.

    Its `builders` are those that the root of the store names, whoever else was named; None without a root.
    """
    trusted = anchor.anchor(store) if keys.is_gated(target) else None
    if trusted is None:
        return trust
    root_trust = trusted.root.trust()
    return root_trust if trust is None else structs.replace(trust, builders=root_trust.builders)


def _put_records(
    store: Store,
    records: Sequence[NewRecord],
    set_id: str,
    trust: Trust | None,
    attester: Attester | None,
    *,
    dry_run: bool,
) -> Sequence[StoredRecord]:
    """Put records beside a set, signed where the store's root has the attester's key among its testers'."""
    key = attester.signer if attester else None
    has_root = trust is not None and trust.builders is not None
    signer = key if has_root and trust and key and key.key_id in trust.testers else None
    given = test_records.add_all(store, records, set_id=set_id, signer=signer, dry_run=dry_run)
    # In a dry run the store has none of them, and these are judged in their place.
    doubt = "it is not signed" if trust is not None and signer is None else None
    return [structs.replace(bypass, doubt=doubt) for bypass in given]


def _through_the_gate(
    first: Case,
    given: Sequence[StoredRecord],
    *,
    readmission: Readmission | None,
    attester: Attester | None,
    dry_run: bool,
    on_step: Progress,
) -> Promotion:
    """Judge the set against the target's current state and commit to that state; on a change, start over.

    The last attempt's judgement is the one that counts; `attempts` raises if none commits.
    """
    store, set_id, target = first.store, first.wheel_set.id, first.target.index
    for attempt in attempts(target, dry_run=dry_run):
        if attempt.recovered:
            on_step(f"wrote pages that an earlier run had left: {', '.join(attempt.recovered)}")
        set_records = test_records.read(store, set_id, trust=first.trust)
        case = dataclasses.replace(
            first,
            source=read_current(first.source.index),
            target=attempt.before,
            set_records=set_records.having(given),  # in a dry run the store does not have them
            moment=datetime.now(UTC),
        )
        has_root = case.trust is not None and case.trust.builders is not None
        if case.target.has_set(set_id) and not (readmission and has_root):
            return _result_of_present(case, readmission, dry_run=dry_run)
        report = _judge(case, readmission, on_step)
        entry = _index_entry(case, report)
        attested: Mapping[str, Attested] = {}
        if not dry_run:
            on_step("keeping what the gate found")
            # Before the commit: a set that is on the pages never lacks what let it in.
            write.create(store, _judgement_key(entry), datafile.dumps(report).encode())
            recipes.keep(store, case.stack)
            if attester is not None:
                attested = attest(store, case.wheel_set, entry, attester, snapshot=case.target)
            if test_records.read(store, set_id).digests != case.set_records.digests:
                on_step("there are other test records by now, asking the gate again")
                continue
            on_step(f"writing {target.name}")
        change = change_to_promote(case.source, case.target, case.wheel_set, entry=entry, attested=attested)
        why = "; ".join(str(word) for word in (readmission, entry.untested) if word)
        if attempt.commit(change, "promote", why=why or None):
            break
        on_step(f"{target.name} changed meanwhile, asking the gate again")
    late = () if dry_run else _record_arrival(case, readmission)
    return _result(case, report, entry, late=late, dry_run=dry_run)


def _judge(case: Case, readmission: Readmission | None, on_step: Progress) -> GateReport:
    """Judge the set; return the report if the gate lets it in.

    A set that was yanked is refused, and so is one that brings wheels of its own back. A set that a rollback
    took off the target does not come back by itself, such as in the next night.

    Raises:
        GateError: it does not, or the set was yanked, or was taken off; the message says by whom and why.
    """
    ledger, wheel_set, target = Ledger(case.store), case.wheel_set, case.target.index.name
    ledger.refuse_banned([wheel_set])
    if (present := _present_entry(case)) is not None and present.yanked is not None:
        raise GateError(f"the set {short_id(wheel_set.id)} was yanked: {present.yanked}")
    root_trust = frozenset(wheel.sha256 for wheel in wheel_set.wheels)
    fresh = (file for file in wheel_set.closure if not _has(case.target, file.file_name))
    ledger.refuse_banned_files({wheel_set.id: root_trust}, [file.sha256 for file in fresh])
    if readmission is None and (event := withdrawn_from(ledger.history(wheel_set.id), target)):
        short = short_id(wheel_set.id)
        raise GateError(
            f"the set {short} was taken off {target} by a rollback, and does not come back by itself",
            reasons=(f"{event.who} on {event.when[:10]}: {event.why}",),
            tip=f"cairn release promote {short} --again WHO --reason WHY, or a rollback that brings it",
        )
    on_step("asking the gate")
    if (refusal := gate.refusal_without_record(case)) is not None:
        tip = "; without a record its files were neither verified nor installed, and nothing was changed"
        raise RefusedError(refusal, tip=f"{_how_to_test(case)}{tip}")
    report = gate.check(case)
    if not report.holds:
        raise RefusedError(report, tip=_how_to_test(case) if gate.weigh(case).host_missing else _FIX)
    return report


def _how_to_test(case: Case) -> str:
    """Return the lines that make the record of tests without a GPU, and give it to the gate."""
    made, store = case.wheel_set, case.store
    file = Path(store.url, keys.set_key(made.id, "set.json"))
    if not file.is_file():  # a bucket: `cairn index publish --set` has left it beside the wheels
        file = Path("set.json")
    test = f"--set {file} --stack {case.stack.folder or case.stack.name}"
    return (
        f"on a machine with Python {made.python} for {made.platform}: cairn test smoke {test} "
        f"--index-url {keys.set_url(store.url, made.id)} --allow-untested --output-dir smoke; "
        f"then cairn release promote {short_id(made.id)} --record smoke/record.json"
    )


def _index_entry(case: Case, report: GateReport) -> IndexSet:
    """The set's entry in the target, with the evidence that let it in."""
    # What was made of other files has no part in it.
    of_set = (
        entry.digest for entry in case.set_records.records if not disagreement(entry.record, case.wheel_set)
    )
    entry, present = index_set(case.wheel_set), _present_entry(case)
    return structs.replace(
        entry,
        added=present.added if present else entry.added,
        staged=case.staged,
        records=tuple(of_set),
        judgement=hashlib.sha256(datafile.dumps(report).encode()).hexdigest(),
        builder=hashlib.sha256(of_builder(case.store, case.wheel_set)).hexdigest(),
        untested=report.caveat,
        untested_targets=report.untested,
        installed_with=report.installed_with,
        weakened=report.weakened,
    )


def _present_entry(case: Case) -> IndexSet | None:
    """The set as the target lists it already, which is judged again then; None for one that is to come."""
    set_id = case.wheel_set.id
    return case.target.set(set_id) if case.target.has_set(set_id) else None


def _judgement_key(entry: IndexSet) -> str:
    return keys.set_key(entry.set_id, f"judgements/{entry.judgement}.json")


def _record_arrival(case: Case, readmission: Readmission | None) -> tuple[str, ...]:
    """Update marks and ledger after the commit; return the failures that stand against the set by now."""
    store, set_id, index = case.store, case.wheel_set.id, case.target.index
    # What failed and was let in by somebody's word stays known, whoever takes it out of the store.
    commit.note_events(store, [event for event in Ledger(store).history(set_id) if event.is_bad])
    # A yank, or a late record, looks for the set only where it is already.
    marks.update_marks(store, set_id, "record", indexes=[index.name])
    if readmission is not None:
        who, why = readmission.who, readmission.reason
        event = Event(kind="readmit", set_id=set_id, who=who, when=now(), why=why, index=index.name)
        commit.note_events(store, [event])
    arrived = read_current(index).set(set_id)
    yanked = f"it was yanked: {arrived.yanked}" if arrived.yanked is not None else None
    return tuple(filter(None, (yanked, arrived.failed)))


def _result(
    case: Case, report: GateReport, entry: IndexSet, *, late: tuple[str, ...], dry_run: bool
) -> Promotion:
    """The result for a set that has come in, or would."""
    closure = {ref.filename for ref in refs_of(case.wheel_set)}
    present = {filename for filename in closure if _has(case.target, filename)}
    return Promotion(
        set_id=case.wheel_set.id,
        added=tuple(sorted(closure - present)),
        already=tuple(sorted(present)),
        report=report,
        report_digest=None if dry_run else entry.judgement,
        caveat=entry.untested,
        dry_run=dry_run,
        late_objections=late,
    )


def _result_of_present(case: Case, readmission: Readmission | None, *, dry_run: bool) -> Promotion:
    """The result for a set that the target has already, with the judgement that let it in.

    What a run that died behind its commit has left undone is done first.

    Raises:
        StoreError: the store has lost the gate's judgement, or it was changed.
    """
    store, set_id = case.store, case.wheel_set.id
    if not dry_run and commit.can_change_gated(store):
        gone = withdrawn_from(Ledger(store).history(set_id), case.target.index.name)
        _record_arrival(case, readmission if gone else None)
        recipes.keep(store, case.stack)
    entry = case.target.set(set_id)
    report = None
    if entry.judgement is not None:
        key = _judgement_key(entry)
        data = read_named(store, key, entry.judgement)
        report = datafile.loads(data, GateReport, name=f"{store.url}/{key}")
    return Promotion(
        set_id=set_id,
        added=(),
        already=tuple(sorted(case.wheel_set.sha256s)),
        report=report,
        report_digest=entry.judgement,
        caveat=entry.untested,
        dry_run=dry_run,
        already_present=True,
        late_objections=(
            *((f"it was yanked: {entry.yanked}",) if entry.yanked is not None else ()),
            *(gate.weigh(case).open_failures if case.source.has_set(set_id) else ()),
        ),
    )


def _has(snapshot: Snapshot, filename: str) -> bool:
    return snapshot.project(project_of(filename)).file(filename) is not None
