"""Test records beside the set they are of, where the gate reads every one of them.

A record is kept as the bytes it came in, under their sha256; it is never removed. What failed is answered by
a later record or by a named user's word, never by leaving it out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cairn import datafile
from cairn.errors import StoreError, UsageError
from cairn.release.index import keys, write
from cairn.release.index.snapshot import read_set
from cairn.store.protocol import MissingKeyError, Store
from cairn.testing import record as test_record
from cairn.testing.record import TestRecord


class Answer(datafile.Value, tag_field="schema", tag="cairn.answer/1"):
    """A named user's word on a failed record: why the set may be released all the same.

    Attributes:
        set_id: the set.
        record: digest of the failed record.
        who: whom to ask.
        reason: why the failure does not count.
        when: RFC 3339 in UTC.
    """

    set_id: str
    record: str
    who: str
    reason: str
    when: str


class KeptRecord(datafile.Value):
    """A test record in a store, with the digest of its bytes."""

    digest: str
    record: TestRecord


def add(store: Store, data: bytes, *, name: str) -> KeptRecord:
    """Put the bytes of a record beside its set.

    Args:
        store: the store that has the set.
        data: the record, as the test run wrote it.
        name: stands for it in errors.

    Raises:
        StoreError: the store does not have the set.
        UsageError: it is not a record, contradicts itself, or is of an open set or of other bytes.
    """
    record = test_record.loads(data, name=name)
    if record.set_id is None:
        raise UsageError(
            f"{name} is of a set that was not sealed: it says nothing of what is published",
            tip="seal the set with cairn index publish --set, and test that one",
        )
    try:
        wheel_set = read_set(store, record.set_id)
    except MissingKeyError as error:
        raise StoreError(
            f"{store.url} has no set {record.set_id}", tip="publish the set first: cairn index publish --set"
        ) from error
    if problem := test_record.disagreement(
        record, wheel_set.sha256s, [w.file_name for w in wheel_set.wheels]
    ):
        raise UsageError(f"{name} is not of the set {record.set_id[:12]}: {problem}")
    digest = hashlib.sha256(data).hexdigest()
    write.create(store, keys.set_key(record.set_id, f"records/{digest}.json"), data)
    return KeptRecord(digest=digest, record=record)


def of_set(store: Store, set_id: str) -> Iterator[KeptRecord]:
    """Every record of a set, by digest.

    Raises:
        StoreError: one was changed.
    """
    prefix = keys.set_key(set_id, "records/")
    for found in store.list(prefix):
        if found.key.endswith(".dsse.json"):
            continue
        digest = found.key.removeprefix(prefix).removesuffix(".json")
        data = store.read(found.key).data
        if hashlib.sha256(data).hexdigest() != digest:
            raise StoreError(
                f"{store.url}/{found.key} was changed", tip="restore it from a copy of the store"
            )
        yield KeptRecord(digest=digest, record=test_record.loads(data, name=found.key))
