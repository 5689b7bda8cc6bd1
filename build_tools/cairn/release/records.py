"""Test records, kept beside their set, where the gate reads every one of them.

A record is kept byte for byte under its sha256, and never removed. A failure is answered by a later record or
by a named user, never by leaving the record out. The results that it was judged by, JUnit XML and the report
of `cairn test compat`, are kept beside it, under the digests that it names: for people, and to compare
nights. The gate does not need it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cairn import datafile
from cairn.errors import CairnError, StoreError, UsageError
from cairn.output.wording import short_id
from cairn.release import weighing
from cairn.release.index import commit, keys, marks, write
from cairn.release.index.generation import DamagedIndexError, now, who
from cairn.release.index.reading import read_current
from cairn.release.index.snapshot import Index, existing, read_set
from cairn.release.ledger import Ledger
from cairn.release.ledger_entries import Event, with_wheels
from cairn.release.provenance import evidence
from cairn.release.trust.signers import Signer, Trust
from cairn.release.weighing import Answer, SetRecords, StoredRecord
from cairn.store.protocol import MissingKeyError, Store, read_named
from cairn.testing import record as test_record
from cairn.testing.record import TestRecord
from cairn.wheels.wheelset import WheelSet

_FEWEST = 4  # digits of a digest that stand for it


class NewRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record to be added, with its results.

    Attributes:
        data: its bytes, as the test run wrote them.
        name: stands for it in errors.
        results: what it was judged by: files whose digests it names.
    """

    data: bytes
    name: str = "the record"
    results: tuple[bytes, ...] = ()


def read_given(path: Path) -> NewRecord:
    """Read a record from a file, with the results that the test run left in the same folder.

    Raises:
        UsageError: it is not a record, or the results there are of a different run.
    """
    data = path.read_bytes()
    record = test_record.loads(data, name=str(path))
    digests = {test_record.JUNIT: record.junit_sha256, "compat.json": record.compat_sha256}
    results = []
    for file_name, sha256 in digests.items():
        beside = path.with_name(file_name)
        if sha256 is None or not beside.is_file():
            continue
        result = beside.read_bytes()
        if hashlib.sha256(result).hexdigest() != sha256:
            raise UsageError(
                f"{beside} is not what {path.name} was made of", tip="copy the whole folder of the test run"
            )
        results.append(result)
    return NewRecord(data=data, name=str(path), results=tuple(results))


def add_all(
    store: Store,
    records: Iterable[NewRecord],
    *,
    set_id: str,
    signer: Signer | None = None,
    dry_run: bool,
) -> tuple[StoredRecord, ...]:
    """Put records beside their set, in the order in which their runs began: they came at once.

    Raises:
        StoreError, UsageError: as `add` says.
    """
    ordered = sorted(records, key=lambda item: test_record.loads(item.data, name=item.name).began)
    return tuple(
        add(
            store,
            item.data,
            name=item.name,
            results=item.results,
            set_id=set_id,
            signer=signer,
            dry_run=dry_run,
        )
        for item in ordered
    )


def add(  # noqa: PLR0913 - each says one thing of the record, or of how it is kept
    store: Store,
    data: bytes,
    *,
    name: str = "the record",
    results: Sequence[bytes] = (),
    set_id: str | None = None,
    signer: Signer | None = None,
    dry_run: bool = False,
) -> StoredRecord:
    """Put a record beside its set, and its results beside it.

    Args:
        store: the store that has the set.
        data: the record, as the test run wrote it.
        name: stands for it in errors.
        results: what it was judged by: files whose digests it names.
        set_id: the set that it must be of; None takes the one that it names.
        signer: signs it, so that an edited one shows.
        dry_run: refuse what would be refused, and write nothing.

    Raises:
        StoreError: the store does not have the set.
        UsageError: it is not a record, contradicts itself, is from the future, is of an open set or of
            other bytes, or does not name one of the results.
    """
    record = test_record.loads(data, name=name)
    if record.set_id is None:
        raise UsageError(
            f"{name} is of a set that was not sealed: it says nothing of what is published",
            tip="seal the set with cairn index publish --set, and test that one",
        )
    wheel_set = _set(store, set_id or record.set_id)
    if problem := weighing.disagreement(record, wheel_set):
        raise UsageError(
            f"{name} is not of the set {short_id(wheel_set.id)}: {problem}",
            tip=f"test that set from its own index: {keys.set_url(store.url, wheel_set.id)}",
        )
    if record.verdict == "passed" and (problem := weighing.from_the_future(record, datetime.now(UTC))):
        raise UsageError(f"{name}: {problem}", tip="set the clock of the machine that tests, and test again")
    digest = hashlib.sha256(data).hexdigest()
    by_key = {_result_key(wheel_set.id, record, result, name): result for result in results}
    if not dry_run:
        for key, result in by_key.items():  # first, so that whoever sees the record finds them
            write.create(store, key, result)
        if signer is not None:
            signature = evidence.sign_record(data, signer)
            store.write(evidence.signature_key(wheel_set.id, digest), signature)
        # The ledger first: a run that dies here leaves a failure that stands, and not one that nobody knows.
        commit.note_events(store, [_record_event(wheel_set.id, digest, record)])
        write.create(store, keys.set_key(wheel_set.id, f"records/{digest}.json"), data)
        _tell(store, wheel_set.id)
    return StoredRecord(digest=digest, record=record)


def answer(store: Store, set_id: str, digest: str, *, who: str, reason: str, dry_run: bool = False) -> Answer:
    """Answer a record that stands against its set.

    Args:
        store: where both lie.
        set_id: the set.
        digest: of the record; see `find`.
        who: whom to ask.
        reason: why it does not count.
        dry_run: refuse what would be refused, and write nothing.

    Raises:
        StoreError: the set has no such record.
        UsageError: it has passed, or who or why is blank.
    """
    set_records = read(store, set_id)
    stored = next((item for item in set_records.records if item.digest == digest), None)
    if stored is None and digest not in dict(set_records.unusable):
        raise StoreError(
            f"the set {short_id(set_id)} has no record {short_id(digest)}",
            tip=f"see which it has: cairn release record list {short_id(set_id)}",
        )
    if stored is not None and not stored.record.is_bad:
        raise UsageError(
            f"the record {short_id(digest)} is {stored.record.verdict}: only what failed is answered",
            tip="where tests are missing: cairn release promote --bypass WHO --reason WHY",
        )
    made = Answer(set_id=set_id, record=digest, who=who, reason=reason, when=now())
    data = datafile.dumps(made).encode()
    if not dry_run:
        # The ledger first: what a promoter has to sign is not there without that.
        commit.note_events(store, [_answer_event(made)])
        write.create(store, keys.set_key(set_id, f"answers/{hashlib.sha256(data).hexdigest()}.json"), data)
        _tell(store, set_id)
    return made


def add_file(store: Store, path: Path, *, name: str, signer: Signer | None = None) -> StoredRecord:
    """Put the record in a file beside its set, with the results that the test run left in the same folder.

    Raises:
        StoreError: the store does not have the set.
        UsageError: as `read_given` and `add` say.
    """
    given = read_given(path)
    return add(store, given.data, name=name, results=given.results, signer=signer)


def junit_of(store: Store, item: StoredRecord) -> bytes | None:
    """The JUnit XML of a record; None where the store does not have it.

    Raises:
        StoreError: it was changed.
    """
    return _result_of(store, item, item.record.junit_sha256, "xml")


def compat_of(store: Store, item: StoredRecord) -> bytes | None:
    """The compatibility report of a record; None where the store does not have it, or the record none.

    Raises:
        StoreError: it was changed.
    """
    return _result_of(store, item, item.record.compat_sha256, "json")


def _result_of(store: Store, item: StoredRecord, sha256: str | None, ending: str) -> bytes | None:
    if item.record.set_id is None or sha256 is None:
        return None
    key = keys.set_key(item.record.set_id, f"results/{sha256}.{ending}")
    with contextlib.suppress(MissingKeyError):
        name = f"the {ending} of the record {short_id(item.digest)}"
        return read_named(store, key, sha256, name=name)
    return None


def find(store: Store, given: str) -> tuple[str, str]:
    """Find a record by its file, or by the beginning of its digest; return its set's id and its digest.

    Raises:
        StoreError: there is no such record.
        UsageError: several digests begin so, or none can.
    """
    path = Path(given)
    prefix = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else given.lower()
    if len(prefix) < _FEWEST or set(prefix) - set("0123456789abcdef"):
        raise UsageError(f"{given!r} is neither a record nor the digest of one", tip="give 4 digits or more")
    sets = [key.removesuffix("/") for key in store.folders("sets/")]
    matches = [
        (name, digest) for name in sets for digest in _digests(store, name) if digest.startswith(prefix)
    ]
    if not matches:
        raise StoreError(f"{store.url} has no record {given}", tip="cairn release record list SET shows them")
    if len(matches) > 1:
        raise UsageError(f"{given} is the beginning of {len(matches)} digests", tip="give more of it")
    return matches[0]


def read(store: Store, set_id: str, *, trust: Trust | None = None) -> SetRecords:
    """Read all test records of a set and the answers to them; those that cannot be read are named.

    Args:
        store: the store.
        set_id: the set.
        trust: whose signature each record must have; None asks for none.
    """
    records, unusable = [], []
    ledger = Ledger(store)
    every = ledger.history(set_id)
    history = [event for event in every if event.kind == "record"]
    arrivals = {str(event.record): place for place, event in enumerate(history, start=1)}
    left = {event.record: event for event in history if event.is_bad}
    for digest in _digests(store, set_id):
        name = f"the record {short_id(digest)}"
        left.pop(digest, None)
        try:
            data = read_named(store, keys.set_key(set_id, f"records/{digest}.json"), digest, name=name)
            record = test_record.loads(data, name=name)
        except CairnError as error:
            unusable.append((digest, str(error)))
            continue
        doubt = None
        if trust is not None:
            try:
                evidence.record_signers(store, set_id, data, trust)
            except CairnError as error:
                doubt = str(error)
        records.append(StoredRecord(digest=digest, record=record, doubt=doubt))
    answers, damaged = _answers(store, set_id, signed=every if ledger.is_signed else None)
    unusable += damaged
    for lost, event in left.items():
        sentence = (
            f"the record {short_id(str(lost))}, {event.verdict or 'of which nothing is known'}, was given"
        )
        unusable.append((str(lost), f"{sentence} on {event.when[:10]}, and is not in the store any more"))
    return SetRecords(records=tuple(records), answers=answers, unusable=tuple(unusable), arrivals=arrivals)


def _answers(
    store: Store, set_id: str, *, signed: Sequence[Event] | None
) -> tuple[tuple[tuple[str, Answer], ...], list[tuple[str, str]]]:
    """The answers to the records of a set, and what is wrong with those that cannot be read.

    Where promoters sign, whoever puts another file there has answered nothing.
    """
    answers, damaged = [], []
    for item in store.list(keys.set_key(set_id, "answers/")):
        digest = _name(item.key)
        name = f"the answer {short_id(digest)}"
        try:
            data = read_named(store, item.key, digest, name=name)
            answer = datafile.loads(data, Answer, name=name)
        except CairnError as error:
            damaged.append((digest, str(error)))
            continue
        if signed is None or _answer_event(answer) in signed:
            answers.append((digest, answer))
    return tuple(answers), damaged


def _tell(store: Store, set_id: str) -> None:
    """Record the current failures of a set in the ledger, and update its marks in every index."""
    ledger = Ledger(store)
    if not any(event.is_bad for event in ledger.history(set_id)):
        return
    while True:
        sentence = standing(store, set_id)
        event = Event(kind="stand", set_id=set_id, who=who(), when=now(), why=sentence)
        commit.note_events(store, with_wheels(event, [_set(store, set_id)]))
        # A different writer's record may have come while this one read.
        if sentence == standing(store, set_id):
            break
    marks.update_marks(store, set_id, "record")


def standing(store: Store, set_id: str) -> str:
    """The failures that stand against a set, in words, whatever a stack demands; empty for none."""
    return "; ".join(weighing.failures(_set(store, set_id), read(store, set_id)))


def publish_late(store: Store) -> None:
    """Have the pages say what was added without a promoter's key: late records, rebuilds, and bans.

    What cannot be finished is left as it is, for `cairn index check` to name.
    """
    offered = set[str]()
    for name in filter(keys.is_gated, existing(store)):
        with contextlib.suppress(DamagedIndexError):
            offered |= set(read_current(Index(store, name)).set_ids)
    for set_id in sorted(offered):
        with contextlib.suppress(CairnError):
            _tell(store, set_id)
    marks.finish_interrupted(store)


def _answer_event(made: Answer) -> Event:
    return Event(
        kind="answer", set_id=made.set_id, who=made.who, when=made.when, why=made.reason, record=made.record
    )


def _record_event(set_id: str, digest: str, record: TestRecord) -> Event:
    return Event(
        kind="record",
        set_id=set_id,
        who=who(),
        when=now(),
        record=digest,
        verdict=record.verdict,
        failures=record.failures,
    )


def _result_key(set_id: str, record: TestRecord, result: bytes, name: str) -> str:
    """The key of a record's result."""
    sha256 = hashlib.sha256(result).hexdigest()
    ends = {record.junit_sha256: "xml", record.compat_sha256: "json"}
    if sha256 not in ends:
        raise UsageError(f"{name} does not name a result with the digest {short_id(sha256)}")
    return keys.set_key(set_id, f"results/{sha256}.{ends[sha256]}")


def _digests(store: Store, set_id: str) -> Iterator[str]:
    """The digests in the names of a set's records."""
    for item in store.list(keys.set_key(set_id, "records/")):
        if not item.key.endswith(".dsse.json"):
            yield _name(item.key)


def _name(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".json")


def _set(store: Store, set_id: str) -> WheelSet:
    with contextlib.suppress(MissingKeyError):
        return read_set(store, set_id)
    raise StoreError(
        f"{store.url} has no set {set_id}", tip="publish the set first: cairn index publish --set"
    )
